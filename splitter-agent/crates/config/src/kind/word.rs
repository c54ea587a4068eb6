//! Values that are one of a few words.

use std::marker::PhantomData;

use serde_json::{Value as Json, json};

use super::{Kind, Refusals, Value, scalar_string, type_of};
use crate::values::InvalidValue;

/// A type whose values are words in a file.
pub(crate) trait Enumeration: Copy + PartialEq + Send + Sync + 'static {
    /// Every word, in the order in which documents list them.
    const WORDS: &'static [Word<Self>];

    /// Returns the word of a value.
    fn word(self) -> &'static str {
        let word = Self::WORDS.iter().find(|word| word.value == self);
        word.map_or("", |word| word.word)
    }
}

/// A word of an enumeration.
#[derive(Debug)]
pub(crate) struct Word<T: 'static> {
    /// The word as a file has it.
    pub(crate) word: &'static str,
    /// The value that it stands for.
    pub(crate) value: T,
    /// Its meaning, in a sentence.
    pub(crate) meaning: &'static str,
}

/// Takes the words of an enumeration.
pub(crate) fn word<T: Enumeration>() -> WordOf<T> {
    WordOf(PhantomData)
}

/// Takes `true` and `false`.
pub(crate) fn boolean() -> Boolean {
    Boolean
}

/// The kind of words.
pub(crate) struct WordOf<T>(PhantomData<fn() -> T>);

impl<T: Enumeration> Kind for WordOf<T> {
    type Value = T;

    fn read(&self, value: &Value<'_>, refuse: &mut Refusals) -> Option<T> {
        let found = scalar_string(value.get_ref()).and_then(|text| {
            let word = T::WORDS.iter().find(|word| word.word == text);
            let remedy = || {
                let words = T::WORDS.iter().map(|word| format!("\"{}\"", word.word));
                format!("give one of {}", words.collect::<Vec<_>>().join(", "))
            };
            word.map(|word| word.value)
                .ok_or_else(|| InvalidValue::new("this word is not known here", remedy()))
        });
        refuse.take(value, found)
    }

    fn write(&self, value: &T) -> Json {
        json!(value.word())
    }

    fn values(&self) -> String {
        let words = T::WORDS.iter().map(|word| format!("`\"{}\"`", word.word));
        words.collect::<Vec<_>>().join(", ")
    }

    /// Adds an `x-taplo` to the words, from which TOML editors explain each.
    fn schema(&self) -> Json {
        let (words, meanings): (Vec<_>, Vec<_>) = self.words().into_iter().unzip();
        json!({
            "type": "string",
            "enum": words,
            "x-taplo": { "docs": { "enumValues": meanings } },
        })
    }

    fn words(&self) -> Vec<(&'static str, &'static str)> {
        let words = T::WORDS.iter().map(|word| (word.word, word.meaning));
        words.collect()
    }
}

/// The kind of switches.
pub(crate) struct Boolean;

impl Kind for Boolean {
    type Value = bool;

    fn read(&self, value: &Value<'_>, refuse: &mut Refusals) -> Option<bool> {
        let read = value.get_ref().as_bool().ok_or_else(|| {
            InvalidValue::new(
                format!("this is {}, not a yes or no", type_of(value.get_ref())),
                "write true or false, without quotes",
            )
        });
        refuse.take(value, read)
    }

    fn write(&self, value: &bool) -> Json {
        json!(value)
    }

    fn values(&self) -> String {
        "`true`, `false`".to_owned()
    }

    fn schema(&self) -> Json {
        json!({ "type": "boolean" })
    }

    fn words(&self) -> Vec<(&'static str, &'static str)> {
        vec![("true", ""), ("false", "")]
    }
}

/// Declares an enum whose variants are words in a file. The comment of each is its meaning.
macro_rules! enumeration {
    ($(#[$doc:meta])* $name:ident {
        $($(#[doc = $meaning:literal])+ $variant:ident = $word:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[doc = $meaning])+ #[serde(rename = $word)] $variant,)*
        }

        impl $crate::kind::Enumeration for $name {
            const WORDS: &'static [$crate::kind::Word<Self>] = &[$($crate::kind::Word {
                word: $word,
                value: Self::$variant,
                meaning: concat!($($meaning),+).trim_ascii(),
            },)*];
        }

        impl $name {
            /// Every value, in the order in which documents list them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Returns the word that stands for the value in a file.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(crate) use enumeration;
