// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the state file: names, damage, other users.

use std::fs;
use std::time::Duration;

use larder_core::format::OriginRecord;

use super::*;

fn place(origin: &str) -> OriginPlace {
    OriginPlace { resolved: origin.to_owned(), ..OriginPlace::default() }
}

fn state(volume: u64, origin: &str) -> StateRecord {
    StateRecord {
        format: FORMAT,
        volume: format!("{volume:016x}"),
        in_use: true,
        dirty: false,
        origins: vec![OriginRecord {
            origin_mtime_ns: Some(-5),
            ..OriginRecord::new(&place(origin), 4096)
        }],
        reached: vec![(3, 14)],
        ignored: Vec::new(),
        preset: None,
    }
}

/// Under another name, too: writes to an origin make every flash of it stale.
#[test]
fn other_flash_of_the_same_origin_is_put_out_of_use() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, origin: &str| StateFile::new(dir.path(), name, origin);
    let in_use = |name: &str| file(name, "").load().unwrap().unwrap().in_use;
    file("a", "/san").store(&state(1, "/san")).unwrap();
    file("b", "/san").store(&state(2, "/san")).unwrap();
    file("c", "/other").store(&state(3, "/other")).unwrap();
    file("a", "/san").put_out_of_use(Some(1)).unwrap();
    assert_eq!(["a", "b", "c"].map(in_use), [true, false, true]);
    // The same name with another origin.
    file("c", "/san").put_out_of_use(None).unwrap();
    assert_eq!(["a", "b", "c"].map(in_use), [false, false, false]);
    StateFile::new(&dir.path().join("none"), "x", "/san").put_out_of_use(None).unwrap();
    assert!(!dir.path().join("none").exists());
}

#[test]
fn a_record_of_dirty_data_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| StateFile::new(dir.path(), name, "/san");
    file("clean").store(&state(1, "/san")).unwrap();
    file("dirty").store(&StateRecord { dirty: true, ..state(2, "/san") }).unwrap();
    for name in ["clean", "dirty", "new"] {
        let refused = file(name).put_out_of_use(None).unwrap_err();
        assert!(
            refused.to_string().contains("flash 0000000000000002 may hold dirty data"),
            "{refused}"
        );
    }
    assert!(file("clean").load().unwrap().unwrap().in_use, "nothing was written");
    file("dirty").put_out_of_use(Some(2)).unwrap();
    assert!(!file("clean").load().unwrap().unwrap().in_use);
}

/// Three volumes without a name; the second had the file that they once had in common.
#[test]
fn volumes_without_a_name_have_a_file_each() {
    let dir = tempfile::tempdir().unwrap();
    let file = |origin: &str| StateFile::new(dir.path(), "", origin);
    let name = |origin: &str| file(origin).path().file_name().unwrap().to_owned();
    assert_eq!(name("/srv/disk.img").to_str().unwrap(), "disk.img-a0f68d0d.json");
    assert_ne!(name("/srv/disk.img"), name("/mnt/disk.img"));
    assert!(name("nbd://host:10809/a?b").to_str().unwrap().starts_with("a_b-"));
    let earlier = StateFile::new(dir.path(), "volume", "");
    let dirty = StateRecord { dirty: true, ..state(255, "/srv/b") };
    earlier.store(&dirty).unwrap();
    file("/srv/a").take_earlier(Some(1)).unwrap();
    assert_eq!(file("/srv/a").load().unwrap(), None, "it is of another volume");
    file("/srv/a").put_out_of_use(None).unwrap();
    file("/srv/b").take_earlier(None).unwrap();
    assert_eq!(file("/srv/b").load().unwrap(), Some(dirty.clone()), "by the origin");
    assert!(!earlier.path().exists());
    earlier
        .store(&StateRecord { origins: state(0, "/old/path").origins, ..dirty.clone() })
        .unwrap();
    file("/srv/b").take_earlier(Some(255)).unwrap();
    assert!(earlier.path().exists(), "a volume keeps the file that it has");
    file("/srv/c").take_earlier(Some(255)).unwrap();
    assert_eq!(file("/srv/c").load().unwrap().unwrap().volume, dirty.volume, "by the flash");
    StateFile::new(dir.path(), "named", "/srv/b").take_earlier(Some(255)).unwrap();
}

#[test]
fn what_is_stored_is_loaded_and_damage_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = StateFile::new(&dir.path().join("sub"), "päck/chen", "/san");
    assert_eq!(file.load().unwrap(), None);
    let state = state(0xff, "/san");
    file.store(&state).unwrap();
    assert_eq!(file.load().unwrap(), Some(state));
    assert_ne!(file.path(), StateFile::new(&dir.path().join("sub"), "p_ck_chen", "/san").path());
    for damaged in [&b"{}"[..], b"\xff\xfe{", b""] {
        fs::write(file.path(), damaged).unwrap();
        assert!(matches!(file.load(), Err(VolumeError::Refused(_))));
    }
    fs::write(file.path(), "{}").unwrap();
    assert!(matches!(file.load(), Err(VolumeError::Refused(_))));
    // Found by fuzzing: control characters of the file.
    fs::write(file.path(), r#"{"a\nb\u001b[1m": 1}"#).unwrap();
    let refused = file.load().unwrap_err().to_string();
    assert!(refused.contains(r"a\nb\u{1b}[1m") && !refused.contains(char::is_control));
    let strange =
        StateRecord { dirty: true, volume: "1\n2".to_owned(), ..self::state(0, "/s\tan") };
    file.store(&strange).unwrap();
    let refused = file.put_out_of_use(None).unwrap_err().to_string();
    assert!(refused.contains(r"/s\tan") && !refused.contains(char::is_control));
}

/// The other volumes of the directory start; the message states the file, the fault and the way out.
#[test]
fn a_file_that_cannot_be_parsed_blocks_the_volume_that_it_concerns() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, origin: &str| StateFile::new(dir.path(), name, origin);
    file("a", "/san/a").store(&state(1, "/san/a")).unwrap();
    let bad = file("bad", "/san/b").path().to_owned();
    for content in ["", "{", "[]", "{\"format\": 1}", "\0\0\0"] {
        fs::write(&bad, content).unwrap();
        file("a", "/san/a").put_out_of_use(Some(1)).unwrap();
        assert!(file("a", "/san/a").of_flash(1).unwrap().is_some());
        let refused = file("bad", "/san/b").put_out_of_use(None).unwrap_err().to_string();
        assert!(refused.contains("bad.json: ") && refused.contains("--adopt"), "{refused}");
        assert!(!refused.contains("StateRecord"), "{refused}");
    }
    let text = serde_json::to_string(&state(7, "/san/b")).unwrap();
    fs::write(&bad, &text[..text.len() - 9]).unwrap();
    assert!(file("other", "/san/b").put_out_of_use(None).is_err(), "the same origin");
    assert!(file("other", "/san/c").of_flash(7).is_err(), "the same flash");
    file("other", "/san/c").put_out_of_use(Some(8)).unwrap();
}

/// Otherwise a volume without the file would write to the origin, and the flash would start warm after the `chmod`.
#[test]
fn a_file_refused_for_its_mode_blocks_the_volume_that_it_concerns() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, origin: &str| StateFile::new(dir.path(), name, origin);
    for dirty in [false, true] {
        let bad = file("bad", "/san/b");
        bad.store(&StateRecord { dirty, ..state(7, "/san/b") }).unwrap();
        // Of a unit with UMask=0007.
        set_mode(bad.path(), 0o660);
        let refused = file("other", "/san/b").put_out_of_use(None).unwrap_err();
        assert_eq!(refused.exit_code(), 4);
        let text = refused.to_string();
        let advice = format!("accepted: 0640 (chmod 640 {})", bad.path().display());
        assert!(text.ends_with(&advice), "{text}");
        assert!(file("other", "/san/c").of_flash(7).is_err(), "the same flash");
        file("other", "/san/c").put_out_of_use(Some(8)).unwrap();
        set_mode(bad.path(), 0o640);
        assert!(bad.load().unwrap().unwrap().in_use);
    }
}

#[test]
fn what_is_not_a_file_is_refused_and_does_not_block() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| StateFile::new(dir.path(), name, "/san");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        file("pipe").path(),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    std::os::unix::fs::symlink("/dev/zero", file("zero").path()).unwrap();
    fs::create_dir(file("directory").path()).unwrap();
    for name in ["pipe", "zero", "directory"] {
        let refused = file(name).load().unwrap_err();
        assert_eq!(refused.exit_code(), 4);
        assert!(refused.to_string().contains("it is not a regular file"), "{refused}");
    }
    fs::write(file("large").path(), vec![b' '; 2 << 20]).unwrap();
    assert!(file("large").load().unwrap_err().to_string().contains("more than 1MiB"));
    file("a").store(&state(1, "/san")).unwrap();
    file("a").put_out_of_use(Some(1)).unwrap();
}

fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Otherwise another user could make an old copy of a flash count as the current one.
#[test]
fn a_file_that_another_user_can_write_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = StateFile::new(dir.path(), "a", "/san");
    file.store(&state(1, "/san")).unwrap();
    for mode in [0o666, 0o620] {
        set_mode(file.path(), mode);
        let refused = file.load().unwrap_err();
        assert_eq!(refused.exit_code(), 4);
        let text = refused.to_string();
        assert!(text.contains(&format!("{mode:04o}")) && text.contains("chmod"), "{text}");
    }
    // Earlier versions made such files.
    set_mode(file.path(), 0o644);
    assert!(file.load().unwrap().is_some());
    let target = dir.path().join("elsewhere");
    fs::rename(file.path(), &target).unwrap();
    std::os::unix::fs::symlink(&target, file.path()).unwrap();
    assert!(file.load().unwrap_err().to_string().contains("it is not a regular file"));
}

#[test]
fn a_directory_in_which_others_can_exchange_files_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let open = dir.path().join("open");
    fs::create_dir(&open).unwrap();
    let file = StateFile::new(&open, "a", "/san");
    set_mode(&open, 0o777);
    assert!(file.store(&state(1, "/san")).is_err() && file.put_out_of_use(None).is_err());
    assert_eq!(fs::read_dir(&open).unwrap().count(), 0);
    set_mode(&open, 0o1777);
    file.store(&state(1, "/san")).unwrap();
}

#[test]
fn what_is_made_gives_no_access_to_other_users() {
    use std::os::unix::fs::MetadataExt as _;
    let dir = tempfile::tempdir().unwrap();
    let file = StateFile::new(&dir.path().join("new/state"), "a", "/san");
    file.store(&state(1, "/san")).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(file.path()), 0o600);
    assert_eq!(mode(file.path().parent().unwrap()), 0o700);
}

/// Otherwise no start could read it.
#[test]
fn a_record_that_is_too_long_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let file = StateFile::new(dir.path(), "v", "/origin");
    let short = state(7, "/origin").ignoring(1, &[3..5, 9..10]);
    file.store(&short).unwrap();
    let pages: Vec<_> = (0..100_000).map(|page| 2 * page..2 * page + 1).collect();
    let error = file.store(&short.clone().ignoring(0, &pages)).unwrap_err().to_string();
    assert!(error.contains("1MiB"), "{error}");
    assert_eq!(file.load().unwrap(), Some(short));
}

#[test]
fn ignored_pages_are_recorded_by_log_until_the_logs_begin_anew() {
    let none = state(7, "/origin");
    let some = none.clone().ignoring(2, &[3..5, 9..10]);
    assert_eq!((some.ignored(1), some.ignored(2)), (vec![], vec![3..5, 9..10]));
    assert_eq!(state(7, "/origin").ignoring_as(Some(&some)), some);
    assert_eq!(state(8, "/origin").ignoring_as(Some(&some)), state(8, "/origin"), "another flash");
    assert_eq!(some.clone().ignoring(2, &[]), none);
    assert_eq!(some.ignoring_nothing(), none);
    // A record that was edited by hand.
    let mut edited = none;
    edited.ignored = vec![vec![(50, 51), (10, 100), (7, 7), (100, 120)]];
    assert_eq!(edited.ignored(0).first(), Some(&(10..120)));
}

#[test]
fn a_record_has_the_form_of_its_version() {
    let lone = state(7, "/san");
    let mut shared = StateRecord { format: FORMAT_SHARED, ..lone.clone() };
    let second = OriginPlace { name: "b".into(), ..place("/lun") };
    shared.origins.push(OriginRecord { in_use: false, ..OriginRecord::new(&second, 4096) });
    for record in [&shared, &lone] {
        let text = serde_json::to_string(record).unwrap();
        assert_eq!(serde_json::from_str::<StateRecord>(&text).unwrap(), *record);
        assert_eq!(text.contains("\"origins\""), record.origins.len() > 1, "{text}");
    }
    let error = |text: &str| serde_json::from_str::<StateRecord>(text).unwrap_err().to_string();
    let start = r#"{"volume": "1", "in_use": true, "dirty": false, "reached": [], "#;
    for (rest, why) in [
        (r#""format": 1, "origin_bytes": 5}"#, "missing field `origin`"),
        (r#""format": 1, "origin": "/san"}"#, "missing field `origin_bytes`"),
        (r#""format": 2}"#, "it lists no origin"),
        (r#""format": 2, "origins": [{"name": "a"}]}"#, "missing field `origin`"),
    ] {
        let found = error(&format!("{start}{rest}"));
        assert!(found.contains(why), "{found}");
    }
}

/// A volume that starts by itself supersedes its own part of a flash that it shared.
#[test]
fn the_flash_of_others_stays_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let cache = StateFile::new(dir.path(), "fast", "").over(vec![place("/san"), place("/lun")]);
    let mut record = StateRecord { format: FORMAT_SHARED, ..state(1, "/san") };
    record.origins.extend(state(0, "/lun").origins);
    cache.store(&record).unwrap();
    StateFile::new(dir.path(), "alone", "/lun").put_out_of_use(None).unwrap();
    let now = cache.load().unwrap().unwrap();
    assert!(now.in_use && now.origins[0].in_use && !now.origins[1].in_use);
    cache.put_out_of_use(Some(1)).unwrap();
    assert_eq!(cache.load().unwrap().unwrap(), now, "its own");
    cache.put_out_of_use(None).unwrap();
    assert!(!cache.load().unwrap().unwrap().in_use);
}

/// Two servers of different caches may change the same record, one because it uses an origin of the other.
#[test]
fn changes_of_records_take_turns() {
    let dir = tempfile::tempdir().unwrap();
    let of = |name: &str| StateFile::new(dir.path(), name, "/san");
    let first = of("a").turn().unwrap();
    let (begun, has_begun) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| begun.send(of("b").turn().map(drop)).unwrap());
        assert!(has_begun.recv_timeout(Duration::from_millis(50)).is_err(), "one at a time");
        drop(first);
        has_begun.recv_timeout(Duration::from_secs(9)).unwrap().unwrap();
    });
}
