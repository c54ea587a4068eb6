//! Items that others see, and the first lines of their documentation.

use proc_macro2::LineColumn;
use syn::{
    Attribute, Expr, ImplItem, Item as Syntax, Lit, Meta, TraitItem, Visibility, spanned::Spanned,
};

use crate::source::{Crate, Module, attributes_of};

/// An item of a crate: what an index of its documentation lists, and methods.
#[derive(Debug)]
pub struct Item {
    /// Its name, with the type's before it for a method.
    pub name: String,
    /// The file and line at which it begins.
    pub place: String,
    /// Its documentation's first paragraph on one line; empty without documentation.
    pub first_line: String,
}

/// How far an item must be seen to be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Lists what is declared `pub`, and public modules.
    Public,
    /// Lists also what other modules of the crate see, and all modules.
    Crate,
}

/// Lists the items that are seen as far as `reach`.
#[must_use]
pub fn items(krate: &Crate, reach: Reach) -> Vec<Item> {
    let mut items = Vec::new();
    for module in &krate.modules {
        if module.is_public || reach == Reach::Crate {
            let name = module.path.last().map_or("crate", String::as_str);
            let start = LineColumn { line: 1, column: 0 };
            items.push(item(module, name.to_owned(), start, &module.attributes));
        }
        for syntax in &module.items {
            add(&mut items, module, syntax, reach);
        }
    }
    items
}

/// Joins the first paragraph of the documentation among these attributes.
#[must_use]
pub fn first_line(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(documentation);
    let lines: Vec<String> = lines
        .flat_map(|text| {
            text.lines()
                .map(|line| line.trim().to_owned())
                .collect::<Vec<_>>()
        })
        .collect();
    let paragraph: Vec<_> = lines
        .iter()
        .skip_while(|line| line.is_empty())
        .take_while(|line| !line.is_empty())
        .map(String::as_str)
        .collect();
    paragraph.join(" ")
}

fn add(items: &mut Vec<Item>, module: &Module, syntax: &Syntax, reach: Reach) {
    let attributes = attributes_of(syntax);
    match syntax {
        Syntax::Impl(block) if block.trait_.is_none() => {
            let owner = type_name(&block.self_ty);
            for member in &block.items {
                add_member(items, module, &owner, member, reach);
            }
            return;
        }
        Syntax::Trait(declared) if reach.sees(&declared.vis) => {
            for member in &declared.items {
                if let TraitItem::Fn(function) = member {
                    let name = format!("{}::{}", declared.ident, function.sig.ident);
                    let start = function.sig.span().start();
                    items.push(item(module, name, start, &function.attrs));
                }
            }
        }
        _ => {}
    }
    let Some((name, span)) = name(syntax, reach) else {
        return;
    };
    items.push(item(module, name, span.start(), attributes));
}

fn add_member(
    items: &mut Vec<Item>,
    module: &Module,
    owner: &str,
    member: &ImplItem,
    reach: Reach,
) {
    let (visibility, name, attributes) = match member {
        ImplItem::Fn(function) => (&function.vis, &function.sig.ident, &function.attrs),
        ImplItem::Const(constant) => (&constant.vis, &constant.ident, &constant.attrs),
        _ => return,
    };
    if reach.sees(visibility) {
        let start = name.span().start();
        items.push(item(module, format!("{owner}::{name}"), start, attributes));
    }
}

fn name(syntax: &Syntax, reach: Reach) -> Option<(String, proc_macro2::Span)> {
    let (visibility, name) = match syntax {
        Syntax::Const(item) => (&item.vis, &item.ident),
        Syntax::Enum(item) => (&item.vis, &item.ident),
        Syntax::Fn(item) => (&item.vis, &item.sig.ident),
        Syntax::Static(item) => (&item.vis, &item.ident),
        Syntax::Struct(item) => (&item.vis, &item.ident),
        Syntax::Trait(item) => (&item.vis, &item.ident),
        Syntax::Type(item) => (&item.vis, &item.ident),
        Syntax::Union(item) => (&item.vis, &item.ident),
        Syntax::Macro(item) if item.attrs.iter().any(is_exported) => {
            let name = item.ident.as_ref()?;
            return Some((name.to_string(), name.span()));
        }
        _ => return None,
    };
    reach
        .sees(visibility)
        .then(|| (name.to_string(), name.span()))
}

fn item(module: &Module, name: String, start: LineColumn, attributes: &[Attribute]) -> Item {
    Item {
        name,
        place: format!("{}:{}", module.file.display(), start.line),
        first_line: first_line(attributes),
    }
}

fn documentation(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else {
        return None;
    };
    match &pair.value {
        Expr::Lit(literal) if pair.path.is_ident("doc") => match &literal.lit {
            Lit::Str(text) => Some(match text.value() {
                empty if empty.is_empty() => "\n".to_owned(),
                text => text,
            }),
            _ => None,
        },
        _ => None,
    }
}

impl Reach {
    fn sees(self, visibility: &Visibility) -> bool {
        match visibility {
            Visibility::Public(_) => true,
            Visibility::Restricted(_) => self == Self::Crate,
            Visibility::Inherited => false,
        }
    }
}

fn is_exported(attribute: &Attribute) -> bool {
    attribute.path().is_ident("macro_export")
}

fn type_name(syntax: &syn::Type) -> String {
    match syntax {
        syn::Type::Path(path) => path
            .path
            .segments
            .last()
            .map_or_else(String::new, |segment| segment.ident.to_string()),
        _ => String::new(),
    }
}
