// SPDX-License-Identifier: MIT OR Apache-2.0
//! Style as a test: `cargo run -p xtask -- tidy`.
//!
//! Checks what the compiler and clippy do not: that the engine and the policies name no I/O,
//! clock, thread or runtime; that files stay short, carry their licence line, and open with a
//! module document; that the lower crates do not know the upper ones; that no files import each
//! other (`circles.rs`); that every rule that is cited is in docs/design.md (`rules.rs`); that conditions on the kind of a cache do
//! not spread (`kinds.rs`).

mod circles;
mod kinds;
mod rules;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The longest source file, in lines.
const MOST_LINES: usize = 500;

/// What the pure crates must not name.
const FORBIDDEN: &[&str] = &[
    "std::fs",
    "std::net",
    "std::io",
    "std::os",
    "std::process",
    "std::thread",
    "std::time",
    "std::env",
    "io_uring",
    "rustix",
    "libc",
    "tokio",
    "SystemTime",
    "Instant::now",
    "unsafe {",
    "unsafe fn",
    "extern \"C\"",
    "println!",
    "eprintln!",
];

/// Crates that are pure, and what each crate of the workspace may depend on.
const PURE: &[&str] = &["policy", "core", "model"];
const MAY_USE: &[(&str, &[&str])] = &[
    ("policy", &[]),
    ("model", &[]),
    ("core", &["policy"]),
    ("trace", &[]),
    ("sim", &["core", "model"]),
    ("nbd", &["core"]),
    ("io", &["core", "model", "nbd"]),
    ("volume", &["core", "io"]),
    ("front", &["core", "io", "nbd", "volume"]),
    ("shared", &["core"]),
    ("report", &[]),
    ("lab", &["core", "model", "policy", "report", "sim", "trace"]),
    ("bench", &["core", "front", "io", "lab", "model", "nbd", "report", "sim", "trace", "volume"]),
    // A dev-dependency: no row above or below has it.
    ("testkit", &["bench", "core", "front", "io", "nbd", "sim", "volume"]),
    ("cli", &["bench", "core", "front", "io", "lab", "nbd", "report", "sim", "trace", "volume"]),
];

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() != Some("tidy") {
        eprintln!("usage: cargo run -p xtask -- tidy");
        return ExitCode::from(2);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let findings = tidy(&root);
    findings.iter().for_each(|f| eprintln!("tidy: {f}"));
    if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tidy(root: &Path) -> Vec<String> {
    let mut findings = Vec::new();
    let mut files = Vec::new();
    sources(&root.join("crates"), &mut files);
    sources(&root.join("xtask"), &mut files);
    for file in &files {
        let Ok(text) = std::fs::read_to_string(file) else { continue };
        let name = file.strip_prefix(root).unwrap_or(file).display().to_string();
        check_file(&name, &text, &mut findings);
    }
    for (name, may_use) in MAY_USE {
        check_arrows(root, name, may_use, &mut findings);
    }
    check_circles(root, &mut findings);
    rules::check(root, &files, &mut findings);
    kinds::check(root, &files, &mut findings);
    findings
}

fn check_circles(root: &Path, findings: &mut Vec<String>) {
    let Ok(crates) = std::fs::read_dir(root.join("crates")) else { return };
    for krate in crates.flatten() {
        for circle in circles::circles(&krate.path().join("src")) {
            let name = krate.file_name().to_string_lossy().into_owned();
            findings.push(format!("crates/{name}: import each other: {}", circle.join(", ")));
        }
    }
}

fn sources(dir: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for path in entries.flatten().map(|e| e.path()) {
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

fn check_file(name: &str, text: &str, findings: &mut Vec<String>) {
    let mut lines = text.lines();
    if lines.next() != Some("// SPDX-License-Identifier: MIT OR Apache-2.0") {
        findings.push(format!("{name}: the first line is not the licence line"));
    }
    if !text.lines().take(3).any(|l| l.starts_with("//!")) {
        findings.push(format!("{name}: does not open with a module document"));
    }
    let count = text.lines().count();
    if count > MOST_LINES {
        findings.push(format!("{name}: {count} lines; at most {MOST_LINES}"));
    }
    let pure = PURE.iter().any(|c| name.starts_with(&format!("crates/{c}/src/")));
    if !pure {
        return;
    }
    let code = text.split("#[cfg(test)]").next().unwrap_or(text);
    for (number, line) in code.lines().enumerate() {
        let line = line.split("//").next().unwrap_or(line);
        for word in FORBIDDEN.iter().filter(|w| line.contains(**w)) {
            findings.push(format!("{name}:{}: names {word}", number + 1));
        }
    }
}

fn check_arrows(root: &Path, name: &str, may_use: &[&str], findings: &mut Vec<String>) {
    let path = root.join("crates").join(name).join("Cargo.toml");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let dependencies = text.split("[dev-dependencies]").next().unwrap_or(&text);
    for line in dependencies.lines().filter(|l| l.starts_with("larder-")) {
        let used = line.trim_start_matches("larder-").split(['.', ' ', '=']).next().unwrap_or("");
        if !may_use.contains(&used) {
            findings.push(format!("crates/{name} depends on {used}; arrows point down only"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        assert_eq!(tidy(&root), Vec::<String>::new());
    }

    #[test]
    fn io_in_a_pure_crate_is_found() {
        let head = "// SPDX-License-Identifier: MIT OR Apache-2.0\n//! A module.\n";
        let mut findings = Vec::new();
        let code = format!("{head}use std::fs;\n// std::net in a comment is fine\n");
        check_file("crates/core/src/x.rs", &code, &mut findings);
        assert_eq!(findings, ["crates/core/src/x.rs:3: names std::fs"]);
        findings.clear();
        check_file("crates/io/src/x.rs", &code, &mut findings);
        assert!(findings.is_empty());
    }
}
