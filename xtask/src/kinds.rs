// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conditions on the kind of a cache outside the kinds' own files: a new kind would need a change at each of them.
//!
//! # The pattern
//! A condition is one of the following, in non-test code of an engine crate:
//! - a call, a method call or a path to one of [`QUESTIONS`];
//! - `x.log()` with `is_some` or `is_none`; the fields `dirty` and `factors` of `layout` or `keeps`;
//! - a `match`, an `if let` or `let else`, a `matches!`, `==` or `!=` in which a variant of one of [`KINDS`] is a pattern or
//!   an operand. It counts once, however many of its arms do so.
//!
//! A variant as a value is not a condition: the code that creates a cache names its kind.
//!
//! The code of [`CRATES`] has no condition outside [`OWN`].

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{BinOp, Expr, Member, Pat};

use crate::attributes::{is_test_only, of_impl_item, of_item};
use crate::tree::Tree;

/// The crates that have none.
const CRATES: &[&str] = &["core", "front", "io", "lab", "pg", "shared", "sim", "volume"];
/// The kinds' own files and folders.
const OWN: &[&str] = &[
    "crates/core/src/config/",
    "crates/core/src/cache/",
    "crates/core/src/format/",
    "crates/core/src/pagelog/policy.rs",
    "crates/core/src/pagelog/ops.rs",
    "crates/core/src/journal/clean.rs",
    "crates/core/src/journal/dirty.rs",
    "crates/pg/src/policy/",
];
/// Names of functions that ask for a property of a kind.
const QUESTIONS: &[&str] = &[
    "flash_owns",
    "flash_keeps",
    "holds_dirty",
    "outlives_crash",
    "keeps_dirty",
    "is_periodic",
    "drains",
];
/// Enums whose variants are kinds, or determine a kind.
const KINDS: &[&str] =
    &["WritePolicy", "LogPolicy", "Durability", "KindSpec", "Cache", "FlashCopy"];

/// The lines of conditions, by file.
#[must_use]
pub fn places(tree: &Tree) -> Vec<(&str, Vec<usize>)> {
    let files = tree.code().filter(|s| s.crate_name().is_some_and(|name| CRATES.contains(&name)));
    let files = files.filter(|s| !OWN.iter().any(|own| s.name.starts_with(own)));
    let places = files.map(|source| {
        let mut counter = Counter::default();
        counter.visit_file(&source.ast);
        (source.name.as_str(), counter.0)
    });
    places.filter(|(_, lines)| !lines.is_empty()).collect()
}

/// The check.
pub fn check(tree: &Tree, findings: &mut Vec<String>) {
    for (file, lines) in places(tree) {
        findings.extend(lines.iter().map(|line| {
            format!("{file}:{line}: a condition on a kind; the kind's own file gives the operation")
        }));
    }
}

/// The lines of conditions.
#[derive(Default)]
struct Counter(Vec<usize>);

impl Counter {
    fn count(&mut self, at: &impl Spanned) {
        self.0.push(at.span().start().line);
    }
}

fn is_question(name: &syn::Ident) -> bool {
    QUESTIONS.iter().any(|question| name == question)
}

/// Whether a path ends in a variant of a kind.
fn is_kind(path: &syn::Path) -> bool {
    let mut segments = path.segments.iter().rev().skip(1);
    segments.next().is_some_and(|segment| KINDS.iter().any(|kind| segment.ident == kind))
}

fn names_kind(pattern: &Pat) -> bool {
    #[derive(Default)]
    struct Finder(bool);
    impl<'a> Visit<'a> for Finder {
        fn visit_path(&mut self, path: &'a syn::Path) {
            self.0 |= is_kind(path);
        }
    }
    let mut finder = Finder::default();
    finder.visit_pat(pattern);
    finder.0
}

/// Whether the tokens of `matches!` name a variant of a kind.
fn tokens_name_kind(tokens: TokenStream) -> bool {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    tokens.iter().enumerate().any(|(n, token)| match token {
        TokenTree::Group(group) => tokens_name_kind(group.stream()),
        TokenTree::Ident(ident) => {
            let followed =
                matches!(tokens.get(n + 1), Some(TokenTree::Punct(p)) if p.as_char() == ':');
            followed && KINDS.iter().any(|kind| ident == kind)
        }
        _ => false,
    })
}

impl<'a> Visit<'a> for Counter {
    fn visit_item(&mut self, item: &'a syn::Item) {
        if !is_test_only(of_item(item)) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'a syn::ImplItem) {
        if !is_test_only(of_impl_item(item)) {
            syn::visit::visit_impl_item(self, item);
        }
    }

    fn visit_expr_method_call(&mut self, call: &'a syn::ExprMethodCall) {
        let asks_for_log = matches!(&*call.receiver, Expr::MethodCall(inner) if inner.method == "log")
            && (call.method == "is_some" || call.method == "is_none");
        if is_question(&call.method) || asks_for_log {
            self.count(&call.method);
        }
        syn::visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_path(&mut self, path: &'a syn::ExprPath) {
        if path.path.segments.last().is_some_and(|s| is_question(&s.ident)) {
            self.count(path);
        }
        syn::visit::visit_expr_path(self, path);
    }

    fn visit_expr_field(&mut self, field: &'a syn::ExprField) {
        let base = match &*field.base {
            Expr::Path(path) => path.path.segments.last().map(|s| s.ident.to_string()),
            Expr::Field(field) => match &field.member {
                Member::Named(name) => Some(name.to_string()),
                Member::Unnamed(_) => None,
            },
            _ => None,
        };
        let member = |name: &str| matches!(&field.member, Member::Named(n) if n == name);
        let of = |name: &str| base.as_deref() == Some(name);
        if of("layout") && member("dirty") || of("keeps") && (member("dirty") || member("factors"))
        {
            self.count(field);
        }
        syn::visit::visit_expr_field(self, field);
    }

    fn visit_expr_match(&mut self, expr: &'a syn::ExprMatch) {
        if expr.arms.iter().any(|arm| names_kind(&arm.pat)) {
            self.count(expr);
        }
        syn::visit::visit_expr_match(self, expr);
    }

    fn visit_expr_let(&mut self, expr: &'a syn::ExprLet) {
        if names_kind(&expr.pat) {
            self.count(expr);
        }
        syn::visit::visit_expr_let(self, expr);
    }

    fn visit_local(&mut self, local: &'a syn::Local) {
        if names_kind(&local.pat) {
            self.count(local);
        }
        syn::visit::visit_local(self, local);
    }

    fn visit_expr_binary(&mut self, expr: &'a syn::ExprBinary) {
        let kind = |e: &Expr| match e {
            Expr::Path(path) => is_kind(&path.path),
            Expr::Call(call) => matches!(&*call.func, Expr::Path(path) if is_kind(&path.path)),
            _ => false,
        };
        let compares = matches!(expr.op, BinOp::Eq(_) | BinOp::Ne(_));
        if compares && (kind(&expr.left) || kind(&expr.right)) {
            self.count(expr);
        }
        syn::visit::visit_expr_binary(self, expr);
    }

    fn visit_macro(&mut self, mac: &'a syn::Macro) {
        if mac.path.is_ident("matches") && tokens_name_kind(mac.tokens.clone()) {
            self.count(mac);
        }
        // The arguments of most macros are expressions.
        let arguments = syn::punctuated::Punctuated::<Expr, syn::Token![,]>::parse_terminated;
        for expr in mac.parse_body_with(arguments).iter().flatten() {
            self.visit_expr(expr);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        places(&Tree::of_crate("volume", &[("lib.rs", text)]))
            .into_iter()
            .flat_map(|(_, l)| l)
            .collect()
    }

    #[test]
    fn conditions_are_counted_and_values_are_not() {
        assert_eq!(
            lines("fn f() { if p.holds_dirty() {} }\nfn g() { x.map(P::flash_owns) }"),
            [1, 2]
        );
        let all = "fn f() { match p { LogPolicy::Full => 1, LogPolicy::Bounded | LogPolicy::Through => 2 } }";
        assert_eq!(lines(all), [1]);
        assert_eq!(lines("fn f() { let KindSpec::Log(l) = k else { return }; }"), [1]);
        assert_eq!(
            lines("fn f() { matches!(k, KindSpec::Log(l) if l.policy.holds_dirty()) }"),
            [1]
        );
        assert_eq!(lines("fn f() { assert!(a == Durability::Log && b.log().is_some()) }"), [1, 1]);
        assert_eq!(lines("fn f() { let p = LogPolicy::Full; g(Durability::Log) }"), []);
        assert_eq!(lines("#[cfg(test)] mod t { fn f() { p.holds_dirty(); } }"), []);
    }

    #[test]
    fn a_condition_outside_the_own_files_is_found() {
        let condition = "fn f() { p.holds_dirty(); }";
        let own = ("pagelog/ops.rs", condition);
        let mut findings = Vec::new();
        check(&Tree::of_crate("core", &[own, ("shard.rs", condition)]), &mut findings);
        let what = "a condition on a kind; the kind's own file gives the operation";
        assert_eq!(findings, [format!("crates/core/src/shard.rs:1: {what}")]);
    }
}
