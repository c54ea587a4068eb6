//! A border router in the interpreter: the programs with settings, a clock, and routes.

use anyhow::{Context as _, Result};
use flow_balance::RemoteBacklogs;
use splitter_policy::clock::TickClock;
use splitter_policy::config::PolicyConfig;
use splitter_policy::counters::{Counters, FlowEvent};
use splitter_policy::dscp::Dscp;
use splitter_policy::egress_counts::{EgressCounts, Marked};
use splitter_policy::flow::{Class, FlowKey, Seeds, TunnelRole};
use splitter_policy::forward::{Fallback, Mac, target};
use splitter_policy::next_hop::{Generation, TunnelHop, TunnelHops};
use splitter_policy::packet::{Network, Transport};
use splitter_policy::pass_reason::PassReason;
use splitter_policy::paths::{SitePaths, UplinkNumbers};
use splitter_policy::prefix_lengths::{PrefixLengthsBuilder, Reach};
use splitter_policy::reverse::ReverseEntry;
use splitter_policy::settings::Settings;
use splitter_policy::sites::SiteKey;
use splitter_policy::table::Layout;
use splitter_policy::thresholds::ThresholdIndex;

use crate::context::Metadata;
use crate::counts::Counts;
use crate::helpers::Route;
use crate::machine::{Machine, Ran, inner_name};
use crate::plain::{Plain, bytes_of, value_of};

/// The programs of an object at work.
#[derive(Debug)]
pub struct Border {
    machine: Machine,
    config: PolicyConfig,
    layout: Layout,
    program: &'static str,
    metadata: Metadata,
}

/// The outcome of one packet: what it took, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// What was executed.
    pub counts: Counts,
    /// What was done, in words that a path is held to.
    pub done: Vec<String>,
}

/// Flows that the table is made for, of each family.
pub const TABLE_SIZE: u32 = 4_096;

/// Fixed, so that each flow has the same place in each run.
pub const SEEDS: Seeds = [
    0x9e37_79b9_7f4a_7c15,
    0xbf58_476d_1ce4_e5b9,
    0x94d0_49bb_1331_11eb,
    0xd6e8_feb8_6659_fd93,
    0xa076_1d64_78bd_642f,
    0xe703_7ed1_a0b4_28db,
    0x8ebc_6af0_9c88_c6e3,
    0x5899_65cc_7537_4cc3,
    0x1d8e_4e27_c47d_124f,
    0xeb44_acca_b455_d165,
];

/// Of a kernel with 250 ticks a second.
const TICK_NS: u64 = 4_000_000;
const BOOTED_TICKS: u64 = 1_000_000;

/// Numbers of devices: of the site, and of the tunnel that the routes lead to.
const SITE: u32 = 2;
pub(crate) const TUNNEL: u32 = 7;

/// Where the tunnel stands among the devices that packets can be put into.
const TARGET_SLOT: u32 = 3;

/// The link address that packets from the site are for.
const OWN_ADDRESS: [u8; 6] = [4; 6];

impl Border {
    /// Loads the programs, of which `program` is run, with settings.
    ///
    /// # Errors
    /// When the object does not load, or lacks a map.
    pub fn new(object: &[u8], program: &'static str, config: PolicyConfig) -> Result<Self> {
        let layout = Layout::for_flows(TABLE_SIZE, SEEDS);
        let sizes = [
            ("FLOWS_V4", layout.groups_v4),
            ("FLOWS_V6", layout.groups_v6),
            ("TAGS", layout.groups_v4 + layout.groups_v6),
        ];
        let mut border = Self {
            machine: Machine::load(object, &sizes)?,
            config,
            layout,
            program,
            metadata: Metadata {
                came_in_by: SITE,
                ..Metadata::default()
            },
        };
        border.set(".data.settings", &0_u32, &border.settings())?;
        border.pass_ticks(BOOTED_TICKS);
        Ok(border)
    }

    /// Lets so many clock ticks pass.
    pub fn pass_ticks(&mut self, ticks: u64) {
        let kernel = &mut self.machine.kernel;
        kernel.ticks += ticks;
        // In the middle of a tick.
        kernel.monotonic_ns = kernel.ticks * TICK_NS + TICK_NS / 2;
    }

    /// Lets so much time pass that all flows are over.
    pub fn end_flows(&mut self) {
        self.pass_ticks(2 * self.config.idle_timeout_ns / TICK_NS);
    }

    /// Sends a packet, of which nothing but what it changes is of interest.
    ///
    /// # Errors
    /// When the program does what it may not, or what is not emulated.
    pub fn send(&mut self, frame: &[u8]) -> Result<Ran> {
        Ok(self.machine.run(self.program, frame, self.metadata)?)
    }

    /// Sends a packet several times.
    ///
    /// # Errors
    /// As [`Border::send`].
    pub fn send_times(&mut self, frame: &[u8], times: usize) -> Result<()> {
        (0..times).try_for_each(|_| self.send(frame).map(|_| ()))
    }

    /// Sends a packet and says what it took and what was done.
    ///
    /// # Errors
    /// As [`Border::send`].
    pub fn measure(&mut self, frame: &[u8]) -> Result<Measured> {
        let before = self.counted()?;
        let ran = self.send(frame)?;
        let after = self.counted()?;
        let mut done = vec![self.verdict(ran.verdict).to_owned()];
        done.extend(rises(&before, &after));
        done.extend(changes(frame, &ran, self.metadata));
        Ok(Measured {
            counts: ran.counts,
            done,
        })
    }

    /// The first slots of both lines that a flow's look-up begins with, as the table places it.
    ///
    /// # Errors
    /// When the frame is no packet of a flow.
    pub fn place(&self, frame: &[u8]) -> Result<(u32, usize)> {
        let network = Network::parse(frame).ok().context("no IP packet")?;
        let transport = Transport::parse(frame, &network).ok();
        let Some(Transport::Tcp(header)) = transport else {
            anyhow::bail!("no TCP segment");
        };
        let key = FlowKey::new(network.addresses, &header);
        Ok(self.layout.place(&key))
    }

    /// Gives the destinations of all packets the threshold with a number.
    ///
    /// # Errors
    /// When the object has no such map.
    pub fn set_site(&mut self, prefix: std::net::IpAddr, index: ThresholdIndex) -> Result<()> {
        let SiteKey { words, bits } = SiteKey::of_prefix(prefix, 8);
        let words = words.map(u32::to_ne_bytes).concat();
        let key = [&bits.to_ne_bytes()[..], &words].concat();
        let index = index.number() as u32;
        Ok(self.machine.set("SITES", &key, &index.to_ne_bytes())?)
    }

    /// Lets packets be redirected into a tunnel's device, which is counted; the kernel is asked for
    /// each.
    ///
    /// # Errors
    /// When the object has no such maps.
    pub fn redirect(&mut self) -> Result<()> {
        self.machine.kernel.route = Some(Route {
            device: TUNNEL,
            own_address: [6; 6],
            next_hop: [8; 6],
        });
        let device = [TUNNEL.to_ne_bytes(), [0; 4]].concat();
        let machine = &mut self.machine;
        machine.set("TARGETS", &TARGET_SLOT.to_ne_bytes(), &device)?;
        for tunnel in TunnelRole::ALL {
            let key = target(TUNNEL, tunnel).to_ne_bytes();
            machine.set("TARGET_SLOTS", &key, &TARGET_SLOT.to_ne_bytes())?;
        }
        self.set("LAN_ADDRESSES", &SITE, &Mac::new(OWN_ADDRESS))
    }

    /// Has routing lead packets of this traffic class by the tunnel, and all others by another one.
    ///
    /// # Errors
    /// When the object has no such maps.
    pub fn part_ways(&mut self, traffic_class: u8) -> Result<()> {
        const OTHER: u32 = TUNNEL + 1;
        const OTHER_SLOT: u32 = TARGET_SLOT + 1;
        let kernel = &mut self.machine.kernel;
        kernel.route_of = kernel.route.map(|route| (traffic_class, route));
        kernel.route = kernel.route.map(|route| Route {
            device: OTHER,
            ..route
        });
        let device = [OTHER.to_ne_bytes(), [0; 4]].concat();
        let machine = &mut self.machine;
        machine.set("TARGETS", &OTHER_SLOT.to_ne_bytes(), &device)?;
        for tunnel in TunnelRole::ALL {
            let key = target(OTHER, tunnel).to_ne_bytes();
            machine.set("TARGET_SLOTS", &key, &OTHER_SLOT.to_ne_bytes())?;
        }
        Ok(())
    }

    /// Has the program believe what it notes of next hops from now on, with routes as a border has them:
    /// by default over the tunnel, and in the octet of the destinations one that is longer than usual.
    ///
    /// # Errors
    /// When the object has no such maps.
    pub fn vouch(&mut self) -> Result<()> {
        let mut lengths = PrefixLengthsBuilder::new();
        for (prefix, length) in [
            ("0.0.0.0", 0),
            ("::", 0),
            ("10.255.255.1", 32),
            ("e0ff::1", 128),
        ] {
            lengths.add(prefix.parse()?, length, Reach::Prefix);
        }
        self.set(".data.prefixes", &0, &lengths.build())?;
        self.set(".data.routing", &0, &Generation::new(1))?;
        self.set(".data.vouched", &0, &u64::MAX)
    }

    /// Has packets choose among the tunnels of a site.
    ///
    /// # Errors
    /// When the object has no such map.
    pub fn balance(&mut self, site: &SitePaths) -> Result<()> {
        self.set("SITE_PATHS", &0, site)
    }

    /// Has packets that choose be redirected into the tunnels, all of whose next hops are behind one device.
    ///
    /// # Errors
    /// When the object has no such map.
    pub fn keep_hops(&mut self) -> Result<()> {
        let hop = TunnelHop {
            device: TUNNEL,
            slot: TARGET_SLOT,
            link: [7; 12],
        };
        let hops = TunnelHops {
            mtu: 1_500,
            hops: [hop; flow_balance::MAX_PATHS],
        };
        self.set("TUNNEL_HOPS", &0, &hops)?;
        self.set("TUNNEL_HOPS", &1, &hops)
    }

    /// Has spines report: of their ports to the leaf that all IPv4 and IPv6 lies at, by the tunnels' own numbers.
    ///
    /// # Errors
    /// When the object has no such maps.
    pub fn hear(&mut self, uplinks: &UplinkNumbers, reports: &RemoteBacklogs) -> Result<()> {
        const LEAF: u32 = 5;
        self.set("HEARD_UPLINKS", &0, uplinks)?;
        for outer in ["HEARD", "HEARD_LEAVES"] {
            self.machine.give(outer)?;
        }
        self.set(&inner_name("HEARD"), &LEAF, reports)?;
        for everything in ["0.0.0.0", "::"] {
            let SiteKey { words, bits } = SiteKey::of_prefix(everything.parse()?, 0);
            let key: Vec<_> = [bits].into_iter().chain(words).collect();
            let key: Vec<_> = key.iter().flat_map(|it| it.to_ne_bytes()).collect();
            let leaves = inner_name("HEARD_LEAVES");
            self.machine.set(&leaves, &key, &LEAF.to_ne_bytes())?;
        }
        Ok(())
    }

    /// Hands packets from the site to a tunnel's device, which is counted.
    ///
    /// # Errors
    /// When the object has no such maps.
    pub fn leave_by_tunnel(&mut self) -> Result<()> {
        self.metadata.handed_to = TUNNEL;
        self.set_number("SITE_DEVICES", SITE)?;
        self.set("EGRESS", &TUNNEL, &EgressCounts::ZERO)
    }

    /// Hands packets of the border's own to a tunnel's device, as [`Border::leave_by_tunnel`] does those of the site.
    ///
    /// # Errors
    /// When the object has no such maps.
    pub fn leave_by_tunnel_unasked(&mut self) -> Result<()> {
        self.leave_by_tunnel()?;
        self.metadata.came_in_by = 0;
        Ok(())
    }

    /// Hands packets from a tunnel to a device of the site.
    ///
    /// # Errors
    /// When the object has no such map.
    pub fn leave_by_site(&mut self) -> Result<()> {
        self.metadata = Metadata {
            came_in_by: TUNNEL,
            handed_to: SITE,
            mark: 0,
        };
        self.set_number("SITE_DEVICES", SITE)
    }

    /// The counters of the programs, as they are now.
    ///
    /// # Errors
    /// When the object has no such map, or one of another shape.
    pub fn counters(&self) -> Result<Counters> {
        let values = self.machine.values("COUNTERS")?;
        let [counters] = values[..] else {
            anyhow::bail!("COUNTERS has more than one value");
        };
        value_of(counters).context("COUNTERS has a value of another shape")
    }

    fn settings(&self) -> Settings {
        let clock = TickClock {
            tick_ns: TICK_NS,
            offset_ns: 0,
        };
        Settings::new(self.config, clock, self.layout)
    }

    fn set<T: Plain>(&mut self, map: &str, key: &u32, value: &T) -> Result<()> {
        Ok(self.machine.set(map, &key.to_ne_bytes(), bytes_of(value))?)
    }

    fn set_number(&mut self, map: &str, number: u32) -> Result<()> {
        let bytes = number.to_ne_bytes();
        Ok(self.machine.set(map, &bytes, &bytes)?)
    }

    fn verdict(&self, verdict: u32) -> &'static str {
        // `XDP_*`, or `TCX_*`.
        match (self.program, verdict) {
            ("split" | "redirect" | "redir_balanced", 1)
            | ("mark" | "mark_balanced" | "split_balanced", 2) => "drop",
            ("split" | "redirect" | "redir_balanced", 2) => "pass",
            ("redirect" | "redir_balanced", 4) => "redirect",
            ("mark" | "mark_balanced" | "split_balanced" | "count_egress" | "tap", u32::MAX) => {
                "next"
            }
            _ => "an unknown verdict",
        }
    }

    fn counted(&self) -> Result<Counted> {
        let values = |map| -> Result<_> { Ok(self.machine.values(map)?) };
        let mut left = EgressCounts::ZERO;
        for map in ["EGRESS", "REDIRECTED"] {
            for bytes in values(map)? {
                let counts = value_of(bytes);
                left.add(&counts.with_context(|| format!("{map} has values of another shape"))?);
            }
        }
        let came_back: Option<Vec<ReverseEntry>> =
            values("REVERSE")?.into_iter().map(value_of).collect();
        let tapped = values("TAPPED")?.len();
        let came_back = came_back.context("REVERSE has values of another shape")?;
        Ok(Counted {
            counters: self.counters()?,
            left,
            came_back: came_back.iter().map(|it| it.packets).sum(),
            reverse_flows: came_back.len(),
            tapped,
        })
    }
}

/// All that is counted.
struct Counted {
    counters: Counters,
    left: EgressCounts,
    came_back: u64,
    reverse_flows: usize,
    tapped: usize,
}

/// What one has counted more than the other, a line each; how much is said where it is not one.
fn rises(before: &Counted, after: &Counted) -> Vec<String> {
    let mut rises = Vec::new();
    let mut note = |what: String, before: u64, after: u64| match after - before {
        0 => {}
        1 => rises.push(what),
        more => rises.push(format!("{what} +{more}")),
    };
    let (old, new) = (&before.counters, &after.counters);
    for class in [Class::Short, Class::Long] {
        for tunnel in [TunnelRole::Short, TunnelRole::Long] {
            let sent = |of: &Counters| of.packets(class, tunnel);
            note(format!("{class:?} on {tunnel:?}"), sent(old), sent(new));
        }
        let finished = |of: &Counters| of.finished(class);
        note(format!("{class:?} finished"), finished(old), finished(new));
    }
    for code in 0..FlowEvent::COUNT as u64 {
        if let Some(event) = FlowEvent::from_code(code) {
            note(format!("{event:?}"), old.events(event), new.events(event));
        }
    }
    for reason in PassReason::ALL {
        let passed = |of: &Counters| of.passed(reason);
        note(reason.name().to_owned(), passed(old), passed(new));
    }
    for reason in Fallback::ALL {
        let fell_back = |of: &Counters| of.fallbacks(reason);
        let what = format!("falls back: {}", reason.name());
        note(what, fell_back(old), fell_back(new));
    }
    type Count = fn(&Counters) -> u64;
    let others: [(&str, Count); 4] = [
        ("redirected", |of| of.redirected),
        ("asked the FIB", |of| of.fib_lookups),
        ("mark overridden", |of| of.marks_overridden),
        ("mark failed", |of| of.mark_failures),
    ];
    for (what, count) in others {
        note(what.to_owned(), count(old), count(new));
    }
    for marked in Marked::ALL {
        for (family, is_v6) in [("v4", false), ("v6", true)] {
            let left = |of: &Counted| of.left.packets(marked, is_v6);
            note(
                format!("left {marked:?} {family}"),
                left(before),
                left(after),
            );
        }
    }
    let flows = |of: &Counted| of.reverse_flows as u64;
    note("came back".to_owned(), before.came_back, after.came_back);
    note("reverse flow".to_owned(), flows(before), flows(after));
    let tapped = |of: &Counted| of.tapped as u64;
    note("tapped flow".to_owned(), tapped(before), tapped(after));
    rises
}

/// What is another in the packet than when it came.
fn changes(frame: &[u8], ran: &Ran, metadata: Metadata) -> Vec<String> {
    let mut changes = Vec::new();
    let dscp = |frame: &[u8]| {
        let network = Network::parse(frame).ok()?;
        Some(Dscp::of_traffic_class(network.traffic_class).value())
    };
    if let (Some(old), Some(new)) = (dscp(frame), dscp(&ran.frame))
        && old != new
    {
        changes.push(format!("dscp {new}"));
    }
    if ran.mark != metadata.mark {
        changes.push(format!("fwmark {:#x}", ran.mark));
    }
    if frame.get(..12) != ran.frame.get(..12) {
        changes.push("readdressed".to_owned());
    }
    changes
}
