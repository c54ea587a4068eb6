//! What stays at a leaf's ports when its agent ends, its build changes or its pins go.

use std::path::PathBuf;
use std::process::Child;

use splitter_datapath::fabric_object;

use flow_testbed::namespace::Namespace;
use flow_testbed::require;
use flow_testbed::require::Requirement::{Program, Root};
use flow_testbed::wait;

use super::rig::{Rig, run};
use super::transfer::{scrape, transfer};
use crate::support::site::PATIENCE;

const OBJECT_DIR: &str = "SPLITTER_EBPF_OBJECT_DIR";

pub(super) fn directory(rig: &Rig, router: &Namespace) -> PathBuf {
    rig.bpffs().join("splitter-fabric").join(router.name())
}

/// Pins the map of reports where another map of a leaf was, as if its build were another.
pub(super) fn pin_another_map_for(rig: &Rig, leaf: &Namespace, name: &str) {
    let maps = directory(rig, leaf).join("maps");
    std::fs::remove_file(maps.join(name)).expect("it is pinned");
    std::fs::hard_link(maps.join("REMOTE"), maps.join(name)).expect("both are pins");
}

pub(super) fn is_attached(rig: &Rig, router: &Namespace) -> bool {
    let status = rig.status(router);
    let ports = status["ports"].as_array();
    ports.is_some_and(|it| it.iter().all(|port| port["attached"] == true))
}

pub(super) fn end(mut agent: Child) {
    let pid = nix::unistd::Pid::from_raw(agent.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it runs");
    assert!(agent.wait().expect("it ends").success());
}

#[test]
fn port_that_is_not_there_is_attached_to_when_it_comes() {
    require!(Root, Program("ip"), Program("ethtool"));
    let rig = Rig::new();
    let leaf = &rig.leaves[0];
    run(leaf, "ip link set up1 down");
    run(leaf, "ip link set up1 name gone");
    let mut agent = rig.command(leaf, "run").spawn().expect("it is built");
    let is_attached = |port: usize| {
        let status = rig.status(leaf);
        status["ports"][port]["attached"].as_bool().unwrap_or(false)
    };
    wait::within(PATIENCE, "the port that is there", || {
        is_attached(0).then_some(())
    });
    assert!(!is_attached(1));
    run(leaf, "ip link set gone name up1");
    wait::within(PATIENCE, "the port that has come", || {
        is_attached(1).then_some(())
    });
    let metrics = leaf.enter(scrape).expect("it exists");
    assert!(
        metrics.contains("splitter_fabric_ports_attached 2"),
        "{metrics}"
    );
    for name in splitter_agent::metrics::fabric_names() {
        // What is one role's alone has no samples here, and is described.
        assert!(
            metrics.contains(name.trim_end_matches("_total")),
            "{name} is not served"
        );
    }
    let pid = nix::unistd::Pid::from_raw(agent.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it runs");
    assert!(agent.wait().expect("it ends").success());
    // It writes no more, and restores what others write until it is taken down.
    assert!(!is_attached(0));
    let pins = directory(&rig, leaf);
    assert!(!pins.join("egress_links/up0").exists());
    let far = &rig.leaves[1];
    rig.fabric(far, "up");
    let (written, restored) = (rig.done(leaf, "written"), rig.done(leaf, "restored"));
    transfer(&rig, 2, 500_000, || {});
    assert_eq!(rig.done(leaf, "written"), written);
    assert!(rig.done(leaf, "restored") > restored + 10);
    for leaf in &rig.leaves {
        rig.fabric(leaf, "down");
        assert_eq!(rig.status(leaf)["up"], false);
    }
    assert!(!rig.bpffs().join("splitter-fabric").exists());
}

/// The names in the directory of pins that say which build is in place.
fn builds(rig: &Rig, router: &Namespace) -> Vec<String> {
    let entries = std::fs::read_dir(directory(rig, router)).expect("it is there");
    let names = entries.map(|it| it.expect("a name").file_name().into_string());
    let names = names.map(|it| it.expect("ASCII"));
    names.filter(|it| it.starts_with("build-")).collect()
}

#[test]
fn another_build_takes_the_place_of_what_is_there_if_it_loads() {
    require!(Root, Program("ip"), Program("ethtool"));
    let rig = Rig::new();
    let leaf = &rig.leaves[0];
    for leaf in &rig.leaves {
        rig.fabric(leaf, "up");
    }
    let objects = tempfile::tempdir().expect("a directory");
    let object = objects.path().join("fabric.o");
    let before = builds(&rig, leaf);
    std::fs::write(&object, b"no object").expect("can be written");
    let refused = rig
        .command(leaf, "up")
        .env(OBJECT_DIR, objects.path())
        .status();
    assert!(!refused.expect("it is built").success());
    assert!(is_attached(&rig, leaf));
    assert_eq!(builds(&rig, leaf), before);
    transfer(&rig, 2, 500_000, || {});

    // What follows an ELF file is nobody's, and makes another build of it.
    let other = [&*fabric_object().expect("is embedded"), &[0]].concat();
    std::fs::write(&object, other).expect("can be written");
    let mut agent = None;
    transfer(&rig, 2, 4_000_000, || {
        let mut run = rig.command(leaf, "run");
        let run = run.env(OBJECT_DIR, objects.path());
        agent = Some(run.spawn().expect("it is built"));
        wait::within(PATIENCE, "the other build", || {
            (builds(&rig, leaf) != before && is_attached(&rig, leaf)).then_some(())
        });
    });
    assert_eq!(builds(&rig, leaf).len(), 1);
    wait::within(PATIENCE, "the earlier build to go", || {
        (!directory(&rig, leaf).join("earlier").exists()).then_some(())
    });
    // That it is to stay is of the earlier one.
    assert_eq!(rig.status(leaf)["kept"], true);
    end(agent.expect("it was started"));
    assert!(is_attached(&rig, leaf));
}

#[test]
fn pins_that_somebody_removes_come_back() {
    require!(Root, Program("ip"), Program("ethtool"));
    let rig = Rig::new();
    let leaf = &rig.leaves[0];
    let agent = rig.command(leaf, "run").spawn().expect("it is built");
    wait::within(PATIENCE, "the programs", || {
        is_attached(&rig, leaf).then_some(())
    });
    std::fs::remove_dir_all(directory(&rig, leaf)).expect("it is there");
    wait::within(PATIENCE, "the programs to come back", || {
        is_attached(&rig, leaf).then_some(())
    });
    end(agent);
}
