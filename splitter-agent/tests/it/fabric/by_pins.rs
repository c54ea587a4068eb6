//! Roles whose file is not at hand: taken down by their pins, and told of.

use std::path::Path;
use std::process::Output;

use flow_testbed::namespace::Namespace;
use flow_testbed::require::Requirement::{Program, Root};
use flow_testbed::{require, wait};
use serde_json::Value as Json;

use super::restarts::{directory, end, is_attached, pin_another_map_for};
use super::rig::Rig;
use crate::support::site::{BINARY, PATIENCE, mount_bpffs};

const CONFLICT: Option<i32> = Some(5);

/// Runs a subcommand of a role on a router without a file.
fn without_file(router: &Namespace, words: &str) -> (Option<i32>, Json) {
    let mut command = router.command(BINARY);
    command.args(["--json", "fabric"]).args(words.split(' '));
    let Output { status, stdout, .. } = command.output().expect("it is built");
    let answer = serde_json::from_slice(&stdout).expect("JSON");
    (status.code(), answer)
}

/// What `down --all` says why a role is left that stands in the way, or does not; none where none is. Roles of
/// other tests may be there, too, under the same names.
fn kept(answer: &Json, name: &str, is_running: bool) -> Option<String> {
    let kept = answer["kept"].as_array().expect("a list");
    let mut kept = kept.iter().filter(|it| it["is_running"] == is_running);
    let kept = kept.find(|it| it["name"] == name)?;
    Some(kept["why"].as_str().expect("words").to_owned())
}

/// How the check of a role's file stands, and what it says.
fn check(router: &Namespace, name: &str) -> Option<(String, String)> {
    let (_, checks) = without_file(router, "doctor");
    let check = format!("file of the role {name}");
    let found = checks
        .as_array()
        .expect("a list")
        .iter()
        .find(|it| it["check"] == check)?;
    let word = |key: &str| found[key].as_str().expect("a word").to_owned();
    Some((word("status"), word("detail")))
}

/// Puts another role in place in the same namespace, on a file system that is mounted there and with locks of its own.
fn put_in_place_elsewhere(router: &Namespace, bpffs: &Path) {
    std::fs::create_dir(bpffs).expect("it is new");
    mount_bpffs(bpffs);
    let directory = bpffs.parent().expect("it is in one");
    let file = directory.join("other.toml");
    let text = format!(
        "name = 'other'\nbpffs = {bpffs:?}\nruntime_dir = {:?}\n[fabric]\nrole = 'spine'\ndscp = 41\n\
         [[fabric.ports]]\ndevice = 'host0'\nrate_mbit = 10\n",
        directory.join("run of another")
    );
    std::fs::write(&file, text).expect("can be written");
    let mut command = router.command(BINARY);
    command.arg("-c").arg(&file).args(["fabric", "up"]);
    assert!(command.status().expect("it is built").success());
}

#[test]
fn all_roles_of_a_namespace_go_by_their_pins() {
    require!(Root, Program("ip"), Program("ethtool"));
    let rig = Rig::new();
    let [leaf, far] = &rig.leaves;
    for leaf in [leaf, far] {
        rig.fabric(leaf, "up");
    }
    let elsewhere = tempfile::tempdir().expect("a directory");
    let bpffs = elsewhere.path().join("b p f");
    put_in_place_elsewhere(leaf, &bpffs);

    let file = rig.file(leaf);
    let name = leaf.name();
    let ok = check(leaf, name);
    let renamed = {
        let text = std::fs::read_to_string(&file).expect("it was written");
        std::fs::write(&file, text.replacen(name, "another", 1)).expect("can be written");
        check(leaf, name)
    };
    std::fs::remove_file(&file).expect("it was written");
    let gone = check(leaf, name);
    let (code, answer) = without_file(leaf, "down --all --at-once");
    let is_left = bpffs.join("splitter-fabric").exists();
    nix::mount::umount(&bpffs).expect("it was mounted");

    assert_eq!(ok, Some(("ok".to_owned(), file.display().to_string())));
    let (status, detail) = renamed.expect("it is in place");
    assert!(
        status == "warn" && detail.contains("another role by now"),
        "{detail}"
    );
    let (status, detail) = gone.expect("it is in place");
    assert!(
        status == "warn" && detail.contains("is not there any more"),
        "{detail}"
    );
    assert_eq!(code, Some(0), "{answer}");
    let removed = answer["removed"].to_string();
    assert!(removed.contains(&format!("the role {name}, ")), "{answer}");
    assert!(removed.contains("the role other, ") && !is_left, "{answer}");
    assert!(!directory(&rig, leaf).exists());
    assert_eq!(check(leaf, name), None);
    // That of another namespace is not ours.
    let why = kept(&answer, far.name(), false).expect("it is left");
    assert!(why.contains("another network namespace"), "{why}");
    assert!(is_attached(&rig, far));
}

#[test]
fn role_that_an_agent_runs_is_left_by_those_who_take_down_all() {
    require!(Root, Program("ip"), Program("ethtool"));
    let rig = Rig::new();
    let leaf = &rig.leaves[0];
    let agent = rig.command(leaf, "run").spawn().expect("it is built");
    wait::within(PATIENCE, "the programs", || {
        is_attached(&rig, leaf).then_some(())
    });
    let (code, answer) = without_file(leaf, "down --all");
    assert_eq!(code, CONFLICT, "{answer}");
    let why = kept(&answer, leaf.name(), true).expect("it is left");
    let holder = format!("the process {}", agent.id());
    assert!(why.starts_with(&holder), "{why}");
    assert!(is_attached(&rig, leaf));
    end(agent);
    // It restores on, and writes nothing.
    let (code, answer) = without_file(leaf, "down --all");
    assert_eq!(code, Some(0), "{answer}");
    assert!(!Path::new(&directory(&rig, leaf)).exists());
}

#[test]
fn role_that_cannot_be_taken_down_keeps_none_behind_it() {
    require!(Root, Program("ip"), Program("ethtool"));
    let rig = Rig::new();
    let leaf = &rig.leaves[0];
    rig.fabric(leaf, "up");
    // They are taken in the order of their paths.
    let bpffs = rig.directory.path().join("later");
    put_in_place_elsewhere(leaf, &bpffs);
    assert!(bpffs > rig.bpffs());
    pin_another_map_for(&rig, leaf, "AGREEMENT");
    let (code, answer) = without_file(leaf, "down --all");
    let is_left = bpffs.join("splitter-fabric").exists();
    let (at_once, after) = without_file(leaf, "down --all --at-once");
    nix::mount::umount(&bpffs).expect("it was mounted");

    assert_eq!(code, CONFLICT, "{answer}");
    let why = kept(&answer, leaf.name(), true).expect("it is left");
    assert!(
        why.contains("AGREEMENT") && why.contains("--at-once"),
        "{why}"
    );
    let removed = answer["removed"].to_string();
    assert!(removed.contains("the role other, ") && !is_left, "{answer}");
    // As it says itself.
    assert_eq!(at_once, Some(0), "{after}");
    assert!(!directory(&rig, leaf).exists());
}
