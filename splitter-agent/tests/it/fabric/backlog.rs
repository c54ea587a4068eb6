//! What a leaf hears of a spine's port.

use flow_testbed::require;
use flow_testbed::require::Requirement::{Program, QueueingDiscipline, Root};
use flow_testbed::wait;

use super::restarts::{directory, end, is_attached};
use super::rig::{Rig, run};
use super::transfer::{scrape, transfer};
use crate::support::site::PATIENCE;

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
    transfer(&rig, 2, 3_000_000, || {
        let fills = || (hears(0) > 10.0).then_some(());
        wait::within(PATIENCE, "the leaf to hear of the queue", fills);
        // By the other spine nothing has gone.
        assert_eq!(hears(1), 0.0);
    });
    // It drains as time passes.
    wait::within(PATIENCE, "the queue to drain", || {
        (hears(0) == 0.0).then_some(())
    });
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
    run(spine, &format!("tc qdisc add dev leaf1 root {TBF}"));
    let agent = rig.command(spine, "run").spawn().expect("it is built");
    let is_there = || is_attached(&rig, spine).then_some(());
    wait::within(PATIENCE, "the programs", is_there);
    std::fs::remove_dir_all(directory(&rig, spine)).expect("it is there");
    wait::within(PATIENCE, "the programs to come back", is_there);
    let waits = || {
        let metrics = spine.enter(scrape).expect("it exists");
        let name = "splitter_fabric_port_backlog_seconds{device=\"leaf1\"} ";
        let line = metrics.lines().find_map(|it| it.strip_prefix(name));
        line.and_then(|it| it.parse::<f64>().ok())
    };
    transfer(&rig, 2, 3_000_000, || {
        let fills = || waits().filter(|it| *it > 0.01);
        wait::within(PATIENCE, "the metric to rise", fills);
    });
    end(agent);
}
