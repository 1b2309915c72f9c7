// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups of commands in `larder --help`, and examples of each command in its help and its manual page.
//!
//! Why not clap's own list: clap groups arguments, but not commands.

use clap::{Command, CommandFactory};

use crate::commands::Cli;

/// What examples begin with in help.
pub const EXAMPLES_HEADING: &str = "Examples:";

/// A heading of `larder --help` and the commands below it; the first command gives the first group its example.
const GROUPS: [(&str, &[&str]); 3] = [
    ("Serve", &["serve", "check"]),
    (
        "Operate a running server",
        &[
            "status", "stats", "top", "set", "cached", "warm", "evict", "scrub", "pin", "unpin",
            "exclude", "heat", "quiesce", "flush", "detach", "attach", "resize",
        ],
    ),
    (
        "Size, study and test",
        &[
            "size", "presets", "advise", "trace", "sim", "paper", "demo", "slow-dir", "torture",
            "bench",
        ],
    ),
];

/// Examples by the name of the manual page.
const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "larder-serve",
        &[
            "larder serve --origin disk.img --flash flash.img --flash-size 1GiB --listen nbd+unix:/tmp/nbd",
            "larder serve --origin /dev/sdb --flash /dev/nvme0n1 --listen fuse:/run/larder/db --name db",
            "larder serve /etc/larder/db.toml",
        ],
    ),
    ("larder-check", &["larder check /dev/nvme0n1", "larder check flash.img --json"]),
    (
        "larder-status",
        &["larder status", "larder status --name db --json", "larder status --name db --drives"],
    ),
    ("larder-stats", &["larder stats --name db"]),
    ("larder-top", &["larder top", "larder top --once"]),
    ("larder-cached", &["larder cached --all", "larder cached --file /srv/db/base/16384/2619"]),
    (
        "larder-warm",
        &[
            "larder warm --all",
            "larder warm 10GiB+2GiB --pace 100MiB --bound 30m",
            "larder warm --file /srv/db/orders",
        ],
    ),
    (
        "larder-set",
        &[
            "larder set --name db",
            "larder set --name db --populate off",
            "larder set --name db --write-policy around",
        ],
    ),
    ("larder-scrub", &["larder scrub --name db --all --pace 200MiB/s"]),
    ("larder-evict", &["larder evict --name db 10GiB+2GiB"]),
    ("larder-pin", &["larder pin --name db 0+64MiB", "larder pin --file /srv/db/orders_pkey"]),
    ("larder-unpin", &["larder unpin --all"]),
    (
        "larder-exclude",
        &[
            "larder exclude --file /srv/db/archive.tar",
            "larder exclude --name db 10GiB+2GiB --undo",
        ],
    ),
    ("larder-heat", &["larder heat export db.heat"]),
    ("larder-heat-export", &["larder heat export db.heat --name db"]),
    ("larder-heat-from-trace", &["larder heat from-trace monday.btr.zst monday.heat"]),
    ("larder-heat-import", &["larder heat import db.heat --pace 100MiB --bound 30m"]),
    ("larder-quiesce", &["larder quiesce --name db -- lvcreate --snapshot --name db-monday vg/db"]),
    ("larder-flush", &["larder flush --bound 2m"]),
    ("larder-detach", &["larder detach --name db --bound 5m"]),
    (
        "larder-attach",
        &["larder attach /dev/nvme1n1", "larder attach flash.img --flash-size 64GiB"],
    ),
    (
        "larder-resize",
        &["larder resize --name db --flash-size 200GiB", "larder resize --name db --bound 10m"],
    ),
    ("larder-size", &["larder size --origin 100TiB --flash 16TiB"]),
    ("larder-presets", &["larder presets"]),
    ("larder-trace", &["larder trace info requests.btr.zst"]),
    ("larder-trace-info", &["larder trace info requests.btr.zst"]),
    ("larder-trace-convert", &["larder trace convert blkparse.txt requests.btr.zst"]),
    ("larder-trace-record", &["larder trace record --name db --for 10m --out requests.btr.zst"]),
    ("larder-trace-recent", &["larder trace recent --name db --last 60s --out minute.btr.zst"]),
    ("larder-trace-gen", &["larder trace gen zipf --out zipf.btr --requests 100000"]),
    (
        "larder-trace-gen-oltp",
        &["larder trace gen oltp --data 10GiB --clients 4 --for 10m --out oltp.btr.zst"],
    ),
    ("larder-trace-gen-tpcc", &["larder trace gen tpcc --warehouses 10 --out tpcc.btr.zst"]),
    ("larder-trace-gen-desktop", &["larder trace gen desktop --out desktop.btr.zst"]),
    ("larder-trace-gen-holland", &["larder trace gen holland --out filer.btr.zst"]),
    ("larder-trace-gen-zipf", &["larder trace gen zipf --out zipf.btr --requests 100000"]),
    ("larder-trace-gen-uniform", &["larder trace gen uniform --out uniform.btr --requests 100000"]),
    ("larder-trace-gen-sequential", &["larder trace gen sequential --out sequential.btr"]),
    ("larder-trace-gen-loop", &["larder trace gen loop --out loop.btr --requests 100000"]),
    (
        "larder-sim",
        &[
            "larder sim scenario.toml --seed 1 --report sim.html",
            "larder sim scenario.toml --out results.jsonl --shard 3/16",
            "larder sim --trace requests.btr.zst --preset sce --flash-size 10%",
            "larder sim --hits --trace requests.btr.zst --replacement lru --capacity 5%",
        ],
    ),
    (
        "larder-paper",
        &["larder paper sce --scale 1/64 --only S6", "larder paper all --points points"],
    ),
    (
        "larder-advise",
        &[
            "larder advise --name db",
            "larder advise --trace requests.btr.zst --origin-profile hdd-7200 --flash-profile ssd-s3500",
        ],
    ),
    ("larder-demo", &["larder demo", "larder demo --part postgres"]),
    (
        "larder-slow-dir",
        &["larder slow-dir --device array-16 /srv/data /tmp/slow", "cat /tmp/slow/.slow-stats"],
    ),
    ("larder-torture", &["larder torture --for 10m", "larder torture --seed 7 --runs 1"]),
    ("larder-bench", &["larder bench hit-path", "larder bench all --quick"]),
];

/// The examples of a command, by the name of its manual page.
pub fn examples(page: &str) -> &'static [&'static str] {
    EXAMPLES.iter().find(|(name, _)| *name == page).map_or(&[], |(_, examples)| examples)
}

/// The whole command line, with groups and examples.
pub fn command() -> Command {
    let cli = with_examples(Cli::command(), "larder");
    let groups = groups(&cli);
    let groups = groups.trim_end();
    cli.help_template(format!(
        "{{about}}\n{{usage-heading}} {{usage}}\n\n{groups}\n\n\
         --help of a command prints its main settings, --help-all every setting; --version"
    ))
}

/// The list of commands by group. Commands that this build leaves out are not in it.
fn groups(cli: &Command) -> String {
    let mut text = String::new();
    for (heading, names) in &GROUPS {
        let known: Vec<_> = names.iter().filter_map(|name| cli.find_subcommand(name)).collect();
        let Some(first) = known.first() else { continue };
        text += &format!("{heading}:\n");
        for command in &known {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            text += &format!("  {:<9} {about}\n", command.get_name());
        }
        let example = examples(&format!("larder-{}", first.get_name())).first();
        let example = example.filter(|_| *heading == GROUPS[0].0);
        text += &example.map(|example| format!("  $ {example}\n")).unwrap_or_default();
        text += "\n";
    }
    text
}

/// A command whose help ends with its examples, and so all below it.
fn with_examples(command: Command, page: &str) -> Command {
    let examples: String = examples(page).iter().map(|e| format!("\n  {e}")).collect();
    let command = match (examples.is_empty(), command.get_after_long_help().cloned()) {
        (true, _) => command,
        (false, None) => command.after_help(format!("{EXAMPLES_HEADING}{examples}")),
        (false, Some(more)) => command
            .after_help(format!("{EXAMPLES_HEADING}{examples}"))
            .after_long_help(format!("{more}\n\n{EXAMPLES_HEADING}{examples}")),
    };
    let names: Vec<_> = command.get_subcommands().map(|c| c.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| {
        let page = format!("{page}-{name}");
        command.mut_subcommand(name, |below| with_examples(below, &page))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test stops at the first failure

    use super::*;
    use crate::manual::{page, visible};

    #[test]
    fn each_visible_command_is_in_one_group() {
        let listed = || GROUPS.iter().flat_map(|(_, names)| names.iter());
        let cli = command();
        for command in cli.get_subcommands().filter(|c| !c.is_hide_set()) {
            let groups = listed().filter(|name| **name == command.get_name()).count();
            assert_eq!(groups, 1, "{}", command.get_name());
        }
        for name in listed() {
            assert!(!cfg!(feature = "lab") || cli.find_subcommand(name).is_some(), "{name}");
        }
    }

    #[test]
    fn help_of_each_command_fits_a_screen() {
        for mut command in visible() {
            let name = page(&command);
            let help = command.render_help().to_string();
            let (lines, widest) =
                (help.lines().count(), help.lines().map(|l| l.chars().count()).max().unwrap());
            assert!(lines <= 40, "{name}: {lines} lines:\n{help}");
            assert!(widest <= 100, "{name}: {widest} columns:\n{help}");
        }
    }

    #[test]
    fn help_all_has_each_setting() {
        for mut command in visible() {
            let help = command.render_long_help().to_string();
            for arg in command.get_arguments().filter_map(|arg| arg.get_long()) {
                let root = page(&command) == "larder";
                assert!(root || help.contains(&format!("--{arg}")), "--{arg}:\n{help}");
            }
        }
    }

    #[test]
    fn each_command_has_an_example_that_is_accepted() {
        for command in visible().iter().filter(|c| page(c) != "larder") {
            let name = page(command);
            assert!(!examples(&name).is_empty(), "{name}: no example");
            for example in examples(&name).iter().filter(|e| e.starts_with("larder ")) {
                let parsed = super::command().try_get_matches_from(example.split(' '));
                parsed.unwrap_or_else(|e| panic!("{example}: {e}"));
            }
        }
    }
}
