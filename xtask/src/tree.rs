// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sources of the repository, read and parsed once for all checks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::Item;

use crate::attributes::is_test_only;
use crate::source::Source;

/// The repository.
pub struct Tree {
    /// Its root.
    pub root: PathBuf,
    /// Rust files of `crates` and `xtask`, by path.
    pub sources: BTreeMap<String, Source>,
}

impl Tree {
    /// Reads the repository.
    ///
    /// # Errors
    /// A file cannot be read or parsed.
    pub fn read(root: &Path) -> Result<Self, String> {
        let mut files = Vec::new();
        sources(&root.join("crates"), &mut files);
        sources(&root.join("xtask"), &mut files);
        let mut found = BTreeMap::new();
        for file in files {
            let name = file.strip_prefix(root).unwrap_or(&file).display().to_string();
            let text = std::fs::read_to_string(&file).map_err(|e| format!("{name}: {e}"))?;
            found.insert(name.clone(), Source::parse(&name, &text)?);
        }
        let mut tree = Self { root: root.to_owned(), sources: found };
        tree.mark_tests();
        Ok(tree)
    }

    /// A crate with these files, for tests.
    #[cfg(test)]
    pub fn of_crate(name: &str, files: &[(&str, &str)]) -> Self {
        let parse = |(file, text): &(&str, &str)| {
            let file = format!("crates/{name}/src/{file}");
            (file.clone(), Source::parse(&file, text).unwrap())
        };
        let mut tree =
            Self { root: PathBuf::from("."), sources: files.iter().map(parse).collect() };
        tree.mark_tests();
        tree
    }

    /// A crate `x` with these files, for tests.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        Self::of_crate("x", files)
    }

    /// Sources of crates that are not test code.
    pub fn code(&self) -> impl Iterator<Item = &Source> {
        self.sources.values().filter(|s| !s.is_test && s.crate_name().is_some())
    }

    /// Names of the crates below `crates`.
    #[must_use]
    pub fn crates(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.sources.values().filter_map(|s| Some(s.crate_name()?.to_owned())).collect();
        names.dedup();
        names
    }

    /// Marks files that only modules of test code declare.
    fn mark_tests(&mut self) {
        let mut tests = BTreeSet::new();
        loop {
            let before = tests.len();
            for source in self.sources.values() {
                let is_test = tests.contains(&source.name);
                let declared = self.declared(source).into_iter();
                tests.extend(declared.filter(|(_, test)| *test || is_test).map(|(file, _)| file));
            }
            if tests.len() == before {
                break;
            }
        }
        for source in self.sources.values_mut().filter(|s| tests.contains(&s.name)) {
            source.is_test = true;
        }
    }

    /// The files of the modules that a file declares, and whether it declares them only for tests.
    fn declared(&self, source: &Source) -> Vec<(String, bool)> {
        let modules = source.ast.items.iter().filter_map(|item| match item {
            Item::Mod(module) if module.content.is_none() => Some(module),
            _ => None,
        });
        let file = |module: &syn::ItemMod| {
            let file = self.module_file(source, &module.ident.to_string())?;
            Some((file, is_test_only(&module.attrs)))
        };
        modules.filter_map(file).collect()
    }

    /// The file of a module that a file declares.
    #[must_use]
    pub fn module_file(&self, parent: &Source, name: &str) -> Option<String> {
        let (dir, file) = parent.name.rsplit_once('/')?;
        let dir = match file {
            "lib.rs" | "main.rs" | "mod.rs" => dir.to_owned(),
            file => format!("{dir}/{}", file.trim_end_matches(".rs")),
        };
        let candidates = [format!("{dir}/{name}.rs"), format!("{dir}/{name}/mod.rs")];
        candidates.into_iter().find(|path| self.sources.contains_key(path))
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
