// SPDX-License-Identifier: MIT OR Apache-2.0
//! The modules of a crate: the file of each, its definitions and imports, and the target of a path.
//!
//! Names are resolved as far as imports need it: through modules, definitions, imports (including globs) and
//! re-exports, within the crate. Methods are not resolved: code that calls one names the type somewhere, and that name
//! is a path.

use std::collections::{BTreeMap, BTreeSet};

use syn::Item;
use syn::visit::Visit;

use crate::attributes::is_test_only;
use crate::names::{Names, Path, Reader};
use crate::source::Source;
use crate::tree::Tree;

/// The longest chain of imports for one name.
const DEEPEST: usize = 16;

/// A module.
struct Module {
    /// The module's file.
    file: String,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    names: Names,
}

/// The modules of a crate.
#[derive(Default)]
pub struct Modules(Vec<Module>);

/// Imports between files, with the paths that cause them.
pub type Imports = BTreeMap<(String, String), BTreeSet<String>>;

/// The target of a path.
#[derive(Clone, Copy)]
enum Place {
    Module(usize),
    /// A definition of the module.
    Definition(usize),
}

impl Modules {
    /// The modules of a crate below `crates`, without test code.
    #[must_use]
    pub fn of(tree: &Tree, krate: &str) -> Self {
        let mut modules = Self::default();
        for root in ["lib.rs", "main.rs"] {
            if let Some(source) = tree.sources.get(&format!("crates/{krate}/src/{root}")) {
                modules.add(tree, source, &source.ast.items, None);
            }
        }
        modules
    }

    fn add(
        &mut self,
        tree: &Tree,
        source: &Source,
        items: &[Item],
        parent: Option<usize>,
    ) -> usize {
        let mut reader = Reader::default();
        items.iter().for_each(|item| reader.visit_item(item));
        let (file, children, names) = (source.name.clone(), BTreeMap::new(), reader.names);
        let id = self.0.len();
        self.0.push(Module { file, parent, children, names });
        for item in items {
            let Item::Mod(module) = item else { continue };
            if is_test_only(&module.attrs) {
                continue;
            }
            let name = module.ident.to_string();
            let child = match &module.content {
                Some((_, items)) => self.add(tree, source, items, Some(id)),
                None => {
                    let file = tree.module_file(source, &name).and_then(|f| tree.sources.get(&f));
                    let Some(source) = file else { continue };
                    self.add(tree, source, &source.ast.items, Some(id))
                }
            };
            self.0[id].children.insert(name, child);
        }
        id
    }

    /// Which file imports which paths from which other file. A private import, or a path in code, is an import; a
    /// re-export is not.
    #[must_use]
    pub fn imports(&self) -> Imports {
        let mut found = Imports::new();
        for (id, module) in self.0.iter().enumerate() {
            let names = &module.names;
            let private = || names.imports.iter().filter(|i| !i.is_reexport);
            // Code that uses an imported name is covered by the import.
            let is_imported = |path: &&Path| private().any(|i| path.first() == Some(&i.name));
            let paths = names.uses.iter().filter(|path| !is_imported(path));
            for path in private().map(|i| &i.path).chain(paths) {
                if let Some(Place::Definition(at)) = self.resolve(id, path, 0) {
                    let arrow = (module.file.clone(), self.0[at].file.clone());
                    found.entry(arrow).or_default().insert(path.join("::"));
                }
            }
        }
        found.retain(|(from, to), _| from != to);
        found
    }

    /// The file that defines the target of a path in a file.
    #[must_use]
    pub fn definition(&self, file: &str, path: &Path) -> Option<&str> {
        let inside = self.0.iter().enumerate().filter(|(_, m)| m.file == file);
        inside.into_iter().find_map(|(id, _)| match self.resolve(id, path, 0)? {
            Place::Definition(at) => Some(self.0[at].file.as_str()),
            Place::Module(_) => None,
        })
    }

    fn resolve(&self, from: usize, path: &[String], depth: usize) -> Option<Place> {
        let mut at = from;
        for (n, segment) in path.iter().enumerate() {
            let is_last = n + 1 == path.len();
            match segment.as_str() {
                "crate" => at = self.root(at),
                "self" => {}
                "super" => at = self.0[at].parent?,
                name => match self.look_up(at, name, is_last, depth)? {
                    Place::Module(module) => at = module,
                    definition => return Some(definition),
                },
            }
        }
        Some(Place::Module(at))
    }

    fn root(&self, mut at: usize) -> usize {
        while let Some(parent) = self.0[at].parent {
            at = parent;
        }
        at
    }

    /// Looks up a name in a module. A name may be both a module and a function: the last segment of a path is a
    /// definition.
    fn look_up(&self, at: usize, name: &str, is_last: bool, depth: usize) -> Option<Place> {
        if depth > DEEPEST {
            return None;
        }
        let (module, names) = (&self.0[at], &self.0[at].names);
        let defined = names.defines.contains(name).then_some(Place::Definition(at));
        let child = module.children.get(name).map(|child| Place::Module(*child));
        let imported = || {
            let mut imports = names.imports.iter().filter(|i| i.name == name);
            imports.find_map(|i| self.resolve(at, &i.path, depth + 1))
        };
        let globbed = || {
            let mut globs = names.imports.iter().filter(|i| i.name == "*");
            globs.find_map(|i| match self.resolve(at, &i.path, depth + 1)? {
                Place::Module(module) if module != at => {
                    self.look_up(module, name, is_last, depth + 1)
                }
                _ => None,
            })
        };
        match is_last {
            true => defined.or_else(imported).or(child).or_else(globbed),
            false => child.or_else(imported).or(defined).or_else(globbed),
        }
    }
}
