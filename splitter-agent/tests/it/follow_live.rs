//! The agent follows the main table of a border that forwards.

use flow_testbed::topology::TUNNELS;
use nix::sys::signal::Signal;
use site::{Connection, Site, on_site};

use crate::support::site;
use crate::support::steady;
use steady::{ip_route, lose_nothing_while_routes_change};

const FOLLOW: &str = "[routes]\nfollow = true\n[flows]\ntable_size = 4096\nthreshold = 5\n\
                      protocols = ['tcp', 'udp']\n";

/// The addresses of the other site's hosts.
const FAR: &str = "10.2.0.0/16";

/// The next hop of a tunnel, as `ip` takes it.
fn by(site: &Site, tunnel: usize) -> String {
    let gateway = site.topology.borders[0].gateways[tunnel];
    format!("via {gateway} dev {}", TUNNELS[tunnel])
}

/// The prefixes of the table of long flows.
fn table(site: &Site) -> Vec<String> {
    let shown = site.border().run("ip route show table 10402");
    let shown = shown.unwrap_or_default();
    let lines = shown.lines().map(|line| {
        let words = line.split_whitespace();
        let words: Vec<_> = words
            .take_while(|it| !["via", "proto"].contains(it))
            .collect();
        words.join(" ")
    });
    lines.collect()
}

fn wait_for_table(site: &Site, expected: &[&str]) {
    site.wait_for(&format!("the table to have {expected:?}"), || {
        (table(site) == expected).then_some(())
    });
}

/// Takes the default route away, and leads to the other site by the first tunnel.
fn lead_by_short(site: &Site) {
    let route = by(site, 0);
    ip_route(site, &format!("add {FAR} {route}"));
    ip_route(site, "del default");
}

#[test]
fn routes_that_come_and_go_are_followed_while_the_agent_runs() {
    on_site(|site| {
        lead_by_short(site);
        site.configure(FOLLOW);
        let before = site.routing();
        let daemon = site.run();
        assert_eq!(table(site), [FAR]);
        let mut connection = Connection::open(&site.topology);
        connection.send(100_000);
        assert!(site.metric("splitter_flows_long_total") >= 1.0);

        let long = by(site, 1);
        ip_route(site, &format!("add 10.2.8.0/24 {long}"));
        wait_for_table(site, &[FAR, "10.2.8.0/24"]);
        // Another network of this site, inside.
        ip_route(site, "add 10.2.9.0/24 dev gen0");
        wait_for_table(site, &[FAR, "10.2.8.0/24", "throw 10.2.9.0/24"]);
        // Once that is all of its length, the rule in front finds both.
        ip_route(site, "replace 10.2.8.0/24 dev gen0");
        wait_for_table(site, &[FAR]);
        ip_route(site, &format!("replace 10.2.8.0/24 {long}"));
        wait_for_table(site, &[FAR, "10.2.8.0/24", "throw 10.2.9.0/24"]);
        connection.send(100_000);
        ip_route(site, "del 10.2.9.0/24");
        ip_route(site, "del 10.2.8.0/24");
        wait_for_table(site, &[FAR]);

        // Nothing is left to be restored, and nothing was lost from view.
        assert_eq!(site.json(&["plan"])["changed"], false);
        assert!(
            !daemon.log().contains("behind our back"),
            "{}",
            daemon.log()
        );
        assert!(daemon.end(Signal::SIGTERM).success());
        site.assert_clean(&before);
    });
}

#[test]
fn no_packet_is_lost_while_routes_change() {
    on_site(|site| {
        lead_by_short(site);
        site.configure(FOLLOW);
        let daemon = site.run();
        let [short, long] = [0, 1].map(|tunnel| by(site, tunnel));
        lose_nothing_while_routes_change(
            site,
            &[
                // The route that packets take moves to and fro.
                format!("replace {FAR} {long}"),
                format!("add 10.2.1.0/24 {short}"),
                format!("replace 10.2.1.0/24 {long}"),
                // The longest prefix changes, and with it the rule in front.
                format!("add 10.2.1.0/28 {short}"),
                format!("replace {FAR} {short}"),
                "del 10.2.1.0/24".to_owned(),
                format!("add default {long}"),
                "del 10.2.1.0/28".to_owned(),
                "del default".to_owned(),
            ],
        );
        wait_for_table(site, &[FAR]);
        assert!(daemon.log().contains("followed the main table"));
        assert!(!daemon.log().contains("cannot follow"), "{}", daemon.log());
    });
}
