//! How much code there is: lines with a token on them, without comments and tests.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{ImplItem, Item, spanned::Spanned};

use crate::source::{Crate, attributes_of, is_for_tests};

/// Counts the lines of a crate that hold code. Comments, documentation, empty lines and what is for
/// tests alone are none.
#[must_use]
pub fn code_lines(krate: &Crate) -> usize {
    let mut counts = 0;
    for module in &krate.modules {
        let mut lines = Lines::default();
        for item in &module.items {
            lines.add_item(item);
        }
        counts += lines.0.len();
    }
    counts
}

#[derive(Default)]
struct Lines(BTreeSet<usize>);

impl Lines {
    fn add(&mut self, tokens: TokenStream) {
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            if let TokenTree::Punct(mark) = &token
                && mark.as_char() == '#'
                && is_documentation(tokens.peek())
            {
                tokens.next();
                continue;
            }
            match token {
                TokenTree::Group(group) => {
                    self.0.insert(group.span_open().start().line);
                    self.0.insert(group.span_close().end().line);
                    self.add(group.stream());
                }
                other => {
                    let span = other.span();
                    self.0.extend(span.start().line..=span.end().line);
                }
            }
        }
    }
}

impl Lines {
    fn add_item(&mut self, item: &Item) {
        if attributes_of(item).iter().any(is_for_tests) {
            return;
        }
        match item {
            Item::Impl(block) => {
                let head = block.span().start().line;
                self.0.insert(head);
                self.0.insert(block.span().end().line);
                for item in &block.items {
                    let attributes: &[_] = match item {
                        ImplItem::Fn(function) => &function.attrs,
                        _ => &[],
                    };
                    if !attributes.iter().any(is_for_tests) {
                        self.add(item.to_token_stream());
                    }
                }
            }
            other => self.add(other.to_token_stream()),
        }
    }
}

/// `#[doc = ...]`, as which comments of documentation reach the parser.
fn is_documentation(token: Option<&TokenTree>) -> bool {
    let Some(TokenTree::Group(group)) = token else {
        return false;
    };
    matches!(group.stream().into_iter().next(), Some(TokenTree::Ident(name)) if name == "doc")
}
