//! What is split besides TCP: datagrams that arrive, and packets of ESP and GRE that nobody answers.

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use flow_testbed::namespace::Namespace;
use flow_testbed::topology::Host;
use serde_json::Value;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::site::{PATIENCE, Site};

/// All that can be split.
pub(crate) const ALL: &str = "['tcp', 'udp', 'esp', 'gre']";

/// Longer than what was sent takes to drain, with the guard.
const PAUSE: Duration = Duration::from_millis(2);

/// The address of a host in a family, where the kernel has it.
pub(crate) fn address(host: &Host, is_ipv6: bool) -> Option<IpAddr> {
    match is_ipv6 {
        true => host.ipv6.map(IpAddr::V6),
        false => Some(host.ipv4.into()),
    }
}

/// A stream of datagrams from the first site's client to the other's server.
pub(crate) struct Datagrams {
    near: UdpSocket,
    far: UdpSocket,
}

impl Datagrams {
    pub(crate) fn between(site: &Site, is_ipv6: bool) -> Self {
        let bind = |host: &Host| {
            let address = address(host, is_ipv6).expect("checked before");
            let socket = host.namespace.enter(|| UdpSocket::bind((address, 0)));
            socket.expect("it exists").expect("a port")
        };
        let (near, far) = (bind(&site.topology.client), bind(&site.topology.server));
        far.set_read_timeout(Some(PATIENCE)).expect("a setting");
        near.connect(far.local_addr().expect("it has one"))
            .expect("a route");
        Self { near, far }
    }

    /// Its port at the first site, by which it is found among the flows.
    pub(crate) fn port(&self) -> u16 {
        self.near.local_addr().expect("it has one").port()
    }

    /// Sends datagrams one by one, and waits until each is there whole.
    pub(crate) fn send(&mut self, count: u64, bytes: usize) {
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

/// What has no ports: which number of a protocol, and the header by which a flow of it is reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portless {
    /// As `splitter flows` calls it.
    pub(crate) name: &'static str,
    protocol: i32,
    header: [u8; 8],
    header_bytes: usize,
}

/// Packets of a security association.
pub(crate) const fn esp(association: u8) -> Portless {
    Portless {
        name: "esp",
        protocol: 50,
        header: [0, 0, 1, association, 0, 0, 0, 0],
        header_bytes: 4,
    }
}

/// Packets of GRE with that key.
pub(crate) const fn gre(key: u8) -> Portless {
    Portless {
        name: "gre",
        protocol: 47,
        header: [0x20, 0, 8, 0, 0, 0, 0, key],
        header_bytes: 8,
    }
}

/// Packets of GRE without key.
pub(crate) const fn gre_without_key() -> Portless {
    Portless {
        name: "gre",
        protocol: 47,
        header: [0, 0, 8, 0, 0, 0, 0, 0],
        header_bytes: 4,
    }
}

impl Portless {
    /// Sends packets from the first site's client to the other's server, which does not know what
    /// to do with them.
    pub(crate) fn send(&self, site: &Site, is_ipv6: bool, count: u64) {
        let domain = if is_ipv6 { Domain::IPV6 } else { Domain::IPV4 };
        let open = || Socket::new(domain, Type::RAW, Some(Protocol::from(self.protocol)));
        let socket = site.topology.client.namespace.enter(open);
        let socket = socket.expect("it exists").expect("we are root");
        let to = address(&site.topology.server, is_ipv6).expect("checked before");
        let to = SockAddr::from(std::net::SocketAddr::new(to, 0));
        let packet = [&self.header[..self.header_bytes], &[0; 100]].concat();
        for _ in 0..count {
            socket.send_to(&packet, &to).expect("it is sent");
            std::thread::sleep(PAUSE);
        }
    }
}

/// What the splitter knows of the flows of a protocol.
pub(crate) fn flows_of(site: &Site, protocol: &str) -> Vec<Value> {
    let reported = site.json(&["flows", "--limit", "1000"]);
    let flows = reported["flows"].as_array().expect("a list");
    let of_protocol = flows.iter().filter(|flow| flow["protocol"] == protocol);
    of_protocol.cloned().collect()
}

/// Packets that left the first border by these devices together.
pub(crate) fn sent_by(site: &Site, devices: &[&str]) -> u64 {
    let sent = |device: &&str| {
        let counters = site.border().device_counters(device);
        counters.expect("it is there").sent_packets
    };
    devices.iter().map(sent).sum()
}

/// Packets of UDP, ESP and GRE that arrive at the other border by the tunnels of each class.
pub(crate) struct Arrived<'a>(&'a Site);

impl<'a> Arrived<'a> {
    /// Counts from now on what comes by these devices.
    pub(crate) fn by(site: &'a Site, devices: [&[&str]; 2]) -> Self {
        let rule = |class: usize| {
            let devices = devices[class].join(", ");
            format!(
                "iifname {{ {devices} }} meta l4proto {{ udp, esp, gre }} counter name class{class}\n"
            )
        };
        let table = format!(
            "table inet arrived {{\ncounter class0 {{}}\ncounter class1 {{}}\nchain in {{\n\
             type filter hook prerouting priority -300;\n{}{}}}\n}}\n",
            rule(0),
            rule(1),
        );
        let it = Self(site);
        it.far().run_with_input("nft -f -", &table).expect("root");
        it
    }

    /// How many of each class came meanwhile, when there were `all`.
    pub(crate) fn meanwhile(&self, all: u64, send: impl FnOnce()) -> [u64; 2] {
        let before = self.counts();
        send();
        self.0.wait_for("the packets", || {
            let now = self.counts();
            let come = [0, 1].map(|class| now[class] - before[class]);
            (come[0] + come[1] >= all).then_some(come)
        })
    }

    fn counts(&self) -> [u64; 2] {
        let shown = self.far().run("nft -j list counters table inet arrived");
        let shown: Value = serde_json::from_str(&shown.expect("it is there")).expect("JSON");
        let counters = shown["nftables"].as_array().expect("a list");
        ["class0", "class1"].map(|name| {
            let mut counters = counters.iter().map(|it| &it["counter"]);
            let found = counters.find(|it| it["name"] == name);
            found
                .and_then(|it| it["packets"].as_u64())
                .expect("a number")
        })
    }

    fn far(&self) -> &Namespace {
        &self.0.topology.borders[1].namespace
    }
}

impl Drop for Arrived<'_> {
    fn drop(&mut self) {
        let _ = self.far().run("nft delete table inet arrived");
    }
}
