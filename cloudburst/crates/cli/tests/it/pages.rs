//! What is documented and what the command says of itself are the same.

use flow_telemetry::docs;

use super::{COMMANDS_PAGE, Listening, METRICS_PAGE, cloudburst, stdout};

#[test]
fn page_and_scrape_agree_both_ways() {
    let server = Listening::start(&["serve", "--metrics", "127.0.0.1:0"]);
    assert!(
        cloudburst(&["ping", &server.address(), "-c2", "-i0.02"])
            .status
            .success()
    );
    let (documented, live) = (docs::parse_page(METRICS_PAGE).unwrap(), server.scrape());
    let mismatches = docs::compare(&documented, &live);
    let reported: Vec<String> = mismatches.iter().map(ToString::to_string).collect();
    assert!(reported.is_empty(), "{reported:#?}");
    for row in &documented {
        let family = live.iter().find(|family| family.name == row.name).unwrap();
        for label in row.labels.iter().filter(|label| !label.values.is_empty()) {
            let mut listed: Vec<&str> = label.values.iter().map(String::as_str).collect();
            listed.sort_unstable();
            let live: Vec<&str> = family.label_values(&label.name).into_iter().collect();
            assert_eq!(listed, live, "{}", row.name);
        }
    }
    let value = |name: &str| {
        let family = live.iter().find(|family| family.name == name);
        family.and_then(|family| family.value(&[]))
    };
    assert_eq!(value("cloudburst_messages_received_total"), Some(2.0));
    assert_eq!(value("cloudburst_completion_seconds"), Some(2.0));
    for (reason, _) in cloudburst::TransportStatistics::default().refused.iter() {
        assert!(
            COMMANDS_PAGE.contains(&format!("`{reason}`")),
            "{reason} is not explained"
        );
    }
}

#[test]
fn completions_and_man_page_know_the_commands() {
    for arguments in [&["completions", "bash"][..], &["man"]] {
        let output = cloudburst(arguments);
        assert!(output.status.success());
        assert!(stdout(&output).contains("keygen"));
    }
}

#[test]
fn each_command_has_a_manual_page() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    assert!(cloudburst(&["man", "--out", out]).status.success());
    let page = std::fs::read_to_string(directory.path().join("cloudburst-serve.1")).unwrap();
    assert!(page.contains("cloudburst\\-serve"), "{page}");
    assert!(directory.path().join("cloudburst.1").is_file());
}

#[test]
fn every_command_and_flag_is_on_the_page() {
    for command in ["serve", "send", "recv", "ping", "perf", "paths", "keygen"] {
        assert!(
            COMMANDS_PAGE.contains(&format!("\n## {command}\n")),
            "{command}"
        );
        let help = stdout(&cloudburst(&[command, "--help"]));
        let words = help
            .split([' ', ',', '\n'])
            .filter(|it| it.starts_with("--"));
        for flag in words.filter(|it| !matches!(*it, "--help" | "--version")) {
            let flag = flag.trim_end_matches(['.', '`', ':', ';']);
            assert!(COMMANDS_PAGE.contains(flag), "{flag} of {command}");
        }
    }
}
