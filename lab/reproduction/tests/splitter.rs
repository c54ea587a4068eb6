//! The splitter's items: a round on real packets, and what is said where there can be none.

use std::{path::Path, process::Command};

use flow_testbed::{
    require,
    require::{BROWSER, Requirement::*},
};
use reproduction::splitter::cell::{Cell, Length, Mode, measure, round};

/// Returns from a test where a round cannot be measured, or what else it needs is not there.
macro_rules! require_testbed {
    ($($more:expr),*) => {
        require!(
            Root,
            Program("ip"),
            Program("tc"),
            Program("ethtool"),
            Program("nft"),
            Program("nginx"),
            Program("curl"),
            Program("mgen"),
            Program("tcpdump"),
            FileSystem("bpf"),
            CongestionControl("cubic")
            $(, $more)*
        );
    };
}

#[test]
fn round_is_measured_by_real_programs_and_kept() {
    require_testbed!();
    let directory = tempfile::tempdir().unwrap();
    let length = Length {
        whole_s: 1.5,
        warm_up_s: 0.2,
    };
    let cell = Cell::new(Mode::EcmpFlow, 20);
    // ECMP needs no agent.
    let run = |length| {
        let measured = || measure(&cell, length, 3, Path::new("/nonexistent"));
        round(&cell, length, 3, directory.path(), measured).unwrap()
    };
    let measured = run(length);
    assert_eq!(measured.unanswered, 0);
    // Some 26 of 30 listings begin after the warm-up, each with at least four gaps of its packets.
    assert!(measured.list_ms.len() > 5, "{measured:?}");
    assert!(measured.jitter_us.len() > 4 * measured.list_ms.len());
    // A packet waits in a queue of 20 ms at the most; a listing takes a round trip at least.
    assert!(
        measured
            .list_ms
            .iter()
            .all(|it| (0.1..2_000.0).contains(it))
    );
    for percent in measured.background_percent {
        // A busy machine sends less; 3 s at 20 % are 6,600 messages, give or take 1 %.
        assert!((10.0..22.0).contains(&percent), "{percent}");
    }
    assert_eq!(measured, run(length), "kept, and not measured again");
    let other = Length {
        whole_s: 1.2,
        ..length
    };
    let again = run(other);
    assert_ne!(measured.list_ms, again.list_ms, "of other settings");
}

#[test]
fn item_that_cannot_be_measured_says_what_is_lacking() {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_reproduction"))
        .args(["reproduce", "S1", "C12", "C13", "--quick", "--json"])
        .args(["--splitter", "/nonexistent", "--out"])
        .arg(directory.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let items: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let verdicts: Vec<_> = items
        .iter()
        .map(|it| it["verdict"].as_str().unwrap())
        .collect();
    assert_eq!(verdicts, ["not decided", "note", "note"]);
    assert!(
        items[0]["note"]
            .as_str()
            .unwrap()
            .contains("lacks the agent, /nonexistent")
    );
    assert_eq!(items[1]["holds"], false);
}

#[test]
fn browser_loads_whole_pages_through_the_tunnels() {
    require_testbed!(Program(BROWSER));
    let length = Length {
        whole_s: 1.0,
        warm_up_s: 0.0,
    };
    let cell = Cell {
        pages: true,
        ..Cell::new(Mode::EcmpFlow, 0)
    };
    let measured = measure(&cell, length, 3, Path::new("/nonexistent")).unwrap();
    assert_eq!(measured.unanswered, 0, "{measured:?}");
    assert!(!measured.page_ms.is_empty() && measured.list_ms.is_empty());
    // 1.76 MB take 70 ms with both tunnels to themselves, and a load is given 20 s.
    let can_be = |ms: &f64| (70.0..20_000.0).contains(ms);
    assert!(measured.page_ms.iter().all(can_be), "{measured:?}");
}
