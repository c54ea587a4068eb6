//! What really leaves by the tunnels, as the program at their egress counts it, beside what was
//! marked.

use crate::support::daemon::Daemon;
use crate::support::redirected::{be_redirectable, redirected};
use crate::support::several;
use crate::support::site;
use std::net::IpAddr;

use flow_testbed::require;
use flow_testbed::require::Requirement::{Device, Program};
use flow_testbed::topology::TUNNELS;
use nix::sys::signal::Signal;
use serde_json::Value;
use several::{Kind, add_tunnel, sections, tunnel};
use site::{Connection, Site, on_site, stdout};

const REDIRECT: &str = "[steering]\nmode = 'redirect'\n";

/// More than makes a flow long.
const BYTES: usize = 400_000;

/// What left by a device of a class and family, by a key of `status`.
fn left(status: &Value, key: &str, device: &str, family: &str, class: &str) -> u64 {
    let rows = status["egress"].as_array().expect("a list");
    let is_meant = |row: &&Value| row["device"] == device && row["family"] == family;
    let row = rows.iter().find(is_meant).expect("the device is counted");
    row[key][class].as_u64().expect("a number")
}

/// Runs an agent until it counts what leaves by both tunnels, which it does soon after it is ready.
fn run_counting(site: &Site) -> Daemon {
    let daemon = site.run();
    let links = site.bpffs().join("splitter/test/egress_links");
    site.wait_for("both tunnels to be counted", || {
        let links = TUNNELS.map(|device| links.join(device));
        links.iter().all(|it| it.exists()).then_some(())
    });
    daemon
}

/// What was marked for the tunnel of a class, by a key of `status`.
fn marked(status: &Value, key: &str, tunnel: &str) -> u64 {
    let rows = status["traffic"].as_array().expect("a list");
    let of_tunnel = rows.iter().filter(|row| row["tunnel"] == tunnel);
    of_tunnel.filter_map(|row| row[key].as_u64()).sum()
}

/// Transfers to each address of the server until long flows have left by this device.
fn transfer(site: &Site, long: &str) {
    let (client, server) = (&site.topology.client, &site.topology.server);
    let v6 = server.ipv6.map(IpAddr::from);
    for (address, family) in [(Some(server.ipv4.into()), "ipv4"), (v6, "ipv6")] {
        let Some(address) = address else {
            continue;
        };
        let mut connection = Connection::over(client, server, address);
        let so_far = || left(&site.json(&["status"]), "bytes", long, family, "long");
        let before = so_far();
        site.wait_for("a long flow to leave by its tunnel", || {
            connection.send(BYTES);
            (so_far() > before + BYTES as u64 / 2).then_some(())
        });
        connection.close();
    }
}

fn check(site: &Site, changes: &str, [short, long]: [&str; 2]) {
    site.configure(changes);
    assert!(site.splitter(&["up"]).status.success());
    transfer(site, long);
    let status = site.json(&["status"]);
    for (tunnel, device) in [("short", short), ("long", long)] {
        let of_both = |key| {
            let of = |family| left(&status, key, device, family, tunnel);
            of("ipv4") + of("ipv6")
        };
        // Each byte that was marked has left by the tunnel that it was marked for.
        assert_eq!(
            of_both("bytes"),
            marked(&status, "bytes", tunnel),
            "{status}"
        );
        for family in ["ipv4", "ipv6"] {
            assert!(left(&status, "packets", device, family, tunnel) > 0);
            assert_eq!(left(&status, "packets", device, family, "unmarked"), 0);
        }
    }
    for family in ["ipv4", "ipv6"] {
        assert_eq!(left(&status, "packets", short, family, "long"), 0);
        assert_eq!(left(&status, "packets", long, family, "short"), 0);
    }
}

#[test]
fn bytes_that_were_marked_by_dscp_leave_by_the_tunnel_they_were_marked_for() {
    on_site(|site| check(site, "", TUNNELS));
}

#[test]
fn bytes_that_were_marked_beside_packets_leave_by_the_tunnel_they_were_marked_for() {
    on_site(|site| check(site, "[steering]\nmode = 'mark'\n", TUNNELS));
}

#[test]
fn bytes_that_were_redirected_are_counted_at_the_tunnel_they_were_put_into() {
    on_site(|site| {
        be_redirectable(site, &TUNNELS);
        site.configure(REDIRECT);
        let daemon = run_counting(site);
        transfer(site, TUNNELS[1]);
        // All but what opens connections went past the stack.
        let past_the_stack = redirected(site);
        let status = site.json(&["status"]);
        let rows = status["egress"].as_array().expect("a list").iter();
        let packets = rows.flat_map(|row| ["short", "long"].map(|it| row["packets"][it].as_u64()));
        let packets = packets.flatten().sum::<u64>() as f64;
        assert!(
            past_the_stack > 0.9 * packets,
            "{past_the_stack} of {packets}"
        );
        assert!(daemon.end(Signal::SIGTERM).success());
        check(site, REDIRECT, TUNNELS);
    });
}

#[test]
fn bytes_are_those_of_ethernet_frames_on_devices_without_ethernet_headers() {
    require!(Device("gre local 127.0.0.1 remote 127.0.0.2"));
    on_site(|site| {
        for number in [2, 3] {
            add_tunnel(site, number, Kind::Over("gre"), 1_500);
        }
        let tunnels = sections(site, 0, [&[tunnel(2, 1)], &[tunnel(3, 1)]], false);
        check(site, &tunnels, ["tun2", "tun3"]);
    });
}

#[test]
fn counts_go_on_after_a_killed_agent_and_go_with_the_instance() {
    require!(Program("tc"));
    on_site(|site| {
        let clean = site.border().run("tc qdisc show").expect("tc works");
        let daemon = run_counting(site);
        transfer(site, TUNNELS[1]);
        let before = left(
            &site.json(&["status"]),
            "packets",
            TUNNELS[1],
            "ipv4",
            "long",
        );
        assert!(before > 0);
        daemon.end(Signal::SIGKILL);
        transfer(site, TUNNELS[1]);
        let daemon = run_counting(site);
        let after = left(
            &site.json(&["status"]),
            "packets",
            TUNNELS[1],
            "ipv4",
            "long",
        );
        assert!(after > before, "{before} packets before, {after} after");
        let pins = site.bpffs().join("splitter/test/egress_links");
        // The tunnels and the interfaces of the site.
        assert_eq!(std::fs::read_dir(pins).expect("it is there").count(), 4);
        assert!(daemon.end(Signal::SIGTERM).success());
        assert!(!site.bpffs().join("splitter").exists());
        assert_eq!(site.border().run("tc qdisc show").expect("tc works"), clean);
    });
}

#[test]
fn program_that_counts_is_put_back_where_somebody_takes_it_away() {
    on_site(|site| {
        let daemon = run_counting(site);
        let link = site.bpffs().join("splitter/test/egress_links");
        std::fs::remove_file(link.join(TUNNELS[1])).expect("it is pinned");
        let plan = |site: &Site| stdout(&site.splitter(&["plan"]));
        site.wait_for("the program to be there again", || {
            link.join(TUNNELS[1]).exists().then_some(())
        });
        transfer(site, TUNNELS[1]);
        let status = site.json(&["status"]);
        assert!(left(&status, "packets", TUNNELS[1], "ipv4", "long") > 0);
        assert!(!plan(site).contains("+ count"), "{}", plan(site));
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}
