//! Two sites joined by four paths.
//!
//! ```text
//!                        ┌── path0 ──┐
//! client ── lan0 router A├── path1 ──┤router B lan0 ── (delay) ── server
//!                        ├── path2 ──┤
//!                        └── path3 ──┘
//! ```
//!
//! Every box is a namespace. Each path is shaped at both ends to a rate, with a short FIFO before
//! it; the links to client and server are not shaped. The server has many addresses, so that it can
//! stand for several hosts.

mod accounting;
mod borders;
mod bulk;
mod check;
mod impairment;
mod site_traffic;
mod steering;

use std::{fmt::Write as _, net::Ipv4Addr, path::Path, time::Duration};

use flow_testbed::{
    namespace::{DelayLine, Namespace, NamespaceError, TUN},
    require::{
        Lacking,
        Requirement::{self, CongestionControl, File, NftRule, Program, QueueingDiscipline, Root},
    },
};

pub use self::{
    accounting::AccountingError,
    borders::{BorderOptions, Borders, CLOUDBURST_DSCP, CLOUDBURST_PERCENT},
    bulk::{Bulk, BulkDirections},
    check::{PathCheckError, Spread},
    impairment::Impairment,
    site_traffic::{SiteFlows, SiteTraffic, SiteTrafficOptions},
    steering::explicit_ports,
};

/// How many paths there are.
pub const PATHS: usize = 4;
/// How many hosts the server can stand for.
pub const SERVERS: usize = 8;

/// Round-trip time without a delay line.
pub const NATIVE_RTT: Duration = Duration::from_micros(200);

/// The routers' devices of the paths.
const PATH_DEVICES: [&str; PATHS] = ["path0", "path1", "path2", "path3"];
/// The routers' device towards their site.
const LAN: &str = "lan0";
/// The only device of a host.
const HOST_DEVICE: &str = "eth0";

/// Buffer of the FIFO before a path.
const QUEUE_BYTES: u32 = 100_000;
/// Burst of a path: two packets, as little as the shaper can do.
const BURST_BYTES: u32 = 3_100;

/// Settings of the rig.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RigOptions {
    /// Rate of each path in Mbit/s.
    pub rate_mbit: u32,
    /// Round-trip time without queues; what is no more than [`NATIVE_RTT`] means no delay line.
    pub rtt: Duration,
}

/// The sites and what joins them, alive as long as this value.
#[derive(Debug)]
pub struct Rig {
    /// Namespace of the clients.
    pub client: Namespace,
    /// Namespace of the servers.
    pub server: Namespace,
    router_a: Namespace,
    router_b: Namespace,
    options: RigOptions,
    _delay: Option<DelayLine>,
}

/// Traffic that a path has carried in one direction since the rig was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Bytes that it carried, headers included.
    pub bytes: u64,
    /// Packets that it carried.
    pub packets: u64,
}

/// Addresses, the same in every rig.
pub mod addresses {
    use super::*;

    /// The client's own address.
    pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
    /// The server's own address, for bulk traffic.
    pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);
    /// Addresses for transfers between the sites, of client and server.
    pub const GENERATORS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 1, 0, 3), Ipv4Addr::new(10, 2, 0, 3)];

    /// Addresses of the client that are bound to one path each, in both directions, as those of a
    /// host with four uplinks. What uses them need not guess paths by ports.
    pub fn pinned() -> [Ipv4Addr; PATHS] {
        [11, 12, 13, 14].map(|host| Ipv4Addr::new(10, 1, 0, host))
    }

    /// Returns the addresses of the hosts that the server stands for.
    pub fn servers() -> [Ipv4Addr; SERVERS] {
        [21, 22, 23, 24, 25, 26, 27, 28].map(|host| Ipv4Addr::new(10, 2, 0, host))
    }
}

impl Rig {
    /// Checks that the machine can build a rig.
    ///
    /// # Errors
    /// The first thing that is lacking, with what helps.
    pub fn require() -> Result<(), Lacking> {
        Self::requirements()
            .into_iter()
            .try_for_each(Requirement::check)
    }

    /// All that building a rig takes; root comes first, for the others cannot be tried without.
    pub fn requirements() -> [Requirement; 11] {
        [
            Root,
            Program("ip"),
            Program("tc"),
            Program("nft"),
            Program("ethtool"),
            QueueingDiscipline("tbf rate 1mbit burst 3100 limit 9000"),
            NftRule("meta mark set jhash ip saddr . ip daddr . th sport . th dport mod 4 seed 0x1"),
            NftRule("numgen random mod 1000 < 10 drop"),
            NftRule("counter"),
            CongestionControl("cubic"),
            File(TUN),
        ]
    }

    /// Builds the rig in namespaces of its own.
    ///
    /// # Errors
    /// The first step that failed; all that was made until then is gone.
    pub fn build(options: RigOptions) -> Result<Self, NamespaceError> {
        let [client, server, router_a, router_b] = ["client", "server", "router-a", "router-b"]
            .map(|name| {
                let namespace = Namespace::new(name)?;
                set_parameters(&namespace)?;
                Ok::<_, NamespaceError>(namespace)
            });
        let (client, server, router_a, router_b) = (client?, server?, router_a?, router_b?);

        router_a.connect(LAN, &client, HOST_DEVICE)?;
        let delay = options.rtt.saturating_sub(NATIVE_RTT) / 2;
        let delay_line = if delay.is_zero() {
            router_b.connect(LAN, &server, HOST_DEVICE)?;
            None
        } else {
            Some(router_b.connect_delayed_ethernet(LAN, &server, HOST_DEVICE, delay)?)
        };
        for device in PATH_DEVICES {
            router_a.connect(device, &router_b, device)?;
        }
        let rig = Self {
            client,
            server,
            router_a,
            router_b,
            options,
            _delay: delay_line,
        };
        rig.set_up_sites()?;
        rig.route_site_traffic()?;
        rig.set_up_paths(options.rate_mbit)?;
        rig.count_messages()?;
        rig.steer(0)?;
        Ok(rig)
    }

    /// Returns the rate of all paths together, in each direction.
    pub fn sum_bits_per_s(&self) -> u64 {
        PATHS as u64 * u64::from(self.options.rate_mbit) * 1_000_000
    }

    /// Reads the traffic that each path has carried in a direction; packets lost at its end count,
    /// those that its queue dropped do not.
    ///
    /// # Errors
    /// When a counter cannot be read.
    pub fn carried(&self, direction: Direction) -> Result<[Carried; PATHS], NamespaceError> {
        let router = match direction {
            Direction::ToServer => &self.router_a,
            Direction::ToClient => &self.router_b,
        };
        let mut carried = [Carried::default(); PATHS];
        for (carried, device) in carried.iter_mut().zip(PATH_DEVICES) {
            let counters = router.device_counters(device)?;
            *carried = Carried {
                bytes: counters.sent_bytes,
                packets: counters.sent_packets,
            };
        }
        Ok(carried)
    }

    /// Describes the queues before all paths, as `tc` does.
    ///
    /// # Errors
    /// When `tc` fails.
    pub fn queues(&self) -> Result<String, NamespaceError> {
        let mut queues = String::new();
        for router in [&self.router_a, &self.router_b] {
            for device in PATH_DEVICES {
                queues += &router.run(&format!("tc qdisc show dev {device}"))?;
            }
        }
        Ok(queues)
    }

    fn set_up_sites(&self) -> Result<(), NamespaceError> {
        let pinned = addresses::pinned();
        let client_addresses =
            [&[addresses::CLIENT, addresses::GENERATORS[0]], &pinned[..]].concat();
        let servers = addresses::servers();
        let server_addresses =
            [&[addresses::SERVER, addresses::GENERATORS[1]], &servers[..]].concat();
        for (number, router, host, host_addresses) in [
            (1, &self.router_a, &self.client, client_addresses),
            (2, &self.router_b, &self.server, server_addresses),
        ] {
            let gateway = site_gateway(number);
            let [router_mac, host_mac] =
                [1, 2].map(|end| format!("02:00:00:{number:02x}:00:{end:02x}"));
            let mut near = format!("address add {gateway}/24 dev {LAN}\n");
            let mut far = String::new();
            let _ = writeln!(near, "link set {LAN} address {router_mac}");
            let _ = writeln!(far, "link set {HOST_DEVICE} address {host_mac}");
            let _ = writeln!(far, "{}", neighbour(gateway, &router_mac, HOST_DEVICE));
            let _ = writeln!(near, "link set {LAN} up");
            let _ = writeln!(far, "link set {HOST_DEVICE} up");
            for address in host_addresses {
                let _ = writeln!(far, "address add {address}/24 dev {HOST_DEVICE}");
                let _ = writeln!(near, "{}", neighbour(address, &host_mac, LAN));
            }
            let _ = writeln!(far, "route add default via {gateway}");
            router.run_with_input("ip -batch -", &near)?;
            host.run_with_input("ip -batch -", &far)?;
            router.keep_flows_in_order(LAN)?;
            host.keep_flows_in_order(HOST_DEVICE)?;
        }
        Ok(())
    }

    fn set_up_paths(&self, rate_mbit: u32) -> Result<(), NamespaceError> {
        for (router, near, far) in [(&self.router_a, 1, 2), (&self.router_b, 2, 1)] {
            let mut batch = String::new();
            for (path, device) in PATH_DEVICES.iter().enumerate() {
                let mac = |end| format!("02:00:00:09:{path:02x}:{end:02x}");
                let (gateway, mark, table) = (gateway(path, far), steering::mark(path), path + 1);
                let _ = writeln!(batch, "link set {device} address {} up", mac(near));
                let own = self::gateway(path, near);
                let _ = writeln!(batch, "address add {own}/24 dev {device}");
                let _ = writeln!(batch, "{}", neighbour(gateway, &mac(far), device));
                let _ = writeln!(
                    batch,
                    "route add default via {gateway} dev {device} table {table}"
                );
                let _ = writeln!(batch, "rule add fwmark {mark} table {table}");
            }
            // What the router itself has to say, and what is neither TCP nor UDP.
            let _ = writeln!(batch, "route add default via 10.9.0.{far} dev path0");
            router.run_with_input("ip -batch -", &batch)?;
            for device in PATH_DEVICES {
                router.keep_flows_in_order(device)?;
                router.run(&format!(
                    "tc qdisc add dev {device} root tbf rate {rate_mbit}mbit burst {BURST_BYTES} limit {QUEUE_BYTES}"
                ))?;
            }
        }
        Ok(())
    }
}

/// The direction in which packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Requests, from clients to servers.
    ToServer,
    /// Answers, from servers to clients.
    ToClient,
}

/// The address of a router (1 or 2) at its site.
fn site_gateway(router: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, router, 0, 1)
}

/// The address of a router (1 or 2) on a path.
fn gateway(path: usize, router: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, path as u8, router)
}

/// Entered by hand, so that no packet waits for address resolution.
fn neighbour(address: impl std::fmt::Display, mac: &str, device: &str) -> String {
    format!("neighbour replace {address} lladdr {mac} dev {device} nud permanent")
}

fn set_parameters(namespace: &Namespace) -> Result<(), NamespaceError> {
    // `default` is what a device starts from, so this comes before there is any.
    let mut parameters = vec![
        ("net.ipv4.conf.all.rp_filter", "0"),
        ("net.ipv4.conf.default.rp_filter", "0"),
        ("net.ipv4.ip_forward", "1"),
        // Else a connection would start from what an earlier one learned.
        ("net.ipv4.tcp_no_metrics_save", "1"),
    ];
    if Path::new("/proc/sys/net/ipv6").exists() {
        // Nothing but what is measured is to be on the wire.
        parameters.push(("net.ipv6.conf.all.disable_ipv6", "1"));
        parameters.push(("net.ipv6.conf.default.disable_ipv6", "1"));
    }
    parameters
        .iter()
        .try_for_each(|(key, value)| namespace.sysctl(key, value))
}
