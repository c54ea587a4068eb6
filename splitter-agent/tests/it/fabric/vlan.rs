//! Packets with VLAN tags at a port, which the kernel keeps beside their bytes.

use flow_testbed::namespace::Namespace;
use flow_testbed::require;
use flow_testbed::require::Requirement::{Program, Root};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::packets::send_frame;
use super::rig::Rig;
use crate::policy as support;
use support::fabric::seeds;

/// Sends a frame by a device, with a tag behind its addresses.
fn send_tagged(from: &Namespace, device: &str, frame: &[u8]) {
    const TAG: [u8; 4] = [0x81, 0, 0, 5];
    let sending = || {
        let index = nix::net::if_::if_nametoindex(device).expect("it is there");
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None).expect("root");
        send_frame(&socket, index, &[&frame[..12], &TAG, &frame[12..]].concat());
    };
    from.enter(sending).expect("it exists");
}

#[test]
fn what_has_a_vlan_tag_is_neither_reported_on_nor_read() {
    require!(Root, Program("ip"), Program("ethtool"));
    let rig = Rig::new();
    let (leaf, spine) = (&rig.leaves[0], &rig.spines[0]);
    for router in [leaf, spine] {
        rig.fabric(router, "up");
    }
    let passed = |router, reason: &str| {
        let count = rig.status(router)["passed"][reason].as_u64();
        count.expect("a number")
    };
    let seeds = seeds();
    let ending = |end: &'static str| seeds.iter().filter(move |it| it.0.ends_with(end));
    let mut sent = 0;
    for (_, written) in ending("_is_written") {
        send_tagged(leaf, "up0", written);
        sent += 1;
    }
    // An egress knows a tag that is in the bytes for none of an ACK.
    assert_eq!(rig.done(leaf, "written"), 0);
    assert_eq!(passed(spine, "vlan_tag"), sent);
    assert_eq!(rig.done(spine, "reported"), 0);
    for (_, reported) in ending("_is_reported") {
        send_tagged(spine, "leaf0", reported);
    }
    // Whoever has written them: they are restored.
    assert_eq!(rig.done(leaf, "unread"), sent);
    assert_eq!((rig.done(leaf, "read"), sent), (0, 2));
}
