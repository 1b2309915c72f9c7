// SPDX-License-Identifier: MIT OR Apache-2.0
//! No two files of a crate import each other, directly or in a circle.
//!
//! A file's imports are its `use` declarations and the paths in its code that begin with `crate::`, `super::` or `self::`,
//! up to the first `#[cfg(test)]` module. A path is followed to the deepest module that has a file; where that is a
//! `mod.rs` or `lib.rs` that only hands a name on from a child (`pub use self::child::Name`), to that child. Declaring a
//! module is no import, and a module may use what its parent defines: the two are read together.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A crate's files by module path (`""` is its root).
struct Modules {
    files: BTreeMap<String, String>,
    /// For each module, the names that it hands on, and the module that each comes from.
    handed_on: BTreeMap<String, BTreeMap<String, String>>,
}

/// Circles of one crate: each a sorted list of files.
pub fn circles(src: &Path) -> Vec<Vec<String>> {
    let modules = Modules::read(src);
    let mut arrows: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (module, text) in &modules.files {
        let targets = modules.imports(module, text).filter(|to| !is_within(module, to));
        arrows.entry(module).or_default().extend(targets);
    }
    let reach = |from: &str| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(at) = open.pop() {
            for to in arrows.get(at).into_iter().flatten() {
                if seen.insert(*to) {
                    open.push(to);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> = arrows.keys().map(|m| (*m, reach(m))).collect();
    let mut found: Vec<Vec<String>> = Vec::new();
    for (module, to) in reached.iter().filter(|(module, to)| to.contains(**module)) {
        let circle: Vec<String> = to
            .iter()
            .filter(|other| reached.get(**other).is_some_and(|back| back.contains(module)))
            .map(|other| if other.is_empty() { "crate root".to_owned() } else { other.to_string() })
            .collect();
        if !found.contains(&circle) {
            found.push(circle);
        }
    }
    found
}

/// Whether a module is another, or lies below it.
fn is_within(module: &str, other: &str) -> bool {
    module == other
        || other.is_empty()
        || module.strip_prefix(other).is_some_and(|rest| rest.starts_with("::"))
}

impl Modules {
    fn read(src: &Path) -> Self {
        let mut files = BTreeMap::new();
        let mut paths = Vec::new();
        super::sources(src, &mut paths);
        for path in paths {
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let name = path.strip_prefix(src).unwrap_or(&path).with_extension("");
            let mut parts: Vec<String> =
                name.iter().map(|p| p.to_string_lossy().into_owned()).collect();
            if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
                parts.pop();
            }
            if !parts.iter().any(|part| part == "tests" || part.ends_with("_tests")) {
                files.insert(parts.join("::"), code(&text));
            }
        }
        let mut modules = Self { files, handed_on: BTreeMap::new() };
        for (module, text) in &modules.files {
            let handed = handed_on(text).into_iter().map(|(name, child)| {
                let child = if module.is_empty() { child } else { format!("{module}::{child}") };
                (name, child)
            });
            modules.handed_on.insert(module.clone(), handed.collect());
        }
        modules
    }

    /// The modules that a file imports from.
    fn imports<'a>(&'a self, module: &'a str, text: &'a str) -> impl Iterator<Item = &'a str> {
        paths(text).into_iter().filter_map(move |path| self.resolve(module, &path))
    }

    fn resolve(&self, module: &str, path: &str) -> Option<&str> {
        let mut at: Vec<&str> = module.split("::").filter(|p| !p.is_empty()).collect();
        let mut rest = path.split("::").peekable();
        match rest.next()? {
            "crate" => at.clear(),
            "super" => drop(at.pop()),
            _ => {}
        }
        while rest.next_if_eq(&"super").is_some() {
            at.pop();
        }
        let mut here = at.join("::");
        for part in rest {
            let child = if here.is_empty() { part.to_owned() } else { format!("{here}::{part}") };
            if self.files.contains_key(&child) {
                here = child;
                continue;
            }
            let handed = self.handed_on.get(&here).and_then(|names| names.get(part));
            if let Some(from) = handed.filter(|from| self.files.contains_key(*from)) {
                here.clone_from(from);
                continue;
            }
            break;
        }
        self.files.get_key_value(&here).map(|(name, _)| name.as_str())
    }
}

/// The code before the tests, without comments, on one line.
fn code(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or(""));
    lines.collect::<Vec<_>>().join(" ")
}

/// Names that a module hands on from its children: `pub use self::child::{A, B};`.
fn handed_on(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for part in text.split("use self::").skip(1) {
        let Some(end) = part.find(';') else { continue };
        for path in spread(part[..end].trim()) {
            let (child, name) = path.rsplit_once("::").unwrap_or((path.as_str(), ""));
            let name = name.rsplit(" as ").next().unwrap_or(name).trim();
            found.push((name.to_owned(), child.to_owned()));
        }
    }
    found
}

/// Every path in code that begins at the crate, a parent or the module itself.
fn paths(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in text.match_indices(start) {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let is_use = text[..at].trim_end().ends_with("use");
            let rest = &text[at..];
            let end = match is_use {
                true => rest.find(';').unwrap_or(rest.len()),
                false => rest
                    .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
                    .unwrap_or(rest.len()),
            };
            found.extend(spread(rest[..end].trim()));
        }
    }
    found
}

/// `a::{b, c::{d}}` as `a::b`, `a::c::d`.
fn spread(path: &str) -> Vec<String> {
    let Some(open) = path.find('{') else {
        return vec![path.split(" as ").next().unwrap_or(path).trim().to_owned()];
    };
    let (head, inner) = (&path[..open], path[open + 1..].trim_end().trim_end_matches('}'));
    let (mut depth, mut from, mut parts) = (0_i32, 0, Vec::new());
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[from..]);
    let parts = parts.into_iter().map(str::trim).filter(|part| !part.is_empty());
    let whole = parts.map(|part| match part {
        "self" => head.trim_end_matches(':').to_owned(),
        part => format!("{head}{part}"),
    });
    whole.flat_map(|path| spread(&path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let dir = std::env::temp_dir().join(format!("larder-{name}-{}", std::process::id()));
        for (name, text) in files {
            let path = dir.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let found = circles(&dir);
        std::fs::remove_dir_all(dir).unwrap();
        found
    }

    #[test]
    fn two_files_that_import_each_other_are_found() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\nuse crate::a::A;\n"),
            ("a/mod.rs", "mod c;\npub use self::c::C;\nuse crate::b::B;\n"),
            ("a/c.rs", "pub struct C;\n"),
            ("b.rs", "use crate::a::{self, C};\nfn f() { crate::a::g() }\n"),
        ];
        assert_eq!(of("circle", &files), [["a", "b"]]);
    }

    #[test]
    fn a_name_that_is_handed_on_is_its_childs() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\n"),
            ("a/mod.rs", "mod c;\npub use self::c::C;\n"),
            ("a/c.rs", "use super::super::b::B;\n"),
            ("b.rs", "// crate::a\npub struct B;\n#[cfg(test)]\nmod tests { use crate::a::C; }\n"),
        ];
        assert_eq!(of("handed", &files), Vec::<Vec<String>>::new());
    }
}
