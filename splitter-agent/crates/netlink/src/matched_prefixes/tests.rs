use flow_testbed::namespace::Namespace;
use flow_testbed::require;
use flow_testbed::require::Requirement::{Program, Root};
use nix::net::if_::if_nametoindex;
use rtnetlink::packet_core::DefaultNla;

use super::*;

/// A router with two tunnels and a device of the site.
fn router() -> Namespace {
    let router = Namespace::new("matched").expect("it can be made");
    let batch = "link set lo up\n\
                 link add wan0 type veth peer far0\nlink set far0 up\nlink set wan0 up\n\
                 link add wan1 type veth peer far1\nlink set far1 up\nlink set wan1 up\n\
                 link add lan0 type veth peer far2\nlink set far2 up\nlink set lan0 up\n\
                 address add 192.0.1.2/24 dev wan0\naddress add 192.0.2.2/24 dev wan1\n\
                 address add 10.0.0.1/16 dev lan0\n\
                 address add fd00:1::2/64 dev wan0 nodad\naddress add fd00:2::2/64 dev wan1 nodad\n";
    router
        .run_with_input("ip -batch -", batch)
        .expect("it is taken");
    router
}

/// What is found for prefixes that begin so, by both tunnels.
fn found(router: &Namespace, begins: &str) -> Vec<String> {
    let read = || {
        let devices = ["wan0", "wan1"].map(|it| if_nametoindex(it).expect("it is there"));
        let mut found = Vec::new();
        let read = matched_prefixes(&devices, 10_000, |prefix| {
            let MatchedPrefix {
                address,
                length,
                dependence,
            } = prefix;
            found.push(format!("{address}/{length} {dependence:?}"));
        });
        read.expect("the kernel lists them");
        found
    };
    let mut found = router.enter(read).expect("it is there");
    found.retain(|it| it.starts_with(begins));
    found.sort();
    found.dedup();
    found
}

#[test]
fn prefix_depends_on_what_its_route_does() {
    require!(Root, Program("ip"));
    let router = router();
    // On a tunnel's link the destination is its own next hop; on the site's nothing is redirected.
    assert_eq!(found(&router, "192.0.1.0/24"), ["192.0.1.0/24 Destination"]);
    assert_eq!(found(&router, "192.0.1.2/"), ["192.0.1.2/32 Prefix"]);
    assert_eq!(found(&router, "10.0.0.0/16"), ["10.0.0.0/16 Prefix"]);
    assert_eq!(found(&router, "fd00:1::/64"), ["fd00:1::/64 Destination"]);
    assert_eq!(found(&router, "127.0.0.0"), ["127.0.0.0/8 Prefix"]);
    for (command, begins, expected) in [
        ("ip route add {} via 192.0.1.1", "198.18.0.0/16", "Prefix"),
        (
            "ip route add {} via 192.0.1.1 table 77",
            "198.19.0.0/17",
            "Prefix",
        ),
        ("ip route add {} dev wan1", "198.20.0.0/16", "Destination"),
        ("ip route add {} dev lan0", "198.21.0.0/16", "Prefix"),
        ("ip route add unreachable {}", "198.22.0.0/16", "Prefix"),
        ("ip route add throw {} table 77", "198.23.0.0/16", "Prefix"),
        (
            "ip route add {} via 192.0.1.1 mtu lock 1400",
            "198.24.0.0/16",
            "Destination",
        ),
        (
            "ip route add {} via 192.0.1.1 mtu 1400",
            "198.25.0.0/16",
            "Prefix",
        ),
        (
            "ip route add {} nexthop via 192.0.1.1 nexthop via 192.0.2.1",
            "198.26.0.0/16",
            "Flow",
        ),
        (
            "ip route add {} nexthop via 10.0.0.7 nexthop via 10.0.0.8",
            "198.27.0.0/16",
            "Prefix",
        ),
        (
            "ip route add {} via inet6 fd00:1::1 dev wan0",
            "198.28.0.0/16",
            "Prefix",
        ),
        (
            "ip -6 route add {} via fd00:1::1",
            "2001:db8::/32",
            "Prefix",
        ),
        (
            "ip -6 route add {} dev wan1",
            "2001:db9::/32",
            "Destination",
        ),
        ("ip -6 route add unreachable {}", "2001:dba::/32", "Prefix"),
        (
            "ip -6 route add {} nexthop via fd00:1::1 nexthop via fd00:2::1",
            "2001:dbb::/32",
            "Flow",
        ),
        (
            "ip -6 route add {} via fd00:1::1 mtu lock 1400",
            "2001:dbc::/32",
            "Destination",
        ),
        ("ip rule add to {} lookup 77", "198.29.0.0/19", "Prefix"),
        (
            "ip rule add not to {} tos 0x08 lookup 77",
            "198.30.0.0/19",
            "Prefix",
        ),
        (
            "ip -6 rule add to {} iif lan0 lookup 77",
            "2001:dbd::/33",
            "Prefix",
        ),
        ("ip route add {} via 192.0.1.1", "0.0.0.0/0", "Prefix"),
    ] {
        let line = command.replace("{}", begins);
        router
            .run(&line)
            .unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(
            found(&router, begins),
            [format!("{begins} {expected}")],
            "{line}"
        );
    }
}

#[test]
fn rule_by_more_than_destination_and_class_tells_all_packets_apart() {
    require!(Root, Program("ip"));
    for (rule, v4, v6) in [
        ("ip rule add iif lan0 tos 0x08 lookup 77", false, false),
        ("ip rule add ipproto tcp lookup 77", false, false),
        (
            "ip rule add fwmark 0x200/0x3f00 from 10.1.0.0/16 lookup 77",
            false,
            false,
        ),
        (
            "ip rule add not fwmark 0x200 from 10.1.0.0/16 lookup 77",
            true,
            false,
        ),
        ("ip rule add from 10.1.0.0/16 lookup 77", true, false),
        ("ip rule add sport 53 lookup 77", true, false),
        ("ip rule add dport 53-54 lookup 77", true, false),
        ("ip -6 rule add from fd00:9::/32 lookup 77", false, true),
    ] {
        let router = router();
        router
            .run(rule)
            .unwrap_or_else(|error| panic!("{rule}: {error}"));
        let is_found = |begins| !found(&router, begins).is_empty();
        assert_eq!(is_found("0.0.0.0/0 Flow"), v4, "{rule}");
        assert_eq!(is_found("::/0 Flow"), v6, "{rule}");
    }
}

#[test]
fn rule_by_what_is_not_known_tells_all_packets_apart() {
    let rule = |kind| {
        let mut rule = RuleMessage::default();
        rule.header.family = AddressFamily::Inet6;
        let value = vec![0, 0, 0, 1];
        rule.attributes = vec![RuleAttribute::Other(DefaultNla::new(kind, value))];
        of_rule(&rule)
    };
    const FLOW_LABEL: u16 = 26;
    let everything = everywhere(Family::V6, Dependence::Flow);
    assert_eq!(rule(FLOW_LABEL), Some(everything));
    assert_eq!(rule(999), Some(everything));
    assert_eq!(rule(DSCP), None);
    assert_eq!(rule(DSCP_MASK), None);
}

#[test]
fn route_by_an_object_that_is_not_described_tells_all_packets_apart() {
    let dependence = |attributes: &[RouteAttribute]| dependence(attributes, &[7]);
    let id = RouteAttribute::NhId(3);
    assert_eq!(dependence(std::slice::from_ref(&id)), Dependence::Flow);
    let gateway = RouteAttribute::Gateway(IpAddr::from([192, 0, 2, 1]).into());
    assert_eq!(
        dependence(&[id, RouteAttribute::Oif(7), gateway]),
        Dependence::Prefix
    );
}

#[test]
fn learnt_mtu_counts_for_its_destination_where_forwarding_heeds_it() {
    require!(Root, Program("ip"));
    let router = router();
    assert!(found(&router, "0.0.0.0/0").is_empty());
    router
        .sysctl("net.ipv4.ip_forward_use_pmtu", "1")
        .expect("it is there");
    assert_eq!(found(&router, "0.0.0.0/0"), ["0.0.0.0/0 Destination"]);
}

#[test]
fn more_routes_than_are_wanted_are_not_read() {
    require!(Root, Program("ip"));
    let router = router();
    let mut seen = 0;
    let read = router.enter(|| matched_prefixes(&[], 5, |_| seen += 1));
    let error = read.expect("it is there").expect_err("there are more");
    assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
    assert!(seen <= 5);
}
