//! Packets that leave by another tunnel than they were marked for, although rules and routes are as
//! they should be.

use crate::support::site;
use crate::support::washed::{unwash, wash};
use std::net::IpAddr;

use flow_testbed::require;
use flow_testbed::require::Requirement::Program;
use nix::sys::signal::Signal;
use site::{Connection, Site, on_site, stdout};

/// Several times what decides in a second.
const BYTES: usize = 400_000;

fn misrouted(site: &Site, tunnel: &str) -> f64 {
    site.metric(&format!("splitter_misrouted{{tunnel=\"{tunnel}\"}}"))
}

fn check(site: &Site, address: IpAddr) {
    let topology = &site.topology;
    let daemon = site.run();
    let mut connection = Connection::over(&topology.client, &topology.server, address);
    for _ in 0..20 {
        connection.send(BYTES);
    }
    assert_eq!(misrouted(site, "long"), 0.0);

    wash(site);
    let objection = site.wait_for("the agent to be not ready", || {
        connection.send(BYTES);
        let (status, body) = site.get("/ready").expect("it answers");
        (status == 503).then_some(body)
    });
    let expected = "marked for the long tunnels";
    assert!(objection.contains(expected), "{objection}");
    assert_eq!(misrouted(site, "long"), 1.0);
    assert_eq!(misrouted(site, "short"), 0.0);
    // The kernel, asked where marks go, finds nothing.
    assert_eq!(
        site.json(&["status"])["routing"]["unsplit"]
            .as_array()
            .map(Vec::len),
        Some(0)
    );
    site.wait_for("the state in `status`", || {
        let status = stdout(&site.splitter(&["status"]));
        status.contains("misrouted: of ").then_some(())
    });
    assert!(daemon.log().contains("misrouted: of "), "{}", daemon.log());

    unwash(site);
    site.wait_for("the agent to be ready again", || {
        connection.send(BYTES);
        (site.get("/ready").expect("it answers").0 == 200).then_some(())
    });
    assert_eq!(misrouted(site, "long"), 0.0);
    assert!(daemon.log().contains("leaves by them again"));
    assert!(daemon.end(Signal::SIGTERM).success());
}

#[test]
fn marks_that_a_firewall_takes_away_make_the_long_class_misrouted() {
    require!(Program("nft"));
    on_site(|site| check(site, site.topology.server.ipv4.into()));
}

#[test]
fn marks_that_a_firewall_takes_away_from_ipv6_are_noticed_too() {
    require!(Program("nft"));
    on_site(|site| {
        if let Some(address) = site.topology.server.ipv6 {
            check(site, address.into());
        }
    });
}
