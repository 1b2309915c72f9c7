// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names of one module: its definitions, its imports, and the paths in its code.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::Visit;
use syn::{Item, UseTree, Visibility};

use crate::attributes::{is_test_only, of_impl_item, of_item};

/// A path, segment by segment.
pub type Path = Vec<String>;

/// An import.
pub struct Import {
    /// The name in the module; `*` for a glob.
    pub name: String,
    /// The imported path.
    pub path: Path,
    /// Whether the module re-exports the name.
    pub is_reexport: bool,
}

/// The names of a module.
#[derive(Default)]
pub struct Names {
    /// Names of items.
    pub defines: BTreeSet<String>,
    /// Imports, including those within functions.
    pub imports: Vec<Import>,
    /// Paths in code, of one segment or more.
    pub uses: BTreeSet<Path>,
}

/// Collects the names of one module, without inner modules.
#[derive(Default)]
pub struct Reader {
    /// The names found.
    pub names: Names,
    /// 0 in items of the module; more within functions.
    depth: usize,
}

impl<'a> Visit<'a> for Reader {
    fn visit_item(&mut self, item: &'a Item) {
        if is_test_only(of_item(item)) || matches!(item, Item::Mod(_)) {
            return;
        }
        if self.depth == 0
            && let Some(name) = defined(item)
        {
            self.names.defines.insert(name);
        }
        self.depth += 1;
        syn::visit::visit_item(self, item);
        self.depth -= 1;
    }

    fn visit_impl_item(&mut self, item: &'a syn::ImplItem) {
        if !is_test_only(of_impl_item(item)) {
            syn::visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        let is_reexport = !matches!(item.vis, Visibility::Inherited);
        flatten(&item.tree, &mut Vec::new(), &mut |name, path| {
            self.names.imports.push(Import { name, path, is_reexport });
        });
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.leading_colon.is_none() {
            let segments = path.segments.iter().map(|s| s.ident.to_string()).collect();
            self.names.uses.insert(segments);
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, mac: &'a syn::Macro) {
        self.visit_path(&mac.path);
        paths_of_tokens(mac.tokens.clone(), &mut self.names.uses);
    }

    fn visit_visibility(&mut self, _: &'a Visibility) {}
}

fn defined(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(i) => &i.ident,
        Item::Enum(i) => &i.ident,
        Item::Fn(i) => &i.sig.ident,
        Item::Static(i) => &i.ident,
        Item::Struct(i) => &i.ident,
        Item::Trait(i) => &i.ident,
        Item::Type(i) => &i.ident,
        Item::Union(i) => &i.ident,
        Item::Macro(i) => i.ident.as_ref()?,
        _ => return None,
    };
    Some(name.to_string())
}

fn flatten(tree: &UseTree, path: &mut Path, found: &mut dyn FnMut(String, Path)) {
    match tree {
        UseTree::Path(one) => {
            path.push(one.ident.to_string());
            flatten(&one.tree, path, found);
            path.pop();
        }
        UseTree::Name(one) if one.ident == "self" => {
            found(path.last().cloned().unwrap_or_default(), path.clone());
        }
        UseTree::Name(one) => {
            let name = one.ident.to_string();
            found(name.clone(), path.iter().cloned().chain([name]).collect());
        }
        UseTree::Rename(one) => {
            let last = [one.ident.to_string()].into_iter().filter(|name| name != "self");
            found(one.rename.to_string(), path.iter().cloned().chain(last).collect());
        }
        UseTree::Glob(_) => found("*".to_owned(), path.clone()),
        UseTree::Group(group) => group.items.iter().for_each(|one| flatten(one, path, found)),
    }
}

/// Collects what looks like a path in the tokens of a macro.
fn paths_of_tokens(tokens: TokenStream, found: &mut BTreeSet<Path>) {
    let (mut path, mut colons, mut after_dot) = (Path::new(), 0, false);
    for token in tokens {
        match token {
            TokenTree::Ident(_) if after_dot => after_dot = false,
            TokenTree::Ident(ident) => {
                if colons != 2 {
                    found.insert(std::mem::take(&mut path));
                }
                path.push(ident.to_string());
                colons = 0;
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
            token => {
                found.insert(std::mem::take(&mut path));
                colons = 0;
                after_dot = matches!(&token, TokenTree::Punct(p) if p.as_char() == '.');
                if let TokenTree::Group(group) = token {
                    paths_of_tokens(group.stream(), found);
                }
            }
        }
    }
    found.insert(path);
    found.remove(&Path::new());
}
