//! The keys above all sections, the list of the sections, and what follows from them together.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};
use splitter_advise::ThresholdUnit;
use splitter_netlink::{Family, InterfaceName};
use splitter_policy::flow::TunnelRole;
use splitter_policy::fwmark::MarkBits;

use crate::declaration::key;
use crate::declare::{Section as _, section};
use crate::diagnostic::{ConfigError, Diagnostic};
use crate::key::Change::{Reload, Restart, Set};
use crate::kind::{boolean, enumeration, instance_name, interface, list, path, word};
use crate::sections::{
    ACROSS, Advise, Attach, Balance, Flows, Handover, Health, Log, Marks, Metrics, Otlp, Routes,
    Share, Site, Steering, SteeringMode, Tunnel, Tunnels, WITHIN, listed_sites, listed_tunnels,
    read_listed, read_sites,
};
use crate::source::Source;
use crate::values::{Dscp, InstanceName};
use crate::{ConfigFile, keys};

const MOVES: &str =
    "end the agent (and run `splitter down`) under the old value, then start it under the new one";
const LAN: &str = "name the interfaces that face the site, such as lan = [\"eth0\"]";

section! {
    /// Everything that one instance of the splitter is configured with.
    pub struct Config, Given {
        /// Pins of this instance live under `<bpffs>/splitter/<name>`, its lock and state under
        /// `<runtime_dir>/<name>`.
        name: InstanceName = key("name", Restart(MOVES), instance_name())
            .default(InstanceName::default())
            .trade_off(
                "A second instance needs another name, other interfaces, tables, priorities and \
                 metrics address.",
            );

        /// Instances keep their lock and state in this directory.
        runtime_dir: PathBuf = key("runtime_dir", Restart(MOVES), path())
            .default(PathBuf::from(Config::DEFAULT_RUNTIME_DIR))
            .trade_off("Clear it only while the instance is down.");

        /// The BPF file system is mounted here.
        bpffs: PathBuf = key("bpffs", Restart(MOVES), path())
            .default(PathBuf::from(Config::DEFAULT_BPFFS))
            .trade_off("Without a directory `splitter` of its own there, another one is needed [without root](../how-to/privileges.md).");

        /// Tunnels serve the classes in one of these ways. "dedicated": one carries short flows,
        /// the other long ones. "share": both carry both; short flows have priority on each,
        /// which the agent shapes for that, and long flows are placed where there is capacity.
        /// Needs both rate_mbit, and a single tunnel for each class.
        policy: TunnelPolicy = key("policy", Reload, word())
            .default(TunnelPolicy::Dedicated)
            .trade_off(
                "With `share` [long flows lose nothing](../explanation/share.md), but rates must \
                 be known.",
            );

        /// Packets choose among the tunnels of the site, which are one list then, in one of these
        /// ways: "tr" (the earliest arrival that keeps the flow in order), "drb" and "presto" (turns
        /// for each packet, and for each 64 KB), "ecmp", "rps" and "letflow" (by weight: a hash of the
        /// flow, chance for each packet, and chance after a pause), "tr-paper" (TR to the letter of its
        /// paper, to compare: flows do not stay in order), or "placement" (each flow keeps to the tunnels
        /// of its class, to one of several by its hash and by weight). Goes for the classes without a key
        /// of that name in their sections.
        balance: Option<Balance> = key("balance", Reload, word())
            .optional("each flow has a tunnel of its class, of several the one that the kernel's hash takes")
            .examples(&["\"tr\""])
            .off()
            .trade_off(
                "With `tr` [one flow fills several tunnels](../how-to/uplinks-as-one.md), in order. \
                 `tr` and `tr-paper` need all rates, and with `steering.mode = \"redirect\"` each tunnel needs a `gateway`. \
                 With `steering.mode = \"dscp\"`, adding or leaving out what chooses is another kind of program, and \
                 refused by a reload: `splitter down` first.",
            );

        /// The spines of a fabric report how full their ports are to the leaf that this machine is, by
        /// this name. With balance = "tr" packets choose by that, too: each tunnel that is an uplink of the
        /// leaf takes so much longer to the leaf that a packet goes to.
        fabric: Option<InstanceName> = key("fabric", Reload, instance_name())
            .optional("packets choose by the queues of this machine alone")
            .examples(&["\"default\""])
            .off()
            .trade_off(
                "The `name` of the [leaf's file](../how-to/fabric.md#choose-by-what-is-heard), with the same `bpffs`. Only \
                 with `balance = \"tr\"`.",
            );

        /// These interfaces face the site. Traffic that *arrives* here is split.
        lan: Vec<InterfaceName> = key(
            "lan",
            Reload,
            list(
                interface(),
                "interface names, at least one, each once",
                ["without an interface nothing would be split", LAN],
                "name each interface once",
            ),
        )
        .required(LAN)
        .examples(&["[\"eth0\"]"])
        .trade_off(
            "What the router itself sends is not split. They must be Ethernet, not `lo` and not a \
             tunnel's device. Of a port of a bridge or a bond, name the bridge or the bond.",
        );

        /// Flows are classified and measured only: nothing is marked, and no rule or route is
        /// touched.
        shadow: bool = key("shadow", Set, boolean())
            .default(false)
            .trade_off("For [measuring before you split](../how-to/change.md#measure-before-you-split).");

        /// With balance, the tunnels of the site may be listed here, 2 to 16 of them, instead of in the
        /// sections of the classes.
        listed: Vec<Tunnel> = listed_tunnels();

        /// Instead of describing one remote site by the sections below, a file may list up to 256,
        /// each with destinations and tunnels of its own. Each flow takes the tunnels of the site
        /// that its destination lies at, and each site fails over by itself.
        sites: Vec<Site> = listed_sites();
    }
    sections {
        /// Describes the tunnels of short flows and of everything that is not split.
        short: Tunnels;
        /// Describes the tunnels of long flows, each on a device that no other has.
        long: Tunnels;
        /// Says what is split, and when a flow is long.
        flows: Flows;
        /// Says when a flow that has become long changes tunnels.
        handover: Handover;
        /// Says what a threshold is recommended with.
        advise: Advise;
        /// Says how tunnels are shaped; matters only with the policy `share`.
        share: Share;
        /// Holds the marks that the kernel routes by.
        marks: Marks;
        /// Says how packets get into the tunnel of their class.
        steering: Steering;
        /// Says how the XDP program is attached.
        attach: Attach;
        /// Says what the agent puts into the routing policy.
        routes: Routes;
        /// Says how the tunnels are watched.
        health: Health;
        /// Says where metrics and the status page are served.
        metrics: Metrics;
        /// Says where metrics, spans and events are exported to.
        otlp: Otlp;
        /// Says what the kernel program logs.
        log: Log;
    }
}

enumeration! {
    /// The way in which tunnels serve the classes.
    TunnelPolicy {
        /// One tunnel for short flows, one for long ones: the paper's way.
        Dedicated = "dedicated",
        /// Both tunnels for both; short flows come first on each, and long ones are placed where
        /// there is capacity.
        Share = "share",
    }
}

impl Config {
    /// Directory in which instances keep their lock, state and control socket unless a file says
    /// otherwise.
    pub const DEFAULT_RUNTIME_DIR: &str = "/run/splitter";

    /// BPF file system in which instances are pinned unless a file says otherwise.
    pub const DEFAULT_BPFFS: &str = "/sys/fs/bpf";

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
        let source = Source::new(text, name);
        let config = source.is_toml().then(|| parsed(&source)).flatten();
        let diagnostics: Vec<Diagnostic> = source.finish();
        match config {
            Some(config) if diagnostics.is_empty() => Ok(config),
            _ => Err(ConfigError::Wrong(diagnostics)),
        }
    }

    /// Writes all values, defaults included, in the shape of a file.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let mut file = Map::new();
        for key in keys() {
            let value = key.value(self);
            let bare = key.bare().to_owned();
            if key.section.is_empty() {
                file.insert(bare, value);
                continue;
            }
            let section = file.entry(key.section).or_insert_with(|| Map::new().into());
            if let Some(section) = section.as_object_mut() {
                section.insert(bare, value);
            }
        }
        Json::Object(file)
    }

    /// Writes all values, defaults included, as the text of a file that means the same.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut json = self.to_json();
        without_nulls(&mut json);
        toml::Table::try_from(json).map_or_else(|_| String::new(), |table| table.to_string())
    }

    /// Returns the threshold where nothing better is known: the one that is given, for `auto` the
    /// default within the bounds, or that of the only site.
    #[must_use]
    pub fn first_threshold(&self) -> u32 {
        let default = match self.flows.unit {
            ThresholdUnit::Packets => 40,
            ThresholdUnit::Bytes => 60_000,
        };
        if let [
            Site {
                threshold: Some(own),
                ..
            },
        ] = &self.sites[..]
        {
            return own.get();
        }
        let within = || default.clamp(self.advise.min.get(), self.advise.max.get());
        self.flows.threshold.fixed().unwrap_or_else(within)
    }

    /// Tells whether the tunnels of either class carry both.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.policy == TunnelPolicy::Share
    }

    /// Tells if a long flow that never pauses is made to pause by drops, so that it changes tunnels in
    /// order: where it is known when its last packet has left the short one.
    #[must_use]
    pub fn drops_to_drain(&self) -> bool {
        let is_known = |it: &Tunnels| it.only().is_some_and(|it| it.rate_mbit.is_some());
        let chooses = self.balancers().is_some();
        !chooses
            && !self.is_shared()
            && !self.shadow
            && is_known(&self.short)
            && is_known(&self.long)
    }

    /// Returns what may leave by a tunnel, in bit/s: its rate, or what it is shaped to. `None`
    /// if the rate is not known.
    #[must_use]
    pub fn bits_per_second(&self, tunnel: &Tunnel) -> Option<u64> {
        let rate = u64::from(tunnel.rate_mbit?.get()) * 1_000_000;
        Some(match self.policy {
            TunnelPolicy::Dedicated => rate,
            TunnelPolicy::Share => rate * u64::from(self.share.shape_percent) / 100,
        })
    }

    /// Returns the bits of the kernel's mark that distinguish classes; `None` if DSCP does.
    #[must_use]
    pub fn mark_bits(&self) -> Option<MarkBits> {
        (self.steering.mode == SteeringMode::Mark).then_some(self.steering.mark_bits)
    }

    /// Returns the marks that rules send into the long tunnel.
    #[must_use]
    pub fn long_tunnel_marks(&self) -> Vec<Dscp> {
        let short = self.is_shared().then_some(self.marks.short_on_long);
        std::iter::once(self.marks.long).chain(short).collect()
    }

    /// Tells whether a next hop of that family is named, so that its packets must be forwarded.
    #[must_use]
    pub fn names_next_hops(&self, family: Family) -> bool {
        self.tunnels()
            .any(|(_, tunnel)| tunnel.gateway.of(family).is_some())
    }

    /// Returns the tunnels of a class.
    #[must_use]
    pub fn tunnels_of(&self, class: TunnelRole) -> &Tunnels {
        match class {
            TunnelRole::Short => &self.short,
            TunnelRole::Long => &self.long,
        }
    }

    /// Iterates over all tunnels with the class that they are for, the short ones first.
    pub fn tunnels(&self) -> impl Iterator<Item = (TunnelRole, &Tunnel)> {
        let of = |class| self.tunnels_of(class).iter().map(move |it| (class, it));
        TunnelRole::ALL.into_iter().flat_map(of)
    }

    /// Names a tunnel: by its class if it is the only one of that, and by its site where sites are
    /// listed.
    #[must_use]
    pub fn name_of(&self, class: TunnelRole, tunnel: &Tunnel) -> String {
        let name = class.name();
        if let Some(site) = self.site_behind(&tunnel.device) {
            return format!("the {name} tunnel {} of {site}", tunnel.device);
        }
        match self.tunnels_of(class).are_several() {
            true => format!("the {name} tunnel {}", tunnel.device),
            false => format!("the {name} tunnel"),
        }
    }

    /// Returns the directory of this instance's lock and state.
    #[must_use]
    pub fn instance_dir(&self) -> PathBuf {
        self.runtime_dir.join(self.name.as_str())
    }

    /// Returns the directory of this instance's pinned programs, maps and links.
    #[must_use]
    pub fn pin_dir(&self) -> PathBuf {
        self.bpffs.join("splitter").join(self.name.as_str())
    }
}

/// A file leaves out what has no value.
fn without_nulls(json: &mut Json) {
    match json {
        Json::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Json::Array(values) => values.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// `None` only where something required is missing or wrong, which the source has noted.
fn parsed(source: &Source<'_>) -> Option<Config> {
    let mut given = Config::read(&source.top());
    read_listed(&source.top(), &mut given);
    read_sites(&source.top(), &mut given);
    for rule in WITHIN {
        rule(source, &given);
    }
    let config = Config::complete(&given, &given)?;
    for rule in ACROSS {
        rule(source, &config);
    }
    Some(config)
}
