//! The worked example of a policy that is not built in.

#[path = "../../examples/own_balancer.rs"]
mod example;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use flow_balance::{Balancer, Packet, PathId, PathView, Paths, Snapshot};
use netsim::{Overrides, Source};

/// Of two draws, both hit the fuller path for a quarter of the flows, and one of them does for half of them.
#[test]
fn the_emptier_of_two_is_taken_by_its_queue_here_and_behind() {
    for (local_ns, remote_ns) in [(500, 0), (0, 500), (500, 500)] {
        let full = PathView {
            local_backlog_ns: local_ns,
            remote_backlog_ns: remote_ns,
            ..PathView::default()
        };
        let paths = Snapshot::new(&[PathView::default(), full]);
        let policy = example::EmptierOfTwo { gap_ns: 0, seed: 1 };
        let fuller = (0..1_000).filter(|flow| {
            let packet = Packet {
                now_ns: 1_000,
                bytes: 1_500,
                flow_hash: *flow,
            };
            let mut state = Default::default();
            policy.choose(&mut (), &mut state, &paths, &packet).index() == 1
        });
        let fuller = fuller.count();
        assert!(
            (200..300).contains(&fuller),
            "{local_ns} {remote_ns}: {fuller}"
        );
    }
}

/// Takes the first path, and keeps the longest queue that it was shown.
struct Watcher(Arc<AtomicU64>);

impl Balancer for Watcher {
    type Flow = ();
    type Shared = ();

    fn choose<P: Paths + ?Sized>(&self, (): &mut (), (): &mut (), paths: &P, _: &Packet) -> PathId {
        for path in paths.candidates().iter() {
            let waits_ns = paths.view(path).local_backlog_ns;
            self.0.fetch_max(waits_ns, Ordering::Relaxed);
        }
        paths.candidates().iter().next().unwrap_or_default()
    }
}

#[test]
fn a_policy_of_ones_own_is_shown_the_queues_of_its_switch() {
    let longest = Arc::new(AtomicU64::new(0));
    let source = Source::from_text("fat tree", example::SCENARIO);
    let experiment = source
        .experiment(&Overrides::default())
        .expect("the scenario is right");
    let watched = longest.clone();
    netsim::run_with_balancer(&experiment, move |_| Watcher(watched.clone()));
    let longest_ns = longest.load(Ordering::Relaxed);
    // All flows of two hosts meet at the first of two uplinks: a window of ten waits there at least.
    assert!(longest_ns > 10_000, "{longest_ns}");
}

/// It does not the same as flowlets that go anywhere, and no worse.
#[test]
fn a_policy_of_ones_own_sees_backlogs_and_decides() {
    let [letflow, own] = example::compare("letflow").expect("the scenario is right");
    assert!(own < 1.05 * letflow, "{own} {letflow}");
    assert_ne!(own, letflow);
}
