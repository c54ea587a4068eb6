//! A balancing policy of one's own beside those that are built in: flowlets that go where less waits of two
//! next hops drawn at random.
//!
//! `cargo run --release -p flow-netsim --example own_balancer`

use flow_balance::{Balancer, Packet, PathId, Paths};
use netsim::{Experiment, Manifest, Overrides, ScenarioError, Source, run, run_with_balancer};

/// A flowlet goes to the emptier of two paths (power of two choices, Mitzenmacher 2001).
#[derive(Clone, Copy, Debug)]
pub(crate) struct EmptierOfTwo {
    /// A longer silence ends a flowlet.
    pub(crate) gap_ns: u64,
    /// What looks random is a hash of this, the flow and a count.
    pub(crate) seed: u64,
}

/// What is kept of a flow; the default is a new one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flowlet {
    path: Option<PathId>,
    last_ns: u64,
    count: u64,
}

impl Balancer for EmptierOfTwo {
    type Flow = Flowlet;
    // Flows of a switch have nothing in common here. TR counts short flows in it.
    type Shared = ();

    fn choose<P: Paths + ?Sized>(
        &self,
        (): &mut (),
        flow: &mut Flowlet,
        paths: &P,
        packet: &Packet,
    ) -> PathId {
        let candidates = paths.candidates();
        let goes_on = packet.now_ns.saturating_sub(flow.last_ns) <= self.gap_ns;
        let same = flow.path.filter(|it| goes_on && candidates.contains(*it));
        let path = same.unwrap_or_else(|| {
            flow.count += 2;
            let draw = |part| candidates.pick(mix(self.seed ^ mix(packet.flow_hash ^ mix(part))));
            let waits = |path| {
                let view = paths.view(path);
                view.local_backlog_ns + view.remote_backlog_ns
            };
            let [first, second] = [draw(flow.count), draw(flow.count + 1)];
            if waits(second) < waits(first) {
                second
            } else {
                first
            }
        });
        flow.path = Some(path);
        flow.last_ns = packet.now_ns;
        path
    }
}

/// Spreads a number over 64 bits (SplitMix64).
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Web search in a fat tree of 16 hosts at load 0.7.
pub(crate) const SCENARIO: &str = "about = 'Policies that change paths at gaps, in a fat tree'
topology.fat_tree = { k = 4, host_gbps = 10, link_gbps = 10, link_delay_us = 1 }
balance.letflow_gap_us = 50
transport.recovery = 'sack'
traffic = [{ kind = 'poisson', sizes = 'web_search_xpass', load = 0.7, messages = 2000,
  hosts = { pattern = 'other_leaves' } }]";

/// Mean completion time of all messages, in microseconds, under a built-in policy and under this one.
pub(crate) fn compare(policy: &str) -> Result<[f64; 2], ScenarioError> {
    let source = Source::from_text("fat tree", SCENARIO);
    let overrides = Overrides {
        scheme: Some(policy.to_owned()),
        ..Overrides::default()
    };
    let experiment = source.experiment(&overrides)?;
    let own = run_with_balancer(&experiment, |seed| EmptierOfTwo {
        gap_ns: 50_000,
        seed,
    });
    Ok([run(&experiment), own].map(|outcome| mean_us(&experiment, &outcome)))
}

fn mean_us(experiment: &Experiment, outcome: &netsim::Outcome) -> f64 {
    let manifest = Manifest::new(experiment, outcome);
    let all = manifest.classes.iter().find(|it| it.class == "all");
    all.and_then(|it| it.mean_us).unwrap_or(f64::NAN)
}

#[allow(dead_code, reason = "a test has the rest of this file as a module")]
fn main() -> Result<(), ScenarioError> {
    for policy in ["ecmp", "letflow", "tr_guarded"] {
        let [theirs, own] = compare(policy)?;
        println!("{policy}: {theirs:.0} us; the emptier of two: {own:.0} us");
    }
    Ok(())
}
