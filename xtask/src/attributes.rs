// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attributes of items, and whether they make an item test code.

use proc_macro2::{TokenStream, TokenTree};
use syn::{Attribute, ImplItem, Item};

/// Whether a `cfg` attribute restricts an item to `test` or to the feature `mutants`.
#[must_use]
pub fn is_test_only(attrs: &[Attribute]) -> bool {
    attrs.iter().filter(|a| a.path().is_ident("cfg")).any(|attr| match &attr.meta {
        syn::Meta::List(list) => needs_test(list.tokens.clone()),
        _ => false,
    })
}

/// Whether a `cfg` predicate holds only in test builds. `all` is examined; `any` and `not` are not.
fn needs_test(predicate: TokenStream) -> bool {
    let tokens: Vec<TokenTree> = predicate.into_iter().collect();
    match tokens.as_slice() {
        [TokenTree::Ident(word), TokenTree::Group(group)] if *word == "all" => {
            let inner: Vec<TokenTree> = group.stream().into_iter().collect();
            let is_comma = |t: &TokenTree| matches!(t, TokenTree::Punct(p) if p.as_char() == ',');
            inner.split(is_comma).any(|one| needs_test(one.iter().cloned().collect()))
        }
        [TokenTree::Ident(word)] => *word == "test",
        [TokenTree::Ident(word), _, TokenTree::Literal(value)] => {
            *word == "feature" && value.to_string() == "\"mutants\""
        }
        _ => false,
    }
}

/// The attributes of an item.
#[must_use]
pub fn of_item(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::ExternCrate(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::ForeignMod(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::TraitAlias(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Union(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

/// The attributes of an item of an `impl`.
#[must_use]
pub fn of_impl_item(item: &ImplItem) -> &[Attribute] {
    match item {
        ImplItem::Const(i) => &i.attrs,
        ImplItem::Fn(i) => &i.attrs,
        ImplItem::Type(i) => &i.attrs,
        ImplItem::Macro(i) => &i.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_only_items_are_distinguished_from_others() {
        let is = |text: &str| is_test_only(of_item(&syn::parse_str::<Item>(text).unwrap()));
        assert!(is("#[cfg(test)] mod tests {}"));
        assert!(is("#[cfg(all(test, unix))] mod tests {}"));
        assert!(is("#[cfg(feature = \"mutants\")] fn f() {}"));
        assert!(!is("#[cfg(not(feature = \"mutants\"))] fn f() {}"));
        assert!(!is("#[cfg(any(test, unix))] fn f() {}"));
        assert!(!is("#[test] fn f() {}"));
    }
}
