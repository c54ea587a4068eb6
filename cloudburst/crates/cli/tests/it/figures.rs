//! `cloudburst perf` and `paths`.

use cloudburst::{Endpoint, EndpointConfig, Security};
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

/// A server that takes one message at a time and hands none on, in this process.
async fn full_server() -> (Endpoint, String) {
    let config = EndpointConfig::server(0, Security::Unprotected)
        .with_local([[127, 0, 0, 1].into()])
        .and_then(|config| config.with_inbox(1, 1 << 20));
    let server = Endpoint::bind(config.unwrap()).await.unwrap();
    let address = server.local_addrs()[0].to_string();
    (server, address)
}

#[tokio::test]
async fn perf_says_how_often_the_server_had_no_room() {
    let (server, address) = full_server().await;
    for json in [true, false] {
        let address = address.clone();
        let output = tokio::task::spawn_blocking(move || {
            let common = ["perf", &address, "-d0.3", "--load", "200kbit", "-s1k"];
            let more: &[&str] = if json { &["--json"] } else { &[] };
            cloudburst(&[&common[..], more].concat())
        });
        let output = output.await.unwrap();
        let told = server.statistics().await.unwrap().protocol.busy_sent;
        assert!(told.messages > 0, "{told:?}");
        if json {
            let reported: Value = serde_json::from_slice(&output.stdout).unwrap();
            let busy = reported["busy"]["messages"].as_u64().unwrap();
            assert!((1..=told.messages).contains(&busy), "{reported} {told:?}");
            assert_eq!(reported["busy"]["peers"], 0);
        } else {
            let text = stdout(&output);
            assert!(text.contains(" times no room for more messages"), "{text}");
        }
    }
}

#[test]
fn serve_reports_in_the_end_what_it_turned_away() {
    let mut server = Listening::start(&["serve", "--json"]);
    let output = cloudburst(&["ping", &server.address(), "-c", "1"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(server.interrupt(), Some(0));
    let told = std::io::read_to_string(server.child.stdout.take().unwrap()).unwrap();
    let reported: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(reported["messages_received"], 1, "{reported}");
    let nothing = serde_json::json!({ "messages": 0, "memory": 0, "peers": 0 });
    assert_eq!(reported["busy"], nothing, "{reported}");
    assert!(reported["refused"].is_object(), "{reported}");
}

#[test]
fn progress_for_programs_is_a_line_a_second_and_the_result_the_last() {
    let server = Listening::start(&["serve"]);
    let peer = server.address();
    let arguments = ["perf", &peer, "-d2.5", "--load", "1mbit", "-s1k"];
    let output = cloudburst(&[&arguments[..], &["--progress", "json"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let mut lines: Vec<Value> = stdout(&output)
        .lines()
        .map(|line| serde_json::from_str(line).expect("each line is an object"))
        .collect();
    let result = lines.pop().unwrap();
    assert!(result["delivered"].as_u64() > Some(0), "{result}");
    assert!(result["progress"].is_null(), "{result}");
    assert!((1..=3).contains(&lines.len()), "{lines:?}");
    for line in &lines {
        let progress = &line["progress"];
        for field in ["seconds", "offered", "goodput_bits_per_s", "loss", "busy"] {
            assert!(progress[field].is_number(), "{field}: {line}");
        }
        assert!(progress["paths"]["good"].as_u64() > Some(0), "{line}");
    }
}

#[test]
fn errors_take_the_place_of_the_result_among_lines_for_programs() {
    let output = cloudburst(&["send", "/nonexistent", "127.0.0.1:9", "--progress", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    assert_eq!(text.lines().count(), 1, "{text}");
    let reported: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(reported["exit_code"], 1, "{reported}");
}
