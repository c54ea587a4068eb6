//! A router between a generator and the far ends of its two tunnels, in namespaces that go with it.

use std::thread::available_parallelism;

use anyhow::{Context as _, Result};
use flow_testbed::namespace::Namespace;
use nix::net::if_::if_nametoindex;

/// The router's devices: of the site, and of the tunnels for short and for long flows.
pub(crate) const LAN: &str = "lan0";
pub(crate) const TUNNELS: [&str; 2] = ["wan0", "wan1"];
/// Their far ends.
pub(crate) const GENERATOR: &str = "gen0";
pub(crate) const SINKS: [&str; 2] = ["sink0", "sink1"];

/// The link address of the router's device of the site.
pub(crate) const ROUTER: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Where the packets of the first flow go; those of each other go to an address of their own, as the
/// yardstick writes it.
pub(crate) const DESTINATION: [u8; 4] = [172, 16, 0, 0];

/// The bits of the kernel's mark that carry marks, as `steering.mode = "mark"` has them here.
pub(crate) const MARK_BITS: u32 = 0x3f00;

pub(crate) struct Rig {
    pub(crate) generator: Namespace,
    pub(crate) router: Namespace,
    pub(crate) sinks: Namespace,
}

impl Rig {
    /// Connects them; short flows go by the main table, long ones by one that no rule selects yet.
    pub(crate) fn new() -> Result<Self> {
        let rig = Self {
            generator: Namespace::new("generator")?,
            router: Namespace::new("router")?,
            sinks: Namespace::new("sinks")?,
        };
        let router = &rig.router;
        rig.generator.connect(GENERATOR, router, LAN)?;
        router.run(&format!("ip link set {LAN} address {}", mac(ROUTER)))?;
        router.run(&format!("ip addr add 10.255.0.1/8 dev {LAN}"))?;
        up(&rig.generator, GENERATOR)?;
        up(router, LAN)?;
        for (number, (tunnel, sink)) in (1..).zip(TUNNELS.into_iter().zip(SINKS)) {
            router.connect(tunnel, &rig.sinks, sink)?;
            up(router, tunnel)?;
            up(&rig.sinks, sink)?;
            router.run(&format!("ip addr add 192.0.{number}.2/24 dev {tunnel}"))?;
            let address = mac(link_address(&rig.sinks, sink)?);
            router.run(&format!(
                "ip neigh add 192.0.{number}.1 lladdr {address} dev {tunnel} nud permanent"
            ))?;
        }
        router.run("ip route add default via 192.0.1.1")?;
        router.run("ip route add default via 192.0.2.1 table 100")?;
        router.sysctl("net.ipv4.ip_forward", "1")?;
        for device in ["all", LAN] {
            router.sysctl(&format!("net.ipv4.conf.{device}.rp_filter"), "0")?;
        }
        Ok(rig)
    }

    /// Long flows go by their mark in the DSCP.
    pub(crate) fn route_by_dscp(&self) -> Result<()> {
        self.router.run("ip rule add tos 0x08 lookup 100")?;
        Ok(())
    }

    /// Long flows go by their mark beside the packet.
    pub(crate) fn route_by_mark(&self) -> Result<()> {
        self.router.run(&format!(
            "ip rule add fwmark 0x200/{MARK_BITS:#x} lookup 100"
        ))?;
        Ok(())
    }

    /// Conntrack counts the packets of each connection, and nftables marks those of long ones. Checksums
    /// of TCP are not looked at, as where a card has done it.
    pub(crate) fn split_by_nftables(&self, threshold: u64) -> Result<()> {
        for (key, value) in [
            ("nf_conntrack_acct", "1"),
            ("nf_conntrack_tcp_be_liberal", "1"),
            ("nf_conntrack_checksum", "0"),
        ] {
            self.router.sysctl(&format!("net.netfilter.{key}"), value)?;
        }
        let rules = format!(
            "table inet split {{
               chain from-site {{
                 type filter hook prerouting priority mangle; policy accept;
                 iifname != {LAN} accept
                 meta l4proto tcp ct original packets > {threshold} meta mark set 0x200
                 meta mark 0x200 ip dscp set 2
                 meta mark 0 ip dscp set 4
               }}
             }}"
        );
        self.router.run_with_input("nft -f -", &rules)?;
        self.route_by_mark()
    }
}

/// The number of a device.
pub(crate) fn index(namespace: &Namespace, device: &str) -> Result<u32> {
    let index = namespace.enter(|| if_nametoindex(device))?;
    index.with_context(|| format!("there is no {device}"))
}

/// As many queues as there are cores, so that none waits for another.
fn up(namespace: &Namespace, device: &str) -> Result<()> {
    let cores = available_parallelism()?;
    namespace.run(&format!("ethtool -L {device} rx {cores} tx {cores}"))?;
    namespace.run(&format!("ip link set {device} up"))?;
    Ok(())
}

/// What a device is called on its link.
pub(crate) fn link_address(namespace: &Namespace, device: &str) -> Result<[u8; 6]> {
    let shown = namespace.run(&format!("ip -o link show {device}"))?;
    let mut words = shown
        .split_whitespace()
        .skip_while(|it| *it != "link/ether");
    words.next();
    let shown = words.next().context("it has no link address")?;
    let bytes = shown.split(':').map(|it| u8::from_str_radix(it, 16));
    let bytes: Vec<_> = bytes.collect::<Result<_, _>>()?;
    bytes
        .try_into()
        .ok()
        .context("it has another link address than Ethernet's")
}

fn mac(address: [u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}
