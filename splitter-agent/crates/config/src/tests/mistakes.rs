//! Which mistakes the parser reports, and where; their words are in `tests/it/wording.rs`.

use super::*;

#[test]
fn marks_must_differ_as_the_rules_see_them() {
    for lines in [
        "short = 2",
        "long = 0",
        "long = 0\nmatch = 'tos'",
        "long = 12\nmatch = 'tos'",
        "long = 8\nmatch = 'tos'",
    ] {
        let message = mistake_with("marks", lines);
        assert!(message.contains("marks."), "{message}");
    }
    assert!(with("marks", "long = 12\nmatch = 'dscp'").is_ok());
    assert!(with("marks", "short = 0\nmatch = 'tos'").is_ok());
}

#[test]
fn all_mistakes_are_reported_at_once_and_in_order() {
    let text = "lan = 7\nnaem = 'x'\n[short]\ntable = 254\n[flows]\nthreshold = 0\nunit = 1\n";
    let error = Config::parse(text, "f").unwrap_err();
    let keys: Vec<_> = error
        .diagnostics()
        .iter()
        .map(|m| (m.line, m.key.as_str()))
        .collect();
    let expected = [
        (1, "lan"),
        (1, "long.device"),
        (2, "naem"),
        (3, "short.device"),
        (4, "short.table"),
        (6, "flows.threshold"),
        (7, "flows.unit"),
    ];
    assert_eq!(keys, expected, "{error}");
}

#[test]
fn line_that_is_not_toml_is_named() {
    for (text, line) in [
        ("lan = [\n\n", 1),
        ("a = 1\na = 2", 2),
        ("lan = ['eth0']\n[short", 2),
    ] {
        let error = Config::parse(text, "f").unwrap_err();
        let message = error.to_string();
        assert!(message.starts_with(&format!("f:{line}: ")), "{message}");
    }
}

#[test]
fn missing_file_is_named_with_the_option_for_another() {
    let message = Config::load(Path::new("/nonexistent/s.toml"))
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("/nonexistent/s.toml") && message.contains("--config"),
        "{message}"
    );
}
