// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that import each other, directly or through others: a reader has to understand all of them at once.
//!
//! A group is a strongly connected component of the files of a crate. A module that re-exports names of its children
//! imports nothing; a module that uses such a name imports the child. A parent and its children define what they share in
//! a child.

use std::collections::{BTreeMap, BTreeSet};

use crate::modules::{Imports, Modules};
use crate::tree::Tree;

/// Files that import each other.
type Group = BTreeSet<String>;

/// The check.
pub fn check(tree: &Tree, findings: &mut Vec<String>) {
    for name in tree.crates() {
        let arrows = Modules::of(tree, &name).imports();
        for group in components(&arrows) {
            let inside = arrows.iter().filter(|((a, b), _)| group.contains(a) && group.contains(b));
            let inside = inside.map(|((from, to), paths)| {
                format!(
                    "\n  {from} -> {to}: {}",
                    paths.iter().cloned().collect::<Vec<_>>().join(", ")
                )
            });
            let arrows: String = inside.collect();
            findings.push(format!("{} files import each other:{arrows}", group.len()));
        }
    }
}

/// Strongly connected components of more than one node: nodes that reach each other.
fn components(arrows: &Imports) -> Vec<Group> {
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    arrows.keys().for_each(|(from, to)| next.entry(from).or_default().push(to));
    let reach = |from: &str| {
        let (mut seen, mut left) = (BTreeSet::new(), vec![from]);
        while let Some(node) = left.pop() {
            for to in next.get(node).into_iter().flatten() {
                if seen.insert(*to) {
                    left.push(to);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        next.keys().map(|node| (*node, reach(node))).collect();
    let mut groups = BTreeSet::new();
    for (node, seen) in &reached {
        let back = |other: &&str| reached.get(other).is_some_and(|s| s.contains(node));
        let group: Group = seen.iter().copied().filter(back).map(str::to_owned).collect();
        if !group.is_empty() {
            groups.insert(group);
        }
    }
    groups.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<Group> {
        components(&Modules::of(&Tree::of(files), "x").imports())
    }

    fn group(files: &[&str]) -> Group {
        files.iter().map(|f| format!("crates/x/src/{f}")).collect()
    }

    #[test]
    fn circles_through_re_exporting_parents_are_found() {
        let lib = ("lib.rs", "mod a; mod b; mod c;\npub use self::a::{A, f};\npub use b::*;");
        let a = ("a.rs", "use super::B; pub struct A(B); pub fn f() {}");
        let c = ("c.rs", "use crate::A; pub struct C(A);");
        let b = ("b.rs", "pub struct B; impl B { fn g() { crate::f() } }");
        assert_eq!(found(&[lib, a, b, c]), [group(&["a.rs", "b.rs"])]);
        let b = ("b.rs", "pub struct B;\n#[cfg(test)] mod tests { use crate::f; }");
        assert_eq!(found(&[lib, a, b, c]), [] as [Group; 0]);
    }

    #[test]
    fn a_child_and_its_parent_are_a_group_and_paths_in_macros_count() {
        let lib = ("lib.rs", "mod a; mod c;");
        let parent = ("a/mod.rs", "pub mod b; pub struct A(b::B); pub fn f(c: crate::c::C) {}");
        let child = ("a/b.rs", "pub struct B; fn f() { println!(\"{}\", super::A::new()) }");
        let c = ("c.rs", "pub struct C;");
        assert_eq!(found(&[lib, parent, child, c]), [group(&["a/b.rs", "a/mod.rs"])]);
        let child = ("a/b.rs", "pub struct B;");
        let c = ("c.rs", "pub struct C; fn f() { println!(\"{}\", crate::a::f()) }");
        assert_eq!(found(&[lib, parent, child, c]), [group(&["a/mod.rs", "c.rs"])]);
    }

    #[test]
    fn modules_of_tests_do_not_count() {
        let files = [
            ("lib.rs", "pub mod a; #[cfg(test)] mod t;"),
            ("a.rs", "pub struct A; #[cfg(test)] fn f(x: crate::t::T) {}"),
            ("t.rs", "use crate::a::A; mod u; pub struct T;"),
            ("t/u.rs", "use super::T;"),
        ];
        assert_eq!(found(&files), [] as [Group; 0]);
    }
}
