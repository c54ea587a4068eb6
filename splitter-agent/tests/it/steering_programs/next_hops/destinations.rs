//! One note for all destinations that are routed alike, held against the kernel's own answers.

use splitter_policy::next_hop::NextHopTrust;

use super::*;

/// A family: how `ip` is called for it, its packets, where its destination lies, and the next hops.
struct Family {
    ip: &'static str,
    packet: Packet,
    destination_at: usize,
    /// Behind `wan0`, another there, and behind `wan1`.
    hops: [&'static str; 3],
    /// In each other: from some octets on to a single address.
    prefixes: [&'static str; 4],
    destinations: &'static [&'static str],
}

fn families() -> [Family; 2] {
    [
        Family {
            ip: "ip",
            packet: Packet::tcp_v4(),
            destination_at: 30,
            hops: ["192.0.1.1", "192.0.1.9", "192.0.2.1"],
            prefixes: [
                "10.2.0.0/15",
                "10.2.3.0/24",
                "10.2.3.128/25",
                "10.2.3.200/32",
            ],
            destinations: &[
                "8.8.8.8",
                "9.9.9.9",
                "203.0.113.1",
                "10.1.1.1",
                "10.2.1.1",
                "10.2.1.2",
                "10.2.3.1",
                "10.2.3.2",
                "10.2.3.129",
                "10.2.3.200",
                "10.2.3.201",
                "10.3.255.1",
                "10.4.0.1",
                "192.0.1.1",
                "192.0.1.9",
                "192.0.2.1",
            ],
        },
        Family {
            ip: "ip -6",
            packet: Packet::tcp_v6(),
            destination_at: 38,
            hops: ["fd00:1::1", "fd00:1::9", "fd00:2::1"],
            prefixes: [
                "2001:db8::/32",
                "2001:db8:3::/56",
                "2001:db8:3::/64",
                "2001:db8:3::c8/128",
            ],
            destinations: &[
                "2400::1",
                "2400::2",
                "2a00::1",
                "2001:db7::1",
                "2001:db8:1::1",
                "2001:db8:1::2",
                "2001:db8:3:1::1",
                "2001:db8:3::1",
                "2001:db8:3::2",
                "2001:db8:3::c8",
                "2001:db9::1",
                "fd00:1::1",
                "fd00:1::9",
                "fd00:2::1",
                // No router forwards to these, whatever routes say.
                "fe80:1::1",
                "ff05::1",
            ],
        },
    ]
}

impl Family {
    /// A packet to there, of a flow of its own.
    fn to(&self, destination: &str, flow: u16) -> Vec<u8> {
        let mut frame = frame(&self.packet);
        let address: std::net::IpAddr = destination.parse().expect("an address");
        let bytes = match address {
            std::net::IpAddr::V4(v4) => v4.octets().to_vec(),
            std::net::IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        frame[self.destination_at..self.destination_at + bytes.len()].copy_from_slice(&bytes);
        let ports = ports_at(&self.packet);
        frame[ports..ports + 2].copy_from_slice(&flow.to_be_bytes());
        frame
    }

    fn run(&self, router: &Redirecting, line: &str) {
        let [near, other, far] = self.hops;
        let [widest, wide, narrow, single] = self.prefixes;
        let line = line
            .replace("ip ", &format!("{} ", self.ip))
            .replace("{near}", near)
            .replace("{other}", other)
            .replace("{far}", far)
            .replace("{widest}", widest)
            .replace("{wide}", wide)
            .replace("{narrow}", narrow)
            .replace("{single}", single);
        router.run(&line);
    }

    /// What becomes of a packet of each of several flows to each destination: where it goes, or why not.
    fn fates(&self, router: &Redirecting, first_flow: u16) -> Vec<String> {
        let mut fates = Vec::new();
        for flow in first_flow..first_flow + 3 {
            for destination in self.destinations {
                let counts = || Fallback::ALL.map(|it| router.kernel.counters().fallbacks(it));
                let before = counts();
                let (action, out) = router.send(&self.to(destination, flow));
                let after = counts();
                let reason = (0..before.len()).find(|&it| after[it] > before[it]);
                let fate = match reason {
                    Some(reason) => format!("{:?}", Fallback::ALL[reason]),
                    None => format!("{action} {:x?}", &out[..12]),
                };
                fates.push(format!("{destination} {flow}: {fate}"));
            }
        }
        fates
    }
}

/// With neighbours for the two next hops on the link of `wan0`, and for stations there.
fn router(family: &Family) -> Redirecting {
    let router = Redirecting::new();
    for (number, station) in (0x10..).zip([family.hops[1]].iter().chain(family.destinations)) {
        let line = format!(
            "ip neigh replace {station} lladdr 02:03:03:03:03:{number:02x} dev wan0 nud permanent"
        );
        if !family.hops.contains(station) || *station == family.hops[1] {
            family.run(&router, &line);
        }
    }
    router
}

#[test]
fn notes_of_few_bits_say_what_the_kernel_says_to_each_packet() {
    require!(Root, Program("ip"));
    let changes = [
        // Nothing but the default route.
        "ip neigh show",
        "ip route add {widest} via {other} dev wan0",
        "ip route add {narrow} via {near} dev wan0",
        "ip route add unreachable {single}",
        "ip route del unreachable {single}",
        // Stations of the link are their own next hops.
        "ip route add {wide} dev wan0",
        "ip route del {wide}",
        "ip route add {wide} via {far} dev wan1",
        // A table that comes first, for some destinations.
        "ip route add {narrow} via {other} dev wan0 table 55",
        "ip rule add pref 9 to {widest} lookup 55",
        "ip route add throw {single} table 55",
        "ip route add default via {other} dev wan0 table 55",
        "ip rule del pref 9",
        "ip rule add pref 9 lookup 55 suppress_prefixlength 0",
        // Flows are spread.
        "ip route replace {widest} nexthop via {near} dev wan0 nexthop via {other} dev wan0",
        "ip rule add pref 8 sport 2500-2501 lookup 55",
        "ip rule del pref 8",
        "ip route del default",
    ];
    for family in families() {
        let mut router = router(&family);
        let mut flow = 1_000;
        for change in changes {
            family.run(&router, change);
            router.kernel.distrust();
            // The same flows, which are short all the time.
            let truth = family.fates(&router, flow);
            router.vouch_by_routes();
            for round in 0..2 {
                let noted = family.fates(&router, flow);
                assert_eq!(noted, truth, "{}, round {round} after {change}", family.ip);
            }
            flow += 100;
        }
    }
}

#[test]
fn default_route_takes_one_note_for_all_destinations_until_there_is_a_longer_one() {
    require!(Root, Program("ip"));
    for family in families() {
        let mut router = router(&family);
        let [first, second, .., away] = [0, 1, 3].map(|index| family.destinations[index]);
        let inside = family.destinations[4];
        router.vouch_by_routes();
        let asked = |router: &Redirecting| router.kernel.counters().fib_lookups;
        for (flow, destination) in (1..).zip([first, second, away, inside]) {
            assert_eq!(router.hop(&family.to(destination, flow)), SHORT_HOP);
        }
        let once = asked(&router);
        assert!(
            once <= 2,
            "{}: asked {once} times for four flows",
            family.ip
        );

        // What the agent does with a notification.
        let events = router.router.enter(|| NextHopEvents::listen(PATIENCE));
        let mut events = events.expect("the namespace is there").expect("netlink is");
        family.run(&router, "ip route add {widest} via {other} dev wan0");
        assert!(events.wait().expect("the socket is whole").is_of_routing);
        router.vouch_by_routes();
        let other = router.hop(&family.to(inside, 4));
        assert_ne!(other, SHORT_HOP);
        assert_eq!(router.hop(&family.to(away, 3)), SHORT_HOP);
        let before = asked(&router);
        for flow in 10..20 {
            assert_eq!(router.hop(&family.to(inside, flow)), other);
            assert_eq!(router.hop(&family.to(first, flow)), SHORT_HOP);
        }
        // One of another octet, at the most.
        assert!(asked(&router) <= before + 1, "{}", family.ip);

        family.run(&router, "ip route del {widest}");
        assert!(events.wait().expect("the socket is whole").is_of_routing);
        router.vouch_by_routes();
        assert_eq!(router.hop(&family.to(inside, 4)), SHORT_HOP);
    }
}

#[test]
fn route_that_the_agent_has_not_heard_of_leads_no_other_destination_astray() {
    require!(Root, Program("ip"));
    for family in families() {
        let mut router = router(&family);
        let [away, inside] = [3, 4].map(|index| family.destinations[index]);
        let asked = |router: &Redirecting| router.kernel.counters().fib_lookups;
        router.vouch_by_routes();
        // By now it has heard of all that had changed, and not of what comes.
        let heard = |router: &mut Redirecting, later_ns: u64| {
            let until_ns = router.kernel.now_ns() + NextHopTrust::PERIOD_NS + later_ns;
            router.kernel.vouch_until(until_ns);
        };
        heard(&mut router, 0);
        family.run(&router, "ip route add {widest} via {other} dev wan0");
        let other = router.hop(&family.to(inside, 1));
        assert_ne!(other, SHORT_HOP);
        for flow in 2..6 {
            assert_eq!(router.hop(&family.to(away, flow)), SHORT_HOP);
            assert_eq!(router.hop(&family.to(inside, flow)), other);
        }
        assert_eq!(asked(&router), 9, "{}: nobody knows yet", family.ip);
        // Each flow has an answer of its own meanwhile.
        for flow in 2..6 {
            assert_eq!(router.hop(&family.to(away, flow)), SHORT_HOP);
            assert_eq!(router.hop(&family.to(inside, flow)), other);
        }
        assert_eq!(asked(&router), 9, "{}: asked once for each", family.ip);

        family.run(&router, "ip route del {widest}");
        router.vouch_by_routes();
        heard(&mut router, 0);
        for flow in 1..4 {
            assert_eq!(router.hop(&family.to(inside, flow)), SHORT_HOP);
        }
        assert_eq!(asked(&router), 12, "{}: nobody knows yet", family.ip);
        heard(&mut router, 1_000_000_000);
        for flow in 1..4 {
            assert_eq!(router.hop(&family.to(inside, flow)), SHORT_HOP);
            assert_eq!(router.hop(&family.to(away, flow)), SHORT_HOP);
        }
        assert_eq!(asked(&router), 12, "{}: all is as it was", family.ip);
    }
}
