//! A short run of the demonstration: its JSON is whole, and what it counts fits together.
//!
//! How much faster flows are is reported by the demonstration itself (`cargo xtask demo`), and held by
//! no test: it depends on what else the machine does. The laws behind it are held in virtual time
//! (`splitter-policy`'s tests).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use flow_testbed::demo::{self, Comparison, Options, preflight};
use flow_testbed::require;
use flow_testbed::require::Requirement::{NftRule, Program, Root};
use flow_testbed::timed::disturb;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// Two seconds for each mode: enough for flows of both classes.
const TOTAL: Duration = Duration::from_secs(10);

/// Two demonstrations at once would measure each other.
static TURN: Mutex<()> = Mutex::new(());

fn demonstration(rates_mbit: [u32; 2]) -> Comparison {
    preflight().expect("all that the demonstration needs is here");
    let options = Options {
        splitter: Some(env!("CARGO_BIN_EXE_splitter").into()),
        total: TOTAL,
        rates_mbit: Some(rates_mbit),
        ..Options::default()
    };
    demo::run(&options, &mut (), &CancellationToken::new()).expect("it runs")
}

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
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let reported = serde_json::to_value(demonstration([100, 100])).expect("one JSON object");
    println!("{reported:#}");
    is_whole(&reported);
    counts_fit(&reported);
}

#[test]
fn demo_beside_a_hog_is_not_valid_and_has_no_ratio() {
    require!(
        Root,
        Program("ip"),
        Program("tc"),
        Program("nft"),
        Program("ethtool")
    );
    require!(NftRule("ct original packets > 45 ip dscp set 2"));
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(_alone) = disturb() else { return };
    let hogs = Hogs::start();
    let comparison = demonstration([10, 10]);
    drop(hogs);
    println!("{:?}", comparison.why);
    let text = demo::render_text(&comparison);
    assert!(text.starts_with("NOT VALID"), "{text}");
    assert!(!text.contains("as long"), "{text}");
    let page = demo::render_html(&comparison);
    assert!(page.contains("class=\"alarm\"") && !page.contains("as long"));
    let reported = serde_json::to_value(comparison).expect("one JSON object");
    assert_eq!(reported["valid"], false);
    let why = reported["why"].as_array().expect("a list");
    assert!(!why.is_empty());
    for ratios in ["speedup", "sharing"] {
        assert!(reported[ratios].is_null(), "{ratios}: {reported}");
    }
}

/// Threads that leave no processor idle, until they are dropped.
struct Hogs {
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Hogs {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let spin = |_| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || while !stop.load(Ordering::Relaxed) {})
        };
        let threads = (0..2 * processors).map(spin).collect();
        Self { stop, threads }
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("it only spins");
        }
    }
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
