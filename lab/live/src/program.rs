//! What frames meet in the router, and how that is set up.

use anyhow::{Context as _, Result};
use aya::include_bytes_aligned;
use aya::programs::tc::TcAttachType;
use aya::programs::{SchedClassifier, Xdp, XdpMode};
use flow_testbed::namespace::Namespace;
use flow_testbed::require::Requirement::{self, NftRule, Program as Command};
use splitter_datapath::read_prefix_lengths;
use splitter_policy::clock::TickClock;
use splitter_policy::config::PolicyConfig;
use splitter_policy::flow::TunnelRole;
use splitter_policy::fwmark::MarkBits;
use tokio_util::sync::CancellationToken;

use crate::choosing;
use crate::clock;
use crate::generator::Template;
use crate::loaded::Loaded;
use crate::rig::{self, DESTINATION, GENERATOR, LAN, MARK_BITS, ROUTER, Rig, SINKS, TUNNELS};

static YARDSTICK: &[u8] = include_bytes_aligned!("../../../benches/bpf/yardstick.o");
static SHIPPED: &[u8] =
    include_bytes_aligned!("../../../splitter-agent/crates/datapath/bpf/splitter.o");

/// Flows that the tables are made for.
const TABLE_SIZE: u32 = 1 << 20;

/// The settings of an agent at a LAN with an MTU of 1,500 bytes: with more payload a segment is an aggregate.
fn ordinary() -> PolicyConfig {
    PolicyConfig {
        segment_bytes: 1_460,
        ..PolicyConfig::default()
    }
}

/// The generator that waits until frames are due.
pub(crate) const PACED: &str = "generate_paced";

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Generator,
    Drop,
    BareRedirect,
    SplitDrop,
    LruConntrack,
    Dscp,
    Mark,
    Redirect,
    RedirectTr,
    Stack,
    NftSplit,
}

/// Where frames are counted, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sinks {
    Counting,
    /// By the time since they were due.
    Timing,
}

impl Program {
    pub(crate) const ALL: [Self; 11] = [
        Self::Generator,
        Self::Drop,
        Self::BareRedirect,
        Self::SplitDrop,
        Self::LruConntrack,
        Self::Dscp,
        Self::Mark,
        Self::Redirect,
        Self::RedirectTr,
        Self::NftSplit,
        Self::Stack,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Generator => "generator",
            Self::Drop => "drop",
            Self::BareRedirect => "bare_redirect",
            Self::SplitDrop => "split_drop",
            Self::LruConntrack => "lru_conntrack",
            Self::Dscp => "dscp",
            Self::Mark => "mark",
            Self::Redirect => "redirect",
            Self::RedirectTr => "redirect_tr_4",
            Self::Stack => "stack",
            Self::NftSplit => "nft_split",
        }
    }

    /// The program of the yardstick that draws its frames.
    pub(crate) const fn generator(self) -> &'static str {
        match self {
            Self::Generator => "generate_alone",
            _ => "generate",
        }
    }

    /// What it needs of the machine besides what all need.
    pub(crate) const fn requirements(self) -> &'static [Requirement] {
        match self {
            Self::NftSplit => &[
                Command("nft"),
                NftRule("ct original packets > 40 meta mark set 0x200"),
                NftRule("meta mark 0x200 ip dscp set 2"),
            ],
            _ => &[],
        }
    }

    /// Tells if it is a program that ships.
    const fn ships(self) -> bool {
        matches!(self, Self::Dscp | Self::Mark) || self.is_redirecting()
    }

    /// Tells if it puts frames into tunnels by routing.
    pub(crate) const fn is_redirecting(self) -> bool {
        matches!(self, Self::Redirect | Self::RedirectTr)
    }

    /// Tells if counters say how many frames of one flow were treated.
    #[cfg(test)]
    pub(crate) const fn counts(self) -> bool {
        self.ships() || matches!(self, Self::SplitDrop | Self::LruConntrack)
    }
}

/// The object with generators, sinks and what is compared, which all rigs share.
pub(crate) struct Yardstick {
    pub(crate) loaded: Loaded,
    clock: TickClock,
    /// Nothing more is measured.
    pub(crate) cancel: CancellationToken,
}

impl Yardstick {
    pub(crate) fn new(cancel: CancellationToken) -> Result<Self> {
        let clock = clock::calibrated(&mut Loaded::new(SHIPPED, TABLE_SIZE))?;
        let mut loaded = Loaded::new(YARDSTICK, TABLE_SIZE);
        loaded.set_clocked(ordinary(), clock);
        for name in ["generate", "generate_alone", PACED] {
            loaded.load_xdp(name);
        }
        Ok(Self {
            loaded,
            clock,
            cancel,
        })
    }

    /// A generator of it.
    pub(crate) fn generator(&self, name: &str) -> Result<&Xdp> {
        Ok(self.loaded.program(name).try_into()?)
    }
}

/// A router with what is measured in it.
pub(crate) struct Router {
    pub(crate) program: Program,
    pub(crate) rig: Rig,
    pub(crate) template: Template,
    /// The object that ships, where it is one of its programs.
    pub(crate) shipped: Option<Loaded>,
}

impl Router {
    /// Sets it up, with sinks that count as they are to.
    pub(crate) fn new(program: Program, yardstick: &mut Yardstick, sinks: Sinks) -> Result<Self> {
        let rig = Rig::new()?;
        let mut template = Template::new(ROUTER, DESTINATION);
        template.device = rig::index(&rig.generator, GENERATOR)?;
        template.redirected_to = rig::index(&rig.router, TUNNELS[0])?;
        let mut router = Self {
            program,
            rig,
            template,
            shipped: None,
        };
        if program.ships() {
            let mut shipped = Loaded::new(SHIPPED, TABLE_SIZE);
            let mark_bits = match program {
                Program::Mark => MarkBits::new(MARK_BITS).context("no run of bits")?,
                _ => MarkBits::NONE,
            };
            let config = PolicyConfig {
                mark_bits,
                ..ordinary()
            };
            shipped.set_clocked(config, yardstick.clock);
            router.shipped = Some(shipped);
        }
        // The kernel patches its code for each program that it has not attached anywhere, and waits
        // tens of milliseconds, whenever such a program is run.
        let drawn_by = match sinks {
            Sinks::Counting => program.generator(),
            Sinks::Timing => PACED,
        };
        let generator = &router.rig.generator;
        attach_xdp(&mut yardstick.loaded, drawn_by, generator, &[GENERATOR])?;
        router.attach(&mut yardstick.loaded)?;
        router.attach_sinks(&mut yardstick.loaded, sinks)?;
        Ok(router)
    }

    /// What the router's device of the site runs, and its routes.
    fn attach(&mut self, yardstick: &mut Loaded) -> Result<()> {
        let Self {
            program,
            rig,
            shipped,
            ..
        } = self;
        match (&program, shipped) {
            (Program::Dscp, Some(shipped)) => {
                rig.route_by_dscp()?;
                attach_xdp(shipped, "split", &rig.router, &[LAN])
            }
            (Program::Redirect | Program::RedirectTr, Some(shipped)) => {
                rig.route_by_dscp()?;
                for (device, tunnel) in TUNNELS.into_iter().zip(TunnelRole::ALL) {
                    let index = rig::index(&rig.router, device)?;
                    // The map takes devices of the namespace of who writes it.
                    rig.router.enter(|| shipped.redirect_into(index, tunnel))?;
                }
                // As the agent does it.
                let mut devices = Vec::new();
                for device in TUNNELS {
                    devices.push(rig::index(&rig.router, device)?);
                }
                let lengths = rig.router.enter(|| read_prefix_lengths(&devices))?;
                let lengths = lengths.context("the routes are not read")?;
                shipped.vouch(Some(&lengths));
                shipped.set_lan_address(rig::index(&rig.router, LAN)?, ROUTER);
                let name = match program {
                    Program::RedirectTr => {
                        choosing::describe(shipped, rig)?;
                        choosing::PROGRAM
                    }
                    _ => "redirect",
                };
                attach_xdp(shipped, name, &rig.router, &[LAN])
            }
            (Program::Mark, Some(shipped)) => {
                rig.route_by_mark()?;
                attach_tc(shipped, "mark", &rig.router, &[LAN])?;
                attach_xdp(yardstick, "bare_pass", &rig.router, &[LAN])
            }
            (Program::NftSplit, _) => {
                rig.split_by_nftables(PolicyConfig::DEFAULT_THRESHOLD)?;
                attach_xdp(yardstick, "bare_pass", &rig.router, &[LAN])
            }
            (Program::Stack, _) => attach_xdp(yardstick, "bare_pass", &rig.router, &[LAN]),
            (Program::Drop, _) => attach_xdp(yardstick, "live_drop", &rig.router, &[LAN]),
            (Program::BareRedirect, _) => {
                attach_xdp(yardstick, "live_redirect", &rig.router, &[LAN])
            }
            (Program::SplitDrop, _) => {
                attach_xdp(yardstick, "live_split_drop", &rig.router, &[LAN])
            }
            (Program::LruConntrack, _) => {
                attach_xdp(yardstick, "live_lru_conntrack", &rig.router, &[LAN])
            }
            (Program::Generator, _) => Ok(()),
            (it, None) => unreachable!("{it:?} has the object that ships"),
        }?;
        // A device with an XDP program merges segments unless told not to; these have no checksums that
        // would let it, which would be looked at all the same.
        rig.router.run(&format!("ethtool -K {LAN} gro off"))?;
        Ok(())
    }

    fn attach_sinks(&self, yardstick: &mut Loaded, sinks: Sinks) -> Result<()> {
        let rig = &self.rig;
        let (xdp, tc) = match sinks {
            Sinks::Counting => ("live_drop", "live_drop_skb"),
            Sinks::Timing => ("live_late", "live_late_skb"),
        };
        match self.program {
            Program::BareRedirect | Program::Redirect | Program::RedirectTr => {
                attach_xdp(yardstick, xdp, &rig.sinks, &SINKS)
            }
            Program::Dscp | Program::Mark | Program::NftSplit | Program::Stack => {
                attach_tc(yardstick, tc, &rig.sinks, &SINKS)
            }
            _ => Ok(()),
        }
    }
}

fn attach_xdp(
    object: &mut Loaded,
    name: &str,
    namespace: &Namespace,
    devices: &[&str],
) -> Result<()> {
    if !object.is_loaded(name) {
        object.load_xdp(name);
    }
    let program: &mut Xdp = object.program_mut(name).try_into()?;
    for device in devices {
        let index = rig::index(namespace, device)?;
        let attached = namespace.enter(|| program.attach_to_if_index(index, XdpMode::Driver))?;
        attached.with_context(|| format!("cannot attach {name} to {device}"))?;
    }
    Ok(())
}

fn attach_tc(
    object: &mut Loaded,
    name: &str,
    namespace: &Namespace,
    devices: &[&str],
) -> Result<()> {
    if !object.is_loaded(name) {
        object.load_classifier(name);
    }
    let program: &mut SchedClassifier = object.program_mut(name).try_into()?;
    for device in devices {
        let attached = namespace.enter(|| program.attach(device, TcAttachType::Ingress))?;
        attached.with_context(|| format!("cannot attach {name} to {device}"))?;
    }
    Ok(())
}
