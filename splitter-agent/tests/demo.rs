//! What `splitter demo` promises, held to a short run.

use std::process::Command;

use flow_testbed::attempts;
use flow_testbed::claim;
use flow_testbed::demo::preflight;
use flow_testbed::require;
use flow_testbed::require::Requirement::{NftRule, Program, Root};
use serde_json::Value;

/// Long enough for some thousand short flows in each mode. A shorter run is
/// noisier than the demonstration itself, so the bounds on means have slack
/// where they compare near equals.
const SECONDS: &str = "50";

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
    attempts::hold("the demonstration shows what it promises", || {
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
        is_whole(&told);
        keeps_its_promise(&told)
    });
}

/// What does not depend on how busy the machine is.
fn is_whole(told: &Value) {
    assert_eq!(told["xdp_mode"], "native");
    for mode in ["ecmp_flow", "ecmp_packet", "nft_split", "splitter", "share"] {
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

fn keeps_its_promise(told: &Value) -> Result<(), String> {
    let speedup = &told["speedup"];
    for (mode, at_least) in [
        ("ecmp_flow_mean", 4.0),
        ("ecmp_packet_mean", 2.0),
        ("nft_split_mean", 0.8),
    ] {
        claim!(
            speedup[mode].as_f64().expect("a number") >= at_least,
            "{mode} below {at_least}: {speedup:#}"
        );
    }
    let splitter = &told["modes"]["splitter"];
    claim!(splitter["tcp"]["paws_estab"] == 0, "{splitter:#}");
    claim!(splitter["unfinished"] == 0, "{splitter:#}");
    let demotions = |reason: &str| splitter["demotions"][reason].as_u64().expect("a count");
    claim!(demotions("drained") > 50, "{splitter:#}");
    // The cap is the last resort: for few, if any.
    claim!(
        demotions("at_cap") * 50 <= demotions("became_long"),
        "{splitter:#}"
    );
    // Sharing costs short flows little and gains long ones much.
    let sharing = |ratio: &str| told["sharing"][ratio].as_f64().expect("a number");
    claim!(
        sharing("short_by_dedicated") <= 1.2 && sharing("long_by_ecmp_flow") <= 0.9,
        "{:#}",
        told["sharing"]
    );
    let share = &told["modes"]["share"];
    claim!(share["tcp"]["paws_estab"] == 0, "{share:#}");
    claim!(share["demotions"]["at_cap"] == 0, "{share:#}");
    Ok(())
}
