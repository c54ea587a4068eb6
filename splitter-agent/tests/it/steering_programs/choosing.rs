//! Packets that choose among tunnels by the next hops that the agent keeps, whichever tunnel their class has.

use aya::Pod;
use aya::maps::Array;
use flow_balance::ServiceTime;
use splitter_policy::next_hop::{TunnelHop, TunnelHops};
use splitter_policy::paths::{BalancerNumber, SitePaths, TunnelPath};

use super::*;

const PROGRAM: &str = "redir_balanced";

/// A value that is shared with the kernel program.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct Plain<T>(T);

// SAFETY: `repr(C)` and made of integers without padding, so that any bytes are a valid value.
unsafe impl Pod for Plain<SitePaths> {}
// SAFETY: as above.
unsafe impl Pod for Plain<TunnelHops> {}

/// The next hops that the agent keeps, others than those that routing has: so one sees which counted.
const HOPS: [[u8; 6]; 2] = [[2, 7, 7, 7, 7, 1], [2, 7, 7, 7, 7, 2]];
const OURS: [[u8; 6]; 2] = [[2, 8, 8, 8, 8, 1], [2, 8, 8, 8, 8, 2]];

/// Two tunnels of one weight, the first of which is near.
fn site() -> SitePaths {
    let mut site = SitePaths {
        known: 0b11,
        usable: 0b11,
        own: [0b01, 0b10],
        gap_ns: 1_000_000,
        ..SitePaths::default()
    };
    for (tunnel, propagation_ns) in site.tunnels.iter_mut().zip([1_000_000, 3_000_000]) {
        *tunnel = TunnelPath {
            propagation_ns,
            // A packet of this test takes some 2 ms.
            service: ServiceTime::from_bits_per_second(300_000),
            own_service: ServiceTime::from_bits_per_second(300_000),
            queue_ns: 1_000_000_000,
            weight: 1,
            ..TunnelPath::default()
        };
    }
    site
}

impl Redirecting {
    /// With packets that choose by one balancer among both tunnels.
    fn choosing_by(balancer: BalancerNumber) -> Self {
        let load = move |object: &[u8]| Loaded::with_balancers(object, TABLE_SIZE, [balancer; 2]);
        let mut router = Self::running(PROGRAM, load);
        router.set_hops(router.hops());
        router.set_site(router.site());
        router.kernel.vouch(None);
        router
    }

    /// Both tunnels, with the devices that they have here.
    fn site(&self) -> SitePaths {
        let mut site = site();
        let [known, _] = self.hops();
        for (device, hop) in site.devices.iter_mut().zip(&known.hops) {
            *device = hop.device;
        }
        site
    }

    fn set_site(&mut self, site: SitePaths) {
        let map = self.kernel.map("SITE_PATHS").try_into();
        let mut paths: Array<_, Plain<SitePaths>> = map.expect("is an array");
        paths.set(0, Plain(site), 0).expect("can be written");
    }

    fn set_hops(&mut self, of_families: [TunnelHops; 2]) {
        let map = self.kernel.map("TUNNEL_HOPS").try_into();
        let mut hops: Array<_, Plain<TunnelHops>> = map.expect("is an array");
        for (family, known) in (0..).zip(of_families) {
            hops.set(family, Plain(known), 0).expect("can be written");
        }
    }

    /// Both tunnels' next hops, of both families.
    fn hops(&self) -> [TunnelHops; 2] {
        let mut known = TunnelHops {
            mtu: 1_400,
            ..TunnelHops::default()
        };
        for (number, device) in ["wan0", "wan1"].into_iter().enumerate() {
            let index = || nix::net::if_::if_nametoindex(device).expect("it is there");
            let device = self.router.enter(index).expect("the namespace is there");
            known.hops[number] = TunnelHop {
                device,
                // As the slots are given out here.
                slot: device % splitter_policy::forward::TARGET_SLOTS,
                link: [HOPS[number], OURS[number]]
                    .concat()
                    .try_into()
                    .expect("twelve"),
            };
        }
        [known; 2]
    }

    /// The number of the tunnel that a frame is put into, by its link addresses, and its bytes then.
    #[track_caller]
    fn put(&self, frame: &[u8]) -> (usize, Vec<u8>) {
        let (action, out) = self.send(frame);
        assert_eq!(action, XDP_REDIRECT);
        let number = HOPS.iter().position(|it| it[..] == out[..6]);
        let number = number.unwrap_or_else(|| panic!("not by a hop of the agent's: {out:?}"));
        assert_eq!(out[6..12], OURS[number]);
        (number, out)
    }

    fn tunnel_of(&self, frame: &[u8]) -> usize {
        self.put(frame).0
    }
}

/// A segment of another flow.
fn of_flow(packet: &Packet, number: u16) -> Vec<u8> {
    let mut packet = packet.clone();
    if let Upper::Tcp { ports, .. } = &mut packet.upper {
        ports.0 = 2_000 + number;
    }
    frame(&packet)
}

const ALL: [BalancerNumber; 7] = [
    BalancerNumber::ECMP,
    BalancerNumber::RPS,
    BalancerNumber::DRB,
    BalancerNumber::PRESTO,
    BalancerNumber::LETFLOW,
    BalancerNumber::TR,
    BalancerNumber::TR_PAPER,
];

#[test]
fn each_packet_goes_by_the_next_hop_of_the_tunnel_that_it_chooses() {
    require!(Root, Program("ip"));
    for balancer in ALL {
        let router = Redirecting::choosing_by(balancer);
        let mut all = [0_u64; 2];
        for packet in plain() {
            let ttl = ttl_at(&packet);
            for number in 0..30 {
                let frame = of_flow(&packet, number);
                // For the first the kernel is asked, and for the others there is a record.
                for _ in 0..8 {
                    let (tunnel, out) = router.put(&frame);
                    assert_eq!(out[ttl], frame[ttl] - 1, "{balancer:?}");
                    if matches!(packet.ip, Ip::V4 { .. }) {
                        assert_eq!(sum(&out[14..34]), 0xffff, "the checksum is right");
                    }
                    assert_eq!(out[34 + 20..], frame[34 + 20..]);
                    all[tunnel] += 1;
                }
            }
        }
        let counters = router.kernel.counters();
        let sent = all[0] + all[1];
        assert_eq!(counters.redirected, sent, "{balancer:?}");
        let chosen = router.kernel.chosen();
        let packets = [0, 1].map(|it| chosen.short_packets[it] + chosen.long_packets[it]);
        assert_eq!(packets, all, "{balancer:?}");
        // All are of the short class, whose own tunnel is the first.
        assert!(
            packets.iter().all(|it| *it > sent / 10),
            "{balancer:?}: {packets:?}"
        );
        let none = |it: &Fallback| counters.fallbacks(*it) == 0;
        assert!(Fallback::ALL.iter().all(none), "{balancer:?}");
    }
}

#[test]
fn one_flow_takes_the_tunnels_by_turns_and_keeps_to_one_by_hash() {
    require!(Root, Program("ip"));
    for packet in plain() {
        let taken = |balancer| {
            let router = Redirecting::choosing_by(balancer);
            let frame = frame(&packet);
            (0..100)
                .map(|_| router.tunnel_of(&frame))
                .collect::<Vec<_>>()
        };
        let by_turns = taken(BalancerNumber::DRB);
        // Of the flow that has turned long, too.
        let of_second: usize = by_turns.iter().sum();
        assert_eq!(of_second, 50, "{by_turns:?}");
        assert!(by_turns.windows(2).all(|it| it[0] != it[1]), "{by_turns:?}");
        let by_hash = taken(BalancerNumber::ECMP);
        assert!(by_hash.iter().all(|it| *it == by_hash[0]), "{by_hash:?}");
    }
}

#[test]
fn tr_fills_the_queue_of_the_model_and_then_takes_the_farther_tunnel() {
    require!(Root, Program("ip"));
    for packet in plain() {
        let router = Redirecting::choosing_by(BalancerNumber::TR);
        let frame = frame(&packet);
        let taken: Vec<_> = (0..40).map(|_| router.tunnel_of(&frame)).collect();
        // Nothing waits in front of the nearer one.
        assert_eq!(taken[0], 0, "{taken:?}");
        let of_second: usize = taken.iter().sum();
        // What waits leaves meanwhile, the more the longer this takes.
        assert!((4..=20).contains(&of_second), "{taken:?}");
    }
}

#[test]
fn what_cannot_be_put_into_a_tunnel_is_left_to_the_stack_under_its_reason() {
    require!(Root, Program("ip"));
    let mut router = Redirecting::choosing_by(BalancerNumber::DRB);
    for packet in plain() {
        let mut opening = packet.clone();
        if let Upper::Tcp { flags, .. } = &mut opening.upper {
            *flags = TcpFlags::SYN;
        }
        assert_eq!(router.reason(&frame(&opening)), Some(Fallback::Opening));
        // The tunnel of its class would take it.
        let long = Packet {
            payload_bytes: 1_380,
            ..packet.clone()
        };
        assert_eq!(router.reason(&frame(&long)), Some(Fallback::TooLarge));
    }
    let before: u64 = router.kernel.chosen().short_packets.iter().sum();
    assert_eq!(before, 0, "nothing has chosen");
    // The second tunnel's next hop is not known, and then another device has its slot.
    let mut hops = router.hops();
    for change in [0, 1] {
        for known in &mut hops {
            known.hops[1].device = change * (known.hops[0].device + 7_000);
        }
        router.set_hops(hops);
        for packet in plain() {
            let frame = frame(&packet);
            let actions: Vec<_> = (0..10).map(|_| router.send(&frame).0).collect();
            let redirected = actions.iter().filter(|it| **it == XDP_REDIRECT).count();
            assert_eq!(redirected, 5, "{actions:?}");
        }
    }
    let by_stack = router.kernel.counters().fallbacks(Fallback::NoNeighbour);
    assert_eq!(by_stack, 20);
    // What went by the stack after all is in no tunnel of its choice.
    let chosen = router.kernel.chosen();
    let packets = [0, 1].map(|it| chosen.short_packets[it] + chosen.long_packets[it]);
    assert_eq!(packets, [20, 0]);
    assert_eq!(router.kernel.counters().redirected, 20);
}

#[test]
fn where_nobody_keeps_next_hops_packets_take_the_tunnel_of_their_class() {
    require!(Root, Program("ip"));
    let untold = |router: &mut Redirecting| router.set_site(SitePaths::default());
    let unvouched = |router: &mut Redirecting| router.kernel.distrust();
    let unknown = |router: &mut Redirecting| router.set_hops([TunnelHops::default(); 2]);
    let ways: [&dyn Fn(&mut Redirecting); 3] = [&untold, &unvouched, &unknown];
    for leave in ways {
        let mut router = Redirecting::choosing_by(BalancerNumber::DRB);
        leave(&mut router);
        for packet in plain() {
            let frame = frame(&packet);
            let hops: Vec<_> = (0..60)
                .map(|_| router.send(&frame).1[..6].to_vec())
                .collect();
            let (short, long) = hops.split_at(40);
            assert!(short.iter().all(|it| *it == SHORT_HOP), "{hops:?}");
            assert!(long.iter().all(|it| *it == LONG_HOP), "{hops:?}");
        }
        assert_eq!(router.kernel.counters().redirected, 120);
    }
}

/// Routes in front of the tunnels', or what no tunnel is for: by a tunnel's device and gateway, even, it is not for the others.
#[test]
fn what_routing_leads_one_way_for_both_classes_does_not_choose() {
    require!(Root, Program("ip"));
    for (balancer, is_for_both) in [
        (BalancerNumber::DRB, false),
        (BalancerNumber::DRB, true),
        (BalancerNumber::TR, true),
    ] {
        let mut router = Redirecting::choosing_by(balancer);
        if is_for_both {
            // As where the long class's own tunnel is dead.
            let [known, _] = router.hops();
            router
                .kernel
                .redirect_into(known.hops[0].device, TunnelRole::Long);
        }
        for (ip, hop) in [("ip", "192.0.1.1"), ("ip -6", "fd00:1::1")] {
            for line in [
                format!("{ip} route add default via {hop} table 200"),
                format!("{ip} rule add pref 5 lookup 200"),
            ] {
                let run = router.router.run(&line);
                run.unwrap_or_else(|error| panic!("{line}: {error}"));
            }
        }
        for packet in plain() {
            let frame = frame(&packet);
            for _ in 0..40 {
                let (action, out) = router.send(&frame);
                assert_eq!((action, &out[..6]), (XDP_REDIRECT, &SHORT_HOP[..]));
            }
        }
        assert_eq!(router.kernel.counters().redirected, 80);
        let chosen = router.kernel.chosen();
        let packets: u64 = { chosen.short_packets.iter() }
            .chain(&chosen.long_packets)
            .sum();
        assert_eq!(packets, 0, "{balancer:?}");
    }
}
