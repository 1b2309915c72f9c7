// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of presets in engine crates outside of their table: the engine examines choices, never a name.
//!
//! The preset that has the project's own name cannot be told from the project and is left out.

use syn::visit::Visit;
use syn::{Expr, Lit, Member};

use crate::tree::Tree;

const CRATES: &[&str] = &["core", "volume", "front", "io", "shared", "pg"];
/// The project, and a preset.
const OWN: &str = "larder";
const TABLE: &str = "crates/core/src/config/presets.rs";

/// The check.
pub fn check(tree: &Tree, findings: &mut Vec<String>) {
    let Some(table) = tree.sources.get(TABLE) else {
        findings.push(format!("{TABLE}: does not exist; the table of presets has moved"));
        return;
    };
    let mut names = Names::default();
    names.visit_file(&table.ast);
    if names.0.is_empty() {
        findings.push(format!("{TABLE}: has no `Preset {{ name: \"...\" }}`"));
    }
    let engine = tree.code().filter(|s| s.crate_name().is_some_and(|name| CRATES.contains(&name)));
    for source in engine.filter(|s| s.name != TABLE) {
        for (line, _) in
            source.strings.iter().filter(|(_, value)| value != OWN && names.0.contains(value))
        {
            findings.push(format!("{}:{line}: names a preset", source.name));
        }
    }
}

/// Names of presets.
#[derive(Default)]
struct Names(Vec<String>);

impl<'a> Visit<'a> for Names {
    fn visit_expr_struct(&mut self, expr: &'a syn::ExprStruct) {
        for field in expr.fields.iter().filter(|_| expr.path.is_ident("Preset")) {
            if let (Member::Named(member), Expr::Lit(lit)) = (&field.member, &field.expr)
                && let ("name", Lit::Str(name)) = (member.to_string().as_str(), &lit.lit)
            {
                self.0.push(name.value());
            }
        }
        syn::visit::visit_expr_struct(self, expr);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_outside_of_the_table_is_found() {
        let table = ("config/presets.rs", "const P: Preset = Preset { name: \"sce\" };");
        let engine = ("lib.rs", "fn f() { g!(\"sce\") }\n#[cfg(test)] fn t() { \"sce\" }");
        let mut findings = Vec::new();
        check(&Tree::of_crate("core", &[table, engine]), &mut findings);
        assert_eq!(findings, ["crates/core/src/lib.rs:1: names a preset"]);
    }
}
