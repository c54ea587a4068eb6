//! Lists of values. Where a list is expected, a single value will do.

use std::fmt::Display;

use serde_json::{Value as Json, json};

use super::{Kind, Refusals, Value};
use crate::values::InvalidValue;

/// The kind of lists, each element once.
pub(crate) struct ListOf<K> {
    element: K,
    /// The name of many elements, for the reference page.
    plural: &'static str,
    /// The problem of a list without elements, and its remedy.
    empty: [&'static str; 2],
    /// The remedy where an element is listed twice.
    twice: &'static str,
}

/// Takes lists of at least one element, each once; `empty` is the problem of a list without any
/// and its remedy.
pub(crate) fn list<K: Kind>(
    element: K,
    plural: &'static str,
    empty: [&'static str; 2],
    twice: &'static str,
) -> ListOf<K> {
    ListOf {
        element,
        plural,
        empty,
        twice,
    }
}

impl<K: Kind<Value: PartialEq + Display>> Kind for ListOf<K> {
    type Value = Vec<K::Value>;

    fn read(&self, value: &Value<'_>, refuse: &mut Refusals) -> Option<Self::Value> {
        let Some(elements) = value.get_ref().as_array() else {
            return self.element.read(value, refuse).map(|one| vec![one]);
        };
        if elements.is_empty() {
            let [problem, remedy] = self.empty;
            refuse.add(value.span(), InvalidValue::new(problem, remedy));
        }
        let elements = elements.iter();
        let list: Vec<_> = elements
            .filter_map(|element| self.element.read(element, refuse))
            .collect();
        let is_repeated = |(index, element)| list[..index].contains(element);
        if let Some((_, twice)) = list.iter().enumerate().find(|it| is_repeated(*it)) {
            let problem = format!("{twice} is listed twice");
            refuse.add(value.span(), InvalidValue::new(problem, self.twice));
        }
        Some(list)
    }

    fn write(&self, value: &Self::Value) -> Json {
        let elements = value.iter().map(|element| self.element.write(element));
        elements.collect()
    }

    fn values(&self) -> String {
        self.plural.to_owned()
    }

    fn schema(&self) -> Json {
        let element = self.element.schema();
        json!({ "anyOf": [
            element,
            { "type": "array", "items": element, "minItems": 1, "uniqueItems": true },
        ] })
    }

    fn words(&self) -> Vec<(&'static str, &'static str)> {
        self.element.words()
    }
}
