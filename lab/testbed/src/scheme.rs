//! How a border router chooses the tunnel: what is compared.

mod agent;
mod configuration;
mod refusal;
mod state;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use self::state::State;
pub use self::{agent::Agent, configuration::METRICS, refusal::refusal, state::StateError};
use crate::{
    namespace::NamespaceError,
    topology::{Border, GENERATOR, LAN, TUNNELS, Topology},
};

/// Routing tables that hold a default route into the first and into the second tunnel.
const TABLES: [u32; 2] = [101, 102];
/// Firewall marks that select them.
const MARKS: [u32; 2] = [1, 2];
/// DSCP that the nftables split writes, the same as the splitter's defaults.
const DSCP: [u32; 2] = [4, 2];

/// A way to spread flows over two tunnels, applied on both borders.
#[derive(Clone, Debug)]
pub enum Scheme {
    /// Everything goes into the first tunnel.
    OneTunnel,
    /// Multipath by hash of the 5-tuple, weighted by the tunnels' rates: what routers do by default.
    EcmpFlow,
    /// Packets go into the tunnels by turns, as often as their rates say.
    EcmpPacket,
    /// Conntrack counts packets and nftables marks a connection's direction as long from packet
    /// `threshold + 1` on: the split that needs no eBPF.
    NftSplit {
        /// Packets of a direction that still go into the short tunnel.
        threshold: u32,
    },
    /// The splitter.
    Splitter(SplitterScheme),
}

/// How to run the splitter on a border.
#[derive(Clone, Debug)]
pub struct SplitterScheme {
    /// The program `splitter`.
    pub binary: PathBuf,
    /// Packets of a flow that still go into the short tunnel.
    pub threshold: u32,
    /// `native`, `generic` or `auto`.
    pub attach: String,
    /// True where the tunnels' rates are stated, so that it knows when they have drained.
    pub states_rates: bool,
    /// Further sections and keys of its configuration; a section given here replaces the one that
    /// the testbed writes.
    pub configuration: toml::Table,
}

/// Why a scheme could not be applied or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchemeError {
    /// A command or parameter failed.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The state of a border could not be understood.
    #[error(transparent)]
    State(#[from] StateError),
    /// A file that the splitter needs could not be made.
    #[error("cannot prepare {path} for the splitter: {source}")]
    Prepare {
        /// The file or directory.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The splitter could not be started.
    #[error("cannot start {binary} on {border}: {source}")]
    Start {
        /// The program.
        binary: PathBuf,
        /// Where.
        border: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The splitter was not ready in time, or ended.
    #[error("the splitter on {border} {what}; its last lines:\n{log}")]
    Agent {
        /// Where.
        border: String,
        /// What it did.
        what: String,
        /// The end of what it printed.
        log: String,
    },
    /// The splitter left something on its border.
    #[error("the splitter on {border} left behind: {remains}")]
    Remains {
        /// Where.
        border: String,
        /// Rules, routes and programs.
        remains: String,
    },
    /// The run was cancelled.
    #[error("cancelled")]
    Cancelled,
}

/// Flows that became long, and how they changed tunnels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Handovers {
    /// Counted more than the threshold.
    pub became_long: u64,
    /// Changed tunnels once their last packet had drained.
    pub drained: u64,
    /// Changed tunnels because they had waited for as long as they may.
    pub at_max_wait: u64,
    /// Were placed on the tunnel that they were in.
    pub stayed: u64,
    /// Were to change tunnels, could not in time and stayed.
    pub stayed_at_max_wait: u64,
    /// Changed tunnels after they had been placed, with the first packet after a pause.
    pub after_pause: u64,
    /// Packets that were dropped so that their flows changed tunnels in order.
    pub dropped_packets: u64,
}

impl std::ops::Add for Handovers {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            became_long: self.became_long + other.became_long,
            drained: self.drained + other.drained,
            at_max_wait: self.at_max_wait + other.at_max_wait,
            stayed: self.stayed + other.stayed,
            stayed_at_max_wait: self.stayed_at_max_wait + other.stayed_at_max_wait,
            after_pause: self.after_pause + other.after_pause,
            dropped_packets: self.dropped_packets + other.dropped_packets,
        }
    }
}

impl SplitterScheme {
    /// With the policy `share`, which shapes each tunnel to so many percent of its rate.
    #[must_use]
    pub fn sharing(mut self, shape_percent: u32) -> Self {
        let configuration = format!(
            "policy = 'share'\n[share]\nshape_percent = {shape_percent}\n\
             # The queues are the splitter's own, whose length it knows.\n[handover]\n"
        );
        let sharing: toml::Table = configuration.parse().expect("a valid constant");
        self.configuration.extend(sharing);
        self
    }
}

/// A scheme at work. Dropping it kills its processes; [`remove`](Self::remove) ends them properly.
#[derive(Debug, Default)]
pub struct Applied {
    agents: Vec<Agent>,
    xdp_mode: Option<String>,
}

impl Scheme {
    /// Applies this scheme to both borders of a fresh topology. Call it from a thread that lasts
    /// as long as the scheme: processes end with the thread that started them.
    ///
    /// # Errors
    /// What failed, with its command; the topology is of no use then.
    pub fn apply(
        &self,
        topology: &Topology,
        cancel: &CancellationToken,
    ) -> Result<Applied, SchemeError> {
        let mut applied = Applied::default();
        for border in &topology.borders {
            match self {
                Self::OneTunnel => {}
                Self::EcmpFlow => hash_flows(border, topology.options.rates_mbit)?,
                Self::EcmpPacket => spray_packets(border, topology.options.rates_mbit)?,
                Self::NftSplit { threshold } => split_by_conntrack(border, *threshold)?,
                Self::Splitter(scheme) => {
                    let rates = topology.options.rates_mbit;
                    applied.agents.push(Agent::start(border, rates, scheme)?);
                }
            }
        }
        for agent in &mut applied.agents {
            agent.wait_until_ready(cancel)?;
        }
        if !applied.agents.is_empty() {
            let borders = topology.borders.iter();
            let states = borders
                .map(|it| State::read(&it.namespace))
                .collect::<Result<Vec<_>, _>>()?;
            applied.xdp_mode = Some(State::common_xdp_mode(&states, &[LAN, GENERATOR]));
        }
        Ok(applied)
    }
}

impl Applied {
    /// The mode in which the kernel says XDP programs are attached (`native`, `generic`, `none`,
    /// or `mixed` when devices differ), for schemes that attach some.
    pub fn xdp_mode(&self) -> Option<&str> {
        self.xdp_mode.as_deref()
    }

    /// Returns a command of the splitter at a border (0 or 1) about itself, to which its subcommand is to be
    /// added; `None` for schemes without one. It needs `nsenter`, and ends with the thread that starts it.
    pub fn command(&self, border: usize, binary: &Path) -> Option<Command> {
        Some(self.agents.get(border)?.command(binary))
    }

    /// Returns what splitters have counted of flows that became long, on both borders together; `None` for
    /// schemes without one.
    pub fn handovers(&self) -> Option<Handovers> {
        self.agents
            .iter()
            .map(Agent::handovers)
            .reduce(|one, other| Some(one? + other?))
            .flatten()
    }

    /// Ends the processes of the scheme and checks that they took away all that they had set up.
    ///
    /// # Errors
    /// [`SchemeError::Agent`] for one that did not end well, [`SchemeError::Remains`] for one that
    /// left something.
    pub fn remove(self) -> Result<(), SchemeError> {
        self.agents.into_iter().try_for_each(Agent::stop)
    }
}

fn hash_flows(border: &Border, rates_mbit: [u32; 2]) -> Result<(), SchemeError> {
    let ([one, two], [first, second]) = (border.gateways, weights(rates_mbit));
    border
        .namespace
        .sysctl("net.ipv4.fib_multipath_hash_policy", "1")?;
    border.namespace.run(&format!(
        "ip route replace default nexthop via {one} weight {first} nexthop via {two} weight {second}"
    ))?;
    Ok(())
}

fn spray_packets(border: &Border, rates_mbit: [u32; 2]) -> Result<(), SchemeError> {
    let ([one, two], [first, second]) = (MARKS, weights(rates_mbit));
    let all = first + second;
    route_by_mark(border)?;
    // The slower tunnel's turns are spread over the round.
    let turns: Vec<String> = (0..all)
        .map(|turn| {
            let is_second = (turn + 1) * second / all > turn * second / all;
            format!("{turn} : {}", if is_second { two } else { one })
        })
        .collect();
    let turns = turns.join(", ");
    mark(
        border,
        &format!("meta mark set numgen inc mod {all} map {{ {turns} }}"),
    )
}

/// The smallest whole numbers in proportion to the rates.
fn weights([first, second]: [u32; 2]) -> [u32; 2] {
    let (mut one, mut other) = (first, second);
    while other > 0 {
        (one, other) = (other, one % other);
    }
    [first, second].map(|rate| rate / one.max(1))
}

fn split_by_conntrack(border: &Border, threshold: u32) -> Result<(), SchemeError> {
    let ([short, long], [short_dscp, long_dscp]) = (MARKS, DSCP);
    border
        .namespace
        .sysctl("net.netfilter.nf_conntrack_acct", "1")?;
    // Packets that overtake each other at the switch may lie outside of the window that conntrack
    // expects; without this it would lose track of them and take them for short again.
    border
        .namespace
        .sysctl("net.netfilter.nf_conntrack_tcp_be_liberal", "1")?;
    route_by_mark(border)?;
    mark(
        border,
        &format!(
            "meta mark set {short}
             meta l4proto tcp ct direction original ct original packets > {threshold} meta mark set {long}
             meta l4proto tcp ct direction reply ct reply packets > {threshold} meta mark set {long}
             meta mark {short} ip dscp set {short_dscp}
             meta mark {long} ip dscp set {long_dscp}"
        ),
    )
}

/// Runs `rules` on every packet that comes from the site.
fn mark(border: &Border, rules: &str) -> Result<(), SchemeError> {
    border.namespace.run_with_input(
        "nft -f -",
        &format!(
            "table inet testbed {{
               chain from-site {{
                 type filter hook prerouting priority mangle; policy accept;
                 iifname != {{ {LAN}, {GENERATOR} }} accept
                 {rules}
               }}
             }}"
        ),
    )?;
    Ok(())
}

fn route_by_mark(border: &Border) -> Result<(), SchemeError> {
    for (((table, mark), gateway), device) in TABLES
        .into_iter()
        .zip(MARKS)
        .zip(border.gateways)
        .zip(TUNNELS)
    {
        let route = format!("ip route add default via {gateway} dev {device} table {table}");
        border.namespace.run(&route)?;
        border
            .namespace
            .run(&format!("ip rule add fwmark {mark} table {table}"))?;
    }
    // What is meant for the own site has a more specific route and must not go into a tunnel.
    border
        .namespace
        .run("ip rule add priority 100 table main suppress_prefixlength 0")?;
    Ok(())
}
