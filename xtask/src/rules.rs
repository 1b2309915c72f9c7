// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules of docs/design.md: every cited rule exists, and each mutant is listed under the rule that it breaks.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::Visit;
use syn::{Expr, Item, Lit};

use crate::source::Source;
use crate::tree::Tree;

const DESIGN: &str = "docs/design.md";
/// The heading of a rule.
const HEADING: &str = "### Rule ";
const CORE_MUTANTS: [&str; 2] =
    ["crates/core/src/mutant/list.rs", "crates/core/src/mutant/page_logs.rs"];
const PG_MUTANTS: &str = "crates/pg/src/mutant.rs";

/// The mutants that break each rule, by the rule's id.
type Rules = BTreeMap<String, Vec<String>>;

/// The check.
pub fn check(tree: &Tree, findings: &mut Vec<String>) {
    let Ok(design) = std::fs::read_to_string(tree.root.join(DESIGN)) else {
        return findings.push(format!("{DESIGN}: cannot be read"));
    };
    let rules = rules(&design, findings);
    check_mutants(&rules, &mutants(tree), findings);
    check_references(tree, &design, findings);
    for source in tree.sources.values().filter(|s| s.name.starts_with("crates/")) {
        check_citations(&source.name, &source.text, &rules, findings);
    }
    let mut documents =
        vec!["ARCHITECTURE.md".into(), "CONTRIBUTING.md".into(), "README.md".into()];
    let entries = std::fs::read_dir(tree.root.join("docs")).into_iter().flatten().flatten();
    let names = entries.map(|e| format!("docs/{}", e.file_name().display()));
    documents.extend(names.filter(|name| name.ends_with(".md")));
    for name in documents {
        let text = std::fs::read_to_string(tree.root.join(&name)).unwrap_or_default();
        check_citations(&name, &text, &rules, findings);
    }
}

/// The ids of the rules.
#[must_use]
pub fn ids(tree: &Tree) -> BTreeSet<String> {
    let design = std::fs::read_to_string(tree.root.join(DESIGN)).unwrap_or_default();
    rules(&design, &mut Vec::new()).into_keys().collect()
}

/// The texts between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn rules(design: &str, findings: &mut Vec<String>) -> Rules {
    let mut rules = Rules::new();
    for section in design.split(&format!("\n{HEADING}")).skip(1) {
        let id = section.split(':').next().unwrap_or_default().to_owned();
        let mutants = section.split("\nMutants: ").nth(1).unwrap_or_default();
        // The paragraph ends at an empty line, or at the tests.
        let end = ["\n\n", "\nTests: "].iter().filter_map(|end| mutants.find(end)).min();
        let mutants = quoted(&mutants[..end.unwrap_or(mutants.len())]).map(str::to_owned).collect();
        if rules.insert(id.clone(), mutants).is_some() {
            findings.push(format!("{DESIGN}: rule {id} is defined twice"));
        }
    }
    rules
}

/// The names of mutants, each with the rule that it breaks.
fn mutants(tree: &Tree) -> Vec<(String, String)> {
    let mut found = Table::default();
    for source in CORE_MUTANTS.iter().filter_map(|file| tree.sources.get(*file)) {
        found.visit_file(&source.ast);
    }
    found
        .0
        .into_iter()
        .chain(tree.sources.get(PG_MUTANTS).map(of_variants).unwrap_or_default())
        .collect()
}

/// Rows `mutant("name", "rule", "what")`.
#[derive(Default)]
struct Table(Vec<(String, String)>);

impl<'a> Visit<'a> for Table {
    fn visit_expr_call(&mut self, call: &'a syn::ExprCall) {
        let text = |n: usize| match call.args.get(n)? {
            Expr::Lit(lit) => match &lit.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        };
        if let (Expr::Path(func), Some(name), Some(rule)) = (&*call.func, text(0), text(1))
            && func.path.is_ident("mutant")
        {
            self.0.push((name, rule));
        }
        syn::visit::visit_expr_call(self, call);
    }
}

/// The variants of `enum Mutant`, whose documents cite the rule.
fn of_variants(source: &Source) -> Vec<(String, String)> {
    let variants = source.ast.items.iter().filter_map(|item| match item {
        Item::Enum(item) if item.ident == "Mutant" => Some(&item.variants),
        _ => None,
    });
    let row = |variant: &syn::Variant| {
        let texts = variant.attrs.iter().filter_map(|attr| match &attr.meta {
            syn::Meta::NameValue(meta) => match &meta.value {
                Expr::Lit(lit) => match &lit.lit {
                    Lit::Str(text) => Some(text.value()),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        });
        let rule = texts.flat_map(|text| cited(&text)).next().unwrap_or_default();
        (kebab(&variant.ident.to_string()), rule)
    };
    variants.flatten().map(row).collect()
}

fn kebab(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !out.is_empty() {
            out.push('-');
        }
        out.extend(c.to_lowercase());
    }
    out
}

fn check_mutants(rules: &Rules, mutants: &[(String, String)], findings: &mut Vec<String>) {
    for (name, rule) in mutants {
        match rules.get(rule) {
            None => findings.push(format!("mutant {name}: {DESIGN} has no rule {rule:?}")),
            Some(listed) if !listed.contains(name) => {
                findings.push(format!("{DESIGN}: rule {rule} does not list its mutant {name}"));
            }
            Some(_) => {}
        }
    }
    for (rule, listed) in rules {
        for name in listed.iter().filter(|n| !mutants.iter().any(|(m, r)| m == *n && r == rule)) {
            findings.push(format!(
                "{DESIGN}: rule {rule} lists {name}, but no such mutant cites this rule"
            ));
        }
    }
}

/// Checks that paths in the document exist, and contain the tests that it names: `name` in `path`.
fn check_references(tree: &Tree, design: &str, findings: &mut Vec<String>) {
    let words: Vec<&str> = quoted(design).collect();
    for path in words.iter().filter(|w| w.starts_with("crates/")) {
        if !tree.root.join(path).exists() {
            findings.push(format!("{DESIGN}: {path} does not exist"));
        }
    }
    let pieces: Vec<&str> = design.split('`').collect();
    for piece in pieces.windows(3).filter(|piece| piece[1].trim() == "in") {
        let (name, path) = (piece[0], piece[2]);
        let text = tree.sources.get(path).map_or("", |source| &source.text);
        if path.starts_with("crates/") && !text.contains(&format!("fn {name}(")) {
            findings.push(format!("{DESIGN}: {path} has no test {name}"));
        }
    }
}

fn check_citations(name: &str, text: &str, rules: &Rules, findings: &mut Vec<String>) {
    for (number, line) in text.lines().enumerate() {
        for id in cited(line).into_iter().filter(|id| !rules.contains_key(id)) {
            findings.push(format!("{name}:{}: {DESIGN} has no rule {id}", number + 1));
        }
    }
}

/// The ids that a line cites: after "rule" or "rules", one or several with `,`, `-`, "and" or "to" between them.
fn cited(line: &str) -> Vec<String> {
    let mut ids = Vec::new();
    let lower = line.to_ascii_lowercase();
    for (at, word) in lower.match_indices("rule") {
        if lower[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &line[at + word.len()..];
        let Some(mut rest) = rest.strip_prefix("s ").or_else(|| rest.strip_prefix(' ')) else {
            continue;
        };
        while let Some(id) = id_at(rest) {
            ids.push(id.to_owned());
            rest = &rest[id.len()..];
            let between =
                [", and ", ", ", " and ", " to ", "-"].into_iter().find(|b| rest.starts_with(b));
            let Some(between) = between else { break };
            rest = &rest[between.len()..];
        }
    }
    ids
}

/// An id at the start of a text.
fn id_at(text: &str) -> Option<&str> {
    let letters = usize::from(text.starts_with(['L', 'S', 'P']));
    let digits = text[letters..].bytes().take_while(u8::is_ascii_digit).count();
    let id = &text[..letters + digits];
    let ends = !text[id.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '%');
    (digits > 0 && ends).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Rules\n\n### Rule 1: one\nMutants: `a`, `b`,\n`c`.\nTests: `d`.\n\n### Rule L2: two\n\nWhy.\n";

    #[test]
    fn citations_are_found() {
        assert_eq!(
            cited("//! (design rules 3-7, L2 and 9), rule 12: x"),
            ["3", "7", "L2", "9", "12"]
        );
        assert_eq!(cited("Rule 3: a; rules of 5; ferrule 6; rule 4k; rule {}"), ["3"]);
    }

    #[test]
    fn mutants_and_rules_agree() {
        let mut findings = Vec::new();
        let rules = rules(TEXT, &mut findings);
        assert_eq!(rules["1"], ["a", "b", "c"]);
        let rows = |rows: &[(&str, &str)]| -> Vec<(String, String)> {
            rows.iter().map(|(name, rule)| ((*name).to_owned(), (*rule).to_owned())).collect()
        };
        check_mutants(&rules, &rows(&[("a", "1"), ("b", "1"), ("c", "1")]), &mut findings);
        assert!(findings.is_empty(), "{findings:?}");
        check_mutants(&rules, &rows(&[("a", "1"), ("b", "L2"), ("c", "3")]), &mut findings);
        assert_eq!(findings.len(), 4, "{findings:?}");
        findings.clear();
        check_citations("x.rs", "// rule L2\n// rule L3\n", &rules, &mut findings);
        assert_eq!(findings, ["x.rs:2: docs/design.md has no rule L3"]);
    }

    #[test]
    fn mutants_are_read_from_code() {
        let core = "const M: &[Mutant] = &[mutant(\"a-b\", \"L2\", \"what\")];";
        let pg = "enum Mutant {\n/// Something (rule P2).\nNoHash,\n}";
        let parse = |name: &str, text| (name.to_owned(), Source::parse(name, text).unwrap());
        let sources = [parse(CORE_MUTANTS[0], core), parse(PG_MUTANTS, pg)].into();
        let found = mutants(&Tree { root: ".".into(), sources });
        let row = |name: &str, rule: &str| (name.to_owned(), rule.to_owned());
        assert_eq!(found, [row("a-b", "L2"), row("no-hash", "P2")]);
    }
}
