//! One process at a time has a role, and one role a port.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use flow_testbed::require;
use flow_testbed::require::Requirement::{Program, Root};
use flow_testbed::wait;
use nix::fcntl::{Flock, FlockArg};

use super::restarts::is_attached;
use super::rig::Rig;
use crate::support::site::{BINARY, PATIENCE};

const CONFLICT: Option<i32> = Some(5);

#[track_caller]
fn assert_refused(output: &Output, words: &str) {
    let told = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), CONFLICT, "{told}");
    assert!(told.contains(words), "{told}");
}

#[test]
fn role_is_held_by_one_process() {
    require!(Root, Program("ip"), Program("ethtool"));
    let rig = Rig::new();
    let leaf = &rig.leaves[0];
    let mut agent = rig.command(leaf, "run").spawn().expect("it is built");
    wait::within(PATIENCE, "the programs", || {
        is_attached(&rig, leaf).then_some(())
    });
    let held = format!("held by the process {}", agent.id());
    for words in ["up", "down", "down --at-once", "run"] {
        assert_refused(&rig.output(leaf, words), &held);
    }
    // There is nothing to be gained by another name: the ports are the same.
    let told = String::from_utf8(rig.output(leaf, "up").stdout).expect("JSON");
    assert!(told.contains("systemctl stop splitter-fabric"), "{told}");
    assert!(!told.contains("`name`"), "{told}");
    assert!(is_attached(&rig, leaf));
    // The kernel lets go of what a process held that was killed.
    agent.kill().expect("it runs");
    agent.wait().expect("it was killed");
    rig.fabric(leaf, "up");
    rig.fabric(leaf, "down --at-once");
}

#[test]
fn port_of_another_role_is_refused() {
    require!(Root, Program("ip"), Program("ethtool"));
    let rig = Rig::new();
    let leaf = &rig.leaves[0];
    // Another namespace has a port of the same name.
    rig.fabric(&rig.leaves[1], "up");
    rig.fabric(leaf, "up");
    let text = std::fs::read_to_string(rig.file(leaf)).expect("it was written");
    let other = rig.directory.path().join("other.toml");
    let renamed = text.replacen(&format!("name = '{}'", leaf.name()), "name = 'other'", 1);
    std::fs::write(&other, renamed).expect("can be written");
    let up = || {
        let mut command = leaf.command(BINARY);
        command.arg("-c").arg(&other).args(["fabric", "up"]);
        command.output().expect("it is built")
    };
    let words = format!(
        "the port up0 has the programs of the instance {}",
        leaf.name()
    );
    assert_refused(&up(), &words);
    assert!(is_attached(&rig, leaf));
    rig.fabric(leaf, "down --at-once");
    assert!(up().status.success());
}

/// Both have looked at the ports, and found nobody there, before either attaches anything.
#[test]
fn roles_that_start_at_the_same_instant_do_not_share_a_port() {
    require!(Root, Program("ip"), Program("ethtool"));
    let rig = Rig::new();
    let leaf = &rig.leaves[0];
    let file = rig.file(leaf);
    let text = std::fs::read_to_string(&file).expect("it was written");
    let other = rig.directory.path().join("other.toml");
    let renamed = text.replacen(&format!("name = '{}'", leaf.name()), "name = 'other'", 1);
    std::fs::write(&other, renamed).expect("can be written");
    // As one that takes ports has it.
    let shared = rig.bpffs().join("splitter-fabric");
    std::fs::create_dir(&shared).expect("it is new");
    let turn = Flock::lock(
        File::open(&shared).expect("it is there"),
        FlockArg::LockExclusive,
    );
    let starting = [&file, &other].map(|file| {
        let mut command = leaf.command(BINARY);
        command.arg("-c").arg(file).args(["fabric", "up"]);
        command.stderr(Stdio::piped());
        command.spawn().expect("it is built")
    });
    let pins = [leaf.name(), "other"].map(|it| shared.join(it));
    wait::within(PATIENCE, "both to wait", || {
        pins.iter()
            .all(|it| it.join("links").exists())
            .then_some(())
    });
    std::thread::sleep(Duration::from_millis(300));
    let attached = |pins: &PathBuf| pins.join("links/up0").exists();
    assert!(!pins.iter().any(attached));
    drop(turn.expect("nobody else has it"));
    let outputs = starting.map(|it| it.wait_with_output().expect("it ends"));
    let mut codes = outputs.each_ref().map(|it| it.status.code());
    codes.sort();
    assert_eq!(codes, [Some(0), CONFLICT], "{outputs:?}");
    let refused = outputs.iter().find(|it| !it.status.success());
    assert_refused(refused.expect("one is"), "the port up0 has the programs of");
    assert_eq!(pins.iter().filter(|it| attached(it)).count(), 1);
    // Of the other nothing is left.
    assert_eq!(pins.iter().filter(|it| it.exists()).count(), 1);
}

#[test]
fn pins_of_another_namespace_are_refused() {
    require!(Root, Program("ip"), Program("ethtool"));
    let rig = Rig::new();
    let [leaf, other] = &rig.leaves;
    rig.fabric(leaf, "up");
    let mut command = other.command(BINARY);
    command.arg("-c").arg(rig.file(leaf)).args(["fabric", "up"]);
    let output = command.output().expect("it is built");
    assert_refused(&output, "in another network namespace");
    assert!(is_attached(&rig, leaf));
}
