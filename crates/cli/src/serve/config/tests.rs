// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file against the flags: the same keys, the same values, and lines that name the fault.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use anyhow::anyhow;
use clap::{ArgMatches, FromArgMatches};

use super::print::print;
use super::*;
use crate::setting::BadSetting;

const EXAMPLE: &str = include_str!("../../../../../docs/larder.toml");

fn given(words: &[&str]) -> (ArgMatches, ServeArgs) {
    let matches = command().try_get_matches_from(words).unwrap();
    let args = ServeArgs::from_arg_matches(&matches).unwrap();
    (matches, args)
}

/// The plans of a file with flags beside it.
fn read(text: &str, flags: &[&str]) -> Result<Vec<Plan>> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    let (matches, args) = given(&[&[path.as_str()], flags].concat());
    // Errors name the file; the tests expect one name for it.
    plans(&matches, args).map_err(|e| anyhow!("{}", e.to_string().replace(&path, "FILE")))
}

fn error(text: &str, flags: &[&str]) -> String {
    let error = read(text, flags).map(|p| p.len()).unwrap_err().to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

fn keys() -> Vec<String> {
    let command = command();
    let keys = command.get_arguments().map(|a| a.get_id().to_string());
    keys.filter(|k| ![COMMAND_LINE, MEMBER].concat().contains(&k.as_str())).collect()
}

/// The corpus of the fuzz target `configuration`.
#[test]
fn any_bytes_are_a_configuration_or_an_error() {
    let inputs = larder_testkit::fuzz::corpus("configuration");
    assert!(inputs.len() > 10, "{} inputs", inputs.len());
    for (file, data) in inputs {
        let judged = std::panic::catch_unwind(|| fuzz::check(&data));
        assert!(judged.is_ok(), "{}", file.display());
    }
}

#[test]
fn a_damaged_configuration_is_one_or_an_error() {
    use larder_testkit::fuzz::campaign::Campaign;
    Campaign { variable: "LARDER_DAMAGED_IMAGES", few: 300 }.run("configuration", fuzz::check);
}

#[test]
fn the_lists_name_flags_that_exist() {
    let command = command();
    let there = |id: &&str| command.get_arguments().any(|a| a.get_id() == *id);
    assert!(PROCESS.iter().all(&there) && COMMAND_LINE.iter().all(there));
    for arg in command.get_arguments().filter(|a| a.get_id() != "config") {
        let long = arg.get_long().unwrap();
        assert_eq!(arg.get_id().as_str(), long.replace('-', "_"), "the key is the flag");
    }
}

#[test]
fn the_example_has_every_key_and_its_defaults_are_the_defaults() {
    let as_is = print(&read(EXAMPLE, &[]).unwrap()).unwrap();
    let mut all = String::new();
    let mut seen = Vec::new();
    for line in EXAMPLE.lines() {
        let bare = line.strip_prefix('#').filter(|l| l.starts_with(|c: char| c.is_lowercase()));
        let bare = bare.unwrap_or(line);
        let key = bare.split_once(" = ").filter(|_| !bare.starts_with('#')).map(|(key, _)| key);
        seen.extend(key.map(str::to_owned));
        // Not of the preset that the example has.
        let others = ["update_", "batch_pages", "write_back_"];
        if key.is_some_and(|key| others.iter().any(|other| key.starts_with(other))) {
            continue;
        }
        all += bare;
        all.push('\n');
    }
    let mut keys = keys();
    keys.sort();
    seen.sort();
    assert_eq!(seen, keys, "docs/larder.toml and the flags differ");
    let set = read(&all, &[]).unwrap();
    // Except for those that are examples, the values are the defaults.
    let same = |text: &str| {
        let own = [
            "flash_size",
            "flash_most",
            "workers",
            "state",
            "control",
            "metrics",
            "listen_mode",
            "tls_",
            "client_idle",
            "pin",
            "exclude",
        ];
        let lines = text.lines().filter(|l| !own.iter().any(|k| l.starts_with(k)));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(same(&print(&set).unwrap()), same(&as_is));
}

#[test]
fn what_is_printed_means_the_same_again() {
    let odd = r#"
        origin = 'mem:8MiB'
        listen = ["nbd+unix:/a b/\"x\"", "nbd://127.0.0.1:0"]
        name = "7"
        format = true
        flash = "mem:4MiB"
        populate_workers = [3, 2]
        populate_miss = [0.1, "5%"]
        populate_free = "0,0"
        populate_period = ["1500us", "0"]
        unit = 65536
        flash_timeout = "1.5s"
        populate_share = 0.123456789
    "#;
    let several = r#"
        listen = "nbd://127.0.0.1:0"
        unit = "64KiB"
        [volume.b]
        origin = "mem:8MiB"
        [volume."a name"]
        origin = "mem:16MiB"
        unit = "128KiB"
        listen = ["nbd+unix:/x"]
    "#;
    for text in [odd, several] {
        let once = print(&read(text, &["--drain", "5s"]).unwrap()).unwrap();
        let again = read(&once, &[]).unwrap();
        assert_eq!(print(&again).unwrap(), once);
        assert!(once.starts_with("drain = \"5s\""), "{once}");
    }
    let plans = read(several, &[]).unwrap();
    let names: Vec<&str> = plans.iter().map(|p| p.args.name.as_str()).collect();
    assert_eq!(names, ["b", "a name"], "in the order of the file");
    let units: Vec<_> = plans.iter().map(|p| p.args.choices.unit).collect();
    assert_eq!(units, [Some(64 << 10), Some(128 << 10)], "a volume's key counts before the top's");
    let (matches, args) = given(&["--origin", "mem:8MiB", "--listen", "nbd+unix:/x"]);
    let flags = print(&super::plans(&matches, args).unwrap()).unwrap();
    assert_eq!(print(&read(&flags, &[]).unwrap()).unwrap(), flags, "flags alone print too");
}

#[test]
fn every_preset_and_replacement_prints_what_means_the_same() {
    let head = "origin = \"mem:8MiB\"\nlisten = \"nbd+unix:/x\"\n";
    let presets = larder_core::config::presets().map(|p| p.name);
    let named = larder_core::config::ReplacementChoice::NAMED.iter().map(|(name, _)| *name);
    for (preset, replacement) in
        presets.map(|p| (p, None)).chain(named.map(|name| ("sce", Some(name))))
    {
        let mut text = format!("{head}preset = \"{preset}\"\nwrite_policy = \"through\"\n");
        text += &replacement.map(|r| format!("replacement = \"{r}\"\n")).unwrap_or_default();
        let choices = |plans: &[Plan]| {
            let args = &plans.first().unwrap().args;
            crate::choices::choices(args.preset.as_ref().unwrap(), &args.choices).unwrap()
        };
        let plans = read(&text, &[]).unwrap();
        let once = print(&plans).unwrap();
        let again = read(&once, &[]).unwrap();
        assert_eq!(choices(&again), choices(&plans), "{once}");
        assert_eq!(print(&again).unwrap(), once);
        if let Some(replacement) = replacement {
            assert!(once.contains(&format!("replacement = \"{replacement}\"")), "{once}");
        }
    }
}

/// A setting keeps the name that it had in earlier files and flags.
#[test]
fn earlier_names_and_values_are_accepted() {
    let head = "origin = \"mem:8MiB\"\nlisten = \"nbd+unix:/x\"\n";
    for (earlier, present) in [
        ("populate_list = 7", "populate_list_misses = 7"),
        ("displace_heat = 7", "displace_misses = 7"),
        ("clock_ceiling = 7", "clock_ceiling_count = 7"),
        ("flash_errors = 7", "flash_errors_per_minute = 7"),
        ("preset = \"prwc\"\nupdate_hot = 7", "update_hot_factor = 7"),
        ("preset = \"prwc\"\nwrite_policy = \"no-write-back\"", "write_policy = \"write-back\""),
    ] {
        let printed = print(&read(&format!("{head}{earlier}\n"), &[]).unwrap()).unwrap();
        assert!(printed.contains(present), "{earlier}: {printed}");
    }
    let both = format!("{head}flash_errors = 7\nflash_errors_per_minute = 8\n");
    assert!(error(&both, &[]).contains("flash_errors_per_minute"));
    let flags = ["--flash-errors", "7", "--preset", "prwc", "--write-policy", "no-write-back"];
    let printed = print(&read(head, &flags).unwrap()).unwrap();
    assert!(printed.contains("flash_errors_per_minute = 7"), "{printed}");
    assert!(printed.contains("write_policy = \"write-back\""), "{printed}");
}

/// The brackets in the help of settings that differ between presets.
#[test]
fn help_states_the_values_of_presets() {
    let command = command();
    let help = |id: &str| {
        let arg = command.get_arguments().find(|arg| arg.get_id() == id).unwrap();
        arg.get_help().unwrap().to_string()
    };
    let stated = |id: &str, preset: &str| -> Option<String> {
        let help = help(id);
        let brackets = help.split_once('[').unwrap().1.trim_end_matches(']');
        let of = |names: &str| names.split(", ").any(|name| name == preset);
        let mut parts = brackets.split("; ").map(|part| part.split_once(": ").unwrap());
        let otherwise = parts.clone().find(|(names, _)| *names == "else");
        parts.find(|(names, _)| of(names)).or(otherwise).map(|(_, value)| value.to_owned())
    };
    for preset in larder_core::config::presets().map(|p| p.name) {
        let args = given(&["--origin=mem:8MiB", "--listen=nbd+unix:/x"]).1;
        let decided =
            crate::choices::decided(&crate::choices::choices(preset, &args.choices).unwrap());
        for id in ["unit", "replacement", "write_policy", "durability"] {
            let value = decided.iter().find(|(key, _)| *key == id).map(|(_, v)| v[0].clone());
            assert_eq!(stated(id, preset), value, "{id} of {preset}");
        }
    }
}

fn bad_unit() -> anyhow::Error {
    BadSetting::of("unit", "3MiB", "accepted a power of two").into()
}

#[test]
fn flags_count_instead_of_keys() {
    let text = "origin = \"mem:8MiB\"\nlisten = [\"nbd+unix:/x\", \"nbd+unix:/y\"]\nworkers = 2\n";
    let plan = read(text, &["--listen", "nbd+unix:/z", "--workers=1", "--format"]).unwrap();
    let args = &plan.first().unwrap().args;
    assert_eq!((args.listen.len(), args.workers, args.format), (1, Some(1), true));
    let one = "[volume.x]\norigin = \"mem:8MiB\"\nlisten = \"nbd+unix:/x\"\n";
    let plan = read(one, &["--workers", "3"]).unwrap();
    assert_eq!(plan.first().unwrap().args.workers, Some(3));
    let two = format!("{one}[volume.y]\norigin = \"mem:8MiB\"\nlisten = \"nbd+unix:/y\"\n");
    assert!(error(&two, &["--workers", "3"]).contains("--workers: FILE has 2 volumes"));
    assert_eq!(read(&two, &["--drain", "3s"]).unwrap().len(), 2);
    // A bad flag is no fault of the file.
    let bad = read(text, &["--unit", "3MiB"]).unwrap();
    let located = bad.first().unwrap().locate(bad_unit());
    assert!(located.to_string().starts_with("--unit: got 3MiB"), "{located}");
}

#[test]
fn faults_are_named_by_line_and_key() {
    let head = "origin = \"mem:8MiB\"\nlisten = \"nbd+unix:/x\"\n";
    for (line, what) in [
        ("unti = \"1MiB\"", "FILE:3: unknown key 'unti'; did you mean 'unit'?"),
        ("flash-size = \"1MiB\"", "FILE:3: unknown key 'flash-size'; did you mean 'flash_size'?"),
        (
            "populate-list = 5",
            "FILE:3: unknown key 'populate-list'; did you mean 'populate_list_misses'?",
        ),
        ("xyzzy = 1", "FILE:3: unknown key 'xyzzy'; accepted origin, flash"),
        ("print_config = true", "FILE:3: unknown key 'print_config'"),
        ("unit = \"abc\"", "FILE:3: unit: 'abc' is not a size; accepted"),
        ("unit = true", "FILE:3: unit: accepted one string or number"),
        ("unit = [1, 2]", "FILE:3: unit: accepted one string or number"),
        ("format = \"yes\"", "FILE:3: format: accepted true or false"),
        ("write_policy = \"back\"", "FILE:3: write_policy: got 'back', accepted async"),
        ("workers = 1.5", "FILE:3: workers: got '1.5': invalid digit"),
        ("workers = -1", "FILE:3: workers: -1 is not in 0.."),
        ("populate_miss = [\"x\"]", "FILE:3: populate_miss: got 'x', accepted"),
        ("populate_miss = [[1]]", "FILE:3: populate_miss: accepted in the list"),
        ("drain = 5", "FILE:3: drain: got '5', accepted a number and a unit"),
        ("unit = ", "FILE:3: "),
        ("unit = \"1MiB\"\nunit = \"2MiB\"", "FILE:4: "),
        ("volume = 7", "FILE:3: unknown key 'volume'"),
        ("[volume]\nx = 1", "FILE:4: volume: accepted tables"),
        ("[volume.a]\ndrain = \"1s\"", "FILE:4: drain: belongs to the process"),
        ("[volume.a]\nname = \"b\"", "FILE:4: name: [volume.NAME]"),
        ("[volume.a]\nbogus = 1", "FILE:4: unknown key 'bogus'"),
        ("[volume.a.b]\nbogus = 1", "FILE:3: unknown key 'b'"),
        ("[volume.a]\n[volume.a]", "FILE:4: "),
        ("name = \"x\"\n[volume.a]", "FILE:3: name: [volume.NAME]"),
        ("[other]\nx = 1", "FILE:3: unknown key 'other'"),
        ("[[volume]]\norigin = 'x'", "FILE:3: unknown key 'volume'"),
        ("\u{0}", "FILE:3: "),
    ] {
        let said = error(&format!("{head}{line}\n"), &[]);
        assert!(said.starts_with(what), "{line}: {said}");
    }
    assert_eq!(error("listen = \"nbd+unix:/x\"", &[]), "FILE: missing keys: origin");
    assert_eq!(error("", &[]), "FILE: missing keys: origin, listen");
    let two = "listen = \"nbd+unix:/x\"\n[volume.a]\norigin = 'mem:8MiB'\n[volume.b]\n";
    assert_eq!(error(two, &[]), "FILE:4: [volume.b]: missing keys: origin");
    let late = read(&format!("{head}\nunit = \"3MiB\"\n"), &[]).unwrap();
    let late = late.first().unwrap().locate(bad_unit());
    assert!(late.to_string().ends_with(":4: unit: got 3MiB, accepted a power of two"), "{late}");
}

const SHARED: &str = r#"
listen = "nbd://127.0.0.1:0"
unit = "64KiB"
[cache.fast]
flash = "mem:64MiB"
[volume.b]
cache = "fast"
origin = "mem:8MiB"
least = "20%"
may_be_missing = true
[volume.own]
origin = "mem:8MiB"
[volume.a]
cache = "fast"
origin = "mem:16MiB"
listen = "nbd+unix:/x"
most = 0.5
"#;

#[test]
fn volumes_share_a_cache() {
    let plans = read(SHARED, &[]).unwrap();
    let names = |plans: &[Plan]| -> Vec<String> {
        plans.iter().map(|plan| plan.args.name.clone()).collect()
    };
    assert_eq!(names(&plans), ["fast", "own"], "a cache is where its first volume is");
    assert_eq!(names(plans[0].volumes()), ["b", "a"]);
    assert_eq!(plans.iter().map(Plan::is_shared).collect::<Vec<_>>(), [true, false]);
    let shares = plans[0].volumes().iter().map(|volume| volume.member.share().unwrap());
    assert_eq!(shares.map(|of| (of.least, of.most)).collect::<Vec<_>>(), [(0.2, 1.0), (0.0, 0.5)]);
    assert_eq!(plans[0].args.choices.unit, Some(64 << 10), "a key at the top is its default");
    assert!(plans[0].volumes()[0].member.may_be_missing);
    let printed = print(&plans).unwrap();
    assert_eq!(print(&read(&printed, &[]).unwrap()).unwrap(), printed, "{printed}");
}

#[test]
fn errors_of_shared_caches_name_the_line() {
    let with = |from: &str, to: &str| error(&SHARED.replace(from, to), &[]);
    for (from, to, expected) in [
        ("[cache.fast]", "[cache.other]", "FILE:7: cache: got fast; accepted: other"),
        ("[volume.own]", "[volume.fast]", "FILE:4: cache 'fast': a volume is named 'fast' too"),
        (
            "most = 0.5",
            "unit = 4096",
            "FILE:17: unit: belongs to the cache: write it into [cache.fast]",
        ),
        ("most = 0.5", "least = 0.9", "the sum of `least` is 110%; accepted: up to 100%"),
        ("most = 0.5", "most = 2", "FILE:17: most: got '2'"),
        (
            "least = \"20%\"",
            "most = 0\nleast = 1",
            "least: got 100%, is above most; accepted: up to 0%",
        ),
        ("flash = ", "origin = ", "FILE:5: origin: belongs to a volume"),
        ("flash = ", "client_memory = ", "FILE:5: client_memory: belongs to the process"),
        (
            "[volume.own]",
            "[volume.own]\nleast = 0",
            "FILE:12: least: needs `cache = \"NAME\"` in the same [volume.NAME]",
        ),
        ("[volume.own]", "[cache.idle]\n[volume.own]", "FILE:11: cache 'idle': no volume has"),
        ("origin = \"mem:16MiB\"", "", "FILE:13: [volume.a]: missing keys"),
    ] {
        let found = with(from, to);
        assert!(found.contains(expected), "{found}");
    }
    let adopted = read(SHARED, &["--adopt"]).map(|_| ()).unwrap_err().to_string();
    assert!(adopted.contains("accepted beside it: --print-config, --client-memory"), "{adopted}");
    let one = SHARED.replace("[volume.own]\norigin = \"mem:8MiB\"\n", "");
    let plans = read(&one, &["--adopt"]).unwrap();
    assert!(plans[0].args.adopt && !plans[0].volumes()[0].args.adopt);
    let lone = error("origin = \"mem:8MiB\"\nlisten = \"nbd+unix:/x\"\nmost = 1\n", &[]);
    assert!(lone.starts_with("FILE:3: most: needs `cache = "), "{lone}");
}
