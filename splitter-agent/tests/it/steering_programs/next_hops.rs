//! What the program has noted of next hops: used while the agent vouches for it, and void with the first
//! notification of what changes where packets go.

use std::time::Duration;

use splitter_datapath::read_prefix_lengths;
use splitter_netlink::NextHopEvents;
use splitter_policy::prefix_lengths::PrefixLengths;

use super::*;

mod destinations;

/// A neighbour's link address after a change.
const OTHER_HOP: [u8; 6] = [2, 3, 3, 3, 3, 3];

/// Longer than a notification takes.
const PATIENCE: Duration = Duration::from_secs(5);

impl Redirecting {
    /// Has the program believe what it notes from now on, whatever of a packet routing may look at.
    fn vouch(&mut self) {
        self.kernel.vouch(None);
    }

    /// The same, with what rules and routes look at, as the agent reads it.
    fn vouch_by_routes(&mut self) {
        let read = || {
            let devices = ["wan0", "wan1"].into_iter();
            let devices = devices.filter_map(|it| nix::net::if_::if_nametoindex(it).ok());
            read_prefix_lengths(&devices.collect::<Vec<_>>())
        };
        let lengths: Box<PrefixLengths> = self
            .router
            .enter(read)
            .expect("the namespace is there")
            .expect("the kernel lists them");
        self.kernel.vouch(Some(&lengths));
    }

    fn run(&self, line: &str) {
        let ran = self.router.run(line);
        ran.unwrap_or_else(|error| panic!("{line}: {error}"));
    }

    /// The link address that a frame goes to.
    #[track_caller]
    fn hop(&self, frame: &[u8]) -> [u8; 6] {
        let (action, out) = self.send(frame);
        assert_eq!(action, XDP_REDIRECT);
        out[..6].try_into().expect("six")
    }

    /// A neighbour of both families behind `wan0` has another link address.
    fn move_neighbour(&self, mac: [u8; 6]) {
        let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
        for hop in ["192.0.1.1", "fd00:1::1"] {
            self.run(&format!(
                "ip neigh replace {hop} lladdr {mac} dev wan0 nud permanent"
            ));
        }
    }
}

/// A packet of 1,300 bytes.
fn large(packet: &Packet) -> Vec<u8> {
    let bytes = packet.bytes().len() - packet.payload_bytes - 14;
    frame(&Packet {
        payload_bytes: 1_300 - bytes,
        ..packet.clone()
    })
}

#[test]
fn next_hop_is_noted_only_while_somebody_vouches_for_it() {
    require!(Root, Program("ip"));
    let mut router = Redirecting::new();
    for frame in plain().map(|packet| frame(&packet)) {
        assert_eq!(router.hop(&frame), SHORT_HOP);
    }
    router.move_neighbour(OTHER_HOP);
    for frame in plain().map(|packet| frame(&packet)) {
        assert_eq!(router.hop(&frame), OTHER_HOP, "nothing was noted");
    }
    router.vouch();
    for frame in plain().map(|packet| frame(&packet)) {
        assert_eq!(router.hop(&frame), OTHER_HOP);
        assert!(router.kernel.has_sent_to(OTHER_HOP));
    }
    router.move_neighbour(SHORT_HOP);
    for packet in plain() {
        let noted = frame(&packet);
        assert_eq!(router.hop(&noted), OTHER_HOP, "this is how a note shows");
        // Of another flow nothing is noted as long as rules may look at ports.
        let mut other = noted.clone();
        other[ports_at(&packet)] ^= 1;
        assert_eq!(router.hop(&other), SHORT_HOP);
    }
    router.vouch();
    for frame in plain().map(|packet| frame(&packet)) {
        assert_eq!(router.hop(&frame), SHORT_HOP);
    }
    let ran_out = |it: Fallback| router.kernel.counters().fallbacks(it);
    assert!(Fallback::ALL.into_iter().all(|it| ran_out(it) == 0));
    let counters = router.kernel.counters();
    // All but the two that a note answered.
    assert_eq!((counters.redirected, counters.fib_lookups), (12, 10));
}

fn ports_at(packet: &Packet) -> usize {
    match packet.ip {
        Ip::V4 { .. } => 34,
        Ip::V6 { .. } => 54,
    }
}

#[test]
fn note_on_a_destination_serves_other_flows_where_rules_look_at_nothing_else() {
    require!(Root, Program("ip"));
    let mut router = Redirecting::new();
    router.vouch_by_routes();
    for packet in plain() {
        assert_eq!(router.hop(&frame(&packet)), SHORT_HOP);
    }
    router.move_neighbour(OTHER_HOP);
    for packet in plain() {
        let mut other = frame(&packet);
        other[ports_at(&packet)] ^= 1;
        assert_eq!(router.hop(&other), SHORT_HOP, "this is how a note shows");
        // What concerns the packet itself is looked at all the same.
        other[ttl_at(&packet)] = 1;
        assert_eq!(router.reason(&other), Some(Fallback::Ttl));
        let mut stranger = frame(&packet);
        stranger[5] ^= 1;
        assert_eq!(router.reason(&stranger), Some(Fallback::NotOurs));
        // The other class has a path of its own.
        let hops: Vec<_> = (0..60).map(|_| router.hop(&frame(&packet))).collect();
        assert_eq!(hops.last(), Some(&LONG_HOP));
    }
}

/// What changes, by which command, and what becomes of the next packet then.
type Change = (&'static str, &'static str, Result<[u8; 6], Fallback>);

#[test]
fn first_notification_of_a_change_ends_what_was_noted() {
    require!(Root, Program("ip"));
    let changes: [Change; 9] = [
        (
            "another link address",
            "ip neigh replace {hop} lladdr 02:03:03:03:03:03 dev wan0 nud permanent",
            Ok(OTHER_HOP),
        ),
        (
            "a neighbour that has failed",
            "ip neigh replace {hop} dev wan0 nud failed",
            Err(Fallback::NoNeighbour),
        ),
        (
            "a neighbour that is forgotten",
            "ip neigh del {hop} dev wan0",
            Err(Fallback::NoNeighbour),
        ),
        (
            "a device that is down",
            "ip link set wan0 down",
            Err(Fallback::NoRoute),
        ),
        (
            "a smaller MTU",
            "ip link set wan0 mtu 1280",
            Err(Fallback::TooLarge),
        ),
        (
            "a class that has moved",
            "{ip} route replace default via {other} dev wan1",
            Err(Fallback::OtherDevice),
        ),
        (
            "a route that is gone",
            "{ip} route del default",
            Err(Fallback::NoRoute),
        ),
        (
            "a rule before all others",
            "{ip} rule add pref 1 lookup 100",
            Err(Fallback::OtherDevice),
        ),
        (
            "a device that has gone",
            "ip link del wan0",
            Err(Fallback::NoRoute),
        ),
    ];
    for (name, command, expected) in changes {
        for (ip, hop, other, packet) in [
            ("ip", "192.0.1.1", "192.0.2.1", Packet::tcp_v4()),
            ("ip -6", "fd00:1::1", "fd00:2::1", Packet::tcp_v6()),
        ] {
            let mut router = Redirecting::new();
            let events = router.router.enter(|| NextHopEvents::listen(PATIENCE));
            let mut events = events.expect("the namespace is there").expect("netlink is");
            router.vouch();
            let frame = large(&packet);
            for _ in 0..3 {
                assert_eq!(router.hop(&frame), SHORT_HOP, "before {name}");
            }
            let line = command.replace("{ip}", ip).replace("{hop}", hop);
            router.run(&line.replace("{other}", other));
            let heard = events.wait().expect("the socket is whole");
            assert!(heard.is_change, "{ip}: {name} is not heard of");
            // As the agent does then.
            router.vouch();
            match expected {
                Ok(hop) => assert_eq!(router.hop(&frame), hop, "{ip}: {name}"),
                Err(reason) => assert_eq!(router.reason(&frame), Some(reason), "{ip}: {name}"),
            }
        }
    }
}

#[test]
fn neighbour_that_ages_voids_nothing_and_is_named() {
    require!(Root, Program("ip"));
    let mut router = Redirecting::new();
    let events = router.router.enter(|| NextHopEvents::listen(PATIENCE));
    let mut events = events.expect("the namespace is there").expect("netlink is");
    router.vouch();
    let set = |state: &str| {
        let line = "ip neigh replace 192.0.1.1 lladdr 02:02:02:02:02:01 dev wan0 nud";
        router.run(&format!("{line} {state}"));
    };
    set("reachable");
    assert!(events.wait().expect("the socket is whole").is_change);
    set("stale");
    let heard = events.wait().expect("the socket is whole");
    assert!(!heard.is_change, "{heard:?}");
    let named: Vec<_> = heard.stale.iter().map(|it| it.link_address).collect();
    assert_eq!(named, [SHORT_HOP]);
}
