//! Fifty remote sites with thresholds of their own, beside one.

use criterion::BenchmarkGroup;
use criterion::measurement::WallTime;
use splitter_policy::config::PolicyConfig;
use splitter_policy::counters::{Counters, FlowEvent};
use splitter_policy::thresholds::{ThresholdIndex, Thresholds};
use std::net::{IpAddr, Ipv4Addr};

use super::case::Case;
use super::fresh::new_flows;
use super::loaded::Loaded;
use super::{TABLE_SIZE, YARDSTICK, full_segment, loaded_with_room};

/// The sites besides the one that the frames lead to.
const OTHERS: u8 = 49;
/// What they have, by turns; beyond any flow here.
const OTHER_THRESHOLDS: std::ops::Range<u64> = 1 << 40..(1 << 40) + 28;

/// Some thirty thresholds, of which one is the lowest and one that of the site that the frames lead to.
pub(super) fn thresholds(lowest: u64, of_frames: u64) -> Thresholds {
    let own = [lowest, of_frames].into_iter().chain(OTHER_THRESHOLDS);
    Thresholds::uniform(0)
        .followed_by(1 << 39, own)
        .expect("they fit")
}

/// Tells the programs which prefixes lie at the sites, the frames' at that with the threshold `of_frames`.
pub(super) fn fill(loaded: &mut Loaded, thresholds: &Thresholds, of_frames: u64) {
    let other = |number: u8| {
        let offset = u64::from(number) % (OTHER_THRESHOLDS.end - OTHER_THRESHOLDS.start);
        let index = thresholds.index_of(OTHER_THRESHOLDS.start + offset);
        (Ipv4Addr::new(172, 16, number, 0).into(), 24, index)
    };
    let mut prefixes: Vec<(IpAddr, u8, ThresholdIndex)> = (0..OTHERS).map(other).collect();
    let of_frames = thresholds.index_of(of_frames);
    prefixes.push((Ipv4Addr::new(10, 0, 0, 0).into(), 8, of_frames));
    loaded.set_sites(&prefixes);
}

/// What a new flow costs, one that is beyond the lowest threshold with its first packet, and the same
/// beside one site.
pub(super) fn measure(group: &mut BenchmarkGroup<'_, WallTime>) {
    type Count = fn(&Counters) -> u64;
    let started: Count = |counters| counters.events(FlowEvent::Started);
    let long: Count = |counters| counters.events(FlowEvent::BecameLong);
    let cases = [
        ("new_flow_50_sites", thresholds(40, 40), 40, started),
        ("new_long_flow", Thresholds::uniform(0), 0, long),
        ("new_long_flow_50_sites", thresholds(0, 0), 0, long),
    ];
    for (name, thresholds, of_frames, counts) in cases {
        let mut fresh = loaded_with_room(YARDSTICK, &["split_new_flow"], TABLE_SIZE);
        fill(&mut fresh, &thresholds, of_frames);
        let [case, _] = new_flows([name, ""], &full_segment().bytes(), TABLE_SIZE);
        let config = PolicyConfig {
            thresholds,
            ..case.config
        };
        let case = Case {
            config,
            counts: Some(counts),
            ..case
        };
        case.measure(group, &mut fresh);
    }
}
