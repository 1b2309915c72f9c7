// SPDX-License-Identifier: MIT OR Apache-2.0
//! Advice in words: the table of all points, what is advised, and what was assumed.

use comfy_table::{Table, presets};
use larder_lab::advise::{Advice, Advised, Point, other, size};
use larder_report::number;

pub(super) fn words(advice: &Advice) -> String {
    let duration = match advice.duration_seconds {
        Some(seconds) => format!("{} s", number(seconds)),
        None => "without times".to_owned(),
    };
    let mut lines = vec![
        format!(
            "trace: {} requests, {} % writes, footprint {} (in units of 1 MiB {}), {duration}",
            advice.requests,
            number(advice.write_ratio * 100.0),
            size(advice.footprint_bytes),
            size(advice.touched_unit_bytes),
        ),
        String::new(),
        table(advice).to_string(),
        String::new(),
        advice.verdict.clone(),
    ];
    lines.extend(advice.advised.iter().flat_map(details));
    lines.extend(advice.others.iter().map(other));
    lines.push(String::new());
    lines.push("assumed:".to_owned());
    lines.extend(advice.assumptions.iter().map(|text| format!("- {text}")));
    if let Some(toml) = &advice.toml {
        lines.push(format!("\n{}", toml.trim_end()));
    }
    lines.join("\n")
}

fn details(advised: &Advised) -> Vec<String> {
    let wear = &advised.wear;
    let factor = |factor: Option<f64>| factor.map_or("-".to_owned(), number);
    let years = match wear.years {
        Some(years) => format!("lasts {} years", number(years)),
        None => "is not written".to_owned(),
    };
    let amplified = match wear.write_amplification {
        Some(times) => format!(", write amplification {}", number(times)),
        None => String::new(),
    };
    vec![
        format!(
            "saved: reads {} times as fast, writes {} times, {} % of the origin's operations",
            factor(advised.read_factor),
            factor(advised.write_factor),
            number(advised.origin_operations_saved_ratio * 100.0)
        ),
        format!(
            "flash: {} with its metadata; {} written a day, {} times a drive of {} GB{amplified}; it {years}",
            size(advised.device_bytes),
            size(wear.flash_write_bytes_per_day as u64),
            number(wear.drive_writes_per_day),
            number(wear.drive_bytes as f64 / 1e9)
        ),
        format!("memory: {}", size(advised.point.memory_bytes)),
    ]
}

fn table(advice: &Advice) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header([
        "system",
        "flash",
        "hits",
        "read us",
        "p99",
        "write us",
        "flash written",
        "",
    ]);
    let advised = advice.advised.as_ref().map(|advised| &advised.point);
    let dash = |value: Option<f64>| value.map_or("-".to_owned(), number);
    let mut row = |point: &Point| {
        let flash = point.flash_bytes > 0;
        table.add_row([
            point.system.clone(),
            if flash { size(point.flash_bytes) } else { "-".to_owned() },
            point.hit_ratio.map_or("-".to_owned(), |ratio| format!("{:.1} %", ratio * 100.0)),
            dash(point.read_us_mean),
            dash(point.read_us_p99),
            dash(point.write_us_mean),
            if flash { size(point.flash_write_bytes) } else { "-".to_owned() },
            if advised == Some(point) { "<- advised" } else { "" }.to_owned(),
        ]);
    };
    row(&advice.alone);
    advice.points.iter().for_each(row);
    table
}
