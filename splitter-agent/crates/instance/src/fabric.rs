//! A machine as a leaf or a spine of a fabric: what is in place for that, and what keeps it so.

mod hold;
mod report;
mod stop;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use splitter_config::{Fabric, FabricConfig, FabricRole};
use splitter_datapath::{FabricDataplane, FabricPortState, KernelError, fabric_ports};
use splitter_netlink::{Interfaces, Netlink, NetlinkError};
use thiserror::Error;
use tokio::time::sleep;

pub use self::hold::hold;
pub use self::report::{PlannedPort, ShownPort, planned_ports, shown_ports};
pub use self::stop::{Ending, cease, take_down};
use crate::queue_comparison::compare_for;
use crate::{InstanceError, PathModels};

/// From one look at the ports to the next.
const RECONCILE_INTERVAL: Duration = Duration::from_secs(1);

/// The role of a machine could not be put in place, or not be looked at.
#[derive(Debug, Error)]
pub enum FabricError {
    /// A port is of the wrong kind.
    #[error(
        "the port {0} has no Ethernet header, by which ACKs are found; name the devices of the links between leaves and spines"
    )]
    NotEthernet(String),
    /// Another process has the role, or its pins are of another network namespace.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    /// Another role of this network namespace has a port.
    #[error(
        "the port {port} has the programs of the instance {name}; take that one down with its configuration (`splitter fabric down`), or name another device"
    )]
    PortTaken {
        /// The port's device.
        port: String,
        /// The name of the other one.
        name: String,
    },
    /// Other leaves still write to hosts behind this one.
    #[error(
        "other leaves still write: {acks} ACKs were restored in {seconds:.0} s, so the leaf restores on, and writes nothing itself; take its prefixes off their lists, or have them set restore_only = true, and then try again (`--at-once` takes it down all the same: hosts then see what is written)"
    )]
    StillWritten {
        /// ACKs that were restored meanwhile.
        acks: u64,
        /// As long as it was waited for.
        seconds: f64,
    },
    /// Programs or maps failed.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The devices could not be listed.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

impl FabricError {
    /// Returns true where somebody else is in the way: another process, role or leaf.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        match self {
            Self::Instance(error) => error.is_conflict(),
            Self::PortTaken { .. } | Self::StillWritten { .. } => true,
            Self::NotEthernet(_) | Self::Kernel(_) | Self::Netlink(_) => false,
        }
    }
}

/// State of a leaf or a spine, as far as it is in place.
#[derive(Debug)]
pub struct FabricState {
    config: Fabric,
    plane: FabricDataplane,
    attached: AtomicUsize,
}

impl FabricState {
    /// Puts the role of a configuration in place, on the ports that there are.
    ///
    /// # Errors
    /// See [`FabricError`].
    pub async fn up(config: &FabricConfig, netlink: &Netlink) -> Result<Self, FabricError> {
        let interfaces = netlink.interfaces().await?;
        let plane = put_in_place(config, &interfaces)?;
        let state = Self {
            config: config.fabric.clone(),
            plane,
            attached: AtomicUsize::new(0),
        };
        state.note_ports(&interfaces)?;
        Ok(state)
    }

    /// Returns what the machine is in the fabric.
    #[must_use]
    pub fn config(&self) -> &Fabric {
        &self.config
    }

    /// Returns the programs that are in place.
    #[must_use]
    pub fn plane(&self) -> &FabricDataplane {
        &self.plane
    }

    /// Returns how many ports have all programs of the role, as of the last look.
    #[must_use]
    pub fn attached(&self) -> usize {
        self.attached.load(Ordering::Relaxed)
    }

    fn note_ports(&self, interfaces: &Interfaces) -> Result<Vec<FabricPortState>, KernelError> {
        let ports = self.plane.port_states(&self.config, interfaces)?;
        let attached = ports.iter().filter(|it| it.is_in_place()).count();
        let before = self.attached.swap(attached, Ordering::Relaxed);
        if attached != before {
            let (role, listed) = (self.config.role, self.config.ports.len());
            tracing::info!(event = "fabric_ports", %role, attached, listed, "ports with the programs of the role");
        }
        Ok(ports)
    }
}

/// Puts programs and their settings in place; what is there already stays.
fn put_in_place(
    config: &FabricConfig,
    interfaces: &Interfaces,
) -> Result<FabricDataplane, FabricError> {
    for port in &config.fabric.ports {
        let interface = interfaces.named(&port.device);
        if interface.is_ok_and(|it| !it.is_ethernet) {
            return Err(FabricError::NotEthernet(port.device.to_string()));
        }
    }
    hold::check_ports(config)?;
    let directory = config.pin_dir();
    let plane = FabricDataplane::up(&config.bpffs, &directory, &config.fabric, interfaces)?;
    hold::note_owner(config)?;
    Ok(plane)
}

/// Warns that a DSCP is none that Linux's queues take for best effort.
pub fn warn_of_dscp(config: &FabricConfig) {
    tracing::warn!(
        event = "dscp_not_best_effort",
        dscp = config.fabric.dscp.get(),
        "`pfifo_fast` and `prio` do not treat this DSCP as best effort; take one that leaves a rest of 0 or 1 by 8, such as 41"
    );
}

/// Keeps the programs at the ports, also at those that come back, and holds a spine's models against its
/// queues, as long as it is polled; `goes_round` hears of each time that it has looked, about once a second.
pub async fn keep_up(
    config: &FabricConfig,
    state: Arc<FabricState>,
    netlink: &Netlink,
    mut goes_round: impl FnMut(),
) -> &'static str {
    loop {
        goes_round();
        match reconcile(config, &state, netlink).await {
            Ok(ports) if state.config.role == FabricRole::Spine => match models(&state, &ports) {
                Ok(models) => compare_for(RECONCILE_INTERVAL, models).await,
                Err(error) => {
                    tracing::warn!(event = "fabric_models", %error, "the models of the ports are held against nothing");
                    sleep(RECONCILE_INTERVAL).await;
                }
            },
            Ok(_) => sleep(RECONCILE_INTERVAL).await,
            Err(error) => {
                tracing::error!(event = "fabric_not_in_place", %error, "cannot keep the role in the fabric in place");
                sleep(RECONCILE_INTERVAL).await;
            }
        }
    }
}

async fn reconcile(
    config: &FabricConfig,
    state: &FabricState,
    netlink: &Netlink,
) -> Result<Vec<FabricPortState>, FabricError> {
    let interfaces = netlink.interfaces().await?;
    match state.note_ports(&interfaces) {
        Ok(ports) if ports.iter().all(FabricPortState::is_in_place) => return Ok(ports),
        Ok(_) => {}
        // Somebody has removed the pins, say.
        Err(error) => {
            tracing::warn!(event = "fabric_lost", %error, "what was in place is not there; putting it there again");
        }
    }
    put_in_place(config, &interfaces)?;
    Ok(state.note_ports(&interfaces)?)
}

/// The models of the ports that are there, by their devices' numbers of now.
fn models(state: &FabricState, ports: &[FabricPortState]) -> Result<PathModels, KernelError> {
    let index = |device: &str| {
        ports
            .iter()
            .find(|it| it.device == device)
            .map(|it| it.index)
    };
    let listed = state.config.ports.iter();
    let devices = listed.map(|it| index(it.device.as_str())).collect();
    let queues = state.plane.port_queues()?;
    Ok(PathModels::new(
        queues,
        fabric_ports(&state.config),
        devices,
    ))
}
