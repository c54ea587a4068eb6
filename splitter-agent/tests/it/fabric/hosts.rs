//! What hosts see of a fabric: nothing.

use std::net::TcpStream;

use flow_testbed::require;
use flow_testbed::require::Requirement::{Program, Root};
use flow_testbed::wait;

use super::capture::assert_same;
use super::packets::{packets, packets_with_the_mark, send};
use super::rig::Rig;
use super::transfer::{settled, transfer, transfer_v6};
use super::{ICMP, ICMPV6};
use crate::support::site::{BINARY, PATIENCE};

/// The law of the fabric, on packets: hosts see every TTL, DSCP and checksum as without it, whatever is in
/// place on which router, and errors of routers quote what they would.
#[test]
fn hosts_see_what_they_would_see_without_a_fabric() {
    require!(Root, Program("ip"), Program("ethtool"));
    let rig = Rig::new();
    let packets = packets(&[0, 10]);
    let without = settled(&rig, &packets);
    // Not vacuous: most have come to the other host, and errors of each router back.
    assert!(without[1].len() * 2 > packets.len(), "{}", without[1].len());
    let errors = without[0]
        .keys()
        .filter(|it| it[0] >> 4 == 4 && it[9] == ICMP);
    assert!(errors.count() > 30);
    let errors = without[0]
        .keys()
        .filter(|it| it[0] >> 4 == 6 && it[6] == ICMPV6);
    assert!(errors.count() > 30);
    transfer(&rig, 2, 500_000, || {});
    transfer_v6(&rig, 2, 500_000, || {});

    for router in rig.routers() {
        assert!(rig.fabric(router, "plan").contains("\"attach\""));
        rig.fabric(router, "up");
        // A second time changes nothing.
        assert!(rig.fabric(router, "plan").contains("\"keep\""));
        rig.fabric(router, "up");
    }
    assert_same(&send(&rig, &packets), &without, "all are in place");
    let [near, far] = &rig.leaves;
    let [spine, other] = &rig.spines;
    // Of TTL 64 and without a DSCP: a pure ACK and one with ECN's flag, to both addresses of each family.
    assert_eq!(rig.done(near, "written"), 8);
    assert_eq!(rig.done(spine, "reported") + rig.done(other, "reported"), 8);
    assert_eq!(rig.done(far, "read"), 8);
    for last in [2, 3] {
        for transfer in [transfer as fn(&Rig, u8, usize, fn()), transfer_v6] {
            let before = rig.done(near, "read");
            transfer(&rig, last, 500_000, || {});
            assert!(rig.done(near, "read") > before + 10);
        }
    }

    // A spine that is not ours among ours; and taken out in the middle of a transfer.
    transfer_v6(&rig, 3, 4_000_000, || drop(rig.fabric(other, "down")));
    let before = rig.done(far, "restored");
    assert_same(&send(&rig, &packets), &without, "a spine is not ours");
    assert_eq!(rig.done(far, "restored"), before + 4);
    transfer(&rig, 3, 500_000, || {});
    transfer_v6(&rig, 3, 500_000, || {});
    transfer(&rig, 3, 4_000_000, || drop(rig.fabric(other, "up")));

    // A leaf's agent is killed: it and its programs are what is pinned.
    let mut agent = near.command(BINARY);
    agent.arg("-c").arg(rig.file(near)).args(["fabric", "run"]);
    let mut agent = agent.spawn().expect("it is built");
    let serves = || {
        near.enter(|| TcpStream::connect("127.0.0.1:9463").ok())
            .ok()
            .flatten()
    };
    wait::within(PATIENCE, "the agent of a leaf", serves);
    transfer(&rig, 2, 4_000_000, || agent.kill().expect("it runs"));
    agent.wait().expect("it was killed");
    assert_same(&send(&rig, &packets), &without, "a leaf's agent was killed");

    // The one thing that hosts cannot have is the fabric's own mark on pure ACKs.
    let marked = packets_with_the_mark();
    let seen = send(&rig, &marked);
    assert!(!seen[1].is_empty());
    for packet in seen[1].keys() {
        let class = match packet[0] >> 4 {
            4 => packet[1],
            _ => packet[0] << 4 | packet[1] >> 4,
        };
        assert_eq!(
            class, 2,
            "no DSCP, and the ECN bits it came with: {packet:02x?}"
        );
    }

    for router in rig.routers() {
        rig.fabric(router, "down");
    }
    assert_same(&send(&rig, &packets), &without, "all is taken back");
    assert!(
        !rig.bpffs().join("splitter-fabric").exists(),
        "pins are left"
    );
}
