use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|it| net(it)).collect()
}

fn route(destination: &str, is_by_tunnel: bool) -> MainRoute {
    MainRoute {
        destination: net(destination),
        metric: 0,
        is_by_tunnel,
    }
}

fn by_tunnel(destination: &str) -> MainRoute {
    route(destination, true)
}

fn elsewhere(destination: &str) -> MainRoute {
    route(destination, false)
}

fn config(routes: &str) -> Config {
    let text =
        format!("lan = 'eth0'\n[short]\ndevice = 'a'\n[long]\ndevice = 'b'\n[routes]\n{routes}\n");
    Config::parse(&text, "test").unwrap()
}

#[test]
fn only_what_follows_depends_on_the_main_table() {
    let stated = "destinations = ['10.2.0.0/16', '10.3.0.0/24']";
    for routes in ["", stated] {
        assert!(!Destinations::follow_main(&config(routes)), "{routes}");
    }
    for routes in ["", stated] {
        let routes = format!("follow = true\n{routes}");
        assert!(Destinations::follow_main(&config(&routes)), "{routes}");
    }
}

#[test]
fn what_is_through_a_tunnel_is_followed_and_what_is_inside_keeps_its_way() {
    let main = vec![
        elsewhere("0.0.0.0/0"),
        by_tunnel("10.0.0.0/8"),
        elsewhere("10.4.0.0/16"),
        by_tunnel("10.4.4.0/24"),
        elsewhere("10.4.4.128/25"),
        by_tunnel("10.9.0.0/28"),
    ];
    let found = followed(&nets(&["0.0.0.0/0"]), main);
    assert_eq!(
        found.split,
        nets(&["10.0.0.0/8", "10.4.4.0/24", "10.9.0.0/28"])
    );
    assert_eq!(found.thrown, nets(&["10.4.0.0/16", "10.4.4.128/25"]));
}

#[test]
fn what_is_followed_stays_within_the_limits() {
    let main = vec![
        by_tunnel("0.0.0.0/0"),
        elsewhere("10.3.0.0/16"),
        by_tunnel("10.2.2.0/24"),
        by_tunnel("172.16.0.0/12"),
    ];
    let limits = nets(&["10.2.0.0/16", "10.3.0.0/16", "10.3.3.0/24"]);
    let found = followed(&limits, main);
    // The default route leads to the first limit, and somebody else's to the other two.
    assert_eq!(found.split, nets(&["10.2.0.0/16", "10.2.2.0/24"]));
    assert_eq!(found.thrown, []);
}

#[test]
fn route_with_the_lowest_metric_decides() {
    let metric = |metric, route| MainRoute { metric, ..route };
    let main = vec![
        metric(200, by_tunnel("10.2.0.0/16")),
        metric(20, elsewhere("10.2.0.0/16")),
        metric(20, by_tunnel("10.3.0.0/16")),
        metric(200, elsewhere("10.3.0.0/16")),
    ];
    let found = followed(&nets(&["0.0.0.0/0"]), main);
    assert_eq!(found.split, nets(&["10.3.0.0/16"]));
}

#[test]
fn cover_is_the_longest_prefix_around() {
    let cover = Cover::of(&nets(&["10.0.0.0/8", "10.2.0.0/16", "10.2.2.0/24"]));
    let length = |address: &str| cover.length_for(address.parse().unwrap());
    assert_eq!(length("10.2.2.2"), Some(24));
    assert_eq!(length("10.2.3.2"), Some(16));
    assert_eq!(length("10.3.3.2"), Some(8));
    assert_eq!(length("11.3.3.2"), None);
    assert!(cover.has_around(&net("10.2.0.0/16")), "the first");
    assert!(!cover.has_around(&net("10.0.0.0/8")));
}

/// What the kernel does with rules and tables as they follow from these.
fn is_split_by_kernel(prefixes: &Prefixes, main: &[MainRoute], address: Ipv4Addr) -> bool {
    let length = |nets: &mut dyn Iterator<Item = &IpNet>| {
        let holding = nets.filter(|net| net.contains(&IpAddr::V4(address)));
        holding.map(IpNet::prefix_len).max()
    };
    let in_main = length(&mut main.iter().map(|it| &it.destination));
    let in_front = in_main > prefixes.split.iter().map(IpNet::prefix_len).max();
    let split = length(&mut prefixes.split.iter());
    let thrown = length(&mut prefixes.thrown.iter());
    !in_front && split.is_some() && split > thrown
}

/// Few bits, so that they lie inside each other.
fn any_net() -> impl Strategy<Value = IpNet> {
    (0..16_u32, 0..=5_u8).prop_map(|(bits, length)| {
        let address = Ipv4Addr::from_bits(bits << 27);
        IpNet::new(address.into(), length).unwrap().trunc()
    })
}

fn any_main() -> impl Strategy<Value = Vec<MainRoute>> {
    let route = (any_net(), 0..3_u32, any::<bool>());
    let route = route.prop_map(|(destination, metric, is_by_tunnel)| MainRoute {
        destination,
        metric,
        is_by_tunnel,
    });
    proptest::collection::vec(route, 0..20)
}

proptest! {
    #[test]
    fn followed_is_what_the_main_table_leads_into_a_tunnel_within_the_limits(
        main in any_main(),
        limits in proptest::collection::btree_set(any_net(), 1..4),
    ) {
        let limits: Vec<_> = limits.into_iter().collect();
        let found = followed(&limits, main.clone());
        let main = in_use(main);
        for address in (0..32_u32).map(|it| Ipv4Addr::from_bits(it << 27 | 77)) {
            let holds = |net: &IpNet| net.contains(&IpAddr::V4(address));
            let holding = main.iter().filter(|it| holds(&it.destination));
            let best = holding.max_by_key(|it| it.destination.prefix_len());
            let is_meant = best.is_some_and(|it| it.is_by_tunnel) && limits.iter().any(holds);
            prop_assert_eq!(
                is_split_by_kernel(&found, &main, address), is_meant,
                "{} of {:?} by {:?}", address, found, main
            );
        }
    }
}
