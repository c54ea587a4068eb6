//! Destinations that follow the main table, and more specific routes of others that keep their
//! meaning: rules and routes against a real kernel.

use std::sync::Arc;

use flow_testbed::namespace::Namespace;
use flow_testbed::require;
use flow_testbed::require::Requirement::{Program, Root};
use splitter_config::Config;
use splitter_netlink::{Netlink, RoutingEvents};
use splitter_steering::Placements;
use splitter_steering::routes::{
    Destinations, Footprint, MainTables, audit, plan, plan_follow, plan_placed, remove_all,
};

use crate::support::router;
use router::{config, device, everything, inside, router, up_and_verified};

const LONG: u8 = 2 << 2;
const SHORT: u8 = 4 << 2;
const FOLLOW: &str = "[routes]\nfollow = true\n";

fn run(router: &Namespace, lines: &[&str]) {
    for line in lines {
        router.run(line).unwrap();
    }
}

/// Where packets of both classes to an address leave.
#[track_caller]
fn assert_leaves(router: &Namespace, destination: &str, expected: [&str; 2]) {
    let found = [SHORT, LONG].map(|tos| device(router, destination, tos));
    assert_eq!(found, expected, "{destination}");
}

const SPLIT: [&str; 2] = ["wan0", "wan1"];
const ISP: [&str; 2] = ["isp", "isp"];

#[test]
fn what_the_main_table_reaches_through_a_tunnel_is_split() {
    require!(Root, Program("ip"));
    let router = router();
    run(
        &router,
        &[
            "ip route add 10.2.0.0/16 via 192.0.2.1",
            "ip route add 10.3.0.0/24 proto bgp via 198.51.100.1",
            "ip route add 10.2.7.0/24 via 203.0.113.1",
            "ip route add 10.2.7.128/25 via 192.0.2.1",
            // To another router on the tunnel's link.
            "ip route add 10.2.8.0/24 via 192.0.2.77 dev wan0 onlink",
            // The one with the lower metric counts.
            "ip route add 10.5.0.0/16 via 203.0.113.1 metric 10",
            "ip route add 10.5.0.0/16 via 192.0.2.1 metric 20",
            // Spread over both.
            "ip route add 10.6.0.0/16 nexthop via 192.0.2.1 nexthop via 198.51.100.1",
            "ip route add 10.7.0.0/16 nexthop via 192.0.2.1 nexthop via 203.0.113.1",
            "ip -6 route add 2001:db8:b::/48 via 2001:db8:1::1",
            // As BGP writes it.
            "ip -6 route add 2001:db8:d::/48 via fe80::1 dev wan1",
            "ip -6 route add 2001:db8:b:7::/64 via 2001:db8:3::1",
            "ip route add blackhole 10.2.9.0/24",
        ],
    );
    let config = config(FOLLOW);
    inside(&router, async |netlink| {
        up_and_verified(netlink, &config).await;
        assert!(plan(netlink, &config, None).await.unwrap().is_in_place());
        let found = audit(netlink, &config, &Placements::default(), true).await;
        let found = found.unwrap();
        let named: Vec<_> = found.unsplit.iter().map(ToString::to_string).collect();
        let expected = ["10.2.8.0/24 NOT split: main has a more specific route by wan0"];
        assert_eq!(named, expected);
    });
    for destination in [
        "10.2.3.4",
        "10.3.0.9",
        "10.2.7.200",
        "10.6.0.9",
        "2001:db8:b::9",
        "2001:db8:d::9",
    ] {
        assert_leaves(&router, destination, SPLIT);
    }
    for destination in [
        "9.9.9.9",
        "10.2.7.9",
        "10.5.0.9",
        "2001:db8:b:7::9",
        "2606:4700::1",
    ] {
        assert_leaves(&router, destination, ISP);
    }
    assert_leaves(&router, "10.2.8.9", ["wan0", "wan0"]);
    let dropped = router.run("ip route get 10.2.9.9 from 10.1.0.77 iif lan");
    assert!(dropped.is_err(), "{dropped:?}");
    inside(&router, async |netlink| {
        let footprint = Footprint::of(&config);
        remove_all(netlink, &footprint).await.unwrap();
    });
    let all = everything(&router);
    assert!(!all.contains("throw") && !all.contains("proto 94"), "{all}");
}

#[test]
fn next_hop_objects_are_resolved_also_where_the_kernel_leaves_out_what_they_stand_for() {
    require!(Root, Program("ip"));
    for compatible in ["1", "0"] {
        let router = router();
        router
            .sysctl("net.ipv4.nexthop_compat_mode", compatible)
            .unwrap();
        run(
            &router,
            &[
                "ip nexthop add id 7 via 192.0.2.1 dev wan0",
                "ip nexthop add id 8 via 198.51.100.1 dev wan1",
                "ip nexthop add id 9 via 203.0.113.1 dev isp",
                "ip nexthop add id 10 group 7/8",
                "ip nexthop add id 11 group 7/9",
                "ip route add 10.2.0.0/24 nhid 7",
                "ip route add 10.3.0.0/24 nhid 10",
                "ip route add 10.4.0.0/24 nhid 9",
                "ip route add 10.5.0.0/24 nhid 11",
            ],
        );
        let config = config(FOLLOW);
        inside(&router, async |netlink| {
            up_and_verified(netlink, &config).await;
        });
        assert_leaves(&router, "10.2.0.9", SPLIT);
        assert_leaves(&router, "10.3.0.9", SPLIT);
        let table = router.run("ip route show table 10402").unwrap();
        assert_eq!(table.lines().count(), 2, "{compatible}: {table}");
    }
}

/// Follows as an agent does: by what the kernel has said since the table was read.
struct Following {
    events: RoutingEvents,
    main: MainTables,
    from: Arc<Destinations>,
}

impl Following {
    fn begin(from: &Arc<Destinations>) -> Self {
        Self {
            events: RoutingEvents::listen().unwrap(),
            main: MainTables::default(),
            from: Arc::clone(from),
        }
    }

    /// Knows what the main table holds, follows from what was in place, and finds all that a plan from
    /// nothing would have.
    async fn follow(&mut self, netlink: &Netlink, config: &Config, change: &str) {
        self.events.take(|event| self.main.take(event));
        self.main.refresh(netlink, config).await.unwrap();
        let interfaces = &netlink.interfaces().await.unwrap();
        let to = Arc::new(Destinations::by(&self.main, config, interfaces));
        let read = Destinations::read(netlink, config).await.unwrap();
        assert_eq!(*to, read, "after {change}");
        let placements = &Placements::default();
        let plan = plan_follow(netlink, config, placements, interfaces, &self.from, &to);
        let _ = plan.await.unwrap().apply(netlink).await.unwrap();
        self.from = to;
        let fresh = plan_placed(netlink, config, placements, &[]).await;
        let fresh = fresh.unwrap();
        assert!(fresh.is_in_place(), "after {change}: {fresh}");
    }
}

#[test]
fn next_hop_object_that_no_route_had_yet_is_known_with_the_first() {
    require!(Root, Program("ip"));
    let router = router();
    router
        .sysctl("net.ipv4.nexthop_compat_mode", "0")
        .expect("it is there");
    let object = "ip nexthop add id 7 via 192.0.2.1 dev wan0";
    router.run(object).expect("it is made");
    let config = config(FOLLOW);
    inside(&router, async |netlink| {
        let applied = plan(netlink, &config, None).await.unwrap().apply(netlink);
        let mut following = Following::begin(&applied.await.unwrap().plan().destinations);
        for change in [
            // The main table is read with that, and lists no object.
            "ip route add 10.9.0.0/16 via 203.0.113.1",
            "ip route add 10.8.0.0/16 nhid 7",
        ] {
            router.run(change).unwrap();
            following.follow(netlink, &config, change).await;
        }
    });
}

#[test]
fn what_changes_is_followed_as_if_it_had_always_been_so() {
    require!(Root, Program("ip"));
    for more in [
        FOLLOW,
        "[routes]\nfollow = true\ndestinations = ['10.0.0.0/8', '2001:db8::/32']\n",
    ] {
        let router = router();
        let config = config(more);
        inside(&router, async |netlink| {
            let applied = plan(netlink, &config, None).await.unwrap().apply(netlink);
            let mut following = Following::begin(&applied.await.unwrap().plan().destinations);
            for change in [
                "ip route add 10.2.0.0/16 via 192.0.2.1",
                "ip route add 10.2.2.0/24 via 203.0.113.1",
                // What leads elsewhere lies around, then moves into the tunnel, and back.
                "ip route add 10.4.0.0/14 via 203.0.113.1",
                "ip route add 10.5.5.0/28 via 198.51.100.1",
                "ip route replace 10.4.0.0/14 via 192.0.2.1",
                "ip route replace 10.2.2.0/24 via 198.51.100.1",
                "ip route replace 10.2.0.0/16 via 203.0.113.1",
                "ip route replace 10.2.0.0/16 via 192.0.2.1",
                "ip route del 10.5.5.0/28",
                "ip -6 route add 2001:db8:b::/48 via 2001:db8:1::1",
                "ip -6 route add 2001:db8:b:1::/64 via 2001:db8:3::1",
                "ip -6 route replace 2001:db8:b:1::/64 via 2001:db8:2::1",
                "ip -6 route replace 2001:db8:b:1::/64 via 2001:db8:3::1",
                "ip -6 route del 2001:db8:b::/48",
                "ip route replace default via 192.0.2.1",
                "ip route replace default via 203.0.113.1",
                "ip route del 10.2.0.0/16",
                "ip route del 10.2.2.0/24",
                "ip route del 10.4.0.0/14",
                "ip -6 route del 2001:db8:b:1::/64",
                // Others of the same destination: by metric, before, after.
                "ip route add 10.6.0.0/16 via 203.0.113.1 metric 10",
                "ip route add 10.6.0.0/16 via 192.0.2.1 metric 5",
                "ip route append 10.6.0.0/16 via 203.0.113.1 metric 5",
                "ip route prepend 10.6.0.0/16 via 203.0.113.1 metric 5 src 203.0.113.2",
                "ip route del 10.6.0.0/16 via 203.0.113.1 metric 5",
                "ip route del 10.6.0.0/16 via 203.0.113.1 metric 5",
                "ip route del 10.6.0.0/16 via 192.0.2.1 metric 5",
                "ip route flush 10.6.0.0/16",
                // Next hops that come and go one by one.
                "ip -6 route add 2001:db8:b::/48 via 2001:db8:1::1",
                "ip -6 route append 2001:db8:b::/48 via 2001:db8:3::1",
                "ip -6 route del 2001:db8:b::/48 via 2001:db8:3::1",
                "ip -6 route append 2001:db8:b::/48 via 2001:db8:2::1",
                "ip -6 route replace 2001:db8:b::/48 nexthop via 2001:db8:1::1 nexthop via 2001:db8:3::1",
                "ip -6 route del 2001:db8:b::/48",
                // With a device go its routes, of which the kernel says nothing.
                "ip route add 10.7.0.0/16 via 203.0.113.1",
                "ip route add 10.7.0.0/16 via 192.0.2.1 metric 50",
                "ip link set isp down",
                "ip link set isp up",
                "ip route flush 10.7.0.0/16",
                // A next hop object that changes under its routes.
                "ip nexthop add id 9 via 192.0.2.1 dev wan0",
                "ip route add 10.8.0.0/16 nhid 9",
                "ip nexthop replace id 9 via 203.0.113.1 dev isp",
                "ip nexthop del id 9",
            ] {
                router.run(change).unwrap();
                following.follow(netlink, &config, change).await;
            }
        });
    }
}
