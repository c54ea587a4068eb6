//! Routes over several tunnels of a class against a real kernel, each test in network namespaces of
//! its own.

use crate::support::router;
mod moves;

use std::collections::BTreeMap;

use flow_testbed::namespace::{Namespace, NamespaceError};
use flow_testbed::require;
use flow_testbed::require::Requirement::{Program, Root};
use router::{everything, inside, up};
use splitter_config::Config;
use splitter_steering::Placement;
use splitter_steering::routes::{
    Footprint, Item, Plan, VerifyError, hindrances, plan, plan_move, plan_placed, remove_all,
};

const SHORT: &str = "10401";
const LONG: &str = "10402";

/// Three tunnels for short flows with these weights, and one for long ones.
fn several(weights: [u8; 3]) -> Config {
    let [first, second, third] = weights;
    let text = format!(
        "
lan = ['lan']
[[short.tunnels]]
device = 'wan0'
gateway = ['192.0.2.1', '2001:db8:1::1']
weight = {first}
[[short.tunnels]]
device = 'wan2'
gateway = ['192.0.2.65', '2001:db8:12::1']
weight = {second}
[[short.tunnels]]
device = 'wan3'
gateway = ['192.0.2.129', '2001:db8:13::1']
weight = {third}
[long]
device = 'wan1'
gateway = ['198.51.100.1', '2001:db8:2::1']
"
    );
    Config::parse(&text, "test.toml").unwrap()
}

/// The router with the devices of two more tunnels, which spreads flows by ports.
fn router() -> Namespace {
    let router = router::router();
    for (device, v4, v6) in [
        ("wan2", "192.0.2.66/30", "2001:db8:12::2/64"),
        ("wan3", "192.0.2.130/30", "2001:db8:13::2/64"),
    ] {
        let lines = [
            format!("ip link add {device} type veth peer far-{device}"),
            format!("ip link set {device} up"),
            format!("ip link set far-{device} up"),
            format!("ip addr add {v4} dev {device}"),
            format!("ip addr add {v6} dev {device} nodad"),
        ];
        for line in lines {
            router.run(&line).unwrap();
        }
    }
    for family in ["ipv4", "ipv6"] {
        let key = format!("net.{family}.fib_multipath_hash_policy");
        router.sysctl(&key, "1").unwrap();
    }
    router
}

fn placement(disabled: &[&str]) -> Placement {
    Placement {
        disabled: disabled
            .iter()
            .map(|it| (*it).to_owned().try_into().unwrap())
            .collect(),
        ..Placement::PRIMARY
    }
}

/// The router as it is when all tunnels carry their class.
fn router_with(config: &Config) -> Namespace {
    let router = router();
    inside(&router, async |netlink| drop(up(netlink, config).await));
    router
}

/// Moves the classes, and says by which steps.
fn go(router: &Namespace, config: &Config, placement: &Placement) -> Plan {
    inside(router, async |netlink| {
        let plan = plan_move(netlink, config, placement).await.unwrap();
        let applied = plan.apply(netlink).await.unwrap();
        applied.verify(netlink, config).await.unwrap();
        let again = plan_placed(netlink, config, &placement.clone().into(), &[])
            .await
            .unwrap();
        assert!(again.is_in_place(), "{again}");
        applied.plan().clone()
    })
}

/// What `ip` shows of a table, on one line.
fn table(router: &Namespace, family: &str, table: &str) -> String {
    let shown = router.run(&format!("ip {family} route show table {table}"));
    let shown = shown.unwrap_or_default();
    shown.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The device that each of many flows of a host would leave by, by its source port.
fn spread(router: &Namespace, family: &str) -> BTreeMap<u16, String> {
    ask(router, family).unwrap()
}

/// Asks where a thousand flows of a host would go; the first that finds no route ends it.
fn ask(router: &Namespace, family: &str) -> Result<BTreeMap<u16, String>, NamespaceError> {
    let (to, from) = match family {
        "-6" => ("2606:4700::1111", "2001:db8:a::77"),
        _ => ("9.9.9.9", "10.1.0.77"),
    };
    let ports = 20_000..21_000_u16;
    let questions: String = ports
        .clone()
        .map(|port| {
            format!("route get {to} from {from} iif lan ipproto tcp sport {port} dport 443\n")
        })
        .collect();
    let answers = router.run_with_input(&format!("ip {family} -o -batch -"), &questions)?;
    let devices = answers.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| *word != "dev");
        words.nth(1).map(str::to_owned)
    });
    let spread: BTreeMap<_, _> = ports.zip(devices).collect();
    assert_eq!(spread.len(), 1_000);
    Ok(spread)
}

fn share(spread: &BTreeMap<u16, String>, device: &str) -> f64 {
    spread.values().filter(|it| *it == device).count() as f64 / spread.len() as f64
}

#[test]
fn class_has_one_route_with_a_weight_for_each_tunnel() {
    require!(Root, Program("ip"));
    let router = router();
    let before = everything(&router);
    let config = several([3, 1, 255]);
    inside(&router, async |netlink| {
        let applied = up(netlink, &config).await;
        let verification = applied.verify(netlink, &config).await.unwrap();
        assert_eq!(verification.probes.len(), 6, "{verification:?}");
        assert_eq!(verification.probes[0].devices.len(), 3);
        let shown = applied.plan().to_string();
        assert!(
            shown.contains(
                "+ ip route default table 10401 proto 94 nexthop via 192.0.2.1 dev wan0 weight 3 \
                 nexthop via 192.0.2.65 dev wan2 weight 1 nexthop via 192.0.2.129 dev wan3 weight 255\n"
            ),
            "{shown}"
        );
        assert!(plan(netlink, &config, None).await.unwrap().is_in_place());
    });
    for (family, hops) in [
        ("-4", ["192.0.2.1", "192.0.2.65", "192.0.2.129"]),
        ("-6", ["2001:db8:1::1", "2001:db8:12::1", "2001:db8:13::1"]),
    ] {
        let shown = table(&router, family, SHORT);
        for ((hop, device), weight) in hops.iter().zip(["wan0", "wan2", "wan3"]).zip([3, 1, 255]) {
            let expected = format!("nexthop via {hop} dev {device} weight {weight}");
            assert!(shown.contains(&expected), "{shown}");
        }
        assert_eq!(table(&router, family, LONG).matches("via").count(), 1);
    }
    inside(&router, async |netlink| {
        let removed = remove_all(netlink, &Footprint::of(&config)).await.unwrap();
        assert_eq!(removed.len(), 10, "{removed:?}");
    });
    assert_eq!(everything(&router), before);
}

#[test]
fn flows_are_spread_by_weight() {
    require!(Root, Program("ip"));
    let config = several([3, 2, 1]);
    let router = router_with(&config);
    for family in ["-4", "-6"] {
        let spread = spread(&router, family);
        for (device, expected) in [("wan0", 0.5), ("wan2", 1.0 / 3.0), ("wan3", 1.0 / 6.0)] {
            // Six standard deviations of a thousand draws.
            let share = share(&spread, device);
            println!("{family} {device}: {share}");
            assert!((share - expected).abs() < 0.095, "{device} {share}");
        }
    }
}

#[test]
fn what_others_make_of_our_routes_is_seen_and_mended() {
    require!(Root, Program("ip"));
    let router = router();
    let config = several([3, 1, 1]);
    let hops = |second: u8| {
        format!(
            "nexthop via 192.0.2.1 dev wan0 weight 3 nexthop via 192.0.2.65 dev wan2 weight {second} \
             nexthop via 192.0.2.129 dev wan3"
        )
    };
    for line in [
        // Another weight, one tunnel less, and a tunnel by itself.
        format!("ip route replace default table 10401 proto 94 {}", hops(2)),
        "ip route replace default table 10401 proto 94 nexthop via 192.0.2.1 dev wan0 weight 3 nexthop via 192.0.2.65 dev wan2".to_owned(),
        "ip route replace default via 192.0.2.1 dev wan0 table 10401 proto 94".to_owned(),
        "ip link del wan3".to_owned(),
    ] {
        inside(&router, async |netlink| {
            let applied = up(netlink, &config).await;
            applied.verify(netlink, &config).await.unwrap();
            router.run(&line).unwrap();
            let error = applied.verify(netlink, &config).await.unwrap_err();
            let is_seen = matches!(error, VerifyError::NotInPlace(_) | VerifyError::Plan(_));
            assert!(is_seen, "{line}: {error}");
        });
    }
    go(&router, &config, &placement(&["wan3"]));
    inside(&router, async |netlink| {
        let removed = remove_all(netlink, &Footprint::of(&config)).await.unwrap();
        let is_route = |item: &&Item| matches!(item, Item::Route(_));
        assert_eq!(removed.iter().filter(is_route).count(), 4, "{removed:?}");
    });
    // Of somebody else's route in our table we say so.
    router
        .run(&format!(
            "ip route add default table 10401 {}",
            hops(1).replace(" nexthop via 192.0.2.129 dev wan3", "")
        ))
        .unwrap();
    let error = inside(&router, async |netlink| {
        let without = placement(&["wan3"]);
        plan_placed(netlink, &config, &without.clone().into(), &[])
            .await
            .unwrap_err()
    });
    assert!(
        error.to_string().contains("ip route default table 10401"),
        "{error}"
    );
}

#[test]
fn hash_that_does_not_see_ports_is_reported_with_the_remedy() {
    require!(Root, Program("ip"));
    let router = router();
    let config = several([1, 1, 1]);
    let notes = || {
        inside(&router, async |netlink| {
            plan(netlink, &config, None).await.unwrap().notes
        })
    };
    assert_eq!(notes(), Vec::<String>::new());
    router
        .sysctl("net.ipv4.fib_multipath_hash_policy", "0")
        .unwrap();
    let remedy = "sysctl net.ipv4.fib_multipath_hash_policy=1";
    let [note] = &notes()[..] else {
        panic!("{:?}", notes());
    };
    assert!(note.contains(remedy), "{note}");
    // And so it is.
    let _ = inside(&router, async |netlink| up(netlink, &config).await);
    let spread = spread(&router, "-4");
    assert!(
        spread.values().all(|it| *it == spread[&20_000]),
        "{spread:?}"
    );
    router
        .sysctl("net.ipv6.fib_multipath_hash_policy", "2")
        .unwrap();
    assert_eq!(notes().len(), 2);
    let single = Config::parse(router::TUNNELS, "test.toml").unwrap();
    assert_eq!(router.enter(|| hindrances(&single)).unwrap(), []);
}

#[test]
fn point_to_point_devices_carry_ipv4_together_and_ipv6_with_a_next_hop() {
    require!(Root, Program("ip"));
    let router = router();
    let text = |gateway: &str| {
        let tunnel = |device| format!("[[short.tunnels]]\ndevice = '{device}'\n{gateway}\n");
        format!(
            "lan = 'lan'\n{}{}[long]\ndevice = 'wan1'\n",
            tunnel("wan0"),
            tunnel("wan2")
        )
    };
    let bare = Config::parse(&text(""), "test.toml").unwrap();
    inside(&router, async |netlink| {
        let applied = up(netlink, &bare).await;
        applied.verify(netlink, &bare).await.unwrap();
        let notes = &applied.plan().notes;
        assert!(notes[0].starts_with("IPv6 is not split: "), "{notes:?}");
        remove_all(netlink, &Footprint::of(&bare)).await.unwrap();
    });
    // `fe80::1` is what the note says, with an IPv4 next hop next to it.
    let named = text("gateway = 'fe80::1'").replacen("'fe80::1'", "['192.0.2.1', 'fe80::1']", 1);
    let named = named.replacen("'fe80::1'\n[long]", "['192.0.2.65', 'fe80::1']\n[long]", 1);
    let named = Config::parse(&named, "test.toml").unwrap();
    inside(&router, async |netlink| {
        let applied = up(netlink, &named).await;
        applied.verify(netlink, &named).await.unwrap();
        assert_eq!(applied.plan().notes, Vec::<String>::new());
    });
    let shown = table(&router, "-6", SHORT);
    assert_eq!(shown.matches("nexthop via fe80::1").count(), 2, "{shown}");
}
