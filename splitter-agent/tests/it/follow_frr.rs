//! The agent follows what a routing daemon learns: FRR at both borders, with a BGP session through
//! each tunnel.

use flow_testbed::require;
use flow_testbed::require::Requirement::Program;
use frr::Frr;
use nix::sys::signal::Signal;
use several::{Kind, add_tunnel};
use site::{Connection, Site, on_site};

use crate::support::frr;
use crate::support::several;
use crate::support::site;
use crate::support::steady;
use steady::steady_meanwhile;

const FOLLOW: &str = "[routes]\nfollow = true\n";

/// A border's side of the sessions through both tunnels, in both families. Timers are short, so that
/// sessions come up again soon.
fn bgp(site: &Site, border: usize) -> String {
    let [own, far] = match border {
        0 => [65_001, 65_002],
        _ => [65_002, 65_001],
    };
    let neighbours: Vec<_> = (0..2)
        .map(|tunnel| site.topology.borders[border].gateway_addresses(tunnel))
        .collect();
    let each = |line: &str, family: usize| -> String {
        let addresses = neighbours.iter().filter_map(|it| it.get(family));
        addresses
            .map(|it| format!("neighbor {it} {line}\n"))
            .collect()
    };
    let number = border + 1;
    let mut text = format!(
        "router bgp {own}\nbgp router-id 10.9.0.{number}\nno bgp ebgp-requires-policy\n\
         no bgp network import-check\nno bgp default ipv4-unicast\n"
    );
    for family in 0..2 {
        text += &each(&format!("remote-as {far}"), family);
        text += &each("timers 1 3", family);
        text += &each("timers connect 1", family);
        text += &each("advertisement-interval 0", family);
    }
    text += &format!("address-family ipv4 unicast\nnetwork 10.{number}.0.0/16\n");
    text += &each("activate", 0);
    text += "exit-address-family\n";
    text += &format!("address-family ipv6 unicast\nnetwork fd00:{number}::/32\n");
    text += &each("activate", 1);
    text + "exit-address-family\n"
}

/// Both borders reach each other's site by what they tell each other alone.
fn routers(site: &Site) -> [Frr; 2] {
    let routers = [0, 1].map(|border| {
        let namespace = &site.topology.borders[border].namespace;
        Frr::start(namespace, &bgp(site, border))
    });
    for border in &site.topology.borders {
        for family in ["", "-6 "] {
            let line = format!("ip {family}route del default");
            border.namespace.run(&line).expect("it is there");
        }
    }
    routers
}

/// The prefixes of both families in the table of long flows.
fn table(site: &Site) -> Vec<String> {
    let mut prefixes = Vec::new();
    for family in ["", "-6 "] {
        let shown = site
            .border()
            .run(&format!("ip {family}route show table 10402"));
        let shown = shown.unwrap_or_default();
        let lines = shown.lines().map(|line| {
            let words = line.split_whitespace();
            let ends = ["via", "proto", "dev"];
            let words: Vec<_> = words.take_while(|it| !ends.contains(it)).collect();
            words.join(" ")
        });
        prefixes.extend(lines);
    }
    prefixes
}

fn wait_for_table(site: &Site, routers: &[Frr; 2], expected: &[&str]) {
    let mut found = Vec::new();
    let is_there = flow_testbed::wait::poll(site::PATIENCE, || {
        found = table(site);
        (found == expected).then_some(())
    });
    let main = site.border().run("ip route").unwrap_or_default();
    let [near, _] = routers;
    assert!(
        is_there.is_some(),
        "{found:?} instead of {expected:?}; main:\n{main}\n{}",
        near.log()
    );
}

#[test]
fn prefixes_that_bgp_learns_are_split_and_leave_with_their_routes() {
    require!(Program("vtysh"));
    on_site(|site| {
        site.configure(FOLLOW);
        let routers = routers(site);
        let [_, far] = &routers;
        let daemon = site.run();
        let both = ["10.2.0.0/16", "fd00:2::/32"];
        wait_for_table(site, &routers, &both);
        let mut connection = Connection::open(&site.topology);
        site.wait_for("a long flow to take the long tunnel", || {
            connection.send(500_000);
            let long = site.border().device_counters("tun1").expect("it is there");
            (long.sent_bytes > 400_000).then_some(())
        });

        // A more specific prefix comes, and moves to a network of this site.
        let announce = "network 10.2.8.0/24";
        let at = [
            "configure terminal",
            "router bgp 65002",
            "address-family ipv4 unicast",
        ];
        far.tell(&[at[0], at[1], at[2], announce]);
        wait_for_table(
            site,
            &routers,
            &["10.2.0.0/16", "10.2.8.0/24", "fd00:2::/32"],
        );
        let ip = |change: &str| {
            let line = format!("ip route {change} 10.2.8.0/24 via 10.1.2.2 metric 10");
            site.border().run(&line).expect("a route");
        };
        ip("add");
        wait_for_table(site, &routers, &both);
        let taken = site
            .border()
            .run("ip route get 10.2.8.9 from 10.1.1.2 iif lan0");
        let taken = taken.expect("there is a route");
        assert!(taken.contains("dev gen0"), "{taken}");
        ip("del");
        wait_for_table(
            site,
            &routers,
            &["10.2.0.0/16", "10.2.8.0/24", "fd00:2::/32"],
        );
        far.tell(&[at[0], at[1], at[2], &format!("no {announce}")]);
        wait_for_table(site, &routers, &both);

        // A default route.
        let neighbour = &site.topology.borders[1].gateways[0];
        let originate = format!("neighbor {neighbour} default-originate");
        far.tell(&[at[0], at[1], at[2], &originate]);
        wait_for_table(site, &routers, &["default", both[0], both[1]]);
        far.tell(&[at[0], at[1], at[2], &format!("no {originate}")]);
        wait_for_table(site, &routers, &both);

        // Without any session nothing is known of the other site.
        far.tell(&["configure terminal", "no router bgp 65002"]);
        wait_for_table(site, &routers, &[]);
        let rules = site.border().run("ip rule").expect("it works");
        assert!(!rules.contains("lookup 1040"), "{rules}");
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

#[test]
fn sessions_that_flap_lose_no_packet() {
    require!(Program("vtysh"));
    on_site(|site| {
        site.configure(FOLLOW);
        let routers = routers(site);
        let [_, far] = &routers;
        let daemon = site.run();
        let both = ["10.2.0.0/16", "fd00:2::/32"];
        wait_for_table(site, &routers, &both);
        let configure = ["configure terminal", "router bgp 65002"];
        let neighbours = site.topology.borders[1].gateways;
        let steady = steady_meanwhile(site, || {
            for round in 0..6 {
                // Never both at a time.
                let neighbour = neighbours[round % 2];
                let shutdown = format!("neighbor {neighbour} shutdown");
                far.tell(&[configure[0], configure[1], &shutdown]);
                std::thread::sleep(std::time::Duration::from_millis(300));
                far.tell(&[configure[0], configure[1], &format!("no {shutdown}")]);
                site.wait_for("the session to be up again", || {
                    let shown = far.tell(&[&format!("show bgp neighbor {neighbour}")]);
                    shown.contains("BGP state = Established").then_some(())
                });
                let learnt = || {
                    let shown = site.border().run("ip route show 10.2.0.0/16");
                    shown.is_ok_and(|it| it.matches("nexthop").count() == 2)
                };
                site.wait_for("both to be learnt", || learnt().then_some(()));
            }
        });
        assert!(steady.sent > 2_000, "{steady:?}");
        assert!(steady.lost.is_empty(), "{steady:?}");
        wait_for_table(site, &routers, &both);
        assert!(!daemon.log().contains("cannot follow"), "{}", daemon.log());
    });
}

#[test]
fn prefix_that_bgp_moves_from_one_site_to_another_loses_no_packet() {
    require!(Program("vtysh"));
    on_site(|site| {
        // Each site has one of the sessions, and a tunnel for long flows.
        for number in [2, 3] {
            add_tunnel(site, number, Kind::Veth, 1500);
        }
        let remote = |name: &str, short: usize| {
            let gateway = &site.topology.borders[0].gateways[short];
            let long = short + 2;
            format!(
                "[[site]]\nname = '{name}'\nshort = {{ device = 'tun{short}', gateway = '{gateway}' }}\n\
                 long = {{ device = 'tun{long}', gateway = '10.9.{long}.2' }}\n"
            )
        };
        let sites = remote("one", 0) + &remote("two", 1);
        site.configure(&format!("[short]\n[long]\n{FOLLOW}{sites}"));
        let routers = routers(site);
        let [near, far] = &routers;
        // Not over both sites at a time.
        let unicast = ["address-family ipv4 unicast", "maximum-paths 1"];
        near.tell(&[
            "configure terminal",
            "router bgp 65001",
            unicast[0],
            unicast[1],
        ]);
        let daemon = site.run();
        wait_for_table(site, &routers, &["10.2.0.0/16"]);
        let device = || {
            let shown = site.border().run("ip route show table 10402");
            let shown = shown.unwrap_or_default();
            let mut words = shown.split_whitespace().skip_while(|it| *it != "dev");
            words.nth(1).map(str::to_owned)
        };
        let neighbours = site.topology.borders[1].gateways;
        let mut moves = 0;
        let steady = steady_meanwhile(site, || {
            for _ in 0..6 {
                site.wait_for("both sessions to have announced it", || {
                    let shown = near.tell(&["show bgp ipv4 unicast 10.2.0.0/16"]);
                    shown.contains("2 available").then_some(())
                });
                let before = device().expect("it is followed");
                let used = usize::from(before == "tun3");
                let shutdown = format!("neighbor {} shutdown", neighbours[used]);
                far.tell(&["configure terminal", "router bgp 65002", &shutdown]);
                site.wait_for("the prefix to be at the other site", || {
                    device().filter(|it| *it != before)
                });
                moves += 1;
                let again = format!("no {shutdown}");
                far.tell(&["configure terminal", "router bgp 65002", &again]);
            }
        });
        assert!(steady.sent > 2_000 && moves == 6, "{moves}: {steady:?}");
        let lost = steady.lost.len();
        assert_eq!(lost, 0, "of {} in {moves} moves", steady.sent);
        assert!(!daemon.log().contains("cannot follow"), "{}", daemon.log());
    });
}
