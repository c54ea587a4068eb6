//! A short run of the demonstration: its JSON is whole, and what it counts fits together.
//!
//! How much faster flows are is reported by the demonstration itself (`cargo xtask demo`), and held by
//! no test: it depends on what else the machine does. The laws behind it are held in virtual time
//! (`splitter-policy`'s tests).

use std::time::Duration;

use flow_testbed::demo::{self, Options, preflight};
use flow_testbed::require;
use flow_testbed::require::Requirement::{NftRule, Program, Root};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// Two seconds for each mode: enough for flows of both classes.
const TOTAL: Duration = Duration::from_secs(10);

#[test]
fn demo_reports_every_mode_in_one_json_object() {
    require!(
        Root,
        Program("ip"),
        Program("tc"),
        Program("nft"),
        Program("ethtool")
    );
    require!(NftRule("ct original packets > 45 ip dscp set 2"));
    preflight().expect("all that the demonstration needs is here");
    let options = Options {
        splitter: Some(env!("CARGO_BIN_EXE_splitter").into()),
        total: TOTAL,
        ..Options::default()
    };
    let comparison = demo::run(&options, &mut (), &CancellationToken::new());
    let reported = serde_json::to_value(comparison.expect("it runs")).expect("one JSON object");
    println!("{reported:#}");
    is_whole(&reported);
    counts_fit(&reported);
}

fn is_whole(reported: &Value) {
    assert_eq!(reported["xdp_mode"], "native");
    for mode in ["ecmp_flow", "ecmp_packet", "nft_split", "splitter", "share"] {
        let mode = &reported["modes"][mode];
        for class in ["short", "long"] {
            for field in ["mean_ms", "p50_ms", "p99_ms"] {
                assert!(
                    mode[class][field].as_f64() > Some(0.0),
                    "{class} {field}: {mode:#}"
                );
            }
            assert!(mode[class]["flows"].as_u64() > Some(0), "{class}: {mode:#}");
        }
        assert!(mode["short"]["flows"].as_u64() > Some(20), "{mode:#}");
        assert!(mode["cpu_s"].as_f64() > Some(0.0), "{mode:#}");
        assert!(mode["tcp"]["timeouts"].is_u64() && mode["tcp"]["retrans"].is_u64());
    }
}

/// Every long flow that was handed over had turned long, and ratios are those of the means.
fn counts_fit(reported: &Value) {
    for mode in ["splitter", "share"] {
        let handovers = &reported["modes"][mode]["handovers"];
        let count = |reason: &str| handovers[reason].as_u64().expect("a count");
        assert!(count("became_long") > 0, "{mode}: {handovers}");
        let handed_over = count("drained") + count("at_max_wait");
        assert!(handed_over <= count("became_long"), "{mode}: {handovers}");
    }
    if reported["valid"] == false {
        // No ratio where the machine cannot tell, and a reason.
        assert!(reported["speedup"].is_null() && reported["sharing"].is_null());
        assert!(reported["why"][0].is_string(), "{reported}");
        return;
    }
    let mean = |mode: &str| reported["modes"][mode]["short"]["mean_ms"].as_f64();
    for mode in ["ecmp_flow", "ecmp_packet", "nft_split"] {
        let ratio = mean(mode).expect("a mean") / mean("splitter").expect("a mean");
        let reported = reported["speedup"][format!("{mode}_mean")].as_f64();
        let reported = reported.expect("a ratio");
        assert!(
            (reported / ratio - 1.0).abs() < 0.01,
            "{mode}: {reported}, {ratio}"
        );
    }
}
