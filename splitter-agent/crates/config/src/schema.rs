//! JSON Schema (2020-12) of a configuration, for editors.

use serde_json::{Map, Value as Json, json};

use crate::declare::Section as _;
use crate::key::{DefaultValue, Key, plain};
use crate::{Config, sections_with_keys};

/// Writes the schema of a configuration file.
#[must_use]
pub fn schema() -> Json {
    let mut schema = table(&Config::keys(""));
    let required = required(&Config::keys(""));
    let (mut of_one_site, mut of_many) = (json!({ "required": [] }), json!({}));
    for section in sections_with_keys() {
        let mut inner = table(&section.keys);
        inner["description"] = json!(plain(&section.doc));
        if section.keys.iter().any(|key| key.bare() == "tunnels") {
            // The tunnels of sites that are listed stand there.
            if let (Some(required), Some(names)) = (
                of_one_site["required"].as_array_mut(),
                inner["required"].take().as_array(),
            ) {
                required.push(json!(section.name));
                of_one_site["properties"][section.name] = one_tunnel_or_a_list(names);
            }
            inner.as_object_mut().map(|it| it.remove("required"));
            of_many["properties"][section.name]["not"] = any_of(&OF_A_TUNNEL, &["tunnels"]);
        }
        schema["properties"][section.name] = inner;
    }
    of_many["properties"]["routes"]["not"] = any_of(&["destinations"], &[]);
    schema["required"] = json!(required);
    schema["if"] = json!({ "required": ["site"] });
    schema["then"] = of_many;
    schema["else"] = of_one_site;
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

/// The keys that a list of tunnels takes the place of.
const OF_A_TUNNEL: [&str; 4] = ["device", "gateway", "rate_mbit", "peer"];

/// Requires the keys of a tunnel, or a list of tunnels instead of all of them.
fn one_tunnel_or_a_list(required: &[Json]) -> Json {
    json!({ "oneOf": [
        { "required": required, "not": { "required": ["tunnels"] } },
        { "required": ["tunnels"], "not": any_of(&OF_A_TUNNEL, &[]) },
    ] })
}

/// Matches what has one of these keys.
fn any_of(keys: &[&str], others: &[&str]) -> Json {
    let all = keys.iter().chain(others);
    let any = all.map(|key| json!({ "required": [key] }));
    json!({ "anyOf": any.collect::<Json>() })
}
