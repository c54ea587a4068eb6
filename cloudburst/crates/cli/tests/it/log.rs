//! The log of the command: its forms, and the events that scripts go by.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Read as _},
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

use super::{BINARY, Listening, as_given, cloudburst, stderr};

const PAGE: &str = include_str!("../../../../../docs/src/reference/cloudburst-log.md");

/// Crates that the command's records come from.
const SOURCES: [&str; 3] = ["src", "../../src", "../../../crates/telemetry/src"];

/// Events with their level, from the calls that log them; a call above `debug` without one is no event.
fn logged(text: &str, events: &mut BTreeMap<String, String>, without: &mut Vec<String>) {
    for level in ["error", "warn", "info"] {
        for call in text.split(&format!("tracing::{level}!(")).skip(1) {
            let call = call.split(");").next().unwrap_or(call);
            match call.trim_start().strip_prefix("event = \"") {
                Some(rest) => {
                    let name = rest.split('"').next().unwrap_or_default();
                    events.insert(name.to_owned(), level.to_owned());
                }
                None => without.push(call.trim().to_owned()),
            }
        }
    }
}

fn each_source(directory: &Path, found: &mut impl FnMut(&str)) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            each_source(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            found(&fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn page_lists_the_events_that_there_are() {
    let (mut events, mut without) = (BTreeMap::new(), Vec::new());
    for directory in SOURCES {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
        each_source(&directory, &mut |text| {
            logged(text, &mut events, &mut without);
        });
    }
    assert!(without.is_empty(), "records without an event: {without:#?}");
    let (_, table) = PAGE.split_once("<!-- events -->").expect("a table");
    let (table, _) = table.split_once("<!-- end -->").expect("its end");
    let rows = table.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
        let level = rest.split(' ').next()?;
        Some((name.to_owned(), level.to_owned()))
    });
    assert_eq!(rows.collect::<BTreeMap<_, _>>(), events);
    assert!(events.len() > 20, "{events:?}");
}

/// All that `serve` logs in a form until it is interrupted.
fn serve_with(format: &str) -> Vec<String> {
    let mut child = Command::new(BINARY)
        .args(["serve", "--insecure-no-key", "--bind", "127.0.0.1"])
        .args(["--ports", "any:1", "--log", format])
        .env("RUST_LOG", "info")
        .env_remove("JOURNAL_STREAM")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let log = BufReader::new(child.stderr.take().unwrap());
    let mut server = Listening {
        child,
        log,
        address: SocketAddr::from(([0; 4], 0)),
        metrics: None,
    };
    let mut lines = Vec::new();
    while !lines.iter().any(|line: &String| line.contains("addresses")) {
        let mut line = String::new();
        assert_ne!(server.log.read_line(&mut line).unwrap(), 0, "it ended");
        lines.push(line.trim_end().to_owned());
    }
    assert_eq!(server.interrupt(), Some(0));
    lines.extend(server.log.by_ref().lines().map(Result::unwrap));
    lines
}

#[test]
fn command_logs_an_event_and_a_record_on_each_line_in_every_form() {
    let records: Vec<Value> = serve_with("json")
        .iter()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|it| panic!("{it}: {line}")))
        .collect();
    for record in &records {
        for field in ["time", "level", "message", "event"] {
            assert!(record[field].is_string(), "no {field} in {record}");
        }
    }
    let events: Vec<_> = records.iter().map(|it| &it["event"]).collect();
    assert_eq!(events, ["no_key", "serving", "ending"]);
    assert_eq!(records[0]["level"], "warn");
    assert_eq!(records[2]["signal"], "Ctrl-C");

    let journald = serve_with("journald");
    let priorities: Vec<_> = journald.iter().map(|line| &line[..3]).collect();
    assert_eq!(priorities, ["<4>", "<6>", "<6>"], "{journald:?}");
    let text = serve_with("text");
    for (line, event) in text.iter().zip(&events) {
        assert!(line.contains(&format!("event={event}")), "{line}");
    }
    assert_eq!(text.len(), records.len());
    let refused = as_given(&["--log", "xml", "keygen", "/nonexistent/key"]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
}

#[test]
fn a_file_that_arrives_is_an_event_with_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name).display().to_string();
    fs::create_dir(place("in")).unwrap();
    fs::write(place("file"), "made to arrive soon").unwrap();
    let arguments = ["recv", "--output", &place("in"), "--log", "json"];
    let mut receiver = Listening::start(&arguments);
    let sent = cloudburst(&["send", &place("file"), &receiver.address()]);
    assert!(sent.status.success(), "{}", stderr(&sent));
    assert_eq!(receiver.wait(), Some(0));
    let lines = receiver.log.by_ref().lines().map(Result::unwrap);
    let records = lines.map(|line| serde_json::from_str::<Value>(&line).unwrap());
    let received: Vec<_> = records
        .filter(|record| record["event"] == "file_received")
        .collect();
    let [received] = &received[..] else {
        panic!("{received:?}");
    };
    let path = Path::new(received["file"].as_str().unwrap());
    assert_eq!(path.file_name().unwrap(), "file");
    assert_eq!(received["bytes"], 19);
}
