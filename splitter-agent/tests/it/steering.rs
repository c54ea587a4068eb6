//! Steering by the kernel's mark, and past the network stack, with the real binary: real TCP between
//! two sites, and an agent that is killed in between.

use crate::support::changed;
use crate::support::leaving;
use crate::support::site;
use std::net::IpAddr;
use std::time::Duration;

use aya::programs::{Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader};
use changed::{count_dscp, with_dscp};
use flow_testbed::require;
use flow_testbed::require::Requirement::Program;
use flow_testbed::topology::{LAN, TUNNELS};
use leaving::leaves_by;
use nix::sys::signal::Signal;
use site::{Connection, Site, on_site, stderr, stdout};
use splitter_config::PacketLog;
use splitter_datapath::Object;

/// Some ten packets, of which none makes a flow long.
const FEW_BYTES: usize = 10_000;
/// Some three hundred.
const MANY_BYTES: usize = 400_000;
/// Longer than the longest wait for a hand-over.
const PAUSE: Duration = Duration::from_millis(300);

#[test]
fn kernel_marks_steer_both_families_and_leave_packets_as_they_are() {
    require!(Program("nft"));
    on_site(|site| {
        site.configure("[steering]\nmode = 'mark'\nmark_mask = 0xff00\n");
        let before = (site.routing(), traffic_control(site));
        count_dscp(site);
        let plan = stdout(&site.splitter(&["plan"]));
        assert!(plan.contains("+ attach the TC program to lan0\n"), "{plan}");
        assert!(plan.contains("fwmark 0x200/0xff00 lookup 10402"), "{plan}");

        let first = site.run();
        let status = site.json(&["status"]);
        assert_eq!(status["steering"], "mark");
        let mode = status["attached"][0]["mode"].clone();
        assert!(mode == "tcx" || mode == "clsact", "{status}");
        let attached = format!(
            "splitter_attached_interfaces{{mode=\"{}\"}}",
            mode.as_str().unwrap()
        );
        assert_eq!(site.metric(&attached), 2.0);

        let mut connections = both_families(site);
        for connection in &mut connections {
            each_class_takes_its_tunnel(site, connection);
        }
        first.end(Signal::SIGKILL);
        for connection in &mut connections {
            leaves_by(site, 1, || connection.send(MANY_BYTES));
        }
        let second = site.run();
        assert!(second.log().contains("adopted"), "{}", second.log());
        assert_eq!(site.json(&["plan"])["changed"], false);
        for connection in &mut connections {
            leaves_by(site, 1, || connection.send(MANY_BYTES));
        }
        assert_eq!(with_dscp(site), 0, "packets were changed");
        assert!(second.end(Signal::SIGTERM).success());
        site.assert_clean(&before.0);
        assert_eq!(traffic_control(site), before.1);
        connections.iter_mut().for_each(|it| it.send(FEW_BYTES));
    });
}

#[test]
fn a_program_that_somebody_detaches_is_restored_and_other_modes_are_refused() {
    on_site(|site| {
        site.configure("[steering]\nmode = 'mark'\n");
        let before = (site.routing(), traffic_control(site));
        site.json(&["up"]);
        // A pin that is gone takes its link along.
        let link = site.bpffs().join("splitter/test/links").join(LAN);
        std::fs::remove_file(link).expect("it is there");
        let plan = site.json(&["plan"]);
        assert_eq!(plan["changed"], true);
        let repaired = stdout(&site.splitter(&["up"]));
        assert!(
            repaired.contains("+ attach the TC program to lan0\n"),
            "{repaired}"
        );
        let mut connection = Connection::open(&site.topology);
        each_class_takes_its_tunnel(site, &mut connection);

        // Another build takes its place where it is.
        site.configure("[steering]\nmode = 'mark'\n[log]\npackets = 'debug'\n");
        let replaced = stdout(&site.splitter(&["up"]));
        assert!(
            replaced.contains("~ replace the kernel programs")
                && replaced.contains("= keep the TC"),
            "{replaced}"
        );
        assert_eq!(site.json(&["plan"])["changed"], false);
        each_class_takes_its_tunnel(site, &mut Connection::open(&site.topology));

        for mode in ["dscp", "redirect"] {
            site.configure(&format!("[steering]\nmode = '{mode}'\n"));
            let refused = site.splitter(&["up"]);
            let reported = stderr(&refused);
            let names_it =
                reported.contains("steering.mode") && reported.contains("`splitter down`");
            assert!(!refused.status.success() && names_it, "{mode}: {reported}");
        }
        let removed = stdout(&site.splitter(&["down"]));
        assert!(removed.contains("TC program on lan0"), "{removed}");
        site.assert_clean(&before.0);
        assert_eq!(traffic_control(site), before.1);
    });
}

#[test]
fn packets_are_redirected_into_the_tunnel_of_their_class_in_both_families() {
    on_site(|site| {
        site.configure("[steering]\nmode = 'redirect'\n");
        let receiving = receive_redirected(site);
        // As on a wire: without it the checksums of this machine's packets are not there yet.
        let client = &site.topology.client.namespace;
        client
            .run("ethtool -K eth0 tx off")
            .expect("veth can do without");
        // Kernels find this one for programs, whatever rules say (see the next test).
        let border = site.border();
        border.run("ip -6 route del default").expect("it is there");
        let before = site.routing();
        let first = site.run();
        let mut connections = both_families(site);
        for connection in &mut connections {
            each_class_takes_its_tunnel(site, connection);
        }
        let redirected = || site.metric("splitter_redirected_packets_total");
        let fallbacks = |reason| {
            site.metric(&format!(
                "splitter_redirect_fallbacks_total{{reason=\"{reason}\"}}"
            ))
        };
        let packets = connections.len() as f64 * 250.0;
        // Once for a flow and a quarter of a second, in each direction of a connection alone: until the agent
        // has heard of all before it, what serves more than one flow is not believed, and its own answer is.
        let lookups = site.metric("splitter_redirect_fib_lookups_total");
        assert!(lookups > 0.0 && lookups < packets / 4.0, "{lookups}");
        assert!(
            redirected() > packets,
            "{}",
            stdout(&site.splitter(&["status"]))
        );
        assert_eq!(fallbacks("opening"), connections.len() as f64);
        assert_eq!(
            fallbacks("not_ours") + fallbacks("no_route") + fallbacks("failed"),
            0.0
        );

        first.end(Signal::SIGKILL);
        for connection in &mut connections {
            leaves_by(site, 1, || connection.send(MANY_BYTES));
        }
        let second = site.run();
        assert!(second.log().contains("adopted"), "{}", second.log());
        let known = redirected();
        connections.iter_mut().for_each(|it| it.send(MANY_BYTES));
        assert!(redirected() > known + packets);

        // Without that its device would lose what it is given: the agent sees it.
        drop(receiving);
        site.wait_for("packets to go by the network stack", || {
            let plan = stdout(&site.splitter(&["plan"]));
            plan.contains("= redirect into no tunnel").then_some(())
        });
        for connection in &mut connections {
            leaves_by(site, 1, || connection.send(MANY_BYTES));
        }
        assert!(second.end(Signal::SIGTERM).success());
        site.assert_clean(&before);
        // IPv6 has no way any more.
        connections[0].send(FEW_BYTES);
    });
}

/// In IPv6 a default route of the main table is what the kernel finds for programs, although a rule
/// passes over it: then the stack has to do it, which finds the right way.
#[test]
fn a_default_route_leads_no_redirected_packet_into_the_other_class_tunnel() {
    on_site(|site| {
        site.configure("[steering]\nmode = 'redirect'\n");
        let _receiving = receive_redirected(site);
        let client = &site.topology.client.namespace;
        client
            .run("ethtool -K eth0 tx off")
            .expect("veth can do without");
        let daemon = site.run();
        for connection in &mut both_families(site) {
            each_class_takes_its_tunnel(site, connection);
        }
        let fallbacks = "splitter_redirect_fallbacks_total{reason=\"other_device\"}";
        assert!(site.topology.server.ipv6.is_none() || site.metric(fallbacks) > 0.0);
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

/// Of senders on this machine checksums are left to devices, and a program that put such packets into
/// a tunnel would ruin them.
#[test]
fn what_lacks_its_checksum_is_not_redirected() {
    on_site(|site| {
        let _receiving = receive_redirected(site);
        for attach in ["native", "generic"] {
            let attach = format!("[attach]\nmode = '{attach}'\n");
            site.configure(&format!("[steering]\nmode = 'redirect'\n{attach}"));
            let daemon = site.run();
            let mut connections = both_families(site);
            for connection in &mut connections {
                each_class_takes_its_tunnel(site, connection);
            }
            let fallbacks = site.metric("splitter_redirect_fallbacks_total{reason=\"checksum\"}");
            assert!(fallbacks > 10.0, "{attach}: {fallbacks}");
            assert_eq!(site.metric("splitter_redirected_packets_total"), 0.0);
            assert!(daemon.end(Signal::SIGTERM).success());
        }
    });
}

/// Connections from the first site to the second one.
fn both_families(site: &Site) -> Vec<Connection> {
    let (client, server) = (&site.topology.client, &site.topology.server);
    let v6 = server.ipv6.map(IpAddr::V6);
    let addresses = std::iter::once(server.ipv4.into()).chain(v6);
    addresses
        .map(|address| Connection::over(client, server, address))
        .collect()
}

fn each_class_takes_its_tunnel(site: &Site, connection: &mut Connection) {
    leaves_by(site, 0, || connection.send(FEW_BYTES));
    // Of which some are still short. After a pause it may change tunnels in any case.
    connection.send(MANY_BYTES / 2);
    std::thread::sleep(PAUSE);
    leaves_by(site, 1, || connection.send(MANY_BYTES / 2));
}

/// Queueing disciplines and filters of the devices of the site, as `tc` shows them.
fn traffic_control(site: &Site) -> String {
    let border = site.border();
    let qdiscs = border.run("tc qdisc show").expect("tc works");
    let filters = border.run(&format!("tc filter show dev {LAN} ingress"));
    // Without the queueing discipline there is nothing to ask.
    qdiscs + &filters.unwrap_or_default()
}

/// Has the other border take what is redirected into the tunnels, as long as the result lives: a
/// veth device does so where an XDP program runs.
fn receive_redirected(site: &Site) -> Ebpf {
    let object = Object::for_level(PacketLog::Off).expect("is embedded");
    let mut ebpf = EbpfLoader::new()
        .map_max_entries("FLOWS_V4", 1)
        .map_max_entries("FLOWS_V6", 1)
        .map_max_entries("TAGS", 1)
        .load(object.bytes())
        .expect("it can be loaded");
    let passing = ebpf.program_mut("read_clocks").expect("is in the object");
    let passing: &mut Xdp = passing.try_into().expect("is an XDP program");
    passing.load().expect("the verifier accepts it");
    let attach = || {
        for device in TUNNELS {
            passing
                .attach(device, XdpMode::Driver)
                .expect("veth has XDP");
        }
    };
    let far = &site.topology.borders[1].namespace;
    far.enter(attach).expect("it is there");
    ebpf
}
