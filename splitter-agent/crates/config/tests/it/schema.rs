//! The JSON Schema and the parser agree on which files are right, as far as a schema can tell.

use jsonschema::Validator;
use serde_json::{Value as Json, json};
use splitter_config::{Config, DefaultValue, example, keys, schema};

fn validator() -> Validator {
    jsonschema::draft202012::new(&schema()).expect("the schema is one")
}

fn smallest() -> Json {
    json!({ "lan": "eth0", "short": { "device": "wan0" }, "long": { "device": "wan1" } })
}

/// Adds a key with its section to a file.
fn with(key: &str, value: Json) -> Json {
    let mut file = smallest();
    match key.split_once('.') {
        Some((section, key)) => file[section][key] = value,
        None => file[key] = value,
    }
    file
}

fn text(file: &Json) -> String {
    toml::to_string(file).expect("the file has no nulls")
}

#[test]
fn schema_is_of_the_draft_that_it_names() {
    assert!(jsonschema::meta::is_valid(&schema()));
}

#[test]
fn example_and_its_values_are_valid() {
    let example: toml::Table = example().parse().unwrap();
    let example = serde_json::to_value(example).unwrap();
    let errors: Vec<_> = validator()
        .iter_errors(&example)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
    assert!(validator().is_valid(&smallest()));
}

#[test]
fn defaults_are_valid() {
    for key in keys() {
        if let DefaultValue::Value { json, .. } = &key.default {
            let file = with(&key.name, json.clone());
            assert!(validator().is_valid(&file), "{file}");
        }
    }
}

#[test]
fn what_the_schema_refuses_the_parser_refuses() {
    let validator = validator();
    let refused = [
        with("flows.threshold", json!(0)),
        with("flows.threshold", json!("many")),
        with("flows.table_size", json!(15)),
        with("flows.table_size", json!("16")),
        with("flows.table_size_ipv6", json!(15)),
        with("flows.table_growth_percent", json!(51)),
        with("flows.table_numa_node", json!("all")),
        with("flows.unit", json!("segments")),
        with("flows.protocols", json!([])),
        with("flows.protocols", json!(["tcp", "tcp"])),
        with("flows.zebra", json!(1)),
        with("zebra", json!(1)),
        with("shadow", json!(1)),
        with("name", json!("../etc")),
        with("runtime_dir", json!("run")),
        with("lan", json!([])),
        with("lan", json!("a-name-of-16-byt")),
        with("short.gateway", json!("here")),
        with("short.weight", json!(2)),
        with("short.rate_mbit", json!(0)),
        with("short.tunnels", json!([{ "device": "wan2" }])),
        with("metrics.address", json!("localhost")),
        with("routes.destinations", json!(["nowhere"])),
        with("steering.mark_mask", json!(0)),
        json!({ "lan": "eth0", "short": {}, "long": { "device": "wan1" } }),
        json!({ "lan": "eth0", "long": { "device": "wan1" } }),
    ];
    for file in refused {
        assert!(!validator.is_valid(&file), "the schema takes {file}");
        assert!(
            Config::parse(&text(&file), "f").is_err(),
            "the parser takes {file}"
        );
    }
}

#[test]
fn words_and_bounds_of_ranges_are_taken_by_both() {
    let validator = validator();
    for key in keys() {
        let bounds = ["minimum", "maximum"].map(|bound| key.schema.get(bound).cloned());
        let words = key.words.iter().map(|(word, _)| match *word {
            "true" => json!(true),
            "false" => json!(false),
            word => json!(word),
        });
        for value in bounds.into_iter().flatten().chain(words) {
            let file = with(&key.name, value);
            assert!(validator.is_valid(&file), "the schema refuses {file}");
            // Rules between keys may refuse it; its own kind does not.
            let error = Config::parse(&text(&file), "f").err();
            let of_kind = error.iter().flat_map(|error| error.diagnostics());
            let of_kind: Vec<_> = of_kind
                .filter(|it| it.key == key.name && it.problem.contains("out of range"))
                .collect();
            assert!(of_kind.is_empty(), "{of_kind:?}");
        }
    }
}

#[test]
fn sites_may_be_listed_instead() {
    let site = |name: &str, net: &str, device: &str| {
        json!({ "name": name, "destinations": [net], "short": { "device": device },
            "long": { "tunnels": [{ "device": format!("{device}1"), "weight": 3 }] } })
    };
    let sites = json!([site("a", "10.2.0.0/16", "x"), site("b", "10.3.0.0/16", "y")]);
    let file = json!({ "lan": "eth0", "site": sites, "short": { "table": 7 } });
    assert!(validator().is_valid(&file));
    Config::parse(&text(&file), "f").expect("the parser takes it, too");
    let changed = |change: &dyn Fn(&mut Json)| {
        let mut file = file.clone();
        change(&mut file);
        file
    };
    for wrong in [
        changed(&|it| it["short"]["device"] = json!("z")),
        changed(&|it| it["long"] = json!({ "tunnels": [{ "device": "z" }] })),
        changed(&|it| it["routes"] = json!({ "destinations": ["10.4.0.0/16"] })),
        changed(&|it| it["site"] = json!([])),
        changed(&|it| it["site"][0]["name"] = json!("a b")),
        changed(&|it| it["site"][0]["short"] = json!({})),
        changed(&|it| it["site"][0]["short"]["weight"] = json!(2)),
        changed(&|it| it["site"][0]["short"]["table"] = json!(2)),
    ] {
        assert!(!validator().is_valid(&wrong), "the schema takes {wrong}");
        let refused = Config::parse(&text(&wrong), "f");
        assert!(refused.is_err(), "the parser takes {wrong}");
    }
}

#[test]
fn tunnels_may_be_listed_instead() {
    let mut file = smallest();
    file["short"] = json!({ "tunnels": [{ "device": "a", "weight": 3 }, { "device": "b" }] });
    assert!(validator().is_valid(&file));
    Config::parse(&text(&file), "f").expect("the parser takes it, too");
}
