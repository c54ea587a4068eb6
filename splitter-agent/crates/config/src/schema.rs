//! JSON Schema (2020-12) of a configuration, for editors.

use serde_json::{Map, Value as Json, json};

use crate::declare::Section as _;
use crate::key::{DefaultValue, Key, plain};
use crate::{Config, sections_with_keys};

/// Writes the schema of a configuration file.
#[must_use]
pub fn schema() -> Json {
    let mut schema = table(&Config::keys(""));
    let mut required = required(&Config::keys(""));
    for section in sections_with_keys() {
        let mut inner = table(&section.keys);
        inner["description"] = json!(plain(&section.doc));
        if section.keys.iter().any(|key| key.bare() == "tunnels") {
            one_tunnel_or_a_list(&mut inner);
        }
        if inner.get("required").is_some() || inner.get("oneOf").is_some() {
            required.push(section.name.to_owned());
        }
        schema["properties"][section.name] = inner;
    }
    schema["required"] = json!(required);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Configuration of the splitter");
    schema
}

/// Writes the schema of a table with these keys and no others.
pub(crate) fn table<S: 'static>(keys: &[Key<S>]) -> Json {
    let properties = keys
        .iter()
        .map(|key| (key.bare().to_owned(), property(key)));
    let mut table = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": properties.collect::<Map<_, _>>(),
    });
    let required = required(keys);
    if !required.is_empty() {
        table["required"] = json!(required);
    }
    table
}

fn required<S: 'static>(keys: &[Key<S>]) -> Vec<String> {
    let keys = keys
        .iter()
        .filter(|key| key.default == DefaultValue::Required);
    keys.map(|key| key.bare().to_owned()).collect()
}

fn property<S>(key: &Key<S>) -> Json {
    let mut property = key.schema.clone();
    let absent = match &key.default {
        DefaultValue::Value { shown, json } => {
            property["default"] = json.clone();
            format!(" Default {shown}.")
        }
        DefaultValue::Sentence(sentence) => format!(" If left out: {}.", plain(sentence)),
        DefaultValue::Required => " Required.".to_owned(),
    };
    property["description"] = json!(format!("{}{absent}", plain(&key.doc)));
    property
}

/// Requires the keys of a tunnel, or a list of tunnels instead of all of them.
fn one_tunnel_or_a_list(section: &mut Json) {
    let Some(section) = section.as_object_mut() else {
        return;
    };
    let of_a_tunnel = ["device", "gateway", "rate_mbit", "peer"];
    let any = of_a_tunnel.map(|key| json!({ "required": [key] }));
    let one = section.remove("required");
    section.insert(
        "oneOf".to_owned(),
        json!([
            { "required": one, "not": { "required": ["tunnels"] } },
            { "required": ["tunnels"], "not": { "anyOf": any } },
        ]),
    );
}
