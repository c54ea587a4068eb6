//! The form in which sections declare their keys.
//!
//! A row of [`section!`] is a field with its comment, its type and what [`key`](crate::declaration::key)
//! begins. Field, parser, completion by defaults and row of the table all come from it.

use crate::config::Given;
use crate::key::Key;
use crate::source;

/// A section of the configuration that `section!` declared.
pub(crate) trait Section: Sized + 'static {
    /// What a file gives of it: every field, or nothing.
    type Given;

    /// The comment of the section, line by line.
    const DOC: &'static [&'static str];

    /// Reads the keys that a file gives.
    fn read(section: &source::Section<'_, '_>) -> Self::Given;

    /// Completes them by what the others are. There is nothing where a required key is missing.
    fn complete(given: &Self::Given, all: &Given) -> Option<Self>;

    /// Makes a row for each key; `section` is what the section is called.
    fn keys(section: &'static str) -> Vec<Key<Self>>;
}

/// A section with its comment and the rows of its keys.
pub(crate) struct About<S> {
    pub(crate) name: &'static str,
    pub(crate) doc: &'static [&'static str],
    pub(crate) keys: Vec<Key<S>>,
}

/// Declares a section: a public struct with a field for each key, and its twin of what a file
/// gives. Sections within it follow its keys.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $(#[derive($($derived:ident),*)])?
        pub struct $name:ident, $given:ident {
            $(
                $(#[doc = $doc:literal])+
                $field:ident: $type:ty = $declaration:expr;
            )*
        }
        $(sections {
            $(
                $(#[doc = $inner_doc:literal])+
                $inner:ident: $inner_type:ty;
            )*
        })?
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, Eq $($(, $derived)*)?)]
        pub struct $name {
            $($(#[doc = $doc])+ pub $field: $type,)*
            $($($(#[doc = $inner_doc])+ pub $inner: $inner_type,)*)?
        }

        /// The keys of the section that a file gives.
        #[derive(Debug, Clone, Default)]
        #[allow(dead_code, reason = "few of them are asked for by defaults of other keys")]
        pub(crate) struct $given {
            $(pub(crate) $field: Option<$type>,)*
            $($(pub(crate) $inner: <$inner_type as $crate::declare::Section>::Given,)*)?
        }

        impl $crate::declare::Section for $name {
            type Given = $given;

            const DOC: &'static [&'static str] = &[$($about),+];

            fn read(section: &$crate::source::Section<'_, '_>) -> $given {
                $given {
                    $($field: $declaration.read(section),)*
                    $($($inner: <$inner_type>::read(&section.inside(stringify!($inner))),)*)?
                }
            }

            fn complete(given: &$given, all: &$crate::config::Given) -> Option<Self> {
                Some(Self {
                    $($field: $declaration.complete(given.$field.as_ref(), all)?,)*
                    $($($inner: <$inner_type>::complete(&given.$inner, all)?,)*)?
                })
            }

            fn keys(_: &'static str) -> Vec<$crate::key::Key<Self>> {
                vec![$($declaration.doc(&[$($doc),+]).row(|it| &it.$field),)*]
            }
        }

        $(impl $name {
            /// Lists the sections in the order of the documents, each with its comment and keys.
            pub(crate) fn sections() -> Vec<$crate::declare::About<Self>> {
                vec![$({
                    let name = stringify!($inner);
                    let keys = <$inner_type>::keys(name).into_iter();
                    let inside = |key: $crate::key::Key<_>| {
                        key.inside::<Self>(name, |it| Some(&it.$inner))
                    };
                    $crate::declare::About {
                        name,
                        doc: <$inner_type>::DOC,
                        keys: keys.map(inside).collect(),
                    }
                },)*]
            }
        })?
    };
}
pub(crate) use section;
