// SPDX-License-Identifier: MIT OR Apache-2.0
//! Allowed dependencies between crates: arrows point down only.

use toml::{Table, Value};

use crate::tree::Tree;

/// Each crate below `crates`, and the crates on which it may depend. Dev-dependencies are not restricted.
const MAY_USE: &[(&str, &[&str])] = &[
    ("policy", &[]),
    ("private", &[]),
    ("model", &[]),
    ("core", &["policy"]),
    ("trace", &[]),
    ("sim", &["core", "model"]),
    ("nbd", &["core", "private"]),
    ("io", &["core", "model", "nbd", "private"]),
    ("volume", &["core", "io", "private"]),
    ("front", &["core", "io", "nbd", "private", "volume"]),
    ("shared", &["core"]),
    ("pg", &["core", "private", "shared"]),
    ("report", &[]),
    ("lab", &["core", "model", "policy", "report", "sim", "trace"]),
    ("python", &["core", "lab", "trace"]),
    ("bench", &["core", "front", "io", "lab", "model", "nbd", "report", "sim", "trace", "volume"]),
    // A dev-dependency: it is in no other row.
    ("testkit", &["bench", "core", "front", "io", "nbd", "shared", "sim", "volume"]),
    (
        "cli",
        &[
            "bench", "core", "front", "io", "lab", "nbd", "private", "report", "sim", "trace",
            "volume",
        ],
    ),
];

/// The check.
pub fn check(tree: &Tree, findings: &mut Vec<String>) {
    for name in tree.crates() {
        let Some((_, may_use)) = MAY_USE.iter().find(|(row, _)| *row == name) else {
            findings.push(format!("crates/{name}: xtask/src/arrows.rs has no row for this crate"));
            continue;
        };
        let path = tree.root.join("crates").join(&name).join("Cargo.toml");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        check_manifest(&name, &text, may_use, findings);
    }
    for (row, _) in MAY_USE.iter().filter(|(row, _)| !tree.crates().iter().any(|name| name == row))
    {
        findings.push(format!("xtask/src/arrows.rs: {row}: the crate does not exist"));
    }
}

fn check_manifest(name: &str, text: &str, may_use: &[&str], findings: &mut Vec<String>) {
    let manifest: Table = match text.parse() {
        Ok(manifest) => manifest,
        Err(e) => return findings.push(format!("crates/{name}/Cargo.toml: {e}")),
    };
    let of_targets =
        manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let tables = of_targets.filter_map(Value::as_table).chain([&manifest]);
    let tables =
        tables.flat_map(|t| [t.get("dependencies"), t.get("build-dependencies")]).flatten();
    for used in tables.filter_map(Value::as_table).flat_map(Table::keys) {
        let used = used.strip_prefix("larder-");
        if let Some(used) = used.filter(|used| !may_use.contains(used)) {
            findings.push(format!("crates/{name} depends on {used}; arrows point down only"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upward_dependency_is_found() {
        let text = "[dependencies]\nlarder-core.workspace = true\nlarder-policy.workspace = true\nserde = \"1\"\n\
                    [dev-dependencies]\nlarder-sim.workspace = true\n\
                    [target.'cfg(unix)'.dependencies]\nlarder-io.workspace = true\n";
        let mut findings = Vec::new();
        check_manifest("x", text, &["policy"], &mut findings);
        let expected =
            ["io", "core"].map(|to| format!("crates/x depends on {to}; arrows point down only"));
        assert_eq!(findings, expected);
    }
}
