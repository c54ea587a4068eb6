//! Looks at a running instance. All I/O of an overview is here.

use std::sync::Arc;
use std::time::Duration;

use splitter_config::Config;
use splitter_datapath::clock::monotonic_ns;
use splitter_datapath::connections::{TunnelDevices, each};
use splitter_datapath::flows::FlowTotals;
use splitter_datapath::{Dataplane, KernelError};
use splitter_netlink::{
    DeviceTraffic, Family, Interfaces, Netlink, NetlinkError, RootQueue, root_queues_aside,
};
use splitter_policy::counters::Counters;
use splitter_policy::egress_counts::EgressCounts;
use splitter_policy::flow::Class;
use splitter_steering::{Egress, Placement};
use thiserror::Error;

use super::flows::{Collector, Earlier};
use super::history::{History, Totals};
use super::{Flow, Found, FoundTunnel, HealthSource, LinkState, Overview, Selection, TunnelHealth};
use splitter_instance::{Chosen, attached_among};

/// Looks again and again, and remembers what rates are computed from.
#[derive(Debug)]
pub struct Observer {
    config: Config,
    netlink: Netlink,
    health: Option<Arc<dyn HealthSource>>,
    history: History,
    earlier: Earlier,
    at_least: Duration,
}

/// An instance could not be looked at.
#[derive(Debug, Error)]
pub enum ObserveError {
    /// Counters or flow tables cannot be read.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The kernel does not list the interfaces.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The walk over the flow table ended early, by a mistake in this program.
    #[error("the walk over the flow table ended early: {0}")]
    Walk(#[from] tokio::task::JoinError),
}

/// What is read from the maps at once.
struct Tables {
    program_id: u32,
    counters: Counters,
    capacities: [(Family, u32); 2],
    totals: FlowTotals,
    flows: Vec<Flow>,
    matching: u64,
    earlier: Earlier,
    at_ns: u64,
}

impl Observer {
    /// Looks at the instance of a configuration, in the network namespace of this thread. Rates
    /// are taken over `at_least` so long a time. Needs a running tokio runtime.
    ///
    /// # Errors
    /// When netlink is not to be had.
    pub fn new(config: &Config, at_least: Duration) -> Result<Self, NetlinkError> {
        Ok(Self {
            config: config.clone(),
            netlink: Netlink::connect()?,
            health: None,
            history: History::default(),
            earlier: Earlier::default(),
            at_least,
        })
    }

    /// Goes by another configuration of the same instance from now on.
    pub fn go_by(&mut self, config: &Config) {
        let devices = |of: &Config| {
            let devices = of.tunnels().map(|(_, tunnel)| tunnel.device.clone());
            devices.collect::<Vec<_>>()
        };
        if devices(config) != devices(&self.config) {
            // Other devices have counted otherwise.
            self.history = History::default();
        }
        self.config = config.clone();
    }

    /// Also reports what probes find of the tunnels.
    #[must_use]
    pub fn with_health(mut self, source: Arc<dyn HealthSource>) -> Self {
        self.health = Some(source);
        self
    }

    /// Takes rates over at least so long a time from now on.
    pub fn set_at_least(&mut self, at_least: Duration) {
        self.at_least = at_least;
    }

    /// Looks now. Walks over the whole flow table, on a thread for that.
    ///
    /// # Errors
    /// See [`ObserveError`].
    pub async fn look(
        &mut self,
        dataplane: Arc<Dataplane>,
        selection: &Selection,
    ) -> Result<Overview, ObserveError> {
        let interfaces = self.netlink.interfaces().await?;
        // What cannot be read is not known.
        let queues = root_queues_aside().await.unwrap_or_default();
        let left = self.left(&interfaces, &dataplane)?;
        let chosen = Chosen::read_all(&dataplane)?;
        // Lost if the walk fails: then the next look knows no rates of flows.
        let earlier = std::mem::take(&mut self.earlier);
        let selection = selection.clone();
        let devices = TunnelDevices::new(&self.config, &interfaces);
        let read = move || read_tables(&dataplane, &devices, selection, earlier);
        let tables = tokio::task::spawn_blocking(read).await??;
        self.earlier = tables.earlier;
        let now = Totals {
            at_ns: tables.at_ns,
            program_id: tables.program_id,
            counters: tables.counters,
            devices: self.devices(&interfaces),
            left,
            chosen,
        };
        let found = Found {
            attached: attached_among(&interfaces, &self.config, tables.program_id),
            totals: tables.totals,
            capacities: tables.capacities,
            tunnels: self.tunnels(&interfaces, &queues),
            egresses: Class::ALL.map(|class| self.egress(class)),
            flows_matching: tables.matching,
            flows: tables.flows,
        };
        let at_least_ns = self.at_least.as_nanos() as u64;
        let overview = Overview::new(&self.config, found, &now, &self.history, at_least_ns);
        self.history.add(now);
        Ok(overview)
    }

    /// Looks at classes and tunnels alone, which costs little, with rates over `at_least` so long a
    /// time. `flows` is how many there were lately. Also has a later look know rates and completion
    /// times of late.
    ///
    /// # Errors
    /// See [`ObserveError`].
    pub async fn glance(
        &mut self,
        dataplane: &Dataplane,
        flows: FlowTotals,
        at_least: Duration,
    ) -> Result<Overview, ObserveError> {
        let interfaces = self.netlink.interfaces().await?;
        // What cannot be read is not known.
        let queues = root_queues_aside().await.unwrap_or_default();
        let now = Totals {
            at_ns: monotonic_ns(),
            program_id: dataplane.program_id()?,
            counters: dataplane.counters()?,
            devices: self.devices(&interfaces),
            left: self.left(&interfaces, dataplane)?,
            chosen: Chosen::read_all(dataplane)?,
        };
        let found = Found {
            attached: Vec::new(),
            totals: flows,
            capacities: [(Family::V4, 0), (Family::V6, 0)],
            tunnels: self.tunnels(&interfaces, &queues),
            egresses: Class::ALL.map(|class| self.egress(class)),
            flows_matching: 0,
            flows: Vec::new(),
        };
        let at_least_ns = at_least.as_nanos() as u64;
        let overview = Overview::new(&self.config, found, &now, &self.history, at_least_ns);
        self.history.add(now);
        Ok(overview)
    }

    fn tunnels(&self, interfaces: &Interfaces, queues: &[RootQueue]) -> Vec<FoundTunnel> {
        let tunnels = self.config.tunnels().map(|(_, tunnel)| {
            let health = match &self.health {
                Some(source) => source.health(&tunnel.device),
                None => TunnelHealth::default(),
            };
            let interface = interfaces.named(&tunnel.device).ok();
            let is_its =
                |it: &&RootQueue| interface.is_some_and(|found| found.index == it.interface);
            FoundTunnel {
                link: LinkState::of(interface, health.link),
                health,
                backlog_bytes: queues.iter().find(is_its).map(|it| it.backlog_bytes),
            }
        });
        tunnels.collect()
    }

    fn egress(&self, class: Class) -> Option<Egress> {
        match &self.health {
            _ if self.config.shadow => None,
            Some(source) => source.egress(class),
            _ => Some(Placement::PRIMARY.of(class)),
        }
    }

    fn devices(&self, interfaces: &Interfaces) -> Vec<Option<DeviceTraffic>> {
        let tunnels = self.config.tunnels();
        let traffic = tunnels.map(|(_, tunnel)| interfaces.named(&tunnel.device).ok()?.traffic);
        traffic.collect()
    }

    fn left(
        &self,
        interfaces: &Interfaces,
        dataplane: &Dataplane,
    ) -> Result<Vec<Option<EgressCounts>>, KernelError> {
        let tunnels = self.config.tunnels();
        let counts = tunnels.map(|(_, tunnel)| match interfaces.named(&tunnel.device) {
            Ok(interface) => dataplane.egress_counts(interface.index),
            Err(_) => Ok(None),
        });
        counts.collect()
    }
}

fn read_tables(
    dataplane: &Dataplane,
    devices: &TunnelDevices,
    selection: Selection,
    earlier: Earlier,
) -> Result<Tables, KernelError> {
    let at_ns = monotonic_ns();
    let counters = dataplane.counters()?;
    let mut collector = Collector::new(selection, earlier, at_ns);
    let totals = each(dataplane, devices, |connection| collector.take(connection))?;
    let (flows, matching, earlier) = collector.finish();
    let capacity = |family| Ok::<_, KernelError>((family, dataplane.table_capacity(family)?));
    Ok(Tables {
        program_id: dataplane.program_id()?,
        counters,
        capacities: [capacity(Family::V4)?, capacity(Family::V6)?],
        totals,
        flows,
        matching,
        earlier,
        at_ns,
    })
}
