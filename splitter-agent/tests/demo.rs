//! What `splitter demo` promises, held to a short run.

use std::process::Command;

use flow_testbed::demo::preflight;
use flow_testbed::require;
use flow_testbed::require::Requirement::{NftRule, Program, Root};
use serde_json::Value;

/// Long enough for some thousand short flows in each mode. A shorter run is
/// noisier than the demonstration itself, so the bounds on means have slack
/// where they compare near equals.
const SECONDS: &str = "40";

#[test]
fn demo_shows_what_it_promises() {
    require!(
        Root,
        Program("ip"),
        Program("tc"),
        Program("nft"),
        Program("ethtool")
    );
    require!(NftRule("ct original packets > 45 ip dscp set 2"));
    preflight().expect("all that the demonstration needs is here");
    let output = Command::new(env!("CARGO_BIN_EXE_splitter"))
        .args(["demo", "--json", "--seconds", SECONDS])
        .output()
        .expect("the program starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let told: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    println!("{told:#}");

    assert_eq!(told["xdp_mode"], "native");
    let speedup = |mode: &str| told["speedup"][mode].as_f64().expect("a number");
    assert!(speedup("ecmp_flow_mean") >= 4.0, "{:#}", told["speedup"]);
    assert!(speedup("ecmp_packet_mean") >= 2.0, "{:#}", told["speedup"]);
    assert!(speedup("nft_split_mean") >= 0.8, "{:#}", told["speedup"]);

    let splitter = &told["modes"]["splitter"];
    assert_eq!(splitter["tcp"]["paws_estab"], 0, "{splitter:#}");
    assert_eq!(splitter["unfinished"], 0, "{splitter:#}");
    assert!(
        splitter["demotions"]["drained"].as_u64() > Some(50),
        "{splitter:#}"
    );
    // The cap is the last resort: for few, if any.
    let demotions = |reason: &str| splitter["demotions"][reason].as_u64().expect("a count");
    assert!(
        demotions("at_cap") * 50 <= demotions("became_long"),
        "{splitter:#}"
    );
    for mode in ["ecmp_flow", "ecmp_packet", "nft_split", "splitter"] {
        let mode = &told["modes"][mode];
        for class in ["short", "long"] {
            for field in ["mean_ms", "p50_ms", "p99_ms"] {
                assert!(
                    mode[class][field].as_f64() > Some(0.0),
                    "{class} {field}: {mode:#}"
                );
            }
            assert!(
                mode[class]["flows"].as_u64() > Some(20),
                "{class}: {mode:#}"
            );
        }
        assert!(mode["cpu_s"].as_f64() > Some(0.0), "{mode:#}");
        assert!(mode["tcp"]["timeouts"].is_u64() && mode["tcp"]["retrans"].is_u64());
    }
}
