//! What is split besides TCP, with real datagrams through the border: UDP whole and in fragments,
//! ESP and GRE.

use crate::support::datagrams;
use crate::support::site;
use datagrams::{ALL, Datagrams, address, esp, flows_of, gre, gre_without_key, sent_by};
use flow_testbed::require::skip;
use flow_testbed::topology::TUNNELS;
use serde_json::Value;
use site::{Site, on_site};

const THRESHOLD: u64 = 10;

#[test]
fn udp_is_split_where_it_is_switched_on_while_the_agent_runs() {
    on_site(|site| {
        configure(site, "['tcp']");
        let _daemon = site.run();
        let mut stream = Datagrams::between(site, false);
        stream.send(20, 500);
        assert_eq!(flows_of(site, "udp"), Vec::<Value>::new());
        assert!(passed(site, "udp") >= 20);

        let set = site.splitter(&["set", "protocols", "[\"tcp\", \"udp\"]"]);
        assert!(set.status.success(), "{set:?}");
        is_split_after_the_threshold(site, &mut stream, 500, 1);
    });
}

#[test]
fn udp_over_ipv6_is_split() {
    on_site(|site| {
        if site.topology.client.ipv6.is_none() {
            return skip(
                "shapes::udp_over_ipv6_is_split",
                "lacks IPv6; use a kernel that has it",
            );
        }
        configure(site, ALL);
        let _daemon = site.run();
        let mut stream = Datagrams::between(site, true);
        is_split_after_the_threshold(site, &mut stream, 500, 1);
    });
}

/// 8,000 bytes take six packets of 1,500 bytes.
#[test]
fn fragments_go_the_way_of_their_flow() {
    on_site(|site| {
        configure(site, ALL);
        let _daemon = site.run();
        for is_ipv6 in [false, true] {
            if address(&site.topology.client, is_ipv6).is_none() {
                continue;
            }
            let mut stream = Datagrams::between(site, is_ipv6);
            is_split_after_the_threshold(site, &mut stream, 8_000, 6);
        }
        assert_eq!(passed(site, "later_fragment"), 0);
    });
}

#[test]
fn security_associations_and_keys_are_flows() {
    on_site(|site| {
        configure(site, ALL);
        let _daemon = site.run();
        // Two associations, of which one sends much; a key and none.
        for (packets, count) in [
            (esp(0), 40),
            (esp(1), 3),
            (gre(7), 40),
            (gre_without_key(), 3),
        ] {
            packets.send(site, false, count);
        }
        for (name, busy, idle) in [("esp", 0x100, 0x101), ("gre", 7, 0)] {
            let flows = flows_of(site, name);
            let class_of = |identifier: u64| {
                let flow = flows.iter().find(|flow| flow["identifier"] == identifier);
                flow.unwrap_or_else(|| panic!("{name} {identifier}: {flows:?}"))["class"].clone()
            };
            assert_eq!(
                (class_of(busy), class_of(idle)),
                ("long".into(), "short".into())
            );
            assert!(flows.iter().all(|flow| flow["source_port"].is_null()));
        }
    });
}

fn configure(site: &Site, protocols: &str) {
    site.configure(&format!(
        "[flows]\ntable_size = 4096\nthreshold = {THRESHOLD}\nprotocols = {protocols}\n"
    ));
}

/// The stream's packets take the short tunnel up to the threshold and the long one after it, each
/// datagram `packets` of them.
fn is_split_after_the_threshold(site: &Site, stream: &mut Datagrams, bytes: usize, packets: u64) {
    let before = sent(site);
    stream.send(5 * THRESHOLD, bytes);
    let flows = flows_of(site, "udp");
    let port = stream.port();
    let flow = flows.iter().find(|flow| flow["source_port"] == port);
    let flow = flow.unwrap_or_else(|| panic!("{port}: {flows:?}"));
    assert_eq!(
        (&flow["class"], &flow["tunnel"]),
        (&"long".into(), &"long".into())
    );
    assert_eq!(flow["packets"], 5 * THRESHOLD * packets);
    let [short, long] = [0, 1].map(|tunnel| sent(site)[tunnel] - before[tunnel]);
    // Some of the first long ones drain with the short ones.
    assert!(
        (THRESHOLD..2 * THRESHOLD + packets).contains(&short),
        "{short}"
    );
    assert!(long >= 4 * THRESHOLD * packets - THRESHOLD, "{long}");
}

/// Packets that left the border by each tunnel.
fn sent(site: &Site) -> [u64; 2] {
    TUNNELS.map(|tunnel| sent_by(site, &[tunnel]))
}

fn passed(site: &Site, reason: &str) -> u64 {
    let (_, text) = site.get("/metrics").expect("it answers");
    let name = format!("splitter_passed_packets_total{{reason=\"{reason}\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name));
    line.expect("it is counted").parse().expect("a number")
}
