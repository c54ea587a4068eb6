//! The numbers by which reports are kept: of the ports that there are, and of no device that has gone.

use std::collections::BTreeMap;
use std::path::PathBuf;

use aya::maps::{HashMap, Map, MapData};
use flow_testbed::namespace::Namespace;
use flow_testbed::require::Requirement::{Program, Root};
use flow_testbed::{require, wait};

use super::restarts::{directory, end, is_attached};
use super::rig::{Rig, run, set_up};
use crate::support::daemon::Daemon;
use crate::support::site::{BINARY, PATIENCE};

fn map(rig: &Rig, leaf: &Namespace, name: &str) -> MapData {
    let pin = directory(rig, leaf).join("maps").join(name);
    MapData::from_pin(pin).expect("the role is in place")
}

/// The numbers of a leaf's ports, by the numbers of their devices.
fn numbers(rig: &Rig, leaf: &Namespace) -> BTreeMap<u32, u32> {
    let map = HashMap::try_from(Map::HashMap(map(rig, leaf, "PORT_NUMBERS")));
    let map: HashMap<_, u32, u32> = map.expect("is a hash map");
    map.iter().map(|it| it.expect("can be read")).collect()
}

fn index(leaf: &Namespace, device: &str) -> u32 {
    let text = leaf
        .run(&format!("ip -o link show {device}"))
        .expect("it is there");
    let number = text.split(':').next().expect("a number");
    number.trim().parse().expect("a number")
}

/// Makes a port anew, under another number.
fn make_anew(rig: &Rig) -> u32 {
    let leaf = &rig.leaves[0];
    let before = index(leaf, "up1");
    run(leaf, "ip link del up1");
    connect(rig);
    let after = index(leaf, "up1");
    assert_ne!(before, after);
    after
}

fn connect(rig: &Rig) {
    let (leaf, spine) = (&rig.leaves[0], &rig.spines[1]);
    leaf.connect("up1", spine, "leaf0").expect("root");
    set_up(leaf, "up1", "10.101.0.1/24");
}

#[test]
fn port_that_is_made_anew_has_its_number_also_when_nobody_saw_it() {
    require!(Root, Program("ip"), Program("ethtool"));
    let rig = Rig::new();
    let leaf = &rig.leaves[0];
    let first = index(leaf, "up0");
    rig.fabric(leaf, "up");
    assert_eq!(
        numbers(&rig, leaf),
        [(first, 0), (index(leaf, "up1"), 1)].into()
    );
    // Nobody runs the role meanwhile.
    let second = make_anew(&rig);
    let agent = rig.command(leaf, "run").spawn().expect("it is built");
    wait::within(PATIENCE, "the port that was made anew", || {
        is_attached(&rig, leaf).then_some(())
    });
    assert_eq!(numbers(&rig, leaf), [(first, 0), (second, 1)].into());
    // One that has gone has none: the kernel may give its number to another device.
    run(leaf, "ip link del up1");
    wait::within(PATIENCE, "the number to go", || {
        (numbers(&rig, leaf) == [(first, 0)].into()).then_some(())
    });
    end(agent);
}

#[test]
fn port_that_comes_is_attached_to_before_a_look_would_see_it() {
    const ROUNDS: u32 = 8;
    require!(Root, Program("ip"), Program("ethtool"));
    let rig = Rig::new();
    let leaf = &rig.leaves[0];
    let mut command = leaf.command(BINARY);
    command
        .arg("-c")
        .arg(rig.file(leaf))
        .args(["fabric", "run"]);
    let daemon = Daemon::start(command, &rig.directory.path().join("log"));
    let wait_for = |ports: &str| {
        let what = format!("attached={ports}");
        wait::within(PATIENCE, &what, || {
            let log = daemon.log();
            let last = log.lines().rfind(|it| it.contains("fabric_ports"))?;
            last.contains(&what).then_some(())
        });
    };
    wait_for("2");
    let mut late = std::time::Duration::ZERO;
    for _ in 0..ROUNDS {
        run(leaf, "ip link del up1");
        wait_for("1");
        let (leaf, spine) = (&rig.leaves[0], &rig.spines[1]);
        leaf.connect("up1", spine, "leaf0").expect("root");
        let came = std::time::Instant::now();
        wait_for("2");
        late += came.elapsed();
    }
    println!("{} ms late in the mean", (late / ROUNDS).as_millis());
    // By a look a second it is half a second.
    assert!(
        late / ROUNDS < std::time::Duration::from_millis(250),
        "{late:?}"
    );
    assert!(daemon.end(nix::sys::signal::Signal::SIGTERM).success());
}

/// Whoever goes by the map of reports knows under which number each spine is.
#[test]
fn ports_that_change_numbers_have_maps_of_their_own() {
    require!(Root, Program("ip"), Program("ethtool"));
    let rig = Rig::new();
    let leaf = &rig.leaves[0];
    let text = std::fs::read_to_string(rig.file(leaf)).expect("it was written");
    let other: PathBuf = rig.directory.path().join("renumbered.toml");
    let up = |ports: &[&str]| {
        let (head, rest) = text.split_once("[[fabric.ports]]").expect("it has ports");
        let (_, leaves) = rest.split_once("[[fabric.leaves]]").expect("it has leaves");
        let ports = ports
            .iter()
            .map(|it| format!("[[fabric.ports]]\ndevice = '{it}'\n"));
        let ports: String = ports.collect();
        std::fs::write(&other, format!("{head}{ports}[[fabric.leaves]]{leaves}"))
            .expect("can be written");
        let mut command = leaf.command(BINARY);
        command.arg("-c").arg(&other).args(["fabric", "up"]);
        assert!(command.status().expect("it is built").success());
        map(&rig, leaf, "REMOTE").info().expect("it is there").id()
    };
    let first = up(&["up0", "up1"]);
    assert_eq!(up(&["up0", "up1"]), first);
    // One more, or one less, leaves the others what they were.
    assert_eq!(up(&["up0", "up1", "absent"]), first);
    assert_eq!(up(&["up0"]), first);
    let second = up(&["up1", "up0"]);
    assert_ne!(second, first);
    assert_eq!(
        numbers(&rig, leaf),
        [(index(leaf, "up1"), 0), (index(leaf, "up0"), 1)].into()
    );
    assert!(!directory(&rig, leaf).join("earlier").exists());
    assert_eq!(up(&["up1", "up0"]), second);
}
