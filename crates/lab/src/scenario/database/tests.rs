// SPDX-License-Identifier: MIT OR Apache-2.0
//! A database as a scenario: what its settings accept, and what a point gives.

use serde_json::Value as Json;

use super::*;

fn settings(text: &str) -> Settings {
    let few = "fill_transactions = 30000\nwarm_transactions = 10000\ntransactions = 60000";
    toml::from_str(&format!("scale = \"1/256\"\nflash_gib = 4\n{few}\n{text}")).unwrap()
}

fn number(point: &Json, pointer: &str) -> f64 {
    point.pointer(pointer).and_then(Json::as_f64).unwrap_or(f64::NAN)
}

#[test]
fn every_system_runs_and_nothing_comes_back_wrong() {
    for (system, _) in SYSTEMS {
        let sync = if system == "tac" { "through" } else { "back" };
        let text = format!("system = \"{system}\"\nsync = \"{sync}\"");
        let point = point(&settings(&text)).unwrap();
        assert_eq!(number(&point, "/wrong"), 0.0, "{system}");
        assert!(number(&point, "/tpmc") > 0.0, "{system}");
        let has_flash = !system.ends_with("-only");
        assert_eq!(number(&point, "/flash_hit_ratio") > 0.1, has_flash, "{system}");
        assert_eq!(
            number(&point, "/write_reduction") > 0.1,
            has_flash && system != "tac",
            "{system}"
        );
    }
}

#[test]
fn settings_scale_and_say_what_they_accept() {
    let full: Settings = toml::from_str("system = \"face\"\nscale = \"1\"").unwrap();
    let full = full.spec().unwrap();
    assert_eq!((full.warehouses, full.pool_pages, full.flash_pages), (500, 51_200, 2_621_440));
    assert_eq!(full.checkpoint, 300 * SECOND);
    let part = settings("system = \"face\"\ncheckpoint_seconds = 256").spec().unwrap();
    assert_eq!((part.warehouses, part.pool_pages, part.checkpoint), (2, 200, SECOND));
    for (text, error) in [
        ("system = \"ssd\"", "system = 'ssd' cannot be; accepted: hdd-only, ssd-only, lc"),
        ("system = \"lc\"\ncaches = \"all\"", "caches = 'all' cannot be; accepted: mixed"),
        (
            "system = \"lc\"\nsync = \"around\"",
            "sync = 'around' cannot be; accepted: back, through",
        ),
        ("system = \"tac\"", "sync = 'back' cannot be; accepted: through"),
        ("system = \"bcache-lru\"\nsync = \"through\"", "system = 'bcache-lru' cannot be"),
        ("system = \"lc\"\ncrash = \"crash\"", "crash = 'crash' cannot be; accepted: none"),
        ("system = \"lc\"\ndisks = 17", "disks = '17' cannot be; accepted: 1 to 16"),
        ("system = \"lc\"\nflash = \"hdd-15k\"", "flash = 'hdd-15k' cannot be; accepted: ssd-"),
    ] {
        let found = look(&settings(text)).unwrap_err();
        assert!(found.starts_with(error), "{found}");
    }
    assert!(toml::from_str::<Settings>("system = \"lc\"\npool = 3").is_err());
}

#[test]
fn write_amplification_is_told_of_drives_that_have_some() {
    let wear = "transactions = 600000\nwarm_transactions = 600000\nflash = \"ssd-840pro-ftl\"";
    let text = |system| {
        let text = format!("system = \"{system}\"\n{wear}");
        let mut table: toml::Table = "scale = \"1/256\"\nflash_gib = 4".parse().unwrap();
        table.extend(text.parse::<toml::Table>().unwrap());
        toml::Value::Table(table).try_into::<Settings>().unwrap()
    };
    let of = |system| number(&point(&text(system)).unwrap(), "/write_amplification");
    let (log, slots) = (of("face"), of("lc"));
    assert!((1.0..1.5).contains(&log) && slots > 2.0, "{log} {slots}");
    let none = point(&settings("system = \"face\"")).unwrap();
    assert_eq!(none["write_amplification"], Json::Null);
}
