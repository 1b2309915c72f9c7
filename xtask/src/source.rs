// SPDX-License-Identifier: MIT OR Apache-2.0
//! A source file: parsed, and its code separated from comments, literals and tests.
//!
//! Test code exists only in test builds: files below `tests`, `benches` and `examples`, and items that a `cfg`
//! attribute restricts to `test` or to the feature `mutants`. Checks of code skip it.

use proc_macro2::{Delimiter, LineColumn, TokenStream, TokenTree};
use syn::Lit;
use syn::visit::Visit;

use crate::attributes::{is_test_only, of_impl_item, of_item};

/// A source file.
pub struct Source {
    /// Path from the root of the repository.
    pub name: String,
    /// The text.
    pub text: String,
    /// The syntax tree.
    pub ast: syn::File,
    /// Lines without comments, the contents of literals, and test code.
    pub code: Vec<String>,
    /// String literals with their lines, without those of test code.
    pub strings: Vec<(usize, String)>,
    /// Whether the whole file is test code.
    pub is_test: bool,
}

impl Source {
    /// Parses a text.
    ///
    /// # Errors
    /// The text is not Rust.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let failed = |e: &dyn std::fmt::Display| format!("{name}: cannot be parsed: {e}");
        let tokens: TokenStream = text.parse().map_err(|e| failed(&e))?;
        let ast: syn::File = syn::parse2(tokens.clone()).map_err(|e| failed(&e))?;
        let mut blanker =
            Blanker { text: text.lines().collect(), code: Vec::new(), strings: Vec::new() };
        blanker.blank(tokens);
        let Blanker { mut code, mut strings, .. } = blanker;
        let mut tests = TestLines::default();
        tests.visit_file(&ast);
        strings.retain(|(line, _)| !tests.0.iter().any(|lines| lines.contains(line)));
        for (number, line) in code.iter_mut().enumerate() {
            if tests.0.iter().any(|lines| lines.contains(&(number + 1))) {
                line.clear();
            }
        }
        let is_test = ["/tests/", "/benches/", "/examples/"].iter().any(|dir| name.contains(dir))
            || is_test_only(&ast.attrs);
        let (name, text) = (name.to_owned(), text.to_owned());
        Ok(Self { name, text, ast, code, strings, is_test })
    }

    /// The crate to which the source belongs; `None` for tests.
    #[must_use]
    pub fn crate_name(&self) -> Option<&str> {
        let (name, file) = self.name.strip_prefix("crates/")?.split_once('/')?;
        file.starts_with("src/").then_some(name)
    }

    /// Number of lines with code.
    #[must_use]
    pub fn code_lines(&self) -> usize {
        if self.is_test { 0 } else { self.code.iter().filter(|l| !l.trim().is_empty()).count() }
    }
}

/// Writes tokens at their positions in the text, without comments and the contents of literals.
struct Blanker<'a> {
    text: Vec<&'a str>,
    code: Vec<String>,
    strings: Vec<(usize, String)>,
}

impl Blanker<'_> {
    fn put(&mut self, at: LineColumn, what: &str) {
        self.code.resize(self.code.len().max(at.line), String::new());
        let line = &mut self.code[at.line - 1];
        let missing = at.column.saturating_sub(line.chars().count());
        line.extend(std::iter::repeat_n(' ', missing));
        line.push_str(what);
    }

    fn blank(&mut self, tokens: TokenStream) {
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            let start = token.span().start();
            match token {
                TokenTree::Group(group) => {
                    let (open, close) = match group.delimiter() {
                        Delimiter::Parenthesis => ("(", ")"),
                        Delimiter::Brace => ("{", "}"),
                        Delimiter::Bracket => ("[", "]"),
                        Delimiter::None => ("", ""),
                    };
                    self.put(start, open);
                    self.blank(group.stream());
                    self.put(group.span_close().start(), close);
                }
                // The document of an item is an attribute by its tokens, at the position of the comment.
                TokenTree::Punct(punct) if punct.as_char() == '#' && self.is_comment(start) => {
                    tokens.next_if(|t| matches!(t, TokenTree::Punct(p) if p.as_char() == '!'));
                    tokens.next();
                }
                TokenTree::Literal(literal) => match syn::parse_str(&literal.to_string()) {
                    Ok(Lit::Str(value)) => {
                        self.strings.push((start.line, value.value()));
                        self.put(start, "\"\"");
                    }
                    _ => self.put(start, "0"),
                },
                token => self.put(start, &token.to_string()),
            }
        }
    }

    fn is_comment(&self, at: LineColumn) -> bool {
        let line = self.text.get(at.line - 1).copied().unwrap_or_default();
        line.chars().nth(at.column) == Some('/')
    }
}

/// The lines of items that are test code.
#[derive(Default)]
struct TestLines(Vec<std::ops::RangeInclusive<usize>>);

impl<'a> Visit<'a> for TestLines {
    fn visit_item(&mut self, item: &'a syn::Item) {
        let attrs = of_item(item);
        if is_test_only(attrs) {
            return self.skip(attrs, item);
        }
        syn::visit::visit_item(self, item);
    }

    fn visit_impl_item(&mut self, item: &'a syn::ImplItem) {
        let attrs = of_impl_item(item);
        if is_test_only(attrs) {
            return self.skip(attrs, item);
        }
        syn::visit::visit_impl_item(self, item);
    }
}

impl TestLines {
    fn skip(&mut self, attrs: &[syn::Attribute], item: &impl syn::spanned::Spanned) {
        let first = attrs.first().map_or_else(|| item.span(), syn::spanned::Spanned::span);
        self.0.push(first.start().line..=item.span().end().line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_literals_and_tests_are_not_code() {
        let text = "//! A module.\nfn a() {\n    // b\n    c(\"d\"); /* e */\n}\n\n/// Doc.\n#[cfg(test)]\n\
                    mod tests {\n    fn f() {}\n}\nfn g() {}\n";
        let source = Source::parse("crates/x/src/lib.rs", text).unwrap();
        let code: Vec<&str> = source.code.iter().map(String::as_str).collect();
        assert_eq!(
            code,
            ["", "fn a() {", "", "    c(\"\" );", "}", "", "", "", "", "", "", "fn g() {}"]
        );
        assert_eq!(source.code_lines(), 4);
    }
}
