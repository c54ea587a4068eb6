//! The configuration: a TOML file turned into a [`Config`] that cannot be wrong in itself.
//!
//! `splitter.example.toml` documents every key. Whether the system has the interfaces that a
//! configuration names is not decided here: that is for the plan and for `splitter doctor`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use serde::{Serialize, Serializer};
use splitter_advise::ThresholdUnit;
use splitter_netlink::{Family, InterfaceName};
use splitter_policy::fwmark::MarkBits;

mod difference;
mod document;
mod file;
mod health;
mod keys;
mod leaf;
mod location;
mod mistake;
pub mod overrides;
mod read;
#[cfg(test)]
mod tests;
mod tunnels;
mod values;
mod words;

pub use difference::{KeyChange, difference, frozen};
pub use file::ConfigFile;
pub use health::Health;
pub use keys::{Changeable, KEYS, Key};
pub use location::Location;
pub use mistake::{ConfigError, Mistake};
pub use overrides::{Overrides, SetError};
pub use tunnels::{MAX_TUNNELS, Tunnel, Tunnels};
pub use values::{Dscp, InstanceName, InvalidValue, RulePriority, TableId, Threshold};
pub use words::{AttachMode, DscpMatch, PacketLog, Protocol, SteeringMode, TunnelPolicy};

/// Where the configuration is looked for when no `--config` is given.
pub const DEFAULT_PATH: &str = "/etc/splitter/splitter.toml";

/// The example that documents every key, for messages and for `splitter check`.
pub const EXAMPLE: &str = include_str!("../splitter.example.toml");

/// The example with the tunnels of the short class listed, as its comment shows.
#[cfg(test)]
pub(crate) fn example_with_list() -> String {
    let begin = EXAMPLE
        .find("# [[short.tunnels]]")
        .expect("it is documented");
    let end = begin + EXAMPLE[begin..].find("\n\n").expect("it ends");
    let list = EXAMPLE[begin..end].lines();
    let list = list.map(|line| line.trim_start_matches('#').trim());
    let list = list.collect::<Vec<_>>().join("\n");
    let (before, after) = EXAMPLE.split_once("[short]\n").expect("it is there");
    let (section, after) = after.split_once("\n[long]").expect("it follows");
    let table = section.lines().find(|line| line.starts_with("table"));
    let table = table.expect("it is documented");
    format!("{before}[short]\n{table}\n{list}\n[long]{after}")
}

/// Everything one instance of the splitter is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Config {
    /// Name of the instance; part of the paths of its pins, lock and state.
    pub name: InstanceName,
    /// Directory under which each instance keeps its lock and state. Default `/run/splitter`.
    pub runtime_dir: PathBuf,
    /// Where the BPF file system is mounted. Default `/sys/fs/bpf`.
    pub bpffs: PathBuf,
    /// What the two tunnels are for. Default `dedicated`.
    pub policy: TunnelPolicy,
    /// Interfaces that face the site, at least one and each once.
    pub lan: Vec<InterfaceName>,
    /// Whether to classify and measure only: nothing is marked or routed. Default false.
    pub shadow: bool,
    /// The tunnels of short flows and of everything that is not split.
    pub short: Tunnels,
    /// The tunnels of long flows, each on another device than the others and those of `short`.
    pub long: Tunnels,
    /// What is long, and how many flows are remembered.
    pub flows: Flows,
    /// When a flow that has become long changes tunnels.
    pub handover: Handover,
    /// What the recommended threshold is looked for with.
    pub advise: Advise,
    /// How tunnels are shared; matters only with the policy `share`.
    pub share: Share,
    /// The marks that the kernel routes by.
    pub marks: Marks,
    /// How packets get into the tunnel of their class.
    pub steering: Steering,
    /// How the XDP program is attached.
    pub attach: AttachMode,
    /// What the agent puts into the routing policy.
    pub routes: Routes,
    /// How the tunnels are watched.
    pub health: Health,
    /// Where metrics and health are served.
    pub metrics: Metrics,
    /// Log level of the kernel program.
    pub packet_log: PacketLog,
}

/// Next hops of a tunnel, one for each family. Both empty means a point-to-point device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Gateways {
    /// The IPv4 next hop.
    pub v4: Option<Ipv4Addr>,
    /// The IPv6 next hop.
    pub v6: Option<Ipv6Addr>,
}

/// What makes a flow long, and the size of the flow table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Flows {
    /// A flow is long from unit `threshold + 1` on. Default 40.
    pub threshold: Threshold,
    /// What the threshold counts. Default packets.
    pub unit: ThresholdUnit,
    /// What is split, TCP among it. Default TCP alone.
    pub protocols: Vec<Protocol>,
    /// A flow that was silent for so long starts afresh. Default 30 s.
    pub idle_timeout: Duration,
    /// How often the agent frees the entries of flows that have ended. Default 5 s.
    pub sweep_interval: Duration,
    /// Flows held, for each of IPv4 and IPv6. Default 1,048,576.
    pub table_size: NonZeroU32,
}

/// When a long flow may change tunnels without being reordered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Handover {
    /// Slack above the computed drain time, or the gap to wait for where no rate is known.
    /// Default 500 us with `short.rate_mbit`, 10 ms without; never more than the longest wait.
    pub drain_margin: Duration,
    /// A flow is moved after so long at the latest. Default 200 ms with both rates, else 12 ms:
    /// then a flow that never pauses is moved by this alone.
    pub max_wait: Duration,
    /// How much traffic the queue in front of the long tunnel holds at least; matters only where
    /// both rates are known. Default 5 ms.
    pub long_queue: Duration,
}

/// What the recommended threshold is looked for with, and how it is followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advise {
    /// The lowest threshold that is recommended, in `flows.unit`. Default 10 packets or 15000 bytes.
    pub min: NonZeroU32,
    /// The highest. Default 1000 packets or 1500000 bytes.
    pub max: NonZeroU32,
    /// How often a threshold that is `auto` is looked at again. Default 60 s.
    pub period: Duration,
    /// Round-trip time to the other site without queues. Default 20 ms.
    pub rtt: Duration,
}

/// How the agent shapes the tunnels where both carry both classes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Share {
    /// What each tunnel is shaped to, in percent of its rate. Default 97.
    pub shape_percent: u32,
    /// What the queue of each class holds. Default 20 ms.
    pub queue: Duration,
    /// A tiny queue for Cloudburst. Default none.
    pub cloudburst: Option<CloudburstQueue>,
}

/// The queue of a few packets that Cloudburst's datagrams get (Cloudburst §III-C).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CloudburstQueue {
    /// The mark of the datagrams.
    pub dscp: Dscp,
    /// What it holds. Default 4.
    pub packets: u32,
    /// What it gets of a tunnel at most, in percent. Default 25.
    pub percent: u32,
}

/// The marks and how the kernel's rules match them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Marks {
    /// Mark of short flows; where tunnels are shared, of those in the short tunnel. Default 4.
    pub short: Dscp,
    /// Mark of long flows; where tunnels are shared, of those in the long tunnel. Default 2.
    pub long: Dscp,
    /// Mark of short flows in the long tunnel, where that is shared. Default 5.
    pub short_on_long: Dscp,
    /// Mark of long flows in the short tunnel, where that is shared. Default 3.
    pub long_on_short: Dscp,
    /// How rules match the mark. Default `auto`.
    #[serde(rename = "match")]
    pub matching: DscpMatch,
}

/// How packets get into the tunnel of their class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Steering {
    /// Default `dscp`.
    pub mode: SteeringMode,
    /// With `mark`, the bits of the kernel's mark that are ours; all others are kept. Default
    /// 0x3f000000.
    #[serde(serialize_with = "mask")]
    pub mark_bits: MarkBits,
}

fn mask<S: Serializer>(bits: &MarkBits, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u32(bits.mask())
}

/// What the agent puts into the kernel's routing policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Routes {
    /// Destinations behind the tunnels; `None` for all that has no more specific route.
    pub destinations: Option<Vec<IpNet>>,
    /// The first of the three rule priorities that the agent uses. Default 1000.
    pub rule_priority: RulePriority,
}

/// Where `/metrics`, `/live`, `/ready` and the status page are served, and what that tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Metrics {
    /// Address and port. Default `127.0.0.1:9461`.
    pub address: SocketAddr,
    /// Whether the status page names flows by addresses and ports. Default false: whoever reaches
    /// the address would learn who talks to whom.
    pub flow_addresses: bool,
}

impl Config {
    /// Where instances keep their lock, state and control socket unless a file says otherwise.
    pub(crate) const DEFAULT_RUNTIME_DIR: &str = "/run/splitter";

    /// Reads and parses the file at `path`.
    ///
    /// # Errors
    /// When the file cannot be read, and with every mistake in it when it is wrong.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        ConfigFile::read(path).map(|file| file.config)
    }

    /// Parses `text`; messages call it `name`.
    ///
    /// # Errors
    /// With every mistake in the text.
    ///
    /// ```
    /// use splitter_config::Config;
    ///
    /// let text = "lan = ['eth0']\n[short]\ndevice = 'wan0'\n[long]\ndevice = 'wan1'\n[flows]\nthreshold = 0";
    /// let error = Config::parse(text, "splitter.toml").unwrap_err();
    /// assert!(error.to_string().starts_with("splitter.toml:7: flows.threshold = 0: "));
    /// ```
    pub fn parse(text: &str, name: &str) -> Result<Self, ConfigError> {
        read::config(text, name).map_err(ConfigError::Wrong)
    }

    /// The threshold where nothing better is known: the one that is given, or for `auto` the
    /// default within the bounds.
    #[must_use]
    pub fn first_threshold(&self) -> u32 {
        let default = match self.flows.unit {
            ThresholdUnit::Packets => 40,
            ThresholdUnit::Bytes => 60_000,
        };
        let within = || default.clamp(self.advise.min.get(), self.advise.max.get());
        self.flows.threshold.fixed().unwrap_or_else(within)
    }

    /// Whether the tunnels of either class carry both.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.policy == TunnelPolicy::Share
    }

    /// What may leave by a tunnel, in bit/s: its rate, or what it is shaped to. `None` where the
    /// rate is not known.
    #[must_use]
    pub fn bits_per_second(&self, tunnel: &Tunnel) -> Option<u64> {
        let rate = u64::from(tunnel.rate_mbit?.get()) * 1_000_000;
        Some(match self.policy {
            TunnelPolicy::Dedicated => rate,
            TunnelPolicy::Share => rate * u64::from(self.share.shape_percent) / 100,
        })
    }

    /// The bits of the kernel's mark that classes are told by; `None` where they are by DSCP.
    #[must_use]
    pub fn mark_bits(&self) -> Option<MarkBits> {
        (self.steering.mode == SteeringMode::Mark).then_some(self.steering.mark_bits)
    }

    /// The marks that rules send into the long tunnel.
    #[must_use]
    pub fn long_tunnel_marks(&self) -> Vec<Dscp> {
        let aside = self.is_shared().then_some(self.marks.short_on_long);
        std::iter::once(self.marks.long).chain(aside).collect()
    }

    /// The address families that all tunnels carry; only these are split.
    pub fn families(&self) -> impl Iterator<Item = Family> {
        let is_carried = |&family: &Family| self.short.carry(family) && self.long.carry(family);
        [Family::V4, Family::V6].into_iter().filter(is_carried)
    }

    /// Whether a next hop of that family is named, so that its packets must be forwarded.
    #[must_use]
    pub fn names_next_hops(&self, family: Family) -> bool {
        self.tunnels()
            .any(|(_, tunnel)| tunnel.gateway.of(family).is_some())
    }

    /// Directory of this instance's lock and state.
    #[must_use]
    pub fn instance_dir(&self) -> PathBuf {
        self.runtime_dir.join(self.name.as_str())
    }

    /// Directory of this instance's pinned programs, maps and links.
    #[must_use]
    pub fn pin_dir(&self) -> PathBuf {
        self.bpffs.join("splitter").join(self.name.as_str())
    }
}

impl Gateways {
    /// The next hop of a family, if one is set.
    #[must_use]
    pub fn of(&self, family: Family) -> Option<IpAddr> {
        match family {
            Family::V4 => self.v4.map(IpAddr::V4),
            Family::V6 => self.v6.map(IpAddr::V6),
        }
    }

    /// Whether the device is point-to-point, so that routes need no next hop.
    #[must_use]
    pub fn is_point_to_point(&self) -> bool {
        self.v4.is_none() && self.v6.is_none()
    }

    /// Whether a tunnel with these next hops carries packets of `family`.
    #[must_use]
    pub fn carries(&self, family: Family) -> bool {
        self.is_point_to_point() || self.of(family).is_some()
    }
}
