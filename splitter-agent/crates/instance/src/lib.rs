//! One instance of the splitter on this machine: bring it up, take it down.
//!
//! Everything is computed as a difference first ([`Plan`]), so that a second
//! `up` changes nothing, `plan` shows what `up` would do, and an agent that
//! watches reconciles what somebody else undid. What fails half-way is undone.

mod absent;
mod attached;
mod audit;
mod chosen;
mod counted;
mod detach;
mod down;
mod down_all;
mod egress;
mod egress_audit;
mod error;
pub mod explanation;
pub mod fabric;
pub mod files;
mod follow;
mod found;
mod hearing;
mod loaded;
mod lock;
pub mod next_hop_watch;
mod other_instances;
mod path_models;
mod paths;
mod pin_owner;
mod place;
mod plan;
pub mod privileges;
pub mod queue_comparison;
mod queues;
mod redirect;
mod redirected_choice;
pub mod report;
mod settled;
mod state;
mod table_sizes;
pub mod tap_report;
mod thresholds;
mod unseen;
mod up;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use splitter_policy::config::PolicyConfig;
use splitter_policy::flow::TunnelRole;
use splitter_policy::thresholds::Thresholds;

use self::absent::Needed;
use self::attached::attached_mode;
pub use self::attached::{AttachedInterface, attached_among};
pub use self::chosen::{ByClass, Chosen, ChosenRates, ChosenRow, Heard};
pub use self::counted::{FlowCounts, TrafficRow};
pub use self::down_all::{Cleared, Kept, down_all};
pub use self::egress::{
    ByMark, EgressAttachment, EgressRow, LeftRates, TunnelEgress, family_label,
};
pub use self::egress_audit::EgressAudit;
pub use self::error::InstanceError;
pub use self::found::{FoundInstance, Search, recover};
use self::loaded::Loaded;
pub use self::lock::Lock;
pub use self::path_models::PathModels;
pub use self::plan::{Attachment, AttachmentAction, Plan, PolicyAction, ProgramAction};
pub use self::redirect::{ByStack, Redirect};
pub use self::redirected_choice::{RedirectedChoice, RedirectedTunnel};
use self::settled::SettledRoutes;
pub use self::state::health_report;
pub use self::state::{Owner, State};
pub use self::table_sizes::sizing;

pub use self::up::BroughtUp;
use splitter_config::{Config, DscpMatch, Threshold};
use splitter_datapath::{Dataplane, Object, Pins, policy_settings};
use splitter_netlink::{InterfaceName, Interfaces, Netlink};
use splitter_steering::routes::Destinations;
use splitter_steering::{Placement, Placements};
use splitter_steering::{redirection, routes, shaping};

use crate::privileges::check_capabilities;
use crate::thresholds::prefix_thresholds;

/// Says what of the rules and routes in place is read for a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    All,
    /// Nothing, if nobody has changed any since they were read.
    IfChanged,
}

/// An instance as configured, whether it is up or not.
pub struct Instance {
    config: Config,
    netlink: Netlink,
    pins: Pins,
    object: Object,
    /// The file that the configuration is from, as far as it is known.
    file: Option<PathBuf>,
    /// Which interfaces have to be there for a plan.
    needed: Needed,
    /// What this process has placed; before that, and in others, the state file says it.
    placed: Arc<std::sync::Mutex<Option<Placements>>>,
    /// What leads into the tunnels, by the rules and routes that this process has put in place.
    destinations: std::sync::Mutex<Option<Arc<Destinations>>>,
    settled: SettledRoutes,
    /// One change at a time: what reconciles and what moves classes run side by side.
    changing: Arc<tokio::sync::Mutex<()>>,
    /// The operator was told that the programs do not see the queues in front of tunnels.
    is_blind: Arc<AtomicBool>,
    /// The tunnels that the operator was told are not counted.
    uncounted: Arc<egress::Uncounted>,
    growth: table_sizes::Growth,
}

impl Instance {
    /// The instance of a configuration; changes nothing.
    ///
    /// # Errors
    /// When netlink or the kernel object cannot be had.
    pub fn new(config: Config) -> Result<Self, InstanceError> {
        let object = Object::for_level(config.log.packets)
            .map_err(|source| InstanceError::Object { source })?
            .balancing(&config);
        Ok(Self {
            netlink: Netlink::connect()?,
            pins: Pins::new(&config.bpffs, &config.pin_dir()),
            object,
            config,
            file: None,
            needed: Needed::default(),
            placed: Arc::default(),
            destinations: std::sync::Mutex::default(),
            settled: SettledRoutes::default(),
            changing: Arc::default(),
            is_blind: Arc::default(),
            uncounted: Arc::default(),
            growth: table_sizes::Growth::default(),
        })
    }

    /// Notes which file the configuration is from, for commands that cannot use the file later.
    #[must_use]
    pub fn of_file(self, file: &Path) -> Self {
        let file = std::path::absolute(file).ok();
        Self { file, ..self }
    }

    /// Returns the instance's configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the instance's pins.
    pub fn pins(&self) -> &Pins {
        &self.pins
    }

    /// The maps and pins, if the instance is up.
    ///
    /// # Errors
    /// When the caller may not see them, or they cannot be used.
    pub fn open(&self) -> Result<Option<Dataplane>, InstanceError> {
        self.pins.check_readable()?;
        Ok(Dataplane::open(&self.pins)?)
    }

    /// Notes what an operator should know besides what the plan says: of packets that are redirected, and of queues that keep
    /// packets from choosing a tunnel.
    pub async fn hints(&self) -> Vec<String> {
        let mut hints = redirection::notes(&self.netlink, &self.config).await;
        hints.extend(shaping::short_queue(&self.config).map(|it| it.to_string()));
        hints
    }

    /// Keeps other agents from changing this instance until it is dropped.
    ///
    /// # Errors
    /// [`InstanceError::Running`] when another agent holds it, and
    /// [`InstanceError::NotPermitted`] when the caller could not change it.
    pub fn lock(&self) -> Result<Lock, InstanceError> {
        check_capabilities()?;
        Lock::acquire(&self.config.instance_dir())
    }

    /// Plans what `up` would change now. Rules and routes are not read again while they are known to be in
    /// place; then the plan does not name them.
    ///
    /// # Errors
    /// When an interface is missing, something that is not ours is in the way,
    /// or the kernel refuses a request.
    pub async fn plan(&self) -> Result<Plan, InstanceError> {
        // What is half-way is no difference.
        let _changing = self.changing.lock().await;
        let interfaces = self.netlink.interfaces().await?;
        let state = State::read(&self.config.instance_dir())?;
        let loaded = self.loaded(state.as_ref())?;
        let plan = self
            .plan_with(&interfaces, &loaded, Reading::IfChanged)
            .await?;
        if plan.routes.is_in_place() {
            self.note_destinations(&plan.routes);
        }
        Ok(plan)
    }

    /// Changes the threshold of the program that is loaded, for one that is `auto`.
    ///
    /// # Errors
    /// When the instance is not up, or its settings cannot be written.
    pub fn set_threshold(&self, _lock: &Lock, threshold: u32) -> Result<(), InstanceError> {
        if let Some(mut dataplane) = self.open()? {
            let thresholds = Thresholds::uniform(threshold.into());
            let policy = dataplane.policy()?;
            dataplane.set_policy(PolicyConfig {
                thresholds,
                ..policy
            })?;
        }
        Ok(())
    }

    async fn plan_with(
        &self,
        interfaces: &Interfaces,
        loaded: &Loaded,
        reading: Reading,
    ) -> Result<Plan, InstanceError> {
        let is_up = !matches!(loaded, Loaded::Nothing);
        other_instances::check(&self.config, is_up)?;
        if !is_up {
            self.check_for_unseen(interfaces).await?;
        }
        table_sizes::check_numa_node(&self.config)?;
        let absent = self.absent(interfaces)?;
        let state = State::read(&self.config.instance_dir())?;
        let previous = state.as_ref().map(State::footprints).unwrap_or_default();
        // Of an instance that is not up nothing is placed, whatever a crash has left.
        let placed = state
            .as_ref()
            .filter(|_| !matches!(loaded, Loaded::Nothing));
        let placements = self.placements_with(placed);
        let destinations = self.destinations_in_place().await?;
        let known = match reading {
            Reading::IfChanged => self.settled.plan(&self.config, &placements, &destinations),
            Reading::All => None,
        };
        let routes = match known {
            Some(plan) => plan,
            None => {
                plan::mode_stays(&self.config, placed)?;
                self.settled.before_reading(&self.netlink);
                let (netlink, config) = (&self.netlink, &self.config);
                let plan = routes::plan_with(netlink, config, &placements, &previous, destinations);
                let plan = plan.await?;
                self.settled.after_reading(&plan, config);
                plan
            }
        };
        // What the programs know of tunnels they know of one site alone.
        let placement = placements.of(&self.config.site_name()).clone();
        let found = state
            .as_ref()
            .map_or(&[][..], |state| &state.original_qdiscs);
        let shaping = shaping::plan(&self.netlink, &self.config, interfaces, found).await?;
        let mut policy = policy_settings(
            &self.config,
            self.smallest_lan_mtu(interfaces)?,
            routes.matching == DscpMatch::Dscp,
            self.usable_tunnels(interfaces, &placement),
        );
        if let Loaded::Current(dataplane) = loaded {
            self.keep_automatic_threshold(&mut policy, &dataplane.policy()?);
        }
        let common = policy.thresholds.common();
        let prefixes = prefix_thresholds(&self.config, &routes.destinations, common);
        self.add_thresholds(&mut policy, &prefixes, loaded)?;
        let redirect = self.redirect(interfaces, &placement, loaded).await?;
        let egress = self.plan_egress(interfaces, loaded);
        let paths = match loaded {
            Loaded::Current(dataplane) => {
                self.site_paths_as_measured(&placement, dataplane, interfaces)?
            }
            Loaded::Nothing | Loaded::OtherBuild { .. } => self.site_paths(&placement, interfaces),
        };
        let paths = match &redirect {
            Some(redirect) => paths.map(|it| self.redirectable(it, &redirect.targets)),
            None => paths,
        };
        plan::assemble(
            &plan::Inputs {
                redirect,
                absent,
                egress,
                config: &self.config,
                interfaces,
                loaded,
                pins: &self.pins,
                tables: self.table_sizes(loaded)?,
                policy,
                prefixes,
                paths,
            },
            shaping,
            routes,
        )
    }

    /// A threshold that is `auto` stays where an agent has moved it, as far as the bounds allow:
    /// also for the next agent.
    fn keep_automatic_threshold(&self, wanted: &mut PolicyConfig, present: &PolicyConfig) {
        let Config { flows, advise, .. } = &self.config;
        if flows.threshold == Threshold::Auto && wanted.unit == present.unit {
            let bounds = (advise.min.get().into(), advise.max.get().into());
            let present = present.thresholds.common();
            wanted.thresholds = Thresholds::uniform(present.clamp(bounds.0, bounds.1));
        }
    }

    /// A bit for each class that has a tunnel with a carrier where some class is placed. Tunnels
    /// of their own are used whatever their state is: the programs know of no others for the
    /// class, and the rules fall through when its routes go.
    fn usable_tunnels(&self, interfaces: &Interfaces, placement: &Placement) -> u8 {
        let is_usable = |role: TunnelRole| {
            let is_alive = |device: &InterfaceName| {
                let interface = interfaces.named(device);
                let is_up = interface.is_ok_and(|it| it.is_up && it.has_carrier);
                is_up && placement.uses(role, device)
            };
            let mut tunnels = self.config.tunnels_of(role).iter();
            !self.config.is_shared() || tunnels.any(|it| is_alive(&it.device))
        };
        u8::from(is_usable(TunnelRole::Short)) | u8::from(is_usable(TunnelRole::Long)) << 1
    }

    fn smallest_lan_mtu(&self, interfaces: &Interfaces) -> Result<u32, InstanceError> {
        let mut smallest = u32::MAX;
        for name in &self.config.lan {
            // One that is absent is named elsewhere.
            let Ok(interface) = interfaces.named(name) else {
                continue;
            };
            if !interface.is_ethernet {
                return Err(InstanceError::NoEthernet(name.clone()));
            }
            smallest = smallest.min(interface.mtu);
        }
        Ok(smallest)
    }
}
