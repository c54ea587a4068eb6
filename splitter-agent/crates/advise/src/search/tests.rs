use std::fs::File;
use std::path::Path;
use std::time::Duration;

use super::super::file;
use super::*;
use crate::ThresholdUnit::{Bytes, Packets};

fn question(current: u32, load: f64) -> Question {
    Question {
        unit: Packets,
        current,
        bounds: [1, 100_000],
        rates: Some([100e6, 100e6]),
        rtt: Duration::from_millis(20),
        traffic: Traffic::Load(load),
    }
}

/// The published distributions that the simulator has, too.
fn workloads() -> Vec<(String, file::FlowFile)> {
    let directory =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../netsim/crates/workload/distributions");
    let entries = std::fs::read_dir(directory).expect("the simulator's workloads");
    let mut workloads: Vec<_> = entries
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            (name, file::read(File::open(path).unwrap()).unwrap())
        })
        .collect();
    workloads.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(workloads.len() >= 10);
    workloads
}

fn slowdown(sample: &Sample, question: &Question, threshold: u32) -> Option<f64> {
    let flows = sample.filled();
    let network = network(&flows, question, &mut Vec::new());
    Some(predict(&flows, &network, threshold.into(), [0; 2])?.mean_slowdown)
}

/// Looks at thresholds that the search does not, and finds none that is better by more than
/// the search allows itself.
#[test]
fn no_threshold_is_much_better_than_the_recommended_one() {
    for (name, file) in workloads() {
        for load in [0.2, 0.4, 0.6] {
            let (question, sample) = (question(40, load), file.sizes.sample(Packets));
            let advice = advise(sample, &question, false);
            let best = advice.recommended.expect("the load can be carried");
            let of_best = slowdown(sample, &question, best).unwrap();
            let mut other = 1.0f64;
            while other < 100_000.0 {
                if let Some(slowdown) = slowdown(sample, &question, other as u32) {
                    assert!(
                        slowdown * 1.03 >= of_best,
                        "{name} at {load}: {other} gives {slowdown}, {best} {of_best}"
                    );
                }
                other *= 1.17;
            }
            let (present, expected) = (advice.present, advice.expected.unwrap());
            let is_better =
                present.is_none_or(|it| it.mean_slowdown * 1.000_001 >= expected.mean_slowdown);
            assert!(is_better, "{name} at {load}");
        }
    }
}

#[test]
fn more_load_moves_the_shares_towards_each_other() {
    for (name, file) in workloads() {
        let loads = [0.2, 0.6].map(|load| {
            let advice = advise(file.sizes.sample(Packets), &question(1, load), false);
            let expected = advice
                .expected
                .clone()
                .unwrap_or_else(|| panic!("{name} at {load}: {advice:?}"));
            (expected.short_load - expected.long_load).abs() / load
        });
        assert!(loads[1] <= loads[0] + 0.01, "{name}: {loads:?}");
    }
}

#[test]
fn bytes_and_packets_recommend_the_same_cut() {
    for (name, file) in workloads() {
        let packets = advise(file.sizes.sample(Packets), &question(1, 0.4), false);
        let in_bytes = Question {
            unit: Bytes,
            bounds: [100, 150_000_000],
            ..question(1, 0.4)
        };
        let bytes = advise(file.sizes.sample(Bytes), &in_bytes, false);
        let (packets, bytes) = (packets.expected.unwrap(), bytes.expected.unwrap());
        let (one, other) = (packets.mean_slowdown, bytes.mean_slowdown);
        assert!((one / other - 1.0).abs() < 0.03, "{name}: {one} {other}");
    }
}

#[test]
fn what_cannot_be_carried_is_reported() {
    let (_, file) = workloads().swap_remove(0);
    let advice = advise(file.sizes.sample(Packets), &question(40, 1.2), false);
    assert_eq!(
        (advice.verdict, advice.recommended),
        (Verdict::Overloaded, None)
    );
    // A bound that leaves the long tunnel too much.
    let bound = Question {
        bounds: [1, 2],
        ..question(2, 0.9)
    };
    assert_eq!(
        advise(file.sizes.sample(Packets), &bound, false).verdict,
        Verdict::Overloaded
    );
}

#[test]
fn few_flows_are_no_ground_for_advice() {
    let lines = |count: usize| {
        (0..count)
            .map(|n| format!("{}\n", 1_000 + n * n))
            .collect::<String>()
    };
    let few = file::read(lines(999).as_bytes()).unwrap();
    let advice = advise(few.sizes.sample(Packets), &question(40, 0.5), true);
    assert_eq!(
        (advice.verdict, advice.recommended),
        (Verdict::TooFewFlows, None)
    );
    assert!(
        advice.notes[0].contains("999 flows have ended"),
        "{advice:?}"
    );
    let more = file::read(lines(4_000).as_bytes()).unwrap();
    let advice = advise(more.sizes.sample(Packets), &question(40, 0.5), true);
    let [low, high] = advice.range.expect("it can be reported");
    assert!(low <= high);
    assert_ne!(advice.verdict, Verdict::TooFewFlows);
}

/// One flow in a thousand carries half of all bytes: whether it is there decides the advice.
#[test]
fn a_rare_elephant_makes_advice_uncertain() {
    let mut text = "10000\n".repeat(1_500);
    text += "200000000\n";
    let file = file::read(text.as_bytes()).unwrap();
    let advice = advise(file.sizes.sample(Packets), &question(100_000, 0.9), true);
    assert_ne!(advice.verdict, Verdict::Change, "{advice:?}");
}

#[test]
fn without_rates_no_times_are_stated() {
    let (_, file) = workloads().swap_remove(0);
    let blind = Question {
        rates: None,
        traffic: Traffic::FlowsPerSecond(3.0),
        ..question(40, 0.0)
    };
    let advice = advise(file.sizes.sample(Packets), &blind, false);
    let expected = advice.expected.clone().expect("half a load can be carried");
    assert_eq!((expected.short_fct_s, expected.short_wait_s), (None, None));
    assert!(
        (expected.short_load + expected.long_load - 1.0).abs() < 1e-6,
        "two tunnels at a half"
    );
    assert!(
        advice.notes[0].contains("taken to be equal and loaded to 50 %"),
        "{advice:?}"
    );
}

/// A present threshold that is as good stays.
#[test]
fn advice_that_was_taken_is_not_given_again() {
    for (name, file) in workloads() {
        let sample = file.sizes.sample(Packets);
        let first = advise(sample, &question(1, 0.5), false);
        let second = advise(sample, &question(first.recommended.unwrap(), 0.5), false);
        assert_eq!(
            (second.verdict, second.recommended),
            (Verdict::Keep, first.recommended),
            "{name}"
        );
        assert_eq!(second.gain, 0.0);
    }
}
