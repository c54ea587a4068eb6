//! What the log says: its forms, and the events that scripts go by.

use std::collections::BTreeSet;
use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::daemon::Daemon;
use crate::support::site::{Site, on_site};

const PAGE: &str = include_str!("../../../docs/src/reference/log.md");

/// The names in what follows each `mark` in a text.
fn names(text: &str, mark: &str) -> BTreeSet<String> {
    let found = text.split(mark).skip(1);
    let names = found.filter_map(|rest| {
        let end = rest.find(|c: char| !(c.is_ascii_lowercase() || c == '_'))?;
        (end > 0).then(|| rest[..end].to_owned())
    });
    names.collect()
}

fn used(directory: &Path, events: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("tests") {
            used(&path, events);
        } else if path.extension().is_some_and(|it| it == "rs") {
            let text = std::fs::read_to_string(&path).expect("text");
            events.extend(names(&text, "event = \""));
        }
    }
}

#[test]
fn page_lists_the_events_that_there_are() {
    let mut events = BTreeSet::new();
    // What serves metrics is shared with Cloudburst's command.
    for directory in ["src", "crates", "../crates/telemetry/src"] {
        used(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join(directory),
            &mut events,
        );
    }
    let (_, table) = PAGE.split_once("<!-- events -->").expect("a table");
    let (table, _) = table.split_once("<!-- end -->").expect("its end");
    assert_eq!(names(table, "\n| `"), events);
    assert!(events.len() > 50, "{events:?}");
}

fn run_with(site: &Site, format: &str) -> Vec<String> {
    let command = site.command(&["--log", format, "run"]);
    let daemon = Daemon::start(command, &site.path("log"));
    site.wait_for("the daemon to be ready", || {
        assert!(daemon.is_running(), "{}", daemon.log());
        matches!(site.get("/ready"), Ok((200, _))).then_some(())
    });
    site.configure("[flows]\nthreshold = 70\ntable_size = 4096\n");
    site.json(&["reload"]);
    site.configure("");
    assert!(daemon.end(Signal::SIGTERM).success());
    let log = std::fs::read_to_string(site.path("log")).expect("a log");
    log.lines().map(str::to_owned).collect()
}

#[test]
fn agent_logs_an_event_and_a_record_on_each_line_in_every_form() {
    on_site(|site| {
        let records = run_with(site, "json").into_iter().map(|line| {
            let record: Value = serde_json::from_str(&line).expect("JSON");
            for field in ["time", "level", "message", "event"] {
                assert!(record[field].is_string(), "no {field} in {line}");
            }
            record
        });
        let records: Vec<_> = records.collect();
        let changed = records.iter().find(|it| it["event"] == "config_changed");
        let changed = changed.unwrap_or_else(|| panic!("{records:?}"));
        assert_eq!(changed["level"], "info");
        assert_eq!(changed["source"], "reload");
        let attached = records.iter().filter(|it| it["event"] == "attached");
        assert!(attached.filter(|it| it["interface"] == "lan0").count() >= 1);

        let journald = run_with(site, "journald");
        assert!(
            journald.iter().all(|line| line.starts_with("<6>")),
            "{journald:?}"
        );
        let text = run_with(site, "text");
        let is_changed = |line: &String| line.contains("event=\"config_changed\"");
        assert!(text.iter().any(is_changed), "{text:?}");
        assert_eq!(text.len(), records.len());
        site.refused(&["--log", "xml", "status"], 2);
    });
}
