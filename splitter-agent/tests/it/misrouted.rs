//! Packets that leave by another tunnel than they are meant for, although the splitter's rules and
//! routes are as they should be.

use crate::sites::{SECOND, run_two_sites, wait_for_long};
use crate::support::daemon::Daemon;
use crate::support::pair;
use crate::support::site;
use crate::support::washed::{unwash, wash};
use std::net::IpAddr;
use std::thread::sleep;
use std::time::Duration;

use flow_testbed::require;
use flow_testbed::require::Requirement::Program;
use flow_testbed::topology::{Host, TUNNELS};
use nix::sys::signal::Signal;
use pair::{QUICK, on_pair};
use site::{Connection, Site, on_site, stdout};

/// Several times what decides in a second.
const BYTES: usize = 400_000;

const BOTH: [&str; 2] = ["ipv4", "ipv6"];

fn misrouted(site: &Site, tunnel: &str, family: &str) -> f64 {
    misrouted_of(site, "default", tunnel, family)
}

fn misrouted_of(site: &Site, remote: &str, tunnel: &str, family: &str) -> f64 {
    site.metric(&format!(
        "splitter_misrouted{{tunnel=\"{tunnel}\",site=\"{remote}\",family=\"{family}\"}}"
    ))
}

/// A connection whose flow leaves by the long tunnel, and an agent that finds nothing.
fn long_flow(site: &Site, address: IpAddr) -> Connection {
    let topology = &site.topology;
    let mut connection = Connection::over(&topology.client, &topology.server, address);
    let port = connection.port();
    site.wait_for("the flow to leave by the long tunnel", || {
        connection.send(BYTES);
        (site.flow_from(port)["tunnel"] == "long").then_some(())
    });
    assert_nothing_strays(site);
    connection
}

fn assert_nothing_strays(site: &Site) {
    for (tunnel, family) in [("short", "ipv4"), ("long", "ipv4"), ("long", "ipv6")] {
        assert_eq!(misrouted(site, tunnel, family), 0.0, "{tunnel}, {family}");
    }
}

/// Sends until the agent is not ready for this reason.
fn wait_for_objection(site: &Site, connections: &mut [Connection], why: &str) {
    site.wait_for("the agent to be not ready", || {
        connections.iter_mut().for_each(|it| it.send(BYTES));
        let (status, body) = site.get("/ready").expect("it answers");
        (status == 503 && body.contains(why)).then_some(())
    });
}

/// Sends until the agent is ready again.
fn wait_until_ready(site: &Site, connections: &mut [Connection]) {
    site.wait_for("the agent to be ready again", || {
        connections.iter_mut().for_each(|it| it.send(BYTES));
        (site.get("/ready").expect("it answers").0 == 200).then_some(())
    });
    assert_nothing_strays(site);
}

/// All that says that the long class of this family alone is misrouted, and why.
fn assert_long_strays(site: &Site, daemon: &Daemon, family: &str, why: &str) {
    for it in BOTH {
        let expected = f64::from(u8::from(it == family));
        assert_eq!(misrouted(site, "long", it), expected, "{it}");
        assert_eq!(misrouted(site, "short", it), 0.0, "{it}");
    }
    site.wait_for("the state in `status`", || {
        let status = stdout(&site.splitter(&["status"]));
        let says = status
            .lines()
            .any(|it| it.contains("misrouted: ") && it.contains(why));
        says.then_some(())
    });
    assert!(daemon.log().contains("misrouted: "), "{}", daemon.log());
}

/// The kernel, asked where marks go, finds nothing.
fn assert_routes_are_right(site: &Site) {
    let unsplit = site.json(&["status"])["routing"]["unsplit"].take();
    assert_eq!(unsplit.as_array().map(Vec::len), Some(0), "{unsplit}");
}

fn check_washed(site: &Site, address: IpAddr, family: &str) {
    let daemon = site.run();
    let mut connections = [long_flow(site, address)];
    wash(site, &BOTH);
    let why = "without a mark";
    wait_for_objection(site, &mut connections, why);
    assert_long_strays(site, &daemon, family, why);
    assert_routes_are_right(site);
    unwash(site);
    wait_until_ready(site, &mut connections);
    assert!(
        daemon.log().contains("stray by tun0 any more"),
        "{}",
        daemon.log()
    );
    assert!(daemon.end(Signal::SIGTERM).success());
}

#[test]
fn marks_that_a_firewall_takes_away_make_the_long_class_misrouted() {
    require!(Program("nft"));
    on_site(|site| check_washed(site, site.topology.server.ipv4.into(), "ipv4"));
}

#[test]
fn marks_that_a_firewall_takes_away_from_ipv6_are_noticed_too() {
    require!(Program("nft"));
    on_site(|site| {
        if let Some(address) = site.topology.server.ipv6 {
            check_washed(site, address.into(), "ipv6");
        }
    });
}

#[test]
fn marks_that_one_family_loses_are_noticed_beside_the_other_family_that_keeps_them() {
    require!(Program("nft"));
    on_site(|site| {
        let server = &site.topology.server;
        let Some(v6) = server.ipv6 else {
            return;
        };
        let daemon = site.run();
        let v4 = long_flow(site, server.ipv4.into());
        let mut connections = [v4, long_flow(site, v6.into())];
        wash(site, &["ipv6"]);
        let why = "IPv6 packets left by tun0";
        wait_for_objection(site, &mut connections, why);
        assert_long_strays(site, &daemon, "ipv6", why);
        assert_routes_are_right(site);
        unwash(site);
        wait_until_ready(site, &mut connections);
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

#[test]
fn part_that_a_foreign_rule_takes_out_is_noticed_beside_all_that_goes_right() {
    on_site(|site| {
        let server = &site.topology.server;
        let daemon = site.run();
        let first = long_flow(site, server.ipv4.into());
        let mut connections = [first, long_flow(site, server.ipv4.into())];
        // The packets of one flow, by a rule that no destination shows to be there.
        let port = connections[1].port();
        let rule = format!("pref 500 ipproto tcp sport {port} lookup 10401");
        site.border()
            .run(&format!("ip rule add {rule}"))
            .expect("root");
        let why = "IPv4 packets that are marked for the long tunnels left by tun0";
        wait_for_objection(site, &mut connections, why);
        assert_long_strays(site, &daemon, "ipv4", why);
        site.border()
            .run(&format!("ip rule del {rule}"))
            .expect("it is there");
        wait_until_ready(site, &mut connections);
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

#[test]
fn nothing_is_misrouted_while_failover_moves_a_class_and_brings_it_back() {
    on_pair(|pair| {
        let site = pair.site;
        let (near, far) = pair.run(QUICK);
        let mut connections = [long_flow(site, site.topology.server.ipv4.into())];
        for (cut, egress) in [(true, "short"), (false, "long")] {
            match cut {
                true => pair.cut(TUNNELS[1], "drop").expect("it was tried"),
                false => pair.mend(TUNNELS[1]),
            }
            site.wait_for("the long class to have moved", || {
                connections.iter_mut().for_each(|it| it.send(BYTES));
                let status = site.json(&["status"]);
                (status["health"]["classes"][1]["tunnel"] == egress).then_some(())
            });
            // Longer than it takes to decide.
            for _ in 0..8 {
                connections.iter_mut().for_each(|it| it.send(BYTES));
                sleep(Duration::from_secs(1));
            }
            assert_nothing_strays(site);
        }
        assert!(!near.log().contains("misrouted: "), "{}", near.log());
        for daemon in [near, far] {
            assert!(daemon.end(Signal::SIGTERM).success());
        }
    });
}

#[test]
fn part_that_strays_to_one_site_is_noticed_while_another_is_away_from_home() {
    require!(Program("nft"));
    on_pair(|pair| {
        let site = pair.site;
        let (near, _far) = run_two_sites(pair);
        pair.cut("tun1", "drop").expect("it was tried");
        wait_for_long(site, &[("one", "short"), ("two", "long")]);
        let second = Host {
            namespace: pair.far().clone(),
            ipv4: SECOND,
            ipv6: None,
        };
        let (client, server) = (&site.topology.client, &site.topology.server);
        let mut connections = [server, &second].map(|host| Connection::between(client, host));
        let ports = connections.each_ref().map(Connection::port);
        site.wait_for("both flows to be long", || {
            connections.iter_mut().for_each(|it| it.send(BYTES));
            let is_long = |port: &u16| site.flow_from(*port)["tunnel"] == "long";
            ports.iter().all(is_long).then_some(())
        });
        let rule = format!("pref 500 ipproto tcp sport {} lookup 10401", ports[1]);
        site.border()
            .run(&format!("ip rule add {rule}"))
            .expect("root");
        let why = "marked for the long tunnels of two left by tun2";
        wait_for_objection(site, &mut connections, why);
        assert_eq!(misrouted_of(site, "two", "long", "ipv4"), 1.0);
        assert_eq!(misrouted_of(site, "one", "long", "ipv4"), 0.0);
        assert!(near.end(Signal::SIGTERM).success());
    });
}
