//! The same traffic over tunnels of each kind, with packets of each length, steered in each way: two
//! tunnels for each class, TCP and what else can be split, IPv4 and IPv6.

use std::time::Duration;

use flow_testbed::topology::{GENERATOR, LAN};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::datagrams::{ALL, Arrived, Datagrams, esp, flows_of, gre};
use super::redirected::{be_redirectable, fallbacks, redirected};
use super::several::{
    Flows, Kind, Seen, add_tunnel, families, hash_by_ports, main_share_of, sections, tunnel,
};
use super::site::{Site, stdout};

const SHORT: [&str; 2] = ["tun4", "tun5"];
const LONG: [&str; 2] = ["tun6", "tun7"];
/// Beyond this many packets a flow is long.
const THRESHOLD: u64 = 10;
const DATAGRAMS: u64 = 5 * THRESHOLD;
/// Longer than the longest wait for a hand-over.
const PAUSE: Duration = Duration::from_millis(20);
/// Of all packets of one flow that goes on through the longest wait, so many at most are still sent
/// with the short class.
const UNTIL_MOVED: u64 = 10;
/// Of both address families, the longest header of an IP packet with its fragment header.
const HEADERS_BYTES: usize = 48;

/// A way to steer, and what over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Over {
    pub(crate) kind: Kind,
    pub(crate) mtu: u16,
    /// `steering.mode`.
    pub(crate) mode: &'static str,
    /// `attach.mode`, where it is not the default.
    pub(crate) attach: Option<&'static str>,
}

impl Over {
    pub(crate) const fn new(mode: &'static str, kind: Kind, mtu: u16) -> Self {
        Self {
            kind,
            mtu,
            mode,
            attach: None,
        }
    }

    /// With XDP in the network stack.
    pub(crate) const fn generic(self) -> Self {
        Self {
            attach: Some("generic"),
            ..self
        }
    }

    /// Splits over two tunnels for each class, and looks where everything goes.
    pub(crate) fn check(self, site: &Site) {
        let before = self.prepare(site);
        let daemon = site.run();
        self.check_attached(site);
        self.check_plan(site);
        self.check_connections(site);
        Self::wait_until_closed(site);
        self.check_counts(site);
        let arrived = Arrived::by(site, [&SHORT, &LONG]);
        for &is_ipv6 in families(site) {
            self.check_datagrams(site, &arrived, is_ipv6);
        }
        assert!(daemon.end(Signal::SIGTERM).success());
        site.assert_clean(&before);
    }

    /// What routing is then, before the agent comes.
    fn prepare(self, site: &Site) -> String {
        let topology = &site.topology;
        for number in 4..8 {
            add_tunnel(site, number, self.kind, self.mtu);
        }
        for (host, border) in [(&topology.client, 0), (&topology.server, 1)] {
            let run = |line: &str| host.namespace.run(line).expect("root");
            // The shaper in front of it takes no packets of more than 3,100 bytes.
            run("tc qdisc del dev eth0 root");
            run(&format!("ip link set eth0 mtu {}", self.mtu));
            // What is longer than a packet of the least MTU counts as several.
            for device in [LAN, GENERATOR] {
                let border = &topology.borders[border].namespace;
                let line = format!("ip link set {device} mtu {}", self.mtu);
                border.run(&line).expect("root");
            }
        }
        if self.mode == "redirect" {
            be_redirectable(site, &[SHORT, LONG].concat());
        }
        hash_by_ports(site);
        let classes = [
            &[tunnel(4, 1), tunnel(5, 1)][..],
            &[tunnel(6, 1), tunnel(7, 1)],
        ];
        let attach = match self.attach {
            Some(mode) => format!("[attach]\nmode = '{mode}'\n"),
            None => String::new(),
        };
        site.configure(&format!(
            "{}[steering]\nmode = '{}'\n{attach}\
             [flows]\ntable_size = 4096\nthreshold = {THRESHOLD}\nprotocols = {ALL}\n",
            sections(site, 0, classes, false),
            self.mode,
        ));
        site.routing()
    }

    fn check_attached(self, site: &Site) {
        let status = site.json(&["status"]);
        let mode = status["attached"][0]["mode"].as_str().expect("a word");
        match (self.mode, self.attach) {
            ("mark", _) => assert!(mode == "tcx" || mode == "clsact", "{status}"),
            (_, Some(wanted)) => assert_eq!(mode, wanted, "{status}"),
            (_, None) => assert_eq!(mode, "native", "{status}"),
        }
    }

    /// Whether packets can be put into the tunnels.
    fn is_redirectable(self) -> bool {
        let is_taken = matches!(self.kind, Kind::Veth) || self.attach == Some("generic");
        self.mode == "redirect" && is_taken
    }

    /// Whether XDP sees packets of full length in several pages, also in the network stack.
    fn is_in_pieces(self) -> bool {
        self.mtu > 4_000
    }

    fn check_plan(self, site: &Site) {
        let plan = stdout(&site.splitter(&["plan"]));
        let by_stack = "packets for tun4 go by the network stack: its driver takes no redirected";
        let none = "= redirect into no tunnel";
        let all = "= redirect into tun4, tun5, tun6, tun7";
        let expected = [
            self.mode == "redirect" && !self.is_redirectable(),
            self.mode == "redirect" && !self.is_redirectable(),
            self.is_redirectable(),
        ];
        assert_eq!(
            [by_stack, none, all].map(|it| plan.contains(it)),
            expected,
            "{plan}"
        );
    }

    /// TCP, with connections that turn long.
    fn check_connections(self, site: &Site) {
        let seen = Seen::at(&site.topology.borders[1].namespace);
        for &is_ipv6 in families(site) {
            let mut flows = Flows::open(site, is_ipv6, 64);
            flows.send(64, 1);
            // Nothing is shaped, so that they are over before they may change tunnels but for a
            // pause.
            flows.send(32, usize::from(self.mtu) * 50);
            std::thread::sleep(PAUSE);
            flows.send(32, usize::from(self.mtu) * 120);
            let ways = seen.flows(is_ipv6, flows.to_port);
            for (devices, count) in [(SHORT, 64), (LONG, 32)] {
                // What is redirected may have another tunnel than what is not.
                let strays = if self.mode == "redirect" { u64::MAX } else { 0 };
                let (in_first, all) = main_share_of(&ways, devices, strays);
                println!("{self:?}: {in_first} of {all} flows in {}", devices[0]);
                assert_eq!(all, count, "{ways:?}");
                assert!((1..count).contains(&in_first), "{in_first} of {all}");
            }
        }
    }

    /// Until then they still send, and are counted.
    fn wait_until_closed(site: &Site) {
        for host in [&site.topology.client, &site.topology.server] {
            site.wait_for("the connections to close", || {
                let open = host.namespace.run("ss -Htn").expect("it lists them");
                open.trim().is_empty().then_some(())
            });
        }
    }

    /// What the splitter says of these connections.
    fn check_counts(self, site: &Site) {
        let status = site.json(&["status"]);
        let traffic = status["traffic"].as_array().expect("a list").iter();
        let long = traffic.filter(|it| it["class"] == "long" && it["tunnel"] == "long");
        let counts: Vec<_> = long
            .map(|it| (it["packets"].as_f64(), it["bytes"].as_f64()))
            .collect();
        let [(Some(packets), Some(bytes))] = counts[..] else {
            panic!("{status}");
        };
        let mean_bytes = bytes / packets;
        println!("{self:?}: {packets} packets of {mean_bytes} bytes in the long tunnels");
        assert!(packets > 32.0 * 100.0, "{status}");
        // Some are acknowledgements.
        let mtu = f64::from(self.mtu);
        assert!((0.7 * mtu..mtu + 18.0).contains(&mean_bytes), "{status}");
        // What hosts say of themselves is not split; all else was understood.
        let others = ["not_ip", "other_protocol"];
        let passed = status["passed"].as_array().expect("a list").iter();
        let untreated: Vec<_> = passed
            .filter(|it| others.iter().all(|other| it["reason"] != **other))
            .collect();
        assert!(untreated.is_empty(), "{untreated:?}");
        if self.mode != "redirect" {
            return;
        }
        let redirected = redirected(site);
        if !self.is_redirectable() {
            assert_eq!(redirected, 0.0);
            return;
        }
        if self.is_in_pieces() {
            assert!(fallbacks(site, "scattered") > 0.9 * packets, "{status}");
            assert!(redirected > 64.0, "{status}");
        } else {
            assert!(redirected > 0.9 * packets, "{status}");
        }
        for reason in ["not_ours", "no_route", "too_large", "options", "checksum"] {
            let packets = fallbacks(site, reason);
            assert!(packets < 20.0, "{packets} by {reason}: {status}");
        }
    }

    /// Everything else: UDP whole and in fragments, ESP and GRE.
    fn check_datagrams(self, site: &Site, arrived: &Arrived<'_>, is_ipv6: bool) {
        let whole = Sample {
            bytes: 500,
            packets: 1,
        };
        let per_packet = usize::from(self.mtu) - HEADERS_BYTES;
        let in_three = Sample {
            bytes: 5 * per_packet / 2,
            packets: 3,
        };
        for (sample, is_whole) in [(whole, true), (in_three, false)] {
            let mut stream = Datagrams::between(site, is_ipv6);
            let moved = (put_in(site), of_fragments(site));
            let unknown = unresolved(site);
            let all = DATAGRAMS * sample.packets;
            let come = arrived.meanwhile(all, || stream.send(DATAGRAMS, sample.bytes));
            let flow = site.datagrams_from(stream.port());
            self.assert_split(&flow, come, sample.packets);
            if self.is_redirectable() {
                let put_in = put_in(site) - moved.0;
                let fragments = of_fragments(site) - moved.1;
                let all = all as f64;
                let expected = if is_whole { (all, 0.0) } else { (0.0, all) };
                let by_stack = &site.json(&["status"])["redirected"];
                assert_eq!((put_in, fragments), expected, "{sample:?}: {by_stack}");
                assert!(unresolved(site) - unknown <= 1.0, "{by_stack}");
            }
        }
        let number = 1 + u8::from(is_ipv6);
        for (packets, identifier) in [
            (esp(number), 0x100 + u64::from(number)),
            (gre(number), number.into()),
        ] {
            let (before, unknown) = (put_in(site), unresolved(site));
            let send = || packets.send(site, is_ipv6, DATAGRAMS);
            let come = arrived.meanwhile(DATAGRAMS, send);
            let flows = flows_of(site, packets.name);
            let flow = flows.iter().find(|it| it["identifier"] == identifier);
            let flow = flow.unwrap_or_else(|| panic!("{identifier}: {flows:?}"));
            self.assert_split(flow, come, 1);
            if self.is_redirectable() {
                let by_stack = &site.json(&["status"])["redirected"];
                let put_in = put_in(site) - before;
                assert_eq!(put_in, DATAGRAMS as f64, "{packets:?}: {by_stack}");
                assert!(unresolved(site) - unknown <= 1.0, "{by_stack}");
            }
        }
    }

    /// All packets of a flow were counted, and have come by the tunnels of its class.
    fn assert_split(self, flow: &Value, [short, long]: [u64; 2], packets: u64) {
        let reported = format!("{self:?}: {short} short, {long} long: {flow}");
        assert_eq!(
            (&flow["class"], &flow["tunnel"]),
            (&"long".into(), &"long".into()),
            "{reported}"
        );
        assert_eq!(flow["packets"], DATAGRAMS * packets, "{reported}");
        assert!(
            (THRESHOLD..=THRESHOLD + UNTIL_MOVED * packets).contains(&short),
            "{reported}"
        );
        assert_eq!(short + long, DATAGRAMS * packets, "{reported}");
    }
}

/// Datagrams of so many bytes, of so many packets each.
#[derive(Clone, Copy, Debug)]
struct Sample {
    bytes: usize,
    packets: u64,
}

/// Packets that were redirected, with the few that were to be when the kernel did not know the next hop's address:
/// on a busy machine it may take an entry for gone before anybody has kept it.
fn put_in(site: &Site) -> f64 {
    redirected(site) + unresolved(site)
}

/// Those few.
fn unresolved(site: &Site) -> f64 {
    fallbacks(site, "no_neighbour")
}

/// Fragments that were left to the stack; those in pieces may be counted as that.
fn of_fragments(site: &Site) -> f64 {
    fallbacks(site, "fragment") + fallbacks(site, "scattered")
}
