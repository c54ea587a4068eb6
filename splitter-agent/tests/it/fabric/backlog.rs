//! What a leaf hears of a spine's port.

use std::process::Child;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use flow_testbed::namespace::Namespace;
use flow_testbed::require;
use flow_testbed::require::Requirement::{Program, QueueingDiscipline, Root};
use flow_testbed::wait;

use super::restarts::{directory, end, is_attached};
use super::rig::{Rig, run};
use super::transfer::{scrape, transfer};
use crate::support::site::PATIENCE;

/// Of a transfer, at least: 3 MB through 20 Mbit/s.
const WAITS: Duration = Duration::from_secs(1);

/// A queue of a spine's port is what a leaf hears of it.
#[test]
fn leaf_hears_how_full_the_port_of_a_spine_is() {
    const TBF: &str = "tbf rate 20mbit burst 3100 limit 62500";
    require!(
        Root,
        Program("ip"),
        Program("ethtool"),
        QueueingDiscipline(TBF)
    );
    let rig = Rig::new();
    for spine in &rig.spines {
        run(spine, &format!("tc qdisc add dev leaf1 root {TBF}"));
    }
    for router in rig.routers() {
        rig.fabric(router, "up");
    }
    let hears = |port: usize| {
        let status = rig.status(&rig.leaves[0]);
        let reports = &status["ports"][port]["remote_backlog_ms"];
        let of_the_other = reports[1].as_array().expect("a leaf and a time");
        assert_eq!(of_the_other[0], 1);
        of_the_other[1].as_f64().expect("a number")
    };
    assert_eq!(hears(0), 0.0);
    during_transfers(&rig, "the leaf to hear of the queue", || {
        let fills = hears(0) > 10.0;
        // By the other spine nothing has gone.
        assert_eq!(hears(1), 0.0);
        fills
    });
    // It drains as time passes.
    wait::within(PATIENCE, "the queue to drain", || {
        (hears(0) == 0.0).then_some(())
    });
}

/// Runs the agent of a spine, whose port to the second leaf has a queue like that in front, until its programs are there.
fn run_behind(rig: &Rig, spine: &Namespace, queue: &str) -> Child {
    run(spine, &format!("tc qdisc add dev leaf1 root {queue}"));
    let agent = rig.command(spine, "run").spawn().expect("it is built");
    wait::within(PATIENCE, "the programs", || {
        is_attached(rig, spine).then_some(())
    });
    agent
}

/// Of what is pinned now, and not of what was there when the agent began.
#[test]
fn spine_tells_what_waits_also_after_its_pins_were_put_back() {
    const TBF: &str = "tbf rate 20mbit burst 3100 limit 62500";
    require!(
        Root,
        Program("ip"),
        Program("ethtool"),
        QueueingDiscipline(TBF)
    );
    let rig = Rig::new();
    let spine = &rig.spines[0];
    let agent = run_behind(&rig, spine, TBF);
    let is_there = || is_attached(&rig, spine).then_some(());
    std::fs::remove_dir_all(directory(&rig, spine)).expect("it is there");
    wait::within(PATIENCE, "the programs to come back", is_there);
    transfer(&rig, 2, 3_000_000, || {
        let fills = || waits_s(spine).filter(|it| *it > 0.01);
        wait::within(PATIENCE, "the metric to rise", fills);
    });
    end(agent);
}

/// Each change of a device would have it begin again with its looks, of which sixteen together mend a model.
#[test]
fn spine_mends_its_models_while_devices_come_and_go() {
    // Half of the rate that the configuration states: by that alone nothing would wait.
    const TBF: &str = "tbf rate 10mbit burst 3100 limit 62500";
    require!(
        Root,
        Program("ip"),
        Program("ethtool"),
        QueueingDiscipline(TBF)
    );
    let rig = Rig::new();
    let spine = &rig.spines[0];
    let agent = run_behind(&rig, spine, TBF);
    let (changes, ends) = mpsc::channel::<()>();
    let changed = spine.clone();
    let changing = thread::spawn(move || {
        while ends.recv_timeout(Duration::from_millis(30)) == Err(RecvTimeoutError::Timeout) {
            run(&changed, "ip link add name comes type veth peer name goes");
            run(&changed, "ip link del comes");
        }
    });
    during_transfers(&rig, "the model to hold what waits", || {
        waits_s(spine) > Some(0.015)
    });
    drop(changes);
    changing.join().expect("devices can be made");
    end(agent);
}

/// Transfers until that is seen while something waits: a machine that does other things looks seldom.
fn during_transfers(rig: &Rig, what: &str, seen: impl Fn() -> bool) {
    let is_seen = (0..10).any(|_| {
        let mut is_seen = None;
        transfer(rig, 2, 3_000_000, || {
            is_seen = wait::poll(WAITS, || seen().then_some(()));
        });
        is_seen.is_some()
    });
    assert!(is_seen, "ten transfers were not enough for {what}");
}

/// What waits at a spine's port to the second leaf, as its agent's metrics say, in seconds.
fn waits_s(spine: &Namespace) -> Option<f64> {
    let metrics = spine.enter(scrape).expect("it exists");
    let name = "splitter_fabric_port_backlog_seconds{device=\"leaf1\"} ";
    let line = metrics.lines().find_map(|it| it.strip_prefix(name));
    line.and_then(|it| it.parse().ok())
}
