//! `cloudburst perf` and `paths`.

use serde_json::Value;

use super::{Listening, cloudburst, stderr, stdout};

#[test]
fn perf_counts_what_it_offered() {
    let server = Listening::start(&["serve", "--mode", "size"]);
    let common = ["--json", "-d", "0.5", "--load", "4mbit", "-s", "2k,20k"];
    for more in [&[][..], &["--reply", "5k"]] {
        let peer = server.address();
        let output = cloudburst(&[&["perf", &peer], &common[..], more].concat());
        assert!(output.status.success(), "{}", stdout(&output));
        let reported: Value = serde_json::from_slice(&output.stdout).unwrap();
        // 4 Mbit/s for half a second in messages of 11,264 bytes on average.
        let offered = reported["offered"].as_u64().unwrap();
        assert!((20..=24).contains(&offered), "{reported}");
        assert_eq!(reported["delivered"], offered, "{reported}");
        assert!(reported["completion_ms"]["p50"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn paths_are_listed() {
    let server = Listening::start(&["serve"]);
    let arguments = [
        "paths",
        &server.address(),
        "-d",
        "0.5",
        "--ports",
        "any:3",
        "--json",
    ];
    let output = cloudburst(&[&arguments[..], &["--bind", "127.0.0.1"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let reported: Value = serde_json::from_slice(&output.stdout).unwrap();
    let paths = reported["paths"].as_array().unwrap();
    assert_eq!(paths.len(), 3, "{reported}");
    for path in paths {
        assert_eq!(path["health"], "good");
        assert_eq!(path["remote"], server.address());
    }
}

#[test]
fn the_status_page_shows_messages_and_paths() {
    let server = Listening::start(&["serve", "--metrics", "127.0.0.1:0"]);
    let output = cloudburst(&["ping", &server.address(), "-c", "3", "-i", "0.02"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let reported: Value = serde_json::from_str(&server.get("/status.json")).unwrap();
    assert_eq!(reported["messages_received"], 3, "{reported}");
    assert_eq!(reported["ready"], true);
    assert!(
        reported["paths"].is_array() && reported["refused"].is_array(),
        "{reported}"
    );
    let page = server.get("/");
    assert!(page.contains("<h1>Cloudburst</h1>"), "{page}");
    assert!(page.contains("<dd data-key=\"messages_received\" data-format=\"count\">3</dd>"));
}
