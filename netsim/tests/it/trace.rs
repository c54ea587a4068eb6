//! The command `run --trace` from outside.

use std::{fs, path::Path};

use flow_recording::{Count, FlowEnd, FlowRecord, Header, Transport, Unseen, Writer};
use serde_json::Value;

use crate::support::netsim;

/// A recording with a transfer that fills an uplink and a short flow every 10 ms.
fn recording(path: &Path) {
    let count = |payload: u64| {
        let packets = payload.div_ceil(1_448);
        Count {
            packets,
            bytes: payload + packets * 66,
        }
    };
    let flow = |start_us, payload| FlowRecord {
        start_us,
        duration_us: 50_000,
        is_long: payload > 60_000,
        transport: Transport::Tcp,
        is_ipv6: false,
        began_before: false,
        end: FlowEnd::Finished,
        out: count(payload),
        back: None,
    };
    let mut writer = Writer::create(path, true).expect("a file");
    writer.add(&flow(0, 10_000_000)).expect("space");
    for number in 0..300 {
        writer.add(&flow(number * 10_000, 3_000)).expect("space");
    }
    let header = Header {
        duration_us: 4_000_000,
        threshold: 40,
        unseen: Unseen {
            missed: 7,
            ..Unseen::default()
        },
        ..Header::default()
    };
    writer.finish(header).expect("space");
}

/// Text that the command prints when it refuses.
fn refusal(arguments: &[&str]) -> String {
    let output = netsim(arguments);
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn recording_becomes_a_table_a_page_and_json() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let file = path("day.flows");
    recording(Path::new(&file));
    let uplinks = "50mbit/10ms,20mbit/20ms";
    let arguments = ["run", "--trace", &file, "--uplinks", uplinks];

    let out = path("twin");
    let output = netsim(&[&arguments[..], &["--out", &out]].concat());
    assert!(output.status.success(), "{output:?}");
    let table = String::from_utf8(output.stdout).expect("text");
    let schemes = [
        "ecmp",
        "fair",
        "dedicated",
        "dedicated@160",
        "share",
        "share@160",
        "tr",
    ];
    for words in schemes.iter().chain(&[
        "301 connections in 4 s, of which 4 s are simulated over 50mbit/10ms, 20mbit/20ms",
        "7 connections are not in the recording",
        "short connections",
        "short: p99 ms",
        "index.html",
    ]) {
        assert!(table.contains(words), "{words}: {table}");
    }
    let page = fs::read_to_string(Path::new(&out).join("index.html")).expect("a page");
    assert_eq!(page.matches("<svg").count(), 4);
    assert!(page.contains("7 connections are not in the recording"));

    let output = netsim(&[&arguments[..], &["--json", "--jobs", "1"]].concat());
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let all = report["schemes"].as_array().expect("a list");
    let names: Vec<_> = all.iter().map(|it| &it["scheme"]).collect();
    assert_eq!(names, schemes);
    for it in all {
        assert_eq!(it["short"]["flows"], 300, "{it}");
        assert_eq!(it["long"]["flows"], 1, "{it}");
    }
    // Others' cores and order change nothing.
    let written = fs::read(Path::new(&out).join("twin.json")).expect("it is there");
    assert_eq!(
        serde_json::from_slice::<Value>(&written).expect("JSON"),
        report
    );

    // Three uplinks are none of the schemes for two.
    let three = [
        "run",
        "--trace",
        &file,
        "--uplinks",
        "9mbit/1ms,9mbit/1ms,9mbit/1ms",
    ];
    let output = netsim(&[&three[..], &["--json"]].concat());
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["schemes"].as_array().map(Vec::len), Some(3));
    let refused = refusal(&[&three[..], &["--schemes", "share"]].concat());
    assert!(
        refused.contains("share is one of two uplinks, and there are 3"),
        "{refused}"
    );

    // None of them is passed over beside a scenario.
    for option in [
        "--uplinks=9mbit/1ms",
        "--schemes=tr",
        "--threshold=7",
        "--skip=1h",
    ] {
        let refused = refusal(&["run", "tr-motivation", option]);
        assert!(refused.contains("cannot be used with"), "{refused}");
    }

    let part = |skip: &'static str| [&arguments[..], &["--skip", skip, "--schemes", "tr"]].concat();
    let whole = netsim(&part("0"));
    assert!(whole.status.success(), "{whole:?}");
    for skip in ["4s", "1h"] {
        let refused = refusal(&part(skip));
        assert!(refused.contains("and it has 4 s"), "{refused}");
    }
    // Those that began in the last 50 ms before, without the one that had just ended.
    let later = netsim(&part("2"));
    let table = String::from_utf8(later.stdout).expect("text");
    let cut = "4 connections were under way where --skip ends";
    assert!(table.contains(cut), "{table}");
    // Before anything is simulated: the file is in the way of the directory.
    let refused = refusal(&[&arguments[..], &["--out", &file]].concat());
    assert!(refused.contains("cannot write into"), "{refused}");

    let bytes = fs::read(&file).expect("it is there");
    fs::write(&file, &bytes[..bytes.len() / 2]).expect("space");
    let cut = refusal(&arguments);
    assert!(cut.contains("it was cut off"), "{cut}");
}
