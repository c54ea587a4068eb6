//! The order of begin and end: no host sees an ACK as a leaf has written it, at any step.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flow_testbed::namespace::Namespace;
use flow_testbed::require;
use flow_testbed::require::Requirement::{Program, Root};
use serde_json::Value as Json;

use super::capture::{Capture, assert_same};
use super::packets::{packets, send, sending};
use super::restarts::{directory, is_attached};
use super::rig::Rig;
use super::transfer::{settled, transfer, transfer_v6};
use super::{IP, ROUTERS, TCP};

const RESTORE_ONLY: &str = "restore_only = true\n";

#[test]
fn two_steps_at_the_begin_and_at_the_end_show_hosts_nothing() {
    require!(Root, Program("ip"), Program("ethtool"));
    let rig = Rig::new();
    let packets = packets(&[0]);
    let without = settled(&rig, &packets);
    let [near, far] = &rig.leaves;
    let check = |state: &str| {
        assert_same(&send(&rig, &packets), &without, state);
        transfer(&rig, 2, 300_000, || {});
    };
    let writes = |leaf| rig.status(leaf)["ports"][0]["writes"] == true;
    for spine in &rig.spines {
        rig.fabric(spine, "up");
    }
    for leaf in [near, far] {
        rig.set(leaf, RESTORE_ONLY);
        transfer(&rig, 2, 2_000_000, || drop(rig.fabric(leaf, "up")));
        check("a leaf restores");
        assert!(!writes(leaf));
        assert!(rig.fabric(leaf, "plan").contains("\"keep\""));
    }
    assert_eq!(rig.done(near, "written") + rig.done(far, "written"), 0);
    for leaf in [far, near] {
        rig.set(leaf, "");
        assert!(rig.fabric(leaf, "plan").contains("\"attach\""));
        transfer_v6(&rig, 2, 2_000_000, || drop(rig.fabric(leaf, "up")));
        check("a leaf writes");
        assert!(writes(leaf));
    }
    assert!(rig.done(near, "read") > 0 && rig.done(far, "read") > 0);
    for leaf in [near, far] {
        rig.set(leaf, RESTORE_ONLY);
        assert!(rig.fabric(leaf, "plan").contains("\"cease to write\""));
        transfer(&rig, 2, 2_000_000, || drop(rig.fabric(leaf, "up")));
        check("a leaf has ceased to write");
        assert!(!writes(leaf));
    }
    for leaf in [near, far] {
        transfer(&rig, 2, 2_000_000, || drop(rig.fabric(leaf, "down")));
        check("a leaf is down");
    }
}

/// ACKs of both hosts' addresses that a leaf writes, over IPv4.
fn written() -> Vec<Vec<u8>> {
    let written: Vec<_> = packets(&[0])
        .into_iter()
        .filter(|it| it[IP] >> 4 == 4 && it[IP + 8] == 64 && it[IP + 9] == TCP)
        .filter(|it| it[IP + 33] & 0x3f == 0x10)
        .collect();
    assert_eq!(written.len(), 4);
    written
}

/// The first leaf writes on meanwhile, and no host behind the second sees an ACK as it was written.
fn while_others_write(rig: &Rig, during: impl FnOnce()) {
    let (capture, has_ended, written) = (
        Capture::start(&rig.hosts[1]),
        AtomicBool::new(false),
        written(),
    );
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !has_ended.load(Ordering::Relaxed) {
                sending(rig, &written);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        // Also where an assertion fails meanwhile.
        let _ending = Ending(&has_ended);
        during();
    });
    let mut acks = 0;
    for frame in capture.frames() {
        let packet = &frame[IP..];
        if packet[0] >> 4 == 4 && packet[9] == TCP && packet[12..16] == [10, 1, 0, 2] {
            assert_eq!(
                (packet[8], packet[1] >> 2),
                (64 - ROUTERS, 0),
                "{packet:02x?}"
            );
            acks += 1;
        }
    }
    assert!(acks > 100, "{acks}");
}

/// Has others end when it goes.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const CONFLICT: Option<i32> = Some(5);

#[track_caller]
fn assert_still_written(rig: &Rig, leaf: &Namespace) {
    let refused = rig.output(leaf, "down");
    let told = String::from_utf8_lossy(&refused.stdout);
    assert_eq!(refused.status.code(), CONFLICT, "{told}");
    assert!(told.contains("other leaves still write"), "{told}");
}

/// The first leaf writes on, and the second is to go: its hosts would see what comes.
#[test]
fn leaf_that_others_write_to_is_not_taken_down() {
    require!(Root, Program("ip"), Program("ethtool"));
    let rig = Rig::new();
    for router in rig.routers() {
        rig.fabric(router, "up");
    }
    let [near, far] = &rig.leaves;
    while_others_write(&rig, || {
        assert_still_written(&rig, far);
        let (read, status) = (rig.done(far, "read"), rig.status(far));
        assert_eq!(status["ports"][0]["writes"], false, "{status}");
        assert!(
            status["ports"][0]["attached"] == false && status["ports"][0]["mode"] != Json::Null
        );
        // One that only restores is down as soon as what is under way has come.
        rig.set(near, RESTORE_ONLY);
        rig.fabric(near, "up");
        rig.fabric(far, "down");
        assert!(read > 10, "{read}");
    });
}

/// Leaves a role as one does who is killed while another build takes its place: what was there is set aside, and
/// nothing, or half of it, has come instead.
fn interrupt(rig: &Rig, leaf: &Namespace, left: &[&str]) {
    let pins = directory(rig, leaf);
    let earlier = pins.join("earlier");
    std::fs::create_dir(&earlier).expect("a file system of pins has directories");
    for entry in std::fs::read_dir(&pins)
        .expect("it is there")
        .collect::<Vec<_>>()
    {
        let entry = entry.expect("a name");
        let is_note = entry.file_type().expect("it is there").is_symlink();
        let name = entry.file_name().into_string().expect("ASCII");
        if !is_note && !["earlier", "kept"].contains(&&*name) && !left.contains(&&*name) {
            std::fs::rename(entry.path(), earlier.join(name)).expect("it moves");
        }
    }
}

#[test]
fn leaf_whose_build_change_was_interrupted_restores_until_nothing_comes() {
    require!(Root, Program("ip"), Program("ethtool"));
    let rig = Rig::new();
    for router in rig.routers() {
        rig.fabric(router, "up");
    }
    let [near, far] = &rig.leaves;
    while_others_write(&rig, || {
        // Between any two of the steps in which it moves.
        for left in [&[][..], &["maps"], &["links", "leaf_ingress"]] {
            interrupt(&rig, far, left);
            assert_still_written(&rig, far);
            // The next one goes on, and hosts do not see that either.
            rig.fabric(far, "up");
            assert!(is_attached(&rig, far));
            assert!(!directory(&rig, far).join("earlier").exists());
        }
        interrupt(&rig, far, &[]);
        rig.set(near, RESTORE_ONLY);
        rig.fabric(near, "up");
        rig.fabric(far, "down");
        assert!(!directory(&rig, far).exists());
    });
}
