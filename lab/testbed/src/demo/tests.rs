use std::error::Error;

use serde_json::Value;

use super::*;
use crate::experiment::TcpEvents;
use crate::experiment::{Completions, Measurement};

fn measurement(name: &str, short_ms: f64, long_ms: f64, xdp_mode: Option<&str>) -> Measurement {
    let completions = |completion_ms: f64, unfinished| Completions {
        samples: (0..100)
            .map(|number| (f64::from(number) * 0.1, completion_ms))
            .collect(),
        unfinished,
    };
    Measurement {
        name: name.to_owned(),
        short: completions(short_ms, 0),
        long: completions(long_ms, 1),
        tcp: TcpEvents {
            paws_estab: 1,
            timeouts: 2,
            retrans: 3,
            spurious_host_queue: 4,
        },
        cpu: Duration::from_millis(1_500),
        xdp_mode: xdp_mode.map(str::to_owned),
        handovers: None,
        conditions: Vec::new(),
    }
}

fn comparison() -> Comparison {
    let modes: Vec<ModeResult> = [
        measurement(ECMP_FLOW, 25.0, 240.0, None),
        measurement(ECMP_PACKET, 14.0, 140.0, None),
        measurement(NFT_SPLIT, 3.5, 570.0, None),
        measurement(SPLITTER, 3.5, 560.0, Some("native")),
        measurement(SHARE, 3.5, 168.0, Some("native")),
    ]
    .map(ModeResult::from)
    .into();
    let settings = Settings {
        rates_mbit: [100, 100],
        calibrated: true,
        load_percent: 40.0,
        seed: 1,
        threshold: 45,
        rounds: 2,
        measured_s: 10.0,
        queue_behind_border: false,
    };
    Comparison {
        valid: true,
        why: Vec::new(),
        speedup: Speedup::of(&modes),
        sharing: Sharing::of(&modes),
        modes,
        xdp_mode: Some("native".to_owned()),
        settings,
    }
}

#[test]
fn json_has_the_promised_shape() -> Result<(), Box<dyn Error>> {
    let json: Value = serde_json::from_str(&serde_json::to_string(&comparison())?)?;
    for mode in [ECMP_FLOW, ECMP_PACKET, NFT_SPLIT, SPLITTER, SHARE] {
        let mode = &json["modes"][mode];
        for class in ["short", "long"] {
            for figure in ["mean_ms", "p50_ms", "p99_ms", "flows"] {
                assert!(
                    mode[class][figure].is_number(),
                    "{class}.{figure} in {mode}"
                );
            }
        }
        for counter in ["paws_estab", "timeouts", "retrans"] {
            assert!(mode["tcp"][counter].is_u64(), "{counter} in {mode}");
        }
        assert_eq!(mode["cpu_s"], 1.5);
        assert_eq!(mode["unfinished"], 1);
    }
    assert_eq!(json["speedup"]["ecmp_flow_mean"], 25.0 / 3.5);
    assert_eq!(json["speedup"]["ecmp_packet_mean"], 4.0);
    assert_eq!(json["speedup"]["nft_split_mean"], 1.0);
    assert_eq!(json["sharing"]["short_by_dedicated"], 1.0);
    assert_eq!(json["sharing"]["long_by_ecmp_flow"], 168.0 / 240.0);
    assert_eq!(json["xdp_mode"], "native");
    Ok(())
}

#[test]
fn text_says_who_wins_and_who_loses() {
    let text = render_text(&comparison());
    for part in [
        "Short flows take 7.1 times as long with per-flow ECMP as with the splitter.",
        "Short flows take 4.0 times as long with per-packet ECMP as with the splitter.",
        "Short flows take as long with the nftables split as with the splitter, within 5 %.",
        "Long flows take 0.43 times as long with per-flow ECMP as with the splitter.",
        "long ones 2.33 times. It needs no shaping",
        "long ones 0.70 times. It shapes the tunnels",
        "native mode",
        "100 (+1 open)",
    ] {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
}

#[test]
fn page_shows_every_mode_in_every_plot() {
    let html = render_html(&comparison());
    // Three plots, and the means as bars.
    assert_eq!(html.matches("<svg").count(), 4);
    assert_eq!(html.matches(">nftables split</text>").count(), 4);
}

#[test]
fn too_little_time_is_refused_with_what_is_needed() {
    let options = |seconds| Options {
        total: Duration::from_secs(seconds),
        ..Options::default()
    };
    let error = plan(&options(2)).expect_err("too short");
    assert!(error.to_string().contains("at least 3 s"), "{error}");
    let (rounds, slice) = plan(&options(3)).expect("long enough");
    assert_eq!((rounds, slice), (1, Duration::from_secs(1)));
    let experiment = experiment(&options(3), [100, 100], slice, rounds);
    assert_eq!(experiment.warm_up, Duration::from_millis(250));
}

#[test]
fn default_has_two_rounds_within_the_time_given() {
    let options = Options {
        splitter: Some("splitter".into()),
        ..Options::default()
    };
    let (rounds, slice) = plan(&options).expect("long enough");
    let experiment = experiment(&options, [100, 100], slice, rounds);
    assert_eq!((experiment.modes.len(), experiment.rounds), (5, 2));
    assert_eq!(slice * rounds * 5, options.total);
    assert!((slice - experiment.warm_up) * rounds >= Duration::from_secs(10));
}

#[test]
fn contest_of_policies_has_a_round_for_each_seed() {
    let options = Options {
        contest: Contest::Policies { seeds: 5 },
        splitter: Some("splitter".into()),
        ..Options::default()
    };
    let (rounds, slice) = plan(&options).expect("long enough");
    let experiment = experiment(&options, [100, 100], slice, rounds);
    let names: Vec<_> = experiment.modes.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, [ECMP_FLOW, ECMP_PACKET, DEDICATED, SHARE]);
    assert_eq!((experiment.rounds, slice.as_secs()), (5, 10));
}

#[test]
fn comparison_that_is_not_valid_says_so_first_and_has_no_ratio() -> Result<(), Box<dyn Error>> {
    let comparison = Comparison {
        valid: false,
        why: vec!["share: 97.0 % of the processor time was used".to_owned()],
        speedup: None,
        sharing: None,
        ..comparison()
    };
    let text = render_text(&comparison);
    assert!(text.starts_with("NOT VALID"), "{text}");
    assert!(text.contains("97.0 %") && !text.contains("times"), "{text}");
    let html = render_html(&comparison);
    let alarm = html.find("class=\"alarm\"").expect("an alarm");
    assert!(alarm < html.find("<table").expect("a table"));
    assert!(!html.contains("as long with"), "{html}");
    assert!(!html.contains("shorter bar"), "bars are ratios to the eye");
    let json: Value = serde_json::from_str(&serde_json::to_string(&comparison)?)?;
    assert_eq!(json["valid"], false);
    assert!(
        json["why"][0]
            .as_str()
            .is_some_and(|it| it.contains("97.0 %"))
    );
    let object = json.as_object().expect("an object");
    assert!(object["speedup"].is_null() && object["sharing"].is_null());
    Ok(())
}

#[test]
fn slower_tunnels_carry_fewer_short_flows() {
    assert_eq!(short_per_second([100, 40]), 120.0);
    assert_eq!(short_per_second([20, 20]), 24.0);
}
