//! How a leaf chooses the spine of a packet: what is compared.

use std::{fmt::Write as _, path::Path};

use anyhow::Result;
use flow_testbed::{
    multipath::{self, NextHop},
    scheme::{Agent, METRICS, refusal},
};
use tokio_util::sync::CancellationToken;

use crate::{
    cell::Cell,
    program,
    rig::{Leaf, QUEUE_MS, Rig, host_devices, next_hops},
    roles,
};

/// A way to choose among spines, applied at every leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// The kernel's multipath by hash of the 5-tuple, weighted by rate.
    EcmpFlow,
    /// Packets by turns, as often as the rates say.
    EcmpPacket,
    /// The splitter with a balancer.
    Splitter(Balancer),
}

/// A balancer of the splitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Balancer {
    Letflow,
    Presto,
    Drb,
    Rps,
    /// With the roles of leaves and spines in place, by whose reports packets choose.
    Tr,
    /// By the leaf's own queues alone.
    TrLocal,
    /// With all programs of [`Tr`](Self::Tr), whose spines do not know the leaves' DSCP, and so report nothing: what these
    /// cost, without what they bring.
    TrUnreported,
    /// With all of [`Tr`](Self::Tr) but the last spine's role: a router without our program among others that have it.
    TrMixed,
    TrPaper,
}

/// A scheme at work. Dropping it kills its processes; [`remove`](Self::remove) ends them properly.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    agents: Vec<Agent>,
    /// What keeps the spines in their role.
    spines: Vec<Agent>,
}

impl Scheme {
    pub(crate) const ALL: [Self; 9] = [
        Self::EcmpFlow,
        Self::EcmpPacket,
        Self::Splitter(Balancer::Letflow),
        Self::Splitter(Balancer::Presto),
        Self::Splitter(Balancer::Drb),
        Self::Splitter(Balancer::Rps),
        Self::Splitter(Balancer::Tr),
        Self::Splitter(Balancer::TrLocal),
        Self::Splitter(Balancer::TrPaper),
    ];

    /// Those that are measured where they are named alone.
    pub(crate) const CONTROLS: [Self; 2] = [
        Self::Splitter(Balancer::TrUnreported),
        Self::Splitter(Balancer::TrMixed),
    ];

    /// The name in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::EcmpFlow => "ecmp_flow",
            Self::EcmpPacket => "ecmp_packet",
            Self::Splitter(Balancer::Letflow) => "letflow",
            Self::Splitter(Balancer::Presto) => "presto",
            Self::Splitter(Balancer::Drb) => "drb",
            Self::Splitter(Balancer::Rps) => "rps",
            Self::Splitter(Balancer::Tr) => "tr",
            Self::Splitter(Balancer::TrLocal) => "tr_local",
            Self::Splitter(Balancer::TrUnreported) => "tr_unreported",
            Self::Splitter(Balancer::TrMixed) => "tr_mixed",
            Self::Splitter(Balancer::TrPaper) => "tr_paper",
        }
    }

    /// Why this scheme cannot be measured here, if it cannot.
    pub(crate) fn obstacle(self, cell: &Cell, splitter: &Path) -> Result<Option<String>> {
        let Self::Splitter(balancer) = self else {
            return Ok(None);
        };
        // What is refused does not depend on the leaf.
        let refusal = refusal(splitter, |directory| {
            balancer.configuration(&host_devices(cell), &next_hops(cell, 0), directory)
        });
        Ok(refusal?)
    }

    /// Applies this scheme to a fresh fabric. Call it from a thread that lasts as long as the scheme: processes
    /// end with the thread that started them.
    pub(crate) fn apply(
        self,
        rig: &Rig,
        splitter: &Path,
        cancel: &CancellationToken,
    ) -> Result<Applied> {
        let mut applied = Applied::default();
        if self.hears() {
            let report = self != Self::Splitter(Balancer::TrUnreported);
            let without_role = usize::from(self == Self::Splitter(Balancer::TrMixed));
            let spines = rig.spines.iter().rev().skip(without_role);
            let launched = spines.map(|it| roles::launch_spine(it, splitter, report));
            applied.spines = launched.collect::<Result<_>>()?;
        }
        for leaf in &rig.leaves {
            let Leaf {
                namespace,
                host_devices,
                spines,
            } = leaf;
            match self {
                Self::EcmpFlow => multipath::hash_flows(namespace, spines)?,
                Self::EcmpPacket => {
                    let from: Vec<_> = host_devices.iter().map(String::as_str).collect();
                    multipath::spray_packets(namespace, spines, &from)?;
                }
                Self::Splitter(balancer) => {
                    applied.agents.push(balancer.launch(rig, leaf, splitter)?);
                }
            }
        }
        for agent in applied.spines.iter_mut().chain(&mut applied.agents) {
            agent.wait_until_ready(cancel)?;
        }
        if self.hears() {
            for (agent, leaf) in applied.agents.iter().zip(&rig.leaves) {
                roles::wait_until_heard(agent, leaf, cancel)?;
            }
        }
        Ok(applied)
    }

    /// Tells if leaves and spines have their roles, and packets choose by what is reported.
    fn hears(self) -> bool {
        matches!(self, Self::Splitter(balancer) if balancer.hears())
    }
}

impl Applied {
    /// Ends the processes of the scheme and checks that they took away all that they had set up.
    pub(crate) fn remove(mut self, scheme: Scheme, rig: &Rig, splitter: &Path) -> Result<()> {
        // As the roles are to be taken away: first all that write.
        while !self.agents.is_empty() {
            self.stop_first(scheme, rig, splitter)?;
        }
        self.spines.into_iter().try_for_each(Agent::stop)?;
        Ok(())
    }

    /// By how many us the leaves' models of the queues in front of their links were wrong since they were
    /// started, in the mean of all times that they were held against these; nothing without daemons.
    pub(crate) fn model_error_us(&self) -> Option<f64> {
        let read = self.agents.iter().map(Agent::model_error);
        let read = read.collect::<Option<Vec<_>>>()?;
        let looks: f64 = read.iter().map(|(looks, _)| looks).sum();
        let seconds: f64 = read.iter().map(|(_, seconds)| seconds).sum();
        (looks > 0.0).then(|| seconds / looks * 1e6)
    }

    /// The bytes that the daemons have for themselves and the maps of their programs; nothing without daemons.
    pub(crate) fn memory_bytes(&self, rig: &Rig) -> Option<u64> {
        let own = self.agents.iter().map(Agent::own_bytes);
        let own: u64 = own.collect::<Option<Vec<_>>>()?.into_iter().sum();
        (!self.agents.is_empty()).then(|| own + program::map_bytes(rig))
    }

    /// Ends the daemon at the first leaf that has one, with the leaf's role.
    pub(crate) fn stop_first(&mut self, scheme: Scheme, rig: &Rig, splitter: &Path) -> Result<()> {
        if self.agents.is_empty() {
            return Ok(());
        }
        let ended = rig.leaves.len() - self.agents.len();
        let agent = self.agents.remove(0);
        if let Some(leaf) = rig.leaves.get(ended).filter(|_| scheme.hears()) {
            roles::take_from_leaf(&agent, rig, leaf, splitter)?;
        }
        Ok(agent.stop()?)
    }

    /// Starts a daemon at the first leaf, if the scheme has one.
    pub(crate) fn start_first(
        &mut self,
        scheme: Scheme,
        rig: &Rig,
        splitter: &Path,
        cancel: &CancellationToken,
    ) -> Result<()> {
        if let (Scheme::Splitter(balancer), Some(leaf)) = (scheme, rig.leaves.first()) {
            let mut agent = balancer.launch(rig, leaf, splitter)?;
            agent.wait_until_ready(cancel)?;
            self.agents.insert(0, agent);
        }
        Ok(())
    }
}

impl Balancer {
    /// Starts the daemon at a leaf, with the leaf's role beside it where packets choose by reports.
    fn launch(self, rig: &Rig, leaf: &Leaf, splitter: &Path) -> Result<Agent> {
        let agent = Agent::launch(&leaf.namespace, splitter, |directory| {
            self.configuration(&leaf.host_devices, &leaf.spines, directory)
        })?;
        if self.hears() {
            roles::put_at_leaf(&agent, rig, leaf, splitter)?;
        }
        Ok(agent)
    }

    fn hears(self) -> bool {
        matches!(self, Self::Tr | Self::TrUnreported | Self::TrMixed)
    }

    /// The value of `balance`.
    fn key(self) -> &'static str {
        match self {
            Self::Letflow => "letflow",
            Self::Presto => "presto",
            Self::Drb => "drb",
            Self::Rps => "rps",
            Self::Tr | Self::TrLocal | Self::TrUnreported | Self::TrMixed => "tr",
            Self::TrPaper => "tr-paper",
        }
    }

    /// The daemon's configuration at a leaf, whose tunnels are the links to the spines.
    ///
    /// No flow turns long, so that each link has one FIFO, as with the kernel's schemes: it is the choice of the
    /// path that is compared, without the priority of short flows.
    fn configuration(self, lan: &[String], spines: &[NextHop], directory: &Path) -> String {
        let mut text = String::new();
        let path = |name: &str| toml::Value::from(directory.join(name).display().to_string());
        let lan = toml::Value::from(lan.to_vec());
        let _ = writeln!(text, "name = \"fabric\"\nlan = {lan}");
        let _ = writeln!(text, "runtime_dir = {}", path("run"));
        let _ = writeln!(text, "bpffs = {}", path("bpf"));
        let _ = writeln!(text, "policy = \"share\"\nbalance = \"{}\"", self.key());
        if self.hears() {
            let _ = writeln!(text, "fabric = \"{}\"", roles::NAME);
        }
        for spine in spines {
            let NextHop {
                gateway,
                device,
                rate_mbit,
            } = spine;
            let _ = writeln!(text, "[[tunnels]]\ndevice = \"{device}\"");
            let _ = writeln!(text, "gateway = \"{gateway}\"\nrate_mbit = {rate_mbit}");
            // As the kernel's schemes have it, for those that choose by weight.
            let _ = writeln!(text, "weight = {rate_mbit}");
        }
        let _ = writeln!(text, "[short]\n[long]\n[steering]\nmode = \"mark\"");
        let _ = writeln!(text, "[flows]\nthreshold = {}", u32::MAX);
        let _ = writeln!(text, "[share]\nshape_percent = 100\nqueue_ms = {QUEUE_MS}");
        let (address, port) = METRICS;
        let _ = writeln!(text, "[metrics]\naddress = \"{address}:{port}\"");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{self, tests::SHAPE};

    #[test]
    fn every_scheme_has_a_name_of_its_own() {
        let all = || Scheme::ALL.into_iter().chain(Scheme::CONTROLS);
        let mut names: Vec<_> = all().map(Scheme::name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().count());
    }

    #[test]
    fn links_to_spines_are_the_tunnels_of_one_list() {
        let cell = cell::chosen(SHAPE, Some("asym2.5"), false)[0];
        let (lan, spines) = (host_devices(&cell), next_hops(&cell, 1));
        let text = Balancer::TrPaper.configuration(&lan, &spines, Path::new("/x"));
        let table: toml::Table = text.parse().expect("TOML");
        assert_eq!(table["balance"].as_str(), Some("tr-paper"));
        assert_eq!(table["lan"].as_array().map(Vec::len), Some(2));
        let slow = &table["tunnels"][1];
        assert_eq!(slow["rate_mbit"].as_integer(), Some(28));
        assert_eq!(slow["weight"].as_integer(), Some(28));
        assert_eq!(slow["gateway"].as_str(), Some("10.101.1.2"));
        assert_eq!(table["bpffs"].as_str(), Some("/x/bpf"));
        assert!(!table.contains_key("fabric"), "nobody reports");
        // One FIFO in front of each link.
        assert_eq!(
            table["flows"]["threshold"].as_integer(),
            Some(i64::from(u32::MAX))
        );
    }
}
