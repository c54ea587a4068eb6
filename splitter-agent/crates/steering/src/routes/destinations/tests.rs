use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|it| net(it)).collect()
}

fn route(destination: &str, by_tunnel_to: Option<SiteIndex>) -> MainRoute {
    MainRoute {
        destination: net(destination),
        by_tunnel_to,
    }
}

fn by_tunnel(destination: &str) -> MainRoute {
    route(destination, Some(0))
}

fn elsewhere(destination: &str) -> MainRoute {
    route(destination, None)
}

/// All at the first site.
fn limits(texts: &[&str]) -> Vec<(IpNet, SiteIndex)> {
    texts.iter().map(|it| (net(it), 0)).collect()
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
    let found = followed(limits(&["0.0.0.0/0"]), &main);
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
    let mut main = main;
    main.sort_by_key(|it| it.destination);
    let limits = limits(&["10.2.0.0/16", "10.3.0.0/16", "10.3.3.0/24"]);
    let found = followed(limits, &main);
    // The default route leads to the first limit, and somebody else's to the other two.
    assert_eq!(found.split, nets(&["10.2.0.0/16", "10.2.2.0/24"]));
    assert_eq!(found.thrown, []);
}

#[test]
fn each_prefix_lies_at_the_site_that_its_route_leads_to() {
    let main = vec![
        route("0.0.0.0/0", Some(1)),
        route("10.0.0.0/8", Some(0)),
        route("10.2.0.0/16", Some(1)),
        route("10.3.0.0/16", Some(0)),
        route("10.16.0.0/12", None),
    ];
    // The second site is limited to what the default route covers, and to a part of what leads to
    // the first.
    let limits = vec![
        (net("0.0.0.0/0"), 0),
        (net("9.9.0.0/16"), 1),
        (net("10.2.0.0/16"), 1),
    ];
    let found = followed(limits, &main);
    let expected = [
        ("9.9.0.0/16", 1),
        ("10.0.0.0/8", 0),
        ("10.2.0.0/16", 1),
        ("10.3.0.0/16", 0),
    ];
    let expected: Vec<_> = expected.iter().map(|(it, site)| (net(it), *site)).collect();
    assert_eq!(found.by_site().collect::<Vec<_>>(), expected);
    assert_eq!(found.thrown, nets(&["10.16.0.0/12"]));
}

#[test]
fn prefix_that_moves_to_another_site_leaves_the_one_and_arrives_at_the_other() {
    let at = |site| Destinations {
        v4: followed(
            vec![(net("0.0.0.0/0"), 0), (net("0.0.0.0/0"), 1)],
            &[
                route("10.2.0.0/16", Some(site)),
                route("10.3.0.0/16", Some(0)),
            ],
        ),
        ..Destinations::default()
    };
    let (arriving, leaving) = (at(1).without(&at(0)), at(0).without(&at(1)));
    assert_eq!(
        arriving.by_site(Family::V4).collect::<Vec<_>>(),
        [(net("10.2.0.0/16"), 1)]
    );
    assert_eq!(
        leaving.by_site(Family::V4).collect::<Vec<_>>(),
        [(net("10.2.0.0/16"), 0)]
    );
    assert_eq!(at(1).without(&at(1)), Destinations::default());
}

#[test]
fn site_of_an_address_is_the_one_with_the_longest_prefix() {
    let site = |name, nets, device| {
        format!(
            "[[site]]\nname = '{name}'\ndestinations = {nets}\nshort = {{ device = '{device}0' }}\n\
             long = {{ device = '{device}1' }}\n"
        )
    };
    let text = site("paris", "['10.2.0.0/16', '2001:db8:b::/48']", "a")
        + &site("oslo", "['10.2.3.0/24']", "b");
    let config = Config::parse(&format!("lan = 'eth0'\n{text}"), "test").unwrap();
    let stated = Destinations::by(&MainTables::default(), &config, &Interfaces::default());
    let of = |address: &str| {
        let site = stated.site_name_at(&config, address.parse().unwrap());
        site.map(|it| it.to_string())
    };
    assert_eq!(of("10.2.2.9").as_deref(), Some("paris"));
    assert_eq!(of("10.2.3.9").as_deref(), Some("oslo"));
    assert_eq!(of("2001:db8:b::9").as_deref(), Some("paris"));
    assert_eq!(of("10.3.0.1"), None);
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

/// What the kernel does with rules and tables as they follow from these: the site that a packet is
/// led to.
fn split_by_kernel(
    prefixes: &Prefixes,
    main: &[MainRoute],
    address: Ipv4Addr,
) -> Option<SiteIndex> {
    let holds = |net: &IpNet| net.contains(&IpAddr::V4(address));
    let length = |nets: &mut dyn Iterator<Item = &IpNet>| {
        nets.filter(|net| holds(net)).map(IpNet::prefix_len).max()
    };
    let in_main = length(&mut main.iter().map(|it| &it.destination));
    let in_front = in_main > prefixes.split.iter().map(IpNet::prefix_len).max();
    let holding = prefixes.by_site().filter(|(net, _)| holds(net));
    let (net, site) = holding.max_by_key(|(net, _)| net.prefix_len())?;
    let thrown = length(&mut prefixes.thrown.iter());
    (!in_front && Some(net.prefix_len()) > thrown).then_some(site)
}

/// Few bits, so that they lie inside each other.
fn any_net() -> impl Strategy<Value = IpNet> {
    (0..16_u32, 0..=5_u8).prop_map(|(bits, length)| {
        let address = Ipv4Addr::from_bits(bits << 27);
        IpNet::new(address.into(), length).unwrap().trunc()
    })
}

/// A route for each destination, in order, to one of two sites or elsewhere.
fn any_main() -> impl Strategy<Value = Vec<MainRoute>> {
    let site = prop_oneof![Just(None), Just(Some(0)), Just(Some(1))];
    let routes = proptest::collection::btree_map(any_net(), site, 0..20);
    routes.prop_map(|routes| {
        let route = |(destination, by_tunnel_to)| MainRoute {
            destination,
            by_tunnel_to,
        };
        routes.into_iter().map(route).collect()
    })
}

proptest! {
    #[test]
    fn followed_is_what_the_main_table_leads_into_a_tunnel_within_the_limits_of_its_site(
        main in any_main(),
        limits in proptest::collection::btree_set((any_net(), 0..2_u16), 1..6),
    ) {
        let limits: Vec<_> = limits.into_iter().collect();
        let found = followed(limits.clone(), &main);
        for address in (0..32_u32).map(|it| Ipv4Addr::from_bits(it << 27 | 77)) {
            let holds = |net: &IpNet| net.contains(&IpAddr::V4(address));
            let holding = main.iter().filter(|it| holds(&it.destination));
            let best = holding.max_by_key(|it| it.destination.prefix_len());
            let is_limited = |site: &SiteIndex| {
                limits.iter().any(|(net, of)| holds(net) && of == site)
            };
            let meant = best.and_then(|it| it.by_tunnel_to).filter(is_limited);
            prop_assert_eq!(
                split_by_kernel(&found, &main, address), meant,
                "{} of {:?} by {:?}", address, found, main
            );
        }
    }
}
