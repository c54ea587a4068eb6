//! Two sites joined by tunnels of their own rate and delay.
//!
//! ```text
//! client ─ lan0 ┐          ┌── tun0 ──┐          ┌ lan0 ─ server     short flows
//!               ├ border A ┼── tun1 ──┼ border B ┤
//!   bulk ─ gen0 ┘          └── tun2 ──┘          └ gen0 ─ bulk       transfers
//! ```
//!
//! Every box is a namespace. Each tunnel is shaped at both ends with a FIFO in front of it, and takes its time.
//! Access links are not shaped: one flow is to have all tunnels. Site A's bulk host has an address for each
//! tunnel besides, which MPTCP's subflows use.

use std::{fmt::Write as _, net::Ipv4Addr};

use flow_testbed::{
    namespace::{DelayLine, Namespace, NamespaceError, Strand, TUN},
    require::{
        Lacking,
        Requirement::{CongestionControl, File, NftRule, Program, QueueingDiscipline, Root},
    },
    topology::{GENERATOR, Host, LAN},
};

use crate::cell::{Case, Cell};

/// What the queue in front of each tunnel holds: as long as the longest delay, twice.
pub(crate) const QUEUE_MS: u32 = 60;
/// The only device of a host.
const HOST_DEVICE: &str = "eth0";
/// What a shaper lets out at once, two packets: as little as it can do.
const BURST_BYTES: u32 = 3_100;
/// What drops the packets of a tunnel that is cut.
const CUT: &str = "cut";
/// Names of the tunnels' devices.
const TUNNELS: [&str; 3] = ["tun0", "tun1", "tun2"];

/// Two sites, alive as long as this value.
#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) case: Case,
    /// The host of site A that opens short flows, and the one of site B that answers.
    pub(crate) client: Host,
    pub(crate) server: Host,
    /// The ends of bulk transfers, at site A and at site B.
    pub(crate) bulk: [Host; 2],
    /// The border routers of site A and of site B.
    pub(crate) borders: [Namespace; 2],
    _line: DelayLine,
}

/// The device of a tunnel, at both borders.
pub(crate) fn device(tunnel: usize) -> &'static str {
    TUNNELS[tunnel]
}

/// The address of a border (0 or 1) in a tunnel.
pub(crate) fn tunnel_address(border: usize, tunnel: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, tunnel as u8, border as u8 + 1)
}

/// The address of site A's bulk host that belongs to a tunnel.
pub(crate) fn address_of_tunnel(tunnel: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 1, 2, 11 + tunnel as u8)
}

impl Rig {
    /// Checks that the machine can build one.
    pub(crate) fn require() -> Result<(), Lacking> {
        [
            Root,
            Program("ip"),
            Program("tc"),
            Program("nft"),
            Program("ss"),
            Program("ethtool"),
            Program("iperf3"),
            File(TUN),
            QueueingDiscipline("tbf rate 1mbit burst 3100 limit 9000"),
            NftRule("meta mark set numgen inc mod 2 map { 0 : 1, 1 : 2 }"),
            CongestionControl("cubic"),
        ]
        .into_iter()
        .try_for_each(flow_testbed::require::Requirement::check)
    }

    /// Builds the testbed of a cell; `seed` decides what is lost and how late packets are.
    pub(crate) fn build(cell: &Cell, seed: u64) -> Result<Self, NamespaceError> {
        let case = cell.case;
        let borders = [namespace("border-a")?, namespace("border-b")?];
        let mut strands = Vec::new();
        for (index, tunnel) in case.tunnels.iter().enumerate() {
            strands.push(Strand {
                device: device(index).to_owned(),
                delay: tunnel.delay,
                jitter: std::time::Duration::from_millis(cell.jitter_ms.into()),
                loss: cell.loss(),
            });
        }
        let [border_a, border_b] = &borders;
        let line = border_a.connect_bundle(border_b, &strands, seed)?;
        for (number, border) in borders.iter().enumerate() {
            shape_tunnels(border, number, case)?;
        }
        let host = |site, number, name| host(&borders[site], site, number, name);
        let rig = Self {
            case,
            client: host(0, 1, "client")?,
            server: host(1, 1, "server")?,
            bulk: [host(0, 2, "bulk-a")?, host(1, 2, "bulk-b")?],
            borders: borders.clone(),
            _line: line,
        };
        for tunnel in 0..case.tunnels.len() {
            let address = address_of_tunnel(tunnel);
            let line = format!("ip address add {address}/32 dev {HOST_DEVICE}");
            rig.bulk[0].namespace.run(&line)?;
        }
        Ok(rig)
    }
}

impl Rig {
    /// Has a tunnel carry nothing, without a word to either border.
    pub(crate) fn cut(&self, tunnel: usize) -> Result<(), NamespaceError> {
        let device = device(tunnel);
        let chain = format!("type filter hook ingress device \"{device}\" priority 0;");
        let table = format!("table netdev {CUT} {{\nchain cut {{\n{chain}\ndrop\n}}\n}}\n");
        for border in &self.borders {
            border.run_with_input("nft -f -", &table)?;
        }
        Ok(())
    }

    /// Has it carry again what comes.
    pub(crate) fn mend(&self) -> Result<(), NamespaceError> {
        for border in &self.borders {
            border.run(&format!("nft delete table netdev {CUT}"))?;
        }
        Ok(())
    }
}

fn namespace(name: &str) -> Result<Namespace, NamespaceError> {
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

/// Sets up a border's ends of the tunnels; all that is not local goes into the best one.
fn shape_tunnels(border: &Namespace, number: usize, case: Case) -> Result<(), NamespaceError> {
    let mut batch = String::new();
    for (index, tunnel) in case.tunnels.iter().enumerate() {
        let (device, rate) = (device(index), tunnel.rate_mbit);
        let address = tunnel_address(number, index);
        let _ = writeln!(batch, "address add {address}/24 dev {device}");
        let _ = writeln!(batch, "link set dev {device} up");
        let limit = rate * 1_000 / 8 * QUEUE_MS;
        border.run(&format!(
            "tc qdisc add dev {device} root tbf rate {rate}mbit burst {BURST_BYTES} limit {limit}"
        ))?;
    }
    let (far, device) = (tunnel_address(1 - number, 0), device(0));
    let _ = writeln!(batch, "route add default via {far} dev {device}");
    border.run_with_input("ip -batch -", &batch)?;
    for index in 0..case.tunnels.len() {
        border.keep_flows_in_order(self::device(index))?;
    }
    Ok(())
}

/// A host at a border: 10.1.1.2 is the first one of site A, and 10.2.2.2 the second one of site B.
fn host(border: &Namespace, site: usize, number: u8, name: &str) -> Result<Host, NamespaceError> {
    let host = namespace(name)?;
    let device = if number == 1 { LAN } else { GENERATOR };
    border.connect(device, &host, HOST_DEVICE)?;
    let address = |end| Ipv4Addr::new(10, site as u8 + 1, number, end);
    let (gateway, own) = (address(1), address(2));
    for (namespace, device, address) in [(border, device, gateway), (&host, HOST_DEVICE, own)] {
        namespace.run_with_input(
            "ip -batch -",
            &format!("address add {address}/24 dev {device}\nlink set dev {device} up\n"),
        )?;
        namespace.keep_flows_in_order(device)?;
    }
    host.run(&format!("ip route add default via {gateway} congctl cubic"))?;
    Ok(Host {
        namespace: host,
        ipv4: own,
        ipv6: None,
    })
}
