//! A machine as a leaf or a spine of a fabric: what is in place for that, and what keeps it so.

mod hold;
mod pinned;
mod report;
mod stop;

use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use splitter_config::{Fabric, FabricConfig, FabricRole};
use splitter_datapath::{FabricDataplane, FabricPortState, KernelError, fabric_ports};
use splitter_netlink::{DeviceEvents, Interfaces, Netlink, NetlinkError};
use thiserror::Error;
use tokio::time::sleep;

use self::hold::Turn;
pub use self::pinned::PinnedRole;
pub use self::report::{PlannedPort, RolePlan, RoleStatus, ShownPort};
pub use self::stop::{Ending, cease, take_down, take_down_all};
use crate::queue_comparison::compare_for;
use crate::{InstanceError, PathModels};

/// From one look at the ports to the next, where no device has changed.
const RECONCILE_INTERVAL: Duration = Duration::from_secs(1);
/// At least, however often devices change.
const LEAST_INTERVAL: Duration = Duration::from_millis(20);

/// The role of a machine could not be put in place, or not be looked at.
#[derive(Debug, Error)]
pub enum FabricError {
    /// A port is of the wrong kind.
    #[error(
        "the port {0} has no Ethernet header, by which ACKs are found; name the devices of the links between leaves and spines"
    )]
    NotEthernet(String),
    /// Another process has the role.
    #[error(
        "the role {name} is held by {holder}, which alone changes it: change its file and start it again, or stop it first (`systemctl stop splitter-fabric`, where it is the service)"
    )]
    Held {
        /// The role's name.
        name: String,
        /// Its process id and command line, as far as they are known.
        holder: String,
    },
    /// Its pins are of another network namespace, or its lock cannot be used.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    /// Another role takes ports, and has not come to an end.
    #[error(
        "another process has locked {} for {seconds} s, as one does that looks who has which port; end it (`fuser -v` of the directory says which), and try again",
        directory.display()
    )]
    NoTurn {
        /// The directory of all roles' pins.
        directory: PathBuf,
        /// As long as it was waited for.
        seconds: u64,
    },
    /// Another role of this network namespace has a port.
    #[error(
        "the port {port} has the programs of the instance {name}; take that one down (`splitter fabric down` with its file, or `splitter fabric down --all`, which takes down all that no agent runs), or name another device"
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
    /// Returns true where missing rights are the reason.
    #[must_use]
    pub fn is_not_permitted(&self) -> bool {
        match self {
            Self::Instance(error) => error.is_not_permitted(),
            Self::Kernel(error) => error.is_not_permitted(),
            Self::Netlink(error) => error.is_permission_denied(),
            _ => false,
        }
    }

    /// Returns true where somebody else is in the way: another process, role or leaf.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        match self {
            Self::Instance(error) => error.is_conflict(),
            Self::Held { .. }
            | Self::NoTurn { .. }
            | Self::PortTaken { .. }
            | Self::StillWritten { .. } => true,
            Self::NotEthernet(_) | Self::Kernel(_) | Self::Netlink(_) => false,
        }
    }
}

/// State of a leaf or a spine, as far as it is in place.
#[derive(Debug)]
pub struct FabricState {
    config: FabricConfig,
    file: PathBuf,
    plane: FabricDataplane,
    attached: AtomicUsize,
}

impl FabricState {
    /// Puts the role of a configuration, which is that of a file, in place on the ports that there are.
    ///
    /// # Errors
    /// See [`FabricError`].
    pub async fn up(
        config: &FabricConfig,
        file: &Path,
        netlink: &Netlink,
    ) -> Result<Self, FabricError> {
        let interfaces = netlink.interfaces().await?;
        let plane = put_in_place(config, file, &interfaces).await?;
        let state = Self {
            config: config.clone(),
            file: file.to_owned(),
            plane,
            attached: AtomicUsize::new(0),
        };
        state.note_ports(&interfaces)?;
        Ok(state)
    }

    /// Returns what the machine is in the fabric.
    #[must_use]
    pub fn config(&self) -> &Fabric {
        &self.config.fabric
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
        let fabric = self.config();
        let ports = self.plane.port_states(fabric, interfaces)?;
        let attached = ports.iter().filter(|it| it.is_in_place()).count();
        let before = self.attached.swap(attached, Ordering::Relaxed);
        if attached != before {
            let (role, listed) = (fabric.role, fabric.ports.len());
            tracing::info!(event = "fabric_ports", %role, attached, listed, "ports with the programs of the role");
        }
        Ok(ports)
    }

    /// Puts in place what is not there: at ports that have come, or come back, or whose pins somebody has removed.
    async fn reconcile(&self, netlink: &Netlink) -> Result<Vec<FabricPortState>, FabricError> {
        let interfaces = netlink.interfaces().await?;
        let looked = self.note_ports(&interfaces);
        let knows_ports = self.plane.knows_ports(self.config(), &interfaces);
        match looked.and_then(|ports| Ok((ports, knows_ports?))) {
            Ok((ports, true)) if ports.iter().all(FabricPortState::is_in_place) => {
                return Ok(ports);
            }
            Ok(_) => {}
            // Somebody has removed the pins, say.
            Err(error) => {
                tracing::warn!(event = "fabric_lost", %error, "what was in place is not there; putting it there again");
            }
        }
        put_in_place(&self.config, &self.file, &interfaces).await?;
        Ok(self.note_ports(&interfaces)?)
    }
}

/// Puts programs and their settings in place; what is there already stays.
async fn put_in_place(
    config: &FabricConfig,
    file: &Path,
    interfaces: &Interfaces,
) -> Result<FabricDataplane, FabricError> {
    for port in &config.fabric.ports {
        let interface = interfaces.named(&port.device);
        if interface.is_ok_and(|it| !it.is_ethernet) {
            return Err(FabricError::NotEthernet(port.device.to_string()));
        }
    }
    let role = PinnedRole::of(config);
    let was_there = role.pins().exists();
    let turn = Turn::take(&role.as_pins()).await?;
    if let Err(refused) = hold::check_ports(config, &turn) {
        if !was_there {
            FabricDataplane::down(role.bpffs(), role.pins())?;
        }
        return Err(refused);
    }
    role.note(file)?;
    let plane = FabricDataplane::up(role.bpffs(), role.pins(), &config.fabric, interfaces)?;
    Ok(plane)
}

/// Warns of a DSCP that Linux's queues do not take for best effort.
pub fn warn_unless_best_effort(config: &FabricConfig) {
    if !config.is_best_effort() {
        tracing::warn!(
            event = "dscp_not_best_effort",
            dscp = config.fabric.dscp.get(),
            "`pfifo_fast` and `prio` do not treat this DSCP as best effort; take one that leaves a rest of 0 or 1 by 8, such as 41"
        );
    }
}

/// Keeps the programs at the ports, also at those that come back, and holds a spine's models against its queues, as long
/// as it is polled. A leaf's are there as soon as the kernel tells of the port, for hosts see what is not restored; a
/// spine, whose looks at its queues are not to be broken off, notices within about a second.
///
/// `goes_round` hears of each time that it has looked, at least about once a second.
pub async fn keep_up(
    state: Arc<FabricState>,
    netlink: &Netlink,
    mut goes_round: impl FnMut(),
) -> &'static str {
    let is_leaf = state.config().role == FabricRole::Leaf;
    let mut events = is_leaf.then(DeviceEvents::listen);
    if let Some(Err(error)) = &events {
        tracing::warn!(event = "fabric_devices", %error, "looks at the ports once a second, and not when they come");
    }
    let mut models = None;
    loop {
        goes_round();
        let looked = state.reconcile(netlink).await;
        sleep(LEAST_INTERVAL).await;
        // What has failed is tried again in a second, whatever devices do meanwhile.
        let is_in_place = looked.is_ok();
        tokio::select! {
            () = until_next_look(&state, looked, &mut models) => {}
            () = change_of(&mut events), if is_in_place => {}
        }
    }
}

async fn change_of(events: &mut Option<Result<DeviceEvents, NetlinkError>>) {
    match events {
        Some(Ok(events)) => events.next().await,
        _ => pending().await,
    }
}

/// Waits, and holds a spine's models against its queues meanwhile; what looks have said of the same ports counts on.
async fn until_next_look(
    state: &FabricState,
    looked: Result<Vec<FabricPortState>, FabricError>,
    earlier: &mut Option<PathModels>,
) {
    match looked {
        Ok(ports) if state.config().role == FabricRole::Spine => match models(state, &ports) {
            Ok(models) => {
                let models = models.after(earlier.take());
                *earlier = compare_for(RECONCILE_INTERVAL, models).await;
            }
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

/// The models of the ports that are there, by their devices' numbers of now.
fn models(state: &FabricState, ports: &[FabricPortState]) -> Result<PathModels, KernelError> {
    let index = |device: &str| {
        ports
            .iter()
            .find(|it| it.device == device)
            .map(|it| it.index)
    };
    let listed = state.config().ports.iter();
    let devices = listed.map(|it| index(it.device.as_str())).collect();
    let queues = state.plane.port_queues()?;
    Ok(PathModels::new(
        queues,
        fabric_ports(state.config()),
        devices,
    ))
}
