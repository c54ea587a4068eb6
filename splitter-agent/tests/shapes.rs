//! What is split besides TCP, with real datagrams through the border: UDP whole and in fragments,
//! ESP and GRE.

#[allow(dead_code, reason = "each test uses a part of it")]
#[path = "support/daemon.rs"]
mod daemon;
#[allow(dead_code, reason = "each test uses a part of it")]
#[path = "support/site.rs"]
mod site;

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use flow_testbed::require;
use flow_testbed::require::Requirement::Program;
use flow_testbed::require::skip;
use flow_testbed::topology::{Host, TUNNELS};
use serde_json::Value;
use site::{PATIENCE, Site, on_site};

const THRESHOLD: u64 = 10;
const ALL: &str = "['tcp', 'udp', 'esp', 'gre']";
/// Longer than what was sent takes to drain, with the guard.
const PAUSE: Duration = Duration::from_millis(2);

#[test]
fn udp_is_split_where_it_is_switched_on_while_the_agent_runs() {
    on_site(|site| {
        configure(site, "['tcp']");
        let _daemon = site.run();
        let mut stream = Datagrams::between(site, Host::v4);
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
        let mut stream = Datagrams::between(site, Host::v6);
        is_split_after_the_threshold(site, &mut stream, 500, 1);
    });
}

/// 8,000 bytes take six packets of 1,500 bytes.
#[test]
fn fragments_go_the_way_of_their_flow() {
    on_site(|site| {
        configure(site, ALL);
        let _daemon = site.run();
        for address in [Host::v4, Host::v6] {
            if address(&site.topology.client).is_none() {
                continue;
            }
            let mut stream = Datagrams::between(site, address);
            is_split_after_the_threshold(site, &mut stream, 8_000, 6);
        }
        assert_eq!(passed(site, "later_fragment"), 0);
    });
}

#[test]
fn security_associations_and_keys_are_flows() {
    require!(Program("python3"));
    on_site(|site| {
        configure(site, ALL);
        let _daemon = site.run();
        // Two associations, of which one sends much; a key and none.
        let senders = [
            (50, "00000100", 40),
            (50, "00000101", 3),
            (47, "2000080000000007", 40),
            (47, "00000800", 3),
        ];
        for (protocol, header, count) in senders {
            send_raw(site, protocol, header, count);
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

trait Addresses {
    fn v4(&self) -> Option<IpAddr>;
    fn v6(&self) -> Option<IpAddr>;
}

impl Addresses for Host {
    fn v4(&self) -> Option<IpAddr> {
        Some(self.ipv4.into())
    }

    fn v6(&self) -> Option<IpAddr> {
        self.ipv6.map(Into::into)
    }
}

fn configure(site: &Site, protocols: &str) {
    site.configure(&format!(
        "[flows]\ntable_size = 4096\nthreshold = {THRESHOLD}\nprotocols = {protocols}\n"
    ));
}

/// A stream of datagrams from the first site's client to the other's server.
struct Datagrams {
    near: UdpSocket,
    far: UdpSocket,
}

impl Datagrams {
    fn between(site: &Site, address: impl Fn(&Host) -> Option<IpAddr> + Sync) -> Self {
        let bind = |host: &Host| {
            let address = address(host).expect("checked before");
            let socket = host.namespace.enter(|| UdpSocket::bind((address, 0)));
            socket.expect("it exists").expect("a port")
        };
        let (near, far) = (bind(&site.topology.client), bind(&site.topology.server));
        far.set_read_timeout(Some(PATIENCE)).expect("a setting");
        near.connect(far.local_addr().expect("it has one"))
            .expect("a route");
        Self { near, far }
    }

    /// Sends datagrams one by one, and waits until each is there whole.
    fn send(&mut self, count: u64, bytes: usize) {
        let mut received = vec![0; bytes + 1];
        for number in 0..count {
            let sent = vec![number as u8; bytes];
            self.near.send(&sent).expect("it is sent");
            let length = self.far.recv(&mut received).expect("it arrives");
            assert_eq!(received[..length], sent, "number {number}");
            std::thread::sleep(PAUSE);
        }
    }
}

/// The stream's packets take the short tunnel up to the threshold and the long one after it, each
/// datagram `packets` of them.
fn is_split_after_the_threshold(site: &Site, stream: &mut Datagrams, bytes: usize, packets: u64) {
    let before = sent(site);
    stream.send(5 * THRESHOLD, bytes);
    let flows = flows_of(site, "udp");
    let port = stream.near.local_addr().expect("it has one").port();
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
    TUNNELS.map(|tunnel| {
        let counters = site.border().device_counters(tunnel);
        counters.expect("it is there").sent_packets
    })
}

fn flows_of(site: &Site, protocol: &str) -> Vec<Value> {
    let told = site.json(&["flows"]);
    let flows = told["flows"].as_array().expect("a list");
    let of_protocol = flows.iter().filter(|flow| flow["protocol"] == protocol);
    of_protocol.cloned().collect()
}

fn passed(site: &Site, reason: &str) -> u64 {
    let (_, text) = site.get("/metrics").expect("it answers");
    let name = format!("splitter_passed_packets_total{{reason=\"{reason}\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name));
    line.expect("it is counted").parse().expect("a number")
}

/// Sends IPv4 packets of that protocol with this header, which nobody answers.
fn send_raw(site: &Site, protocol: u8, header: &str, count: u32) {
    let script = format!(
        "import socket, time\n\
         s = socket.socket(socket.AF_INET, socket.SOCK_RAW, {protocol})\n\
         for _ in range({count}):\n    s.sendto(bytes.fromhex('{header}') + bytes(100), ('{}', 0))\n    time.sleep(0.002)\n",
        site.topology.server.ipv4
    );
    let mut python = site.topology.client.namespace.command("python3");
    let output = python.args(["-c", &script]).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
}
