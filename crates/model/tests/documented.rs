// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of devices in `docs/simulation.md` equals the content of the files.

use larder_model::{ProfileInfo, profiles};

const DOCUMENT: &str = include_str!("../../../docs/simulation.md");

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let group = |(at, digit): (usize, char)| {
        let comma = at > 0 && (digits.len() - at).is_multiple_of(3);
        comma.then_some(',').into_iter().chain([digit])
    };
    digits.chars().enumerate().flat_map(group).collect()
}

fn row(info: &ProfileInfo) -> String {
    let ProfileInfo { name, about, source, rated } = info;
    let iops = [rated.read_iops_qd1, rated.read_iops_qd32, rated.write_iops_qd32];
    let bytes = [rated.read_bytes_per_second, rated.write_bytes_per_second];
    let iops = iops.map(grouped).join(" / ");
    let megabytes = bytes.map(|rate| grouped(rate / 1_000_000)).join(" / ");
    let figures = match rated.read_iops_qd1 {
        0 => "no limit | no limit".to_owned(),
        _ => format!("{iops} | {megabytes}"),
    };
    format!("| `{name}` | {about} | {source} | {figures} |")
}

#[test]
fn the_table_of_devices_matches_the_files() {
    let want: Vec<String> = profiles().iter().map(row).collect();
    let (_, section) = DOCUMENT.split_once("\n## Device models\n").expect("the section");
    let rows = section.lines().skip_while(|line| !line.starts_with("| ---")).skip(1);
    let got: Vec<&str> = rows.take_while(|line| line.starts_with('|')).collect();
    assert_eq!(got, want, "the rows should be\n{}\n", want.join("\n"));
}
