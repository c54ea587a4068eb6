//! A leaf-spine fabric of network namespaces.
//!
//! ```text
//!   host 0.0 ─┐ leaf 0 ──── spine 0 ──── leaf 1 ┌─ host 1.0
//!   host 0.1 ─┘        ╲__╱         ╲__╱        └─ host 1.1
//!                      ╱  ╲         ╱  ╲
//!                       ──── spine 1 ────
//! ```
//!
//! Each leaf has a link to each spine, shaped at both ends to the spine's rate with a FIFO in front of it. Links of
//! hosts are not shaped. Routes of spines are static; leaves send everything by spine 0 until a scheme says
//! otherwise.

use std::{fmt::Write as _, net::Ipv4Addr};

use flow_testbed::{
    multipath::NextHop,
    namespace::{Namespace, NamespaceError},
    require::{
        Lacking,
        Requirement::{self, CongestionControl, NftRule, Program, QueueingDiscipline, Root},
    },
    topology::Host,
};

use crate::{cell::Cell, tcp::Tcp};

/// What the queue in front of each link holds, at its rate.
pub(crate) const QUEUE_MS: u32 = 25;
/// What a link of 1 Mbit/s carries in 1 ms.
const BYTES_A_MS_PER_MBIT: u32 = 125;
/// The only device of a host.
const HOST_DEVICE: &str = "eth0";

/// A fabric, alive as long as this value.
#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) leaves: Vec<Leaf>,
    /// All hosts, those of a leaf after each other.
    pub(crate) hosts: Vec<Host>,
    pub(crate) spines: Vec<Spine>,
}

/// A spine switch: a router.
#[derive(Debug)]
pub(crate) struct Spine {
    pub(crate) namespace: Namespace,
    /// Its devices towards the leaves, in their order.
    pub(crate) leaf_devices: Vec<String>,
    /// What each of these links is shaped to.
    pub(crate) rate_mbit: u32,
}

/// A leaf switch: a router.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) namespace: Namespace,
    /// Its devices towards its hosts.
    pub(crate) host_devices: Vec<String>,
    /// The spines as it sees them.
    pub(crate) spines: Vec<NextHop>,
}

/// What every fabric needs of the machine.
pub(crate) const REQUIREMENTS: [Requirement; 7] = [
    Root,
    Program("ip"),
    Program("tc"),
    Program("nft"),
    Program("ethtool"),
    QueueingDiscipline("tbf rate 1mbit burst 3100 limit 9000"),
    NftRule("meta mark set numgen inc mod 2 map { 0 : 1, 1 : 2 }"),
];

impl Rig {
    /// Checks that the machine can build one.
    pub(crate) fn require() -> Result<(), Lacking> {
        let requirements = REQUIREMENTS.into_iter();
        requirements
            .chain([CongestionControl("cubic")])
            .try_for_each(Requirement::check)
    }

    /// Builds the fabric of a cell.
    pub(crate) fn build(cell: &Cell) -> Result<Self, NamespaceError> {
        let shape = cell.shape;
        let spine = |(number, rate_mbit): (u8, u32)| {
            Ok::<_, NamespaceError>(Spine {
                namespace: router(&format!("spine{number}"))?,
                leaf_devices: (0..shape.leaves).map(spine_device).collect(),
                rate_mbit,
            })
        };
        let spines: Vec<_> = (0..)
            .zip(cell.rates_mbit())
            .map(spine)
            .collect::<Result<_, _>>()?;
        let (mut leaves, mut hosts) = (Vec::new(), Vec::new());
        for number in 0..shape.leaves {
            let namespace = router(&format!("leaf{number}"))?;
            let hops = next_hops(cell, number);
            for (spine, hop) in spines.iter().zip(&hops) {
                lay_uplink(
                    (number, &namespace),
                    &spine.namespace,
                    hop,
                    shape.burst_bytes,
                )?;
            }
            let (first, device) = (hops[0].gateway, &hops[0].device);
            namespace.run(&format!("ip route add default via {first} dev {device}"))?;
            let host_devices = host_devices(cell);
            for (host, device) in (0..).zip(&host_devices) {
                hosts.push(connect_host(&namespace, number, host, (device, shape.tcp))?);
            }
            leaves.push(Leaf {
                namespace,
                host_devices,
                spines: hops,
            });
        }
        Ok(Self {
            leaves,
            hosts,
            spines,
        })
    }

    /// Takes the carrier from all links of the last spine, or gives it back.
    pub(crate) fn set_spine(&self, is_up: bool) -> Result<(), NamespaceError> {
        let Some(spine) = self.spines.last() else {
            return Ok(());
        };
        for (number, leaf) in (0..).zip(&self.leaves) {
            if let Some(hop) = leaf.spines.last() {
                set_link(&spine.namespace, number, hop, is_up)?;
            }
        }
        Ok(())
    }

    /// Takes the carrier from all links of the first leaf to spines, or gives it back.
    pub(crate) fn set_leaf(&self, is_up: bool) -> Result<(), NamespaceError> {
        let hops = self.leaves.iter().take(1).flat_map(|it| &it.spines);
        let mut links = self.spines.iter().zip(hops);
        links.try_for_each(|(spine, hop)| set_link(&spine.namespace, 0, hop, is_up))
    }

    /// The prefix of the hosts at a leaf.
    pub(crate) fn prefix(leaf: u8) -> String {
        format!("{}/16", Ipv4Addr::new(10, leaf + 1, 0, 0))
    }

    /// Bytes that the links to each spine have carried from all leaves since they are there.
    pub(crate) fn sent_bytes(&self) -> Result<Vec<u64>, NamespaceError> {
        let spines = self.leaves.first().map_or(0, |it| it.spines.len());
        let mut sent = vec![0; spines];
        for leaf in &self.leaves {
            for (sum, hop) in sent.iter_mut().zip(&leaf.spines) {
                *sum += leaf.namespace.device_counters(&hop.device)?.sent_bytes;
            }
        }
        Ok(sent)
    }
}

/// The devices of a leaf towards its hosts.
pub(crate) fn host_devices(cell: &Cell) -> Vec<String> {
    let hosts = 0..cell.shape.hosts;
    hosts.map(|it| format!("host{it}")).collect()
}

/// The device of a spine towards a leaf.
fn spine_device(leaf: u8) -> String {
    format!("leaf{leaf}")
}

/// The spines as a leaf sees them.
pub(crate) fn next_hops(cell: &Cell, leaf: u8) -> Vec<NextHop> {
    let hop = |(spine, rate_mbit): (u8, u32)| NextHop {
        gateway: Ipv4Addr::new(10, 100 + spine, leaf, 2),
        device: format!("up{spine}"),
        rate_mbit,
    };
    (0..).zip(cell.rates_mbit()).map(hop).collect()
}

/// Lays the link between a leaf and a spine, with the spine's route to the leaf's hosts.
fn lay_uplink(
    (number, leaf): (u8, &Namespace),
    spine: &Namespace,
    hop: &NextHop,
    burst_bytes: u32,
) -> Result<(), NamespaceError> {
    let (up, down, rate) = (&hop.device, spine_device(number), hop.rate_mbit);
    leaf.connect(up, spine, &down)?;
    let [first, second, third, _] = hop.gateway.octets();
    let own = Ipv4Addr::new(first, second, third, 1);
    let limit = rate * BYTES_A_MS_PER_MBIT * QUEUE_MS;
    for (namespace, device, address) in [(leaf, up, own), (spine, &down, hop.gateway)] {
        bring_up(namespace, device, address)?;
        namespace.run(&format!(
            "tc qdisc add dev {device} root tbf rate {rate}mbit burst {burst_bytes} limit {limit}"
        ))?;
    }
    set_link(spine, number, hop, true)
}

/// Sets a spine's end of its link to a leaf up, with the route to the leaf's hosts, or down, which takes the
/// route away.
fn set_link(
    spine: &Namespace,
    number: u8,
    hop: &NextHop,
    is_up: bool,
) -> Result<(), NamespaceError> {
    let device = spine_device(number);
    if !is_up {
        spine.run(&format!("ip link set {device} down"))?;
        return Ok(());
    }
    let [first, second, third, _] = hop.gateway.octets();
    let leaf = Ipv4Addr::new(first, second, third, 1);
    let hosts = Rig::prefix(number);
    spine.run(&format!("ip link set {device} up"))?;
    spine.run(&format!("ip route replace {hosts} via {leaf} dev {device}"))?;
    Ok(())
}

fn router(name: &str) -> Result<Namespace, NamespaceError> {
    let namespace = Namespace::new(name)?;
    for (key, value) in [
        // `default` is what a device starts from, so this comes before there is any.
        ("net.ipv4.conf.all.rp_filter", "0"),
        ("net.ipv4.conf.default.rp_filter", "0"),
        ("net.ipv4.ip_forward", "1"),
        // Else a connection would start from what an earlier one learned.
        ("net.ipv4.tcp_no_metrics_save", "1"),
    ] {
        namespace.sysctl(key, value)?;
    }
    Ok(namespace)
}

/// A host at a leaf: 10.1.1.2 is the first one of leaf 0.
fn connect_host(
    leaf: &Namespace,
    number: u8,
    host: u8,
    (device, tcp): (&str, Tcp),
) -> Result<Host, NamespaceError> {
    let namespace = router(&format!("host{number}.{host}"))?;
    leaf.connect(device, &namespace, HOST_DEVICE)?;
    let address = |end| Ipv4Addr::new(10, number + 1, host + 1, end);
    bring_up(leaf, device, address(1))?;
    bring_up(&namespace, HOST_DEVICE, address(2))?;
    let gateway = address(1);
    for (key, value) in tcp.recovery.sysctls() {
        namespace.sysctl(key, value)?;
    }
    let control = tcp.control.name();
    namespace.run(&format!(
        "ip route add default via {gateway} congctl {control}"
    ))?;
    Ok(Host {
        namespace,
        ipv4: address(2),
        ipv6: None,
    })
}

fn bring_up(namespace: &Namespace, device: &str, own: Ipv4Addr) -> Result<(), NamespaceError> {
    let mut batch = String::new();
    let _ = writeln!(batch, "address add {own}/24 dev {device}");
    let _ = writeln!(batch, "link set dev {device} up");
    namespace.run_with_input("ip -batch -", &batch)?;
    namespace.keep_flows_in_order(device)
}

#[cfg(test)]
mod tests {
    use std::{
        error::Error,
        net::{TcpListener, TcpStream},
        time::Duration,
    };

    use flow_testbed::require;

    use super::*;
    use crate::{
        cell::{self, Shape, tests::SHAPE},
        tcp::{Control, Recovery},
    };

    #[test]
    fn every_host_reaches_those_of_other_leaves_by_its_uplinks() -> Result<(), Box<dyn Error>> {
        for requirement in REQUIREMENTS {
            require!(requirement => Ok(()));
        }
        require!(CongestionControl("cubic") => Ok(()));
        let shape = Shape {
            leaves: 3,
            spines: 3,
            burst_bytes: 4_700,
            tcp: Tcp {
                control: Control::Reno,
                recovery: Recovery::Sack,
            },
            ..SHAPE
        };
        let rig = Rig::build(&cell::chosen(shape, Some("asym3.5"), false)[0])?;
        assert_eq!(rig.hosts.len(), 6);
        for to in [0, 3, 5] {
            let address = (rig.hosts[to].ipv4, 7).into();
            let _listener = rig.hosts[to]
                .namespace
                .enter(|| TcpListener::bind(address))??;
            for (number, from) in rig.hosts.iter().enumerate() {
                if number / 2 != to / 2 {
                    from.namespace
                        .enter(|| TcpStream::connect_timeout(&address, Duration::from_secs(2)))?
                        .map_err(|error| format!("host {number} to {address}: {error}"))?;
                }
            }
        }
        // All by the first spine, until a scheme is applied.
        let sent = rig.sent_bytes()?;
        assert!(sent[0] > 12 * 40 && sent[2] < sent[0], "{sent:?}");
        // Without its last spine, and with it again.
        for (is_up, state) in [(false, "state DOWN"), (true, "state UP")] {
            rig.set_spine(is_up)?;
            let link = rig.leaves[1].namespace.run("ip link show up2")?;
            assert!(link.contains(state), "{link}");
        }
        let routes = rig.spines[2].namespace.run("ip route show 10.2.0.0/16")?;
        assert!(routes.contains("via 10.102.1.1"), "{routes}");
        rig.set_leaf(false)?;
        for (number, leaf) in rig.leaves.iter().enumerate() {
            let link = leaf.namespace.run("ip link show up0")?;
            assert_eq!(link.contains("NO-CARRIER"), number == 0, "{link}");
        }
        rig.set_leaf(true)?;
        let qdisc = rig.leaves[2].namespace.run("tc qdisc show dev up2")?;
        assert!(qdisc.contains("rate 20Mbit burst 4700b"), "{qdisc}");
        let host = &rig.hosts[5].namespace;
        let routes = host.run("ip route show default")?;
        assert!(routes.contains("congctl reno"), "{routes}");
        for key in ["net.ipv4.tcp_recovery", "net.ipv4.tcp_early_retrans"] {
            assert_eq!(host.run(&format!("sysctl -n {key}"))?.trim(), "0", "{key}");
        }
        Ok(())
    }
}
