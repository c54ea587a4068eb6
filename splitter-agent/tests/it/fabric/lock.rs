//! One process at a time has a role, and one role a port.

use std::process::Output;

use flow_testbed::require;
use flow_testbed::require::Requirement::{Program, Root};
use flow_testbed::wait;

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
