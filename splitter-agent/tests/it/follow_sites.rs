//! The agent follows the main table of a border with tunnels to several sites, that forwards.

use nix::sys::signal::Signal;
use several::{Kind, add_tunnel};
use site::{Site, on_site};

use crate::support::several;
use crate::support::site;
use crate::support::steady;
use steady::{ip_route, lose_nothing_while_routes_change};

/// The addresses of the other site's hosts.
const FAR: &str = "10.2.0.0/16";

/// Two sites by two tunnels each, all of which lead to the same border.
fn follow_two_sites(site: &Site) {
    for number in [2, 3] {
        add_tunnel(site, number, Kind::Veth, 1500);
    }
    let tunnel = |number: usize| {
        let gateway = gateway(site, number);
        format!("{{ device = 'tun{number}', gateway = '{gateway}' }}")
    };
    let remote = |name: &str, first: usize| {
        format!(
            "[[site]]\nname = '{name}'\nshort = {}\nlong = {}\n",
            tunnel(first),
            tunnel(first + 1)
        )
    };
    let sites = remote("one", 0) + &remote("two", 2);
    site.configure(&format!(
        "[short]\n[long]\n[routes]\nfollow = true\n[flows]\ntable_size = 4096\n{sites}"
    ));
}

fn gateway(site: &Site, tunnel: usize) -> String {
    match site.topology.borders[0].gateways.get(tunnel) {
        Some(gateway) => gateway.to_string(),
        None => format!("10.9.{tunnel}.2"),
    }
}

/// The next hop of a tunnel, as `ip` takes it.
fn by(site: &Site, tunnel: usize) -> String {
    format!("via {} dev tun{tunnel}", gateway(site, tunnel))
}

/// The device by which the table of a class reaches the other site.
fn wait_for_tables(site: &Site, expected: [&str; 2]) {
    let device = |table: u32| {
        let shown = site
            .border()
            .run(&format!("ip route show {FAR} table {table}"));
        shown.unwrap_or_default()
    };
    site.wait_for(&format!("{FAR} to lead by {expected:?}"), || {
        let found = [10_401, 10_402].map(device);
        let leads = |(found, device): (&String, &&str)| found.contains(&format!("dev {device} "));
        found.iter().zip(&expected).all(leads).then_some(())
    });
}

#[test]
fn prefix_that_moves_from_one_site_to_another_loses_no_packet() {
    on_site(|site| {
        follow_two_sites(site);
        let [one, two] = [0, 2].map(|tunnel| by(site, tunnel));
        ip_route(site, &format!("add {FAR} {one}"));
        ip_route(site, "del default");
        let daemon = site.run();
        wait_for_tables(site, ["tun0", "tun1"]);
        lose_nothing_while_routes_change(
            site,
            &[
                format!("replace {FAR} {two}"),
                // Inside, at the other site, and away again.
                format!("add 10.2.1.0/24 {one}"),
                format!("replace 10.2.1.0/24 {two}"),
                format!("replace {FAR} {one}"),
                "del 10.2.1.0/24".to_owned(),
                // A default route.
                format!("add default {two}"),
                format!("del {FAR}"),
                format!("add {FAR} {one}"),
                "del default".to_owned(),
            ],
        );
        wait_for_tables(site, ["tun0", "tun1"]);
        let server = site.topology.server.ipv4.to_string();
        let explained = |name: &str| {
            let explained = site.json(&["explain", &server]);
            let (at, verdict) = (&explained["site"], &explained["verdict"]);
            assert_eq!(
                (at, verdict),
                (&name.into(), &"split".into()),
                "{explained}"
            );
        };
        explained("one");
        ip_route(site, &format!("replace {FAR} {two}"));
        wait_for_tables(site, ["tun2", "tun3"]);
        explained("two");
        assert_eq!(site.json(&["plan"])["changed"], false);
        let log = daemon.log();
        assert!(!log.contains("behind our back"), "{log}");
        assert!(!log.contains("cannot follow"), "{log}");
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

#[test]
fn route_that_is_spread_over_two_sites_is_split_at_neither() {
    on_site(|site| {
        follow_two_sites(site);
        let [one, two] = [0, 2].map(|tunnel| by(site, tunnel));
        ip_route(site, &format!("add {FAR} {one}"));
        ip_route(site, "del default");
        let daemon = site.run();
        wait_for_tables(site, ["tun0", "tun1"]);
        let followed = |at: &str| {
            let labels = format!("{{site=\"{at}\",family=\"ipv4\"}} ");
            site.metric(&format!("splitter_followed_prefixes{labels}"))
        };
        site.wait_for("the prefix to be counted", || {
            (followed("one") == 1.0 && followed("two") == 0.0).then_some(())
        });
        let status = site.splitter(&["status"]);
        let status = String::from_utf8_lossy(&status.stdout).into_owned();
        let expected = "one: follows 1 IPv4 and 0 IPv6 prefixes of the main table";
        assert!(status.contains(expected), "{status}");
        ip_route(site, &format!("replace {FAR} nexthop {one} nexthop {two}"));
        site.wait_for("the tables to be empty", || {
            let shown = site.border().run("ip route show table 10402");
            shown.unwrap_or_default().is_empty().then_some(())
        });
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}
