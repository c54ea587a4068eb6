//! The table of keys, and the texts that come from it.

use super::*;

/// The keys of the example, which has all there are; those that are off are in comments, and so
/// is the list that may stand under either class.
fn shown() -> Vec<String> {
    let is_key = |text: &str| text.bytes().all(|it| it.is_ascii_lowercase() || it == b'_');
    let uncommented = |line: &str| {
        let comment = line.strip_prefix("# ");
        let key = comment.and_then(|it| it.split_once(" = "));
        let is_off = key.is_some_and(|(key, _)| is_key(key))
            || comment.is_some_and(|it| it.starts_with("[["));
        line.get(if is_off { 2 } else { 0 }..).unwrap().to_owned()
    };
    let text: Vec<_> = example().lines().map(uncommented).collect();
    let table: toml::Table = text.join("\n").parse().unwrap();
    let keys = table.into_iter().flat_map(|(name, value)| match value {
        toml::Value::Table(section) => section
            .into_iter()
            .map(|(key, _)| format!("{name}.{key}"))
            .collect(),
        _ => vec![name],
    });
    let mut all: Vec<_> = keys.chain(["long.tunnels".to_owned()]).collect();
    all.sort();
    all
}

#[test]
fn example_shows_every_key_once_and_no_other() {
    let mut listed: Vec<_> = keys().iter().map(|it| it.name.clone()).collect();
    listed.sort_unstable();
    assert_eq!(listed, shown());
}

#[test]
fn declarations_are_complete() {
    for key in keys() {
        assert!(key.doc.ends_with('.'), "{}: {}", key.name, key.doc);
        assert!(key.trade_off.ends_with('.'), "{}", key.name);
        let (first, _) = key.doc.split_once(' ').expect("more than a word");
        assert!(
            !["What", "Whether", "Where", "When"].contains(&first),
            "{}",
            key.name
        );
    }
}

#[test]
fn default_that_is_stated_changes_nothing() {
    let smallest = Config::parse(SMALLEST, "smallest").unwrap();
    let stated = keys().iter().filter_map(|key| match &key.default {
        DefaultValue::Value { shown, .. } => Some((key, shown)),
        DefaultValue::Sentence(_) | DefaultValue::Required => None,
    });
    let mut count = 0;
    for (key, shown) in stated {
        let same = with(key.section, &format!("{} = {shown}", key.bare()));
        assert_eq!(same.unwrap(), smallest, "{} = {shown}", key.name);
        count += 1;
    }
    assert!(
        count >= 36,
        "only {count} keys have a default that can be stated"
    );
}

/// Writes every value into a file, and reads the same configuration from it.
#[test]
fn values_are_as_a_file_has_them() {
    for text in [example(), example_with_list()] {
        written_and_read_again(&Config::parse(&text, "example").unwrap());
    }
}

fn written_and_read_again(config: &Config) {
    let written = without_nulls(config.to_json());
    let text = toml::to_string(&written).unwrap();
    let again = Config::parse(&text, "written").unwrap();
    assert_eq!(again, *config);
    assert_eq!(difference(config, &again), []);
}

fn without_nulls(value: serde_json::Value) -> serde_json::Value {
    match value {
        serde_json::Value::Object(keys) => {
            let keys = keys.into_iter().filter(|(_, value)| !value.is_null());
            keys.map(|(key, value)| (key, without_nulls(value)))
                .collect()
        }
        other => other,
    }
}

#[test]
fn keys_are_found_with_and_without_their_section() {
    let name = |given| Key::named(given).map(|key| key.name.as_str());
    assert_eq!(name("threshold"), Ok("flows.threshold"));
    assert_eq!(name("handover.max_wait_ms"), Ok("handover.max_wait_ms"));
    for (given, nearest) in [
        ("treshold", "flows.threshold"),
        ("rate_mbit", "long.rate_mbit"),
        ("zebra", "shadow"),
    ] {
        let refused = name(given).unwrap_err();
        assert!(refused.contains(nearest), "{refused}");
    }
}
