//! A leaf or a spine of a fabric in the interpreter: the programs with an agreement, leaves and a port.

use anyhow::{Context as _, Result};
use flow_balance::ServiceTime;
use splitter_policy::dscp::Dscp;
use splitter_policy::fabric::{Agreement, FabricCounters, FabricPass, FabricStep};
use splitter_policy::packet::Network;
use splitter_policy::paths::{SitePaths, TunnelPath};
use splitter_policy::sites::SiteKey;

use crate::border::Measured;
use crate::context::Metadata;
use crate::machine::Machine;
use crate::plain::{Plain, bytes_of, value_of};

/// The DSCP of the fabric.
pub(crate) const FABRIC_DSCP: u8 = 41;
/// Routers between two hosts: two leaves, and a spine.
const HOPS: u8 = 3;
const QUEUE_NS: u64 = 25_000_000;
const RATE: u64 = 1_000_000_000;

/// Numbers of devices: the port, and what leads to a host.
const PORT: u32 = 7;
const HOST: u32 = 2;
/// The number of the port among those of the configuration, and of the leaf that all addresses lie at.
const PORT_NUMBER: u32 = 1;
const LEAF: u32 = 3;

/// Some time after boot.
const NOW_NS: u64 = 4_000_000_000_000;

/// The programs of a role at work.
#[derive(Debug)]
pub struct FabricRouter {
    machine: Machine,
    program: &'static str,
    metadata: Metadata,
}

impl FabricRouter {
    /// Loads the programs, of which `program` is run at the port.
    ///
    /// # Errors
    /// When the object does not load, or lacks a map.
    pub fn new(object: &[u8], program: &'static str) -> Result<Self> {
        let mut machine = Machine::load(object, &[])?;
        machine.kernel.monotonic_ns = NOW_NS;
        let mut router = Self {
            machine,
            program,
            metadata: Metadata {
                came_in_by: if program.ends_with("egress") {
                    HOST
                } else {
                    PORT
                },
                handed_to: PORT,
                mark: 0,
            },
        };
        let dscp = Dscp::new(FABRIC_DSCP).context("six bits")?;
        let agreement = Agreement::new(dscp, HOPS, QUEUE_NS).context("it is possible")?;
        router.set("AGREEMENT", &agreement)?;
        let mut ports = SitePaths {
            known: 1 << PORT_NUMBER,
            usable: 1 << PORT_NUMBER,
            ..SitePaths::default()
        };
        ports.tunnels[PORT_NUMBER as usize] = TunnelPath {
            service: ServiceTime::from_bits_per_second(RATE),
            queue_ns: QUEUE_NS,
            ..TunnelPath::default()
        };
        router.set("PORTS", &ports)?;
        let (device, number) = (PORT.to_ne_bytes(), PORT_NUMBER.to_ne_bytes());
        router.machine.set("PORT_NUMBERS", &device, &number)?;
        for everything in ["0.0.0.0", "::"] {
            let SiteKey { words, bits } = SiteKey::of_prefix(everything.parse()?, 0);
            let words = words.map(u32::to_ne_bytes).concat();
            let key = [&bits.to_ne_bytes()[..], &words].concat();
            router.machine.set("LEAVES", &key, &LEAF.to_ne_bytes())?;
        }
        Ok(router)
    }

    /// Sends a packet and says what it took and what was done.
    ///
    /// # Errors
    /// When the program does what it may not, or what is not emulated.
    pub fn measure(&mut self, frame: &[u8]) -> Result<Measured> {
        let before = self.counters()?;
        let ran = self.machine.run(self.program, frame, self.metadata)?;
        let after = self.counters()?;
        let mut done = Vec::new();
        done.push(match ran.verdict {
            u32::MAX => "next".to_owned(),
            other => format!("the verdict {other}"),
        });
        let steps = FabricStep::ALL.into_iter();
        let steps = steps.filter(|it| after.done(*it) > before.done(*it));
        done.extend(steps.map(|it| it.name().to_owned()));
        let reasons = FabricPass::ALL.into_iter();
        let reasons = reasons.filter(|it| after.passed(*it) > before.passed(*it));
        done.extend(reasons.map(|it| it.name().to_owned()));
        if frame != ran.frame {
            done.extend(fields(&ran.frame).into_iter().flatten());
        }
        Ok(Measured {
            counts: ran.counts,
            done,
        })
    }

    fn set<T: Plain>(&mut self, map: &str, value: &T) -> Result<()> {
        Ok(self
            .machine
            .set(map, &0_u32.to_ne_bytes(), bytes_of(value))?)
    }

    fn counters(&self) -> Result<FabricCounters> {
        let values = self.machine.values("FABRIC_COUNTERS")?;
        let counters = values.first().and_then(|it| value_of(it));
        counters.context("FABRIC_COUNTERS has no value, or one of another shape")
    }
}

/// What a fabric's programs change of a packet.
fn fields(frame: &[u8]) -> Option<[String; 2]> {
    let network = Network::parse(frame).ok()?;
    let dscp = Dscp::of_traffic_class(network.traffic_class).value();
    let ttl = frame.get(ttl_at(frame))?;
    Some([format!("ttl {ttl}"), format!("dscp {dscp}")])
}

/// Where a frame without tags has its TTL, or its hop limit.
pub(crate) fn ttl_at(frame: &[u8]) -> usize {
    const IP: usize = 14;
    match frame[IP] >> 4 {
        6 => IP + 7,
        _ => IP + 8,
    }
}
