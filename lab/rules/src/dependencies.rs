//! Which top-level modules of a crate use which.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Item, UseTree};

use crate::source::{Crate, Module};

/// For each top-level module the others that it names, and a file in which it does.
type Arrows = BTreeMap<String, BTreeMap<String, String>>;

/// Top-level modules that need each other, with the arrow that closes the loop named last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cycle(pub Vec<String>);

/// Finds which top-level modules name which others, by `crate::` and `super::` paths. A name that the
/// root re-exports counts as the module's that declares it.
#[must_use]
pub fn module_dependencies(krate: &Crate) -> Arrows {
    let tops: BTreeSet<_> = krate
        .modules
        .iter()
        .filter(|module| module.path.len() == 1)
        .map(|module| module.path[0].clone())
        .collect();
    let aliases = re_exported(krate, &tops);
    let mut arrows = Arrows::new();
    for module in &krate.modules {
        let Some(from) = module.path.first() else {
            continue;
        };
        for name in names_at_root(module) {
            let to = aliases.get(&name).unwrap_or(&name);
            if to != from && tops.contains(to) {
                let file = module.file.display().to_string();
                let from = arrows.entry(from.clone()).or_default();
                from.entry(to.clone()).or_insert(file);
            }
        }
    }
    arrows
}

/// Finds modules that reach themselves: each strongly connected set once, sorted.
#[must_use]
pub fn cycles(arrows: &Arrows) -> Vec<Cycle> {
    let reached: BTreeMap<_, _> = arrows
        .keys()
        .map(|from| (from, reach(arrows, from)))
        .collect();
    let mut found = BTreeSet::new();
    for (from, to) in &reached {
        if to.contains(*from) {
            let back = |other: &&String| reached.get(other).is_some_and(|set| set.contains(*from));
            found.insert(Cycle(to.iter().filter(back).cloned().collect()));
        }
    }
    found.into_iter().collect()
}

fn reach(arrows: &Arrows, from: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut pending = vec![from.to_owned()];
    while let Some(module) = pending.pop() {
        for next in arrows.get(&module).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(next.clone()) {
                pending.push(next.clone());
            }
        }
    }
    reached
}

/// Names that the root takes from its modules, each with the module.
fn re_exported(krate: &Crate, tops: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut aliases = BTreeMap::new();
    let root = krate.modules.iter().find(|module| module.path.is_empty());
    for item in root.into_iter().flat_map(|root| &root.items) {
        if let Item::Use(item) = item {
            each_path(&item.tree, &mut Vec::new(), &mut |path| {
                let path: Vec<_> = path
                    .iter()
                    .skip_while(|name| *name == "self" || *name == "crate")
                    .collect();
                if let [module, .., name] = path.as_slice()
                    && tops.contains(*module)
                    && !tops.contains(*name)
                {
                    aliases.insert((*name).clone(), (*module).clone());
                }
            });
        }
    }
    aliases
}

/// First names after the crate's root in all paths of a module.
fn names_at_root(module: &Module) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for item in &module.items {
        match item {
            Item::Use(item) => each_path(&item.tree, &mut Vec::new(), &mut |path| {
                names.extend(from_root(path, module.path.len()));
            }),
            other => scan(other.to_token_stream(), module.path.len(), &mut names),
        }
    }
    names
}

/// The name after `crate`, or after as many `super` as lead to the root.
fn from_root(path: &[String], depth: usize) -> Option<String> {
    let ups = path.iter().take_while(|name| *name == "super").count();
    match path {
        [first, name, ..] if first == "crate" => Some(name.clone()),
        _ if ups > 0 && ups == depth => path.get(ups).cloned(),
        _ => None,
    }
}

/// Calls `found` with each path that a `use` brings.
fn each_path(tree: &UseTree, before: &mut Vec<String>, found: &mut impl FnMut(&[String])) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            each_path(&path.tree, before, found);
            before.pop();
        }
        UseTree::Group(group) => {
            for tree in &group.items {
                each_path(tree, before, found);
            }
        }
        UseTree::Name(name) => with(before, name.ident.to_string(), found),
        // What it is called here does not matter for where it comes from.
        UseTree::Rename(rename) => with(before, rename.ident.to_string(), found),
        UseTree::Glob(_) => with(before, "*".to_owned(), found),
    }
}

fn with(before: &mut Vec<String>, name: String, found: &mut impl FnMut(&[String])) {
    before.push(name);
    found(before);
    before.pop();
}

/// Finds paths in code, also within macros.
fn scan(tokens: TokenStream, depth: usize, names: &mut BTreeSet<String>) {
    let mut path: Vec<String> = Vec::new();
    let mut colons = 0;
    for token in tokens {
        match token {
            TokenTree::Ident(name) => {
                if colons != 2 {
                    path.clear();
                }
                path.push(name.to_string());
                names.extend(from_root(&path, depth));
                colons = 0;
            }
            TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
            TokenTree::Group(group) => {
                path.clear();
                colons = 0;
                scan(group.stream(), depth, names);
            }
            _ => {
                path.clear();
                colons = 0;
            }
        }
    }
}
