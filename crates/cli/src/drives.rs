// SPDX-License-Identifier: MIT OR Apache-2.0
//! The wear of the drives that a flash lies on, as they count it themselves (`larder status --drives`).
//!
//! `smartctl --json` (smartmontools) asks a drive: NVMe, SATA and SAS drives each have their own logs. A flash that is a partition, a
//! logical volume, an array or a file lies on the drives that sysfs names below it.
//!
//! Why the command asks and not the server: a server executes nothing (`serve/restrict.rs`), and the ioctl needs CAP_SYS_ADMIN. A
//! drive that hangs must not hold up a status without this flag.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::fs::{major, minor};
use serde_json::{Value, json};

/// The time that a drive has for its answer.
const BOUND: Duration = Duration::from_secs(5);
/// The most that is read of its output.
const MOST_BYTES: u64 = 4 << 20;
/// Where smartctl is, if it is not in the path of a user.
const PROGRAMS: [&str; 2] = ["smartctl", "/usr/sbin/smartctl"];
/// Bytes of a unit in which NVMe drives count what is written (NVM Express, SMART log).
const NVME_UNIT_BYTES: u64 = 512_000;

/// The drives below a flash, each an object with its device, model, wear and bytes written, or the error.
pub fn wear(flash: &str) -> Value {
    let found = match flash.starts_with('/') {
        true => below(Path::new(flash), Path::new("/sys/dev/block")),
        false => Err("accepted: a flash that the server was given by an absolute path".to_owned()),
    };
    match found {
        Ok(drives) => drives.iter().map(|drive| of_drive(drive)).collect(),
        Err(why) => json!([{ "device": flash, "error": why }]),
    }
}

/// A line for each drive.
pub fn words(drives: &[Value]) -> String {
    let line = |drive: &Value| {
        let device = drive["device"].as_str().unwrap_or("-");
        if let Some(why) = drive["error"].as_str() {
            return format!("drive {device:14} {why}");
        }
        let model = drive["model"].as_str().unwrap_or("unknown model");
        let used = drive["used_ratio"].as_f64();
        let used =
            used.map_or("unknown".to_owned(), |ratio| format!("{} %", (ratio * 100.0).round()));
        let written = drive["written_bytes"].as_u64();
        let written = written.map_or("unknown".to_owned(), larder_io::rough_size);
        format!("drive {device:14} {model}, used {used} of its endurance, {written} written")
    };
    drives.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The drives that hold a file or a block device.
fn below(path: &Path, sysfs: &Path) -> Result<BTreeSet<PathBuf>, String> {
    let found = fs::metadata(path).map_err(|e| e.to_string())?;
    let number = if found.file_type().is_block_device() { found.rdev() } else { found.dev() };
    let place = sysfs.join(format!("{}:{}", major(number), minor(number)));
    let unknown = |_| "sysfs names no block device of its file system".to_owned();
    let mut drives = BTreeSet::new();
    add_drives(&fs::canonicalize(place).map_err(unknown)?, sysfs, &mut drives);
    Ok(drives)
}

/// Adds the drives below a block device of sysfs, which has no cycles.
fn add_drives(place: &Path, sysfs: &Path, drives: &mut BTreeSet<PathBuf>) {
    let whole = if place.join("partition").exists() { place.parent() } else { Some(place) };
    let Some(whole) = whole else { return };
    let parts: Vec<PathBuf> = fs::read_dir(whole.join("slaves"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path())
        .collect();
    let file = fs::read_to_string(whole.join("loop/backing_file"));
    if let Ok(file) = file
        && let Ok(found) = below(Path::new(file.trim_end()), sysfs)
    {
        drives.extend(found);
    } else if parts.is_empty() {
        let name = whole.file_name().unwrap_or_default().to_string_lossy().replace('!', "/");
        drives.insert(Path::new("/dev").join(name));
    }
    for part in parts {
        add_drives(&fs::canonicalize(&part).unwrap_or(part), sysfs, drives);
    }
}

fn of_drive(drive: &Path) -> Value {
    let asked = ask(&PROGRAMS, drive, BOUND).and_then(|text| parse(&text));
    let mut answer = asked.unwrap_or_else(|why| json!({ "error": why }));
    answer["device"] = json!(drive);
    answer
}

/// What one of these programs prints about a drive within a time.
fn ask(programs: &[&str], drive: &Path, bound: Duration) -> Result<Vec<u8>, String> {
    let mut child = programs
        .iter()
        .find_map(|program| {
            let mut command = Command::new(program);
            command.args(["--json=c", "--all"]).arg(drive);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()
        })
        .ok_or("smartctl cannot be executed; it is in the package smartmontools")?;
    let (sender, answer) = channel();
    let output = child.stdout.take();
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let read = output.map(|output| output.take(MOST_BYTES).read_to_end(&mut text));
        // After the time is over the receiver is gone.
        let _ = sender.send(read.is_some_and(|read| read.is_ok()).then_some(text));
    });
    let answer = answer.recv_timeout(bound);
    // A program in the kernel does not end, and is not waited for.
    if child.try_wait().is_ok_and(|ended| ended.is_none()) && child.kill().is_ok() && answer.is_ok()
    {
        let _ = child.wait();
    }
    match answer {
        Ok(text) => text.ok_or_else(|| "the output of smartctl cannot be read".to_owned()),
        Err(_) => Err(format!("smartctl has no answer after {} s", bound.as_secs_f64())),
    }
}

/// The wear in the output of smartctl. Its exit code has bits for findings on the drive, and states nothing about the output.
fn parse(text: &[u8]) -> Result<Value, String> {
    let found: Value = serde_json::from_slice(text)
        .map_err(|e| format!("smartctl printed no JSON ({e}); accepted: smartctl 7 or newer"))?;
    let (used, written) = (used_percent(&found), written_bytes(&found));
    if used.is_none() && written.is_none() {
        let messages = found["smartctl"]["messages"].as_array();
        let texts = messages.into_iter().flatten().filter_map(|message| message["string"].as_str());
        let why = texts.collect::<Vec<_>>().join("; ");
        return Err(if why.is_empty() { "reports no wear".to_owned() } else { why });
    }
    let model = ["model_name", "scsi_model_name"].iter().find_map(|key| found[*key].as_str());
    Ok(json!({
        "model": model,
        "used_ratio": used.map(|percent| percent as f64 / 100.0),
        "written_bytes": written,
    }))
}

/// The share of the endurance that is used, in percent; may exceed 100.
fn used_percent(found: &Value) -> Option<u64> {
    let nvme = &found["nvme_smart_health_information_log"]["percentage_used"];
    let scsi = &found["scsi_percentage_used_endurance_indicator"];
    let any = &found["endurance_used"]["current_percent"];
    let direct = [any, nvme, scsi].into_iter().find_map(Value::as_u64);
    direct.or_else(|| statistic(found, "Percentage Used Endurance Indicator"))
}

fn written_bytes(found: &Value) -> Option<u64> {
    let nvme = found["nvme_smart_health_information_log"]["data_units_written"].as_u64();
    if let Some(units) = nvme {
        return units.checked_mul(NVME_UNIT_BYTES);
    }
    let block_bytes = found["logical_block_size"].as_u64().unwrap_or(512);
    let attributes = found["ata_smart_attributes"]["table"].as_array().into_iter().flatten();
    let blocks = statistic(found, "Logical Sectors Written").or_else(|| {
        let mut named = attributes.filter(|of| of["name"] == "Total_LBAs_Written");
        named.find_map(|of| of["raw"]["value"].as_u64())
    });
    blocks?.checked_mul(block_bytes)
}

/// A device statistic of a SATA drive.
fn statistic(found: &Value, name: &str) -> Option<u64> {
    let pages = found["ata_device_statistics"]["pages"].as_array()?;
    let entries = pages.iter().filter_map(|page| page["table"].as_array()).flatten();
    let mut named =
        entries.filter(|entry| entry["name"] == name && entry["flags"]["valid"] != false);
    named.find_map(|entry| entry["value"].as_u64())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test stops at the first failure

    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn parsed(text: Value) -> Result<Value, String> {
        parse(text.to_string().as_bytes())
    }

    #[test]
    fn each_kind_of_drive_counts_in_its_own_log() {
        let nvme = json!({ "model_name": "N", "nvme_smart_health_information_log":
            { "percentage_used": 3, "data_units_written": 2_000_000 } });
        let expected =
            json!({ "model": "N", "used_ratio": 0.03, "written_bytes": 1_024_000_000_000_u64 });
        assert_eq!(parsed(nvme), Ok(expected));
        let statistics = json!({ "model_name": "S", "logical_block_size": 4096, "ata_device_statistics": { "pages": [
            { "table": [{ "name": "Logical Sectors Written", "value": 10, "flags": { "valid": true } }] },
            { "table": [{ "name": "Percentage Used Endurance Indicator", "value": 101, "flags": { "valid": true } }] },
        ] } });
        let expected = json!({ "model": "S", "used_ratio": 1.01, "written_bytes": 40_960 });
        assert_eq!(parsed(statistics), Ok(expected));
        let attributes = json!({ "ata_smart_attributes": { "table": [
            { "name": "Power_On_Hours", "raw": { "value": 7 } },
            { "name": "Total_LBAs_Written", "raw": { "value": 100 } },
        ] } });
        let expected = json!({ "model": null, "used_ratio": null, "written_bytes": 51_200 });
        assert_eq!(parsed(attributes), Ok(expected));
        let scsi = json!({ "scsi_model_name": "C", "scsi_percentage_used_endurance_indicator": 0 });
        let expected = json!({ "model": "C", "used_ratio": 0.0, "written_bytes": null });
        assert_eq!(parsed(scsi), Ok(expected));
    }

    #[test]
    fn what_cannot_be_asked_has_the_reason() {
        let refused = json!({ "smartctl": { "messages": [
            { "string": "Smartctl open device: /dev/sda failed: Permission denied" }] } });
        assert_eq!(
            parsed(refused).unwrap_err(),
            "Smartctl open device: /dev/sda failed: Permission denied"
        );
        assert_eq!(parsed(json!({})).unwrap_err(), "reports no wear");
        let huge =
            json!({ "nvme_smart_health_information_log": { "data_units_written": u64::MAX } });
        assert_eq!(parsed(huge).unwrap_err(), "reports no wear");
        assert!(parse(b"smartctl 6.6").unwrap_err().contains("accepted: smartctl 7"));
    }

    fn program(dir: &Path, script: &str) -> String {
        let program = dir.join("smartctl");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        program.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_program_that_does_not_end_has_no_answer() {
        let dir = tempfile::tempdir().unwrap();
        let asked = |script: &str, bound| {
            let program = program(dir.path(), script);
            ask(&["/missing/smartctl", &program], Path::new("/dev/x"), Duration::from_millis(bound))
        };
        assert_eq!(asked("echo \"$@\"; exit 4", 60_000).unwrap(), b"--json=c --all /dev/x\n");
        for endless in ["exec sleep 60", "sleep 5 &"] {
            assert_eq!(asked(endless, 200).unwrap_err(), "smartctl has no answer after 0.2 s");
        }
        assert_eq!(asked("exec yes", 60_000).unwrap().len() as u64, MOST_BYTES);
        let missing = ask(&["/missing/smartctl"], Path::new("/dev/x"), BOUND);
        assert!(missing.unwrap_err().contains("smartmontools"));
    }

    /// A file on an array of a partition and of a logical volume over it.
    #[test]
    fn a_flash_lies_on_the_drives_below_it() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let file = at("flash");
        fs::write(&file, "").unwrap();
        let dev = fs::metadata(&file).unwrap().dev();
        for place in ["sda/sda2", "nvme0n1", "cciss!c0d0", "dm-0/slaves", "md0/slaves", "block"] {
            fs::create_dir_all(at(place)).unwrap();
        }
        fs::write(at("sda/sda2/partition"), "2").unwrap();
        fs::create_dir(at("nvme0n1/slaves")).unwrap();
        for (link, to) in [
            ("dm-0/slaves/nvme0n1", "nvme0n1"),
            ("md0/slaves/sda2", "sda/sda2"),
            ("md0/slaves/dm-0", "dm-0"),
            ("md0/slaves/cciss!c0d0", "cciss!c0d0"),
        ] {
            symlink(at(to), at(link)).unwrap();
        }
        fs::create_dir_all(at("loop0/loop")).unwrap();
        fs::write(at("loop0/loop/backing_file"), format!("{}\n", at("gone").display())).unwrap();
        symlink(at("loop0"), at("md0/slaves/loop0")).unwrap();
        symlink(at("md0"), at("block").join(format!("{}:{}", major(dev), minor(dev)))).unwrap();
        let found = below(&file, &at("block")).unwrap();
        let expected =
            ["/dev/cciss/c0d0", "/dev/loop0", "/dev/nvme0n1", "/dev/sda"].map(PathBuf::from);
        assert!(found.iter().eq(&expected), "{found:?}");
        assert!(below(&file, &at("sda")).unwrap_err().contains("sysfs names no block device"));
        assert!(below(&at("missing"), &at("block")).unwrap_err().contains("No such file"));
    }
}
