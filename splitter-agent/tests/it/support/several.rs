//! More tunnels between the borders of a site, and which of them flows take.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream};

use flow_testbed::namespace::Namespace;
use flow_testbed::topology::{GENERATOR, Host, LAN};
use serde_json::Value;

use super::site::{PATIENCE, Site, within};

/// What [`Seen`] needs.
pub(crate) const COUNTS: &str = "iifname \"tun*\" meta nfproto ipv4 tcp dport 1 counter";

/// What tunnels are made of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A cable.
    Veth,
    /// A tunnel through a cable of its own; this is `ip`'s kind.
    Over(&'static str),
}

/// A tunnel: its device is `tun` and its number, which also reports its addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tunnel {
    pub(crate) number: u8,
    pub(crate) weight: u8,
}

pub(crate) const fn tunnel(number: u8, weight: u8) -> Tunnel {
    Tunnel { number, weight }
}

/// Joins both borders by one more tunnel.
pub(crate) fn add_tunnel(site: &Site, number: u8, kind: Kind, mtu: u16) {
    let borders = site.topology.borders.each_ref().map(|it| &it.namespace);
    let [near, far] = borders;
    let device = format!("tun{number}");
    match kind {
        Kind::Veth => near.connect(&device, far, &device).expect("root"),
        Kind::Over(_) => near
            .connect(&format!("und{number}"), far, &format!("und{number}"))
            .expect("root"),
    }
    for (border, own, other) in [(near, 1, 2), (far, 2, 1)] {
        let mut batch = String::new();
        if let Kind::Over(kind) = kind {
            let under = format!("und{number}");
            let _ = writeln!(batch, "link set {under} addrgenmode none");
            let _ = writeln!(batch, "link set {under} up mtu {}", mtu + 100);
            let _ = writeln!(batch, "address add 10.8.{number}.{own}/24 dev {under}");
            let ends = format!("local 10.8.{number}.{own} remote 10.8.{number}.{other}");
            let settings = match kind {
                "vxlan" => format!("vxlan id {number} {ends} dev {under} dstport 4789"),
                "vlan" => format!("vlan id {number}"),
                "gre" => format!("gre {ends} ttl 64"),
                other => panic!("{other} is no kind of tunnel"),
            };
            let link = if kind == "vlan" {
                format!("link {under}")
            } else {
                String::new()
            };
            let _ = writeln!(batch, "link add {link} name {device} type {settings}");
        }
        // A link-local address at once: by itself it comes when it has been found to be free, and
        // before that no neighbour is asked for.
        let _ = writeln!(batch, "link set {device} addrgenmode none");
        let _ = writeln!(batch, "link set {device} up mtu {mtu}");
        let _ = writeln!(batch, "address add 10.9.{number}.{own}/24 dev {device}");
        if site.topology.client.ipv6.is_some() {
            let _ = writeln!(
                batch,
                "address add fd00:9:{number}::{own}/64 dev {device} nodad"
            );
            let _ = writeln!(batch, "address add fe80::{own}/64 dev {device} nodad");
        }
        border.run_with_input("ip -batch -", &batch).expect("root");
    }
    // The first end was up before there was another one.
    site.wait_for("the tunnel to be up", || {
        let routes =
            ["ip route", "ip -6 route"].map(|look| near.run(&format!("{look} show table all")));
        let is_up = |routes: &String| !routes.contains("linkdown");
        routes.iter().flatten().all(is_up).then_some(())
    });
}

/// Lets both borders spread flows by ports, and hosts keep the hash of a connection: what stands
/// for it on a wire are its ports, which do not change when it is sent again.
pub(crate) fn hash_by_ports(site: &Site) {
    for border in &site.topology.borders {
        for family in ["ipv4", "ipv6"] {
            if family == "ipv6" && site.topology.client.ipv6.is_none() {
                continue;
            }
            let key = format!("net.{family}.fib_multipath_hash_policy");
            border.namespace.sysctl(&key, "1").expect("it is there");
        }
    }
    for host in [&site.topology.client, &site.topology.server] {
        let _ = host.namespace.sysctl("net.core.txrehash", "0");
    }
}

/// The families that the kernel has: whether IPv6.
pub(crate) fn families(site: &Site) -> &'static [bool] {
    match site.topology.client.ipv6 {
        Some(_) => &[false, true],
        None => &[false],
    }
}

/// The sections with the tunnels of both classes, as one border (0 or 1) has them.
pub(crate) fn sections(
    site: &Site,
    border: usize,
    [short, long]: [&[Tunnel]; 2],
    has_peers: bool,
) -> String {
    let far = 2 - border;
    let listed = |class: &str, tunnels: &[Tunnel]| {
        let section = |Tunnel { number, weight }: &Tunnel| {
            let mut gateway = vec![format!("10.9.{number}.{far}")];
            if site.topology.client.ipv6.is_some() {
                gateway.push(format!("fd00:9:{number}::{far}"));
            }
            let peer = match has_peers {
                true => format!("peer = '10.9.{number}.{far}'\n"),
                false => String::new(),
            };
            format!(
                "[[{class}.tunnels]]\ndevice = 'tun{number}'\ngateway = {gateway:?}\n\
                 weight = {weight}\nrate_mbit = 100\n{peer}"
            )
        };
        tunnels.iter().map(section).collect::<String>()
    };
    listed("short", short) + &listed("long", long)
}

/// The configuration of the other border.
pub(crate) fn far_configuration(site: &Site, sections: &str) -> String {
    format!(
        "name = 'far'\nlan = ['{LAN}', '{GENERATOR}']\nruntime_dir = {:?}\nbpffs = {:?}\n\
         [flows]\ntable_size = 4096\n{sections}",
        site.path("run"),
        site.bpffs(),
    )
}

/// TCP connections from the client at the first site to one port of the server at the other.
pub(crate) struct Flows {
    ends: Vec<(TcpStream, TcpStream)>,
    pub(crate) to_port: u16,
}

impl Flows {
    pub(crate) fn open(site: &Site, is_ipv6: bool, count: usize) -> Self {
        let (from, to) = (&site.topology.client, &site.topology.server);
        let address = |host: &Host| match is_ipv6 {
            true => IpAddr::V6(host.ipv6.expect("it was asked for")),
            false => IpAddr::V4(host.ipv4),
        };
        let listener = to.namespace.enter(|| TcpListener::bind((address(to), 0)));
        let listener = listener.expect("it exists").expect("a port");
        // Should one not come, the test ends.
        listener.set_nonblocking(true).expect("a setting");
        let to = listener.local_addr().expect("it has one");
        let connect = || {
            let connect = |_| TcpStream::connect_timeout(&to, PATIENCE).expect("it is reached");
            (0..count).map(connect).collect::<Vec<_>>()
        };
        let mut far = std::thread::scope(|scope| {
            let accepting = scope.spawn(|| {
                let accept = |_| within(PATIENCE, "a connection", || listener.accept().ok());
                (0..count).map(|it| accept(it).0).collect::<Vec<_>>()
            });
            let near = from.namespace.enter(connect).expect("it exists");
            let far = accepting.join().expect("no panic");
            near.into_iter().zip(far).collect::<Vec<_>>()
        });
        // Whichever was accepted first.
        let mut accepted: BTreeMap<_, _> = BTreeMap::new();
        let mut ends = Vec::new();
        for (near, far) in far.drain(..) {
            accepted.insert(far.peer_addr().expect("it has one").port(), far);
            ends.push(near);
        }
        let ends = ends.into_iter().map(|near| {
            let port = near.local_addr().expect("it has one").port();
            let far = accepted.remove(&port).expect("each was accepted");
            far.set_nonblocking(false).expect("a setting");
            for stream in [&near, &far] {
                stream.set_nodelay(true).expect("a setting");
                stream.set_read_timeout(Some(PATIENCE)).expect("a setting");
                stream.set_write_timeout(Some(PATIENCE)).expect("a setting");
            }
            (near, far)
        });
        Self {
            ends: ends.collect(),
            to_port: to.port(),
        }
    }

    /// Sends so many bytes over the first `count`, one after the other, and waits until they are
    /// there.
    pub(crate) fn send(&mut self, count: usize, bytes: usize) {
        let (data, mut received) = (vec![7; bytes], vec![0; bytes]);
        for (near, far) in self.ends.iter_mut().take(count) {
            std::thread::scope(|scope| {
                let sending = scope.spawn(|| near.write_all(&data));
                far.read_exact(&mut received).expect("all arrives");
                sending.join().expect("no panic").expect("all is sent");
            });
        }
    }
}

impl Flows {
    /// Sends a byte over each, which may take what `meanwhile` does to be there.
    pub(crate) fn send_during(&mut self, meanwhile: impl FnOnce()) {
        for (near, _) in &mut self.ends {
            near.write_all(&[7]).expect("it is sent");
        }
        meanwhile();
        for (_, far) in &mut self.ends {
            far.read_exact(&mut [0]).expect("it arrives");
        }
    }
}

/// Packets by source port and tunnel that a border receives from now on, on one port.
pub(crate) struct Seen<'a>(&'a Namespace);

/// Packets by tunnel.
pub(crate) type Ways = BTreeMap<String, u64>;

impl<'a> Seen<'a> {
    /// Of all TCP ports of `border`.
    pub(crate) fn at(border: &'a Namespace) -> Self {
        let sets = ["v4", "v6"].map(|set| {
            format!("set {set} {{\ntypeof iifname . tcp dport . tcp sport\nsize 65535\nflags dynamic\ncounter\n}}\n")
        });
        let rules = ["v4", "v6"].map(|set| {
            format!("iifname \"tun*\" meta nfproto ip{set} update @{set} {{ iifname . tcp dport . tcp sport }}\n")
        });
        let chain = "type filter hook prerouting priority -300;\n";
        let table = format!(
            "table inet seen {{\n{}chain seen {{\n{chain}{}}}\n}}\n",
            sets.concat(),
            rules.concat()
        );
        border
            .run_with_input("nft -f -", &table)
            .expect("it was tried");
        Self(border)
    }

    /// The ways that each flow to `port` has taken, by its source port.
    pub(crate) fn flows(&self, is_ipv6: bool, port: u16) -> BTreeMap<u16, Ways> {
        let set = if is_ipv6 { "v6" } else { "v4" };
        let shown = self.0.run(&format!("nft -j list set inet seen {set}"));
        let shown: Value = serde_json::from_str(&shown.expect("it is there")).expect("JSON");
        let mut flows: BTreeMap<u16, Ways> = BTreeMap::new();
        let entries = shown["nftables"][1]["set"]["elem"].as_array();
        for entry in entries.into_iter().flatten() {
            let (key, counter) = (&entry["elem"]["val"]["concat"], &entry["elem"]["counter"]);
            if key[1].as_u64() != Some(port.into()) {
                continue;
            }
            let source = key[2].as_u64().and_then(|it| u16::try_from(it).ok());
            let device = key[0].as_str().expect("a name").to_owned();
            let packets = counter["packets"].as_u64().expect("a number");
            let ways = flows.entry(source.expect("a port")).or_default();
            ways.insert(device, packets);
        }
        flows
    }
}

impl Drop for Seen<'_> {
    fn drop(&mut self) {
        let _ = self.0.run("nft delete table inet seen");
    }
}

/// The share of flows that one of two tunnels had, of those that had either; and no flow had both.
#[track_caller]
pub(crate) fn share_of(flows: &BTreeMap<u16, Ways>, devices: [&str; 2]) -> (usize, usize) {
    main_share_of(flows, devices, 0)
}

/// The share of flows that one of two tunnels had, of those that had either; no flow had more than
/// so many packets in the one that it used less.
#[track_caller]
pub(crate) fn main_share_of(
    flows: &BTreeMap<u16, Ways>,
    [one, other]: [&str; 2],
    strays: u64,
) -> (usize, usize) {
    let (mut in_one, mut all) = (0, 0);
    for (port, ways) in flows {
        let [in_first, in_second] = [one, other].map(|it| ways.get(it).copied().unwrap_or(0));
        assert!(
            in_first.min(in_second) <= strays,
            "the flow from port {port} had both: {ways:?}"
        );
        in_one += usize::from(in_first > in_second);
        all += usize::from(in_first + in_second > 0);
    }
    (in_one, all)
}
