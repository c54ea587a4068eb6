//! The order of begin and end: no host sees an ACK as a leaf has written it, at any step.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flow_testbed::require;
use flow_testbed::require::Requirement::{Program, Root};
use serde_json::Value as Json;

use super::capture::{Capture, assert_same};
use super::packets::{packets, send, sending};
use super::rig::Rig;
use super::transfer::{settled, transfer, transfer_v6};
use super::{IP, ROUTERS, TCP};
use crate::support::site::PATIENCE;

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

/// The first leaf writes on, and the second is to go: its hosts would see what comes.
#[test]
fn leaf_that_others_write_to_is_not_taken_down() {
    const CONFLICT: Option<i32> = Some(5);
    require!(Root, Program("ip"), Program("ethtool"));
    let rig = Rig::new();
    for router in rig.routers() {
        rig.fabric(router, "up");
    }
    let [near, far] = &rig.leaves;
    let written: Vec<_> = packets(&[0])
        .into_iter()
        .filter(|it| it[IP] >> 4 == 4 && it[IP + 8] == 64 && it[IP + 9] == TCP)
        .filter(|it| it[IP + 33] & 0x3f == 0x10)
        .collect();
    assert_eq!(written.len(), 4);
    let (capture, has_ended) = (Capture::start(&rig.hosts[1]), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Also where an assertion fails meanwhile.
            let begin = Instant::now();
            while !has_ended.load(Ordering::Relaxed) && begin.elapsed() < 2 * PATIENCE {
                sending(&rig, &written);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let refused = rig.output(far, "down");
        let told = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), CONFLICT, "{told}");
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
        has_ended.store(true, Ordering::Relaxed);
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
