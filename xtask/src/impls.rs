// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inherent `impl` blocks of one type in several folders, which hide where the type's state changes.
//!
//! A file with child modules (`x.rs` beside `x/`) counts as in the folder of its children.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::Visit;

use crate::attributes::{is_test_only, of_item};
use crate::modules::Modules;
use crate::names::Path;
use crate::tree::Tree;

/// The check.
pub fn check(tree: &Tree, findings: &mut Vec<String>) {
    for name in tree.crates() {
        let modules = Modules::of(tree, &name);
        let mut folders: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
        for source in tree.code().filter(|s| s.crate_name() == Some(&name)) {
            let mut types = Types::default();
            types.visit_file(&source.ast);
            for path in types.0 {
                let Some(file) = modules.definition(&source.name, &path) else { continue };
                let last = path.last().cloned().unwrap_or_default();
                let folder = folder(tree, &source.name);
                folders.entry((file.to_owned(), last)).or_default().insert(folder);
            }
        }
        for ((_, last), folders) in folders.into_iter().filter(|(_, folders)| folders.len() > 1) {
            let folders = folders.into_iter().collect::<Vec<_>>().join(", ");
            findings.push(format!("{name}::{last} has impl blocks in several folders: {folders}"));
        }
    }
}

fn folder(tree: &Tree, file: &str) -> String {
    let children = format!("{}/", file.trim_end_matches(".rs"));
    let has_children = tree.sources.range(children.clone()..).next();
    if has_children.is_some_and(|(name, _)| name.starts_with(&children)) {
        return children;
    }
    file.rsplit_once('/').map_or_else(String::new, |(folder, _)| format!("{folder}/"))
}

/// The types of inherent `impl` blocks.
#[derive(Default)]
struct Types(Vec<Path>);

impl<'a> Visit<'a> for Types {
    fn visit_item(&mut self, item: &'a syn::Item) {
        if !is_test_only(of_item(item)) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        if let (None, syn::Type::Path(path)) = (&item.trait_, &*item.self_ty) {
            self.0.push(path.path.segments.iter().map(|s| s.ident.to_string()).collect());
        }
        syn::visit::visit_item_impl(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_has_its_blocks_in_one_folder() {
        let lib = ("lib.rs", "mod a; mod b; pub struct A; impl A {}");
        let found = |files: &[(&str, &str)]| {
            let mut findings = Vec::new();
            check(&Tree::of(files), &mut findings);
            findings
        };
        let several = [
            lib,
            ("a/mod.rs", "impl crate::A {}"),
            ("b.rs", "use crate::A; impl A {} impl Clone for A {}"),
        ];
        let finding = "x::A has impl blocks in several folders: crates/x/src/, crates/x/src/a/";
        assert_eq!(found(&several), [finding]);
        let one = [lib, ("a/mod.rs", "struct A; impl A {}"), ("b.rs", "use crate::A; impl A {}")];
        assert!(found(&one).is_empty());
    }
}
