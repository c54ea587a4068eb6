//! The modules of a crate, found the way the compiler finds them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use syn::{Attribute, Item, Meta, Type};

/// A crate, by its modules.
#[derive(Debug)]
pub struct Crate {
    /// The root comes first, each other module after the one that declares it.
    pub modules: Vec<Module>,
}

/// A module with what it declares; what is for tests alone is left out.
#[derive(Debug)]
pub struct Module {
    /// Names from the root down; empty for the root.
    pub path: Vec<String>,
    /// The file that it lies in, as a path from where the crate's root file was named.
    pub file: PathBuf,
    /// True where the module and those that it lies in are `pub`.
    pub is_public: bool,
    /// Inner attributes, with the documentation among them.
    pub attributes: Vec<Attribute>,
    /// All items but modules, which are modules of their own, and tests.
    pub items: Vec<Item>,
}

impl Module {
    /// Returns whether it holds an `impl` block of the type of this name.
    pub fn implements(&self, name: &str) -> bool {
        self.items.iter().any(|item| match item {
            Item::Impl(block) => match &*block.self_ty {
                Type::Path(it) => it.path.segments.last().is_some_and(|it| it.ident == name),
                _ => false,
            },
            _ => false,
        })
    }
}

impl Crate {
    /// Reads the crate with that root file.
    ///
    /// # Errors
    ///
    /// Fails when a file of it cannot be found or is not Rust.
    pub fn read(root: &Path) -> Result<Self> {
        let mut krate = Self {
            modules: Vec::new(),
        };
        let directory = root.parent().unwrap_or(Path::new(""));
        krate.read_file(root, directory, Vec::new(), true)?;
        Ok(krate)
    }

    fn read_file(
        &mut self,
        file: &Path,
        children: &Path,
        path: Vec<String>,
        is_public: bool,
    ) -> Result<()> {
        let text =
            fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let parsed =
            syn::parse_file(&text).with_context(|| format!("{} is not Rust", file.display()))?;
        let place = Place {
            file,
            children,
            path,
        };
        self.add(&place, is_public, parsed.attrs, parsed.items)
    }

    fn add(
        &mut self,
        place: &Place<'_>,
        is_public: bool,
        attributes: Vec<Attribute>,
        items: Vec<Item>,
    ) -> Result<()> {
        if attributes.iter().any(is_for_tests) {
            return Ok(());
        }
        let (modules, items): (Vec<_>, Vec<_>) = items
            .into_iter()
            .filter(|item| !attributes_of(item).iter().any(is_for_tests))
            .partition(|item| matches!(item, Item::Mod(_)));
        self.modules.push(Module {
            path: place.path.clone(),
            file: place.file.to_owned(),
            is_public,
            attributes,
            items,
        });
        for module in modules {
            if let Item::Mod(module) = module {
                self.add_child(place, is_public, module)?;
            }
        }
        Ok(())
    }

    fn add_child(
        &mut self,
        place: &Place<'_>,
        is_public: bool,
        module: syn::ItemMod,
    ) -> Result<()> {
        let name = module.ident.to_string();
        let is_public = is_public && matches!(module.vis, syn::Visibility::Public(_));
        let mut path = place.path.clone();
        path.push(name.clone());
        let children = place.children.join(&name);
        if let Some((_, items)) = module.content {
            let place = Place {
                file: place.file,
                children: &children,
                path,
            };
            return self.add(&place, is_public, module.attrs, items);
        }
        let stated = module.attrs.iter().find_map(stated_path);
        let candidates = match stated {
            Some(stated) => {
                let beside = place.file.parent().unwrap_or(Path::new(""));
                vec![beside.join(stated)]
            }
            None => vec![children.with_extension("rs"), children.join("mod.rs")],
        };
        match candidates.iter().find(|file| file.is_file()) {
            Some(file) => self.read_file(file, &children, path, is_public),
            None => bail!("{}: no file for the module {name}", place.file.display()),
        }
    }
}

/// Where a module stands.
struct Place<'a> {
    file: &'a Path,
    /// The directory in which its children's files lie.
    children: &'a Path,
    path: Vec<String>,
}

/// True for `#[cfg(test)]`, also among other conditions of `all`, and `#[test]`.
pub(crate) fn is_for_tests(attribute: &Attribute) -> bool {
    if attribute.path().is_ident("test") {
        return true;
    }
    let Meta::List(list) = &attribute.meta else {
        return false;
    };
    let condition: String = list.tokens.to_string().split_whitespace().collect();
    list.path.is_ident("cfg")
        && (condition == "test"
            || condition.starts_with("all(test,")
            || (condition.starts_with("all(") && condition.contains(",test")))
}

/// The value of `#[path = "..."]`.
fn stated_path(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else {
        return None;
    };
    match &pair.value {
        syn::Expr::Lit(literal) if pair.path.is_ident("path") => match &literal.lit {
            syn::Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

/// The attributes of an item of any kind.
pub(crate) fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
