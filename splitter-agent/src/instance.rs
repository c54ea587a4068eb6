//! One instance of the splitter on this machine: bring it up, take it down.
//!
//! Everything is computed as a difference first ([`Plan`]), so that a second
//! `up` changes nothing, `plan` shows what `up` would do, and an agent that
//! watches repairs what somebody else undid. What fails half-way is undone.

mod detach;
mod down;
mod error;
mod loaded;
mod lock;
mod others;
mod place;
mod plan;
pub(crate) mod redirect;
mod state;

use std::sync::Arc;

use serde::Serialize;
use splitter_common::config::Config as Policy;
use splitter_common::flow::Tunnel;

use self::detach::Undo;
pub use self::error::InstanceError;
use self::loaded::Loaded;
pub use self::lock::Lock;
pub use self::plan::{Attachment, AttachmentAction, Plan, PolicyAction, ProgramAction};
pub use self::redirect::{ByStack, Redirect};
pub use self::state::{Owner, State};
pub(crate) use self::state::{remove_if_there, write_private};
use crate::config::{Config, DscpMatch, InterfaceName, SteeringMode, Threshold};
use crate::health::Placement;
use crate::kernel::{AttachedMode, Dataplane, LoadOptions, Object, Pins, policy_settings};
use crate::netlink::{Interfaces, Netlink, XdpMode};
use crate::privileges::check_capabilities;
use crate::{routes, shaping};

/// An instance as configured, whether it is up or not.
pub struct Instance {
    config: Config,
    netlink: Netlink,
    pins: Pins,
    object: Object,
    /// What this process has placed; before that, and in others, the state file tells.
    placement: Arc<std::sync::Mutex<Option<Placement>>>,
    /// One change at a time: what repairs and what moves classes run side by side.
    changing: Arc<tokio::sync::Mutex<()>>,
}

/// The program on one interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AttachedInterface {
    /// The interface.
    pub interface: InterfaceName,
    /// How it turned out.
    pub mode: AttachedMode,
}

/// What was done to bring an instance up.
#[derive(Debug)]
pub struct BroughtUp {
    /// The maps.
    pub dataplane: Dataplane,
    /// What was changed; all kept when the instance was up already.
    pub plan: Plan,
    /// Every interface of the configuration, and how the program is attached.
    pub attached: Vec<AttachedInterface>,
    /// Who has to take it down.
    pub owner: Owner,
}

impl Instance {
    /// The instance of a configuration; changes nothing.
    ///
    /// # Errors
    /// When netlink or the kernel object cannot be had.
    pub fn new(config: Config) -> Result<Self, InstanceError> {
        let object = Object::for_level(config.packet_log)
            .map_err(|source| InstanceError::Object { source })?;
        Ok(Self {
            netlink: Netlink::connect()?,
            pins: Pins::new(&config.bpffs, &config.pin_dir()),
            object,
            config,
            placement: Arc::default(),
            changing: Arc::default(),
        })
    }

    /// Its configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Its pins.
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

    /// Keeps other agents from changing this instance until it is dropped.
    ///
    /// # Errors
    /// [`InstanceError::Running`] when another agent holds it, and
    /// [`InstanceError::NotPermitted`] when the caller could not change it.
    pub fn lock(&self) -> Result<Lock, InstanceError> {
        check_capabilities()?;
        Lock::acquire(&self.config.instance_dir())
    }

    /// What `up` would change now.
    ///
    /// # Errors
    /// When an interface is missing, something that is not ours is in the way,
    /// or the kernel does not tell.
    pub async fn plan(&self) -> Result<Plan, InstanceError> {
        // What is half-way is no difference.
        let _changing = self.changing.lock().await;
        let interfaces = self.netlink.interfaces().await?;
        let state = State::read(&self.config.instance_dir())?;
        let loaded = self.loaded(state.as_ref())?;
        self.plan_with(&interfaces, &loaded).await
    }

    /// Brings the instance up, or what is missing of it. All or nothing.
    ///
    /// # Errors
    /// See [`InstanceError`]; what this call had changed is undone by then.
    pub async fn up(&self, _lock: &Lock, owner: Owner) -> Result<BroughtUp, InstanceError> {
        let _changing = self.changing.lock().await;
        let found = State::read(&self.config.instance_dir())?;
        let interfaces = self.netlink.interfaces().await?;
        let loaded = self.loaded(found.as_ref())?;
        let plan = self.plan_with(&interfaces, &loaded).await?;
        let is_new = matches!(loaded, Loaded::Nothing);
        // What `up` was asked for stays, whoever watches it meanwhile.
        let owner = match &found {
            Some(state) if !is_new && owner == Owner::Run => state.owner,
            _ => owner,
        };
        let directory = self.config.instance_dir();
        // What is to be restored stays noted until that has been done.
        let to_restore = found.iter().flat_map(|state| &state.found);
        let mut noted: Vec<_> = plan.shaping.found().cloned().collect();
        noted.extend(
            to_restore
                .filter(|it| !plan.shaping.shapes(&it.device))
                .cloned(),
        );
        let placement = plan.routes.placement.clone();
        let state = State::new(owner, &self.config, &self.object, placement, noted);
        // Written before anything is changed, for `down` after a crash.
        let on_the_way = state.coming_from(found.as_ref());
        on_the_way
            .clone()
            .with_object_of(&loaded)
            .write(&directory)?;
        let mut dataplane = match loaded {
            Loaded::Current(dataplane) => *dataplane,
            Loaded::Nothing => self.load(plan.policy).or_else(|error| {
                State::remove(&directory)?;
                Err(error)
            })?,
            Loaded::OtherBuild { .. } => self.replace(plan.policy).or_else(|error| {
                match &found {
                    Some(found) => found.write(&directory)?,
                    None => State::remove(&directory)?,
                }
                Err(error)
            })?,
        };
        // From here on these are the programs, whatever fails.
        on_the_way.write(&directory)?;
        let mut undo = Undo {
            pins: is_new.then(|| self.pins.clone()),
            attached: Vec::new(),
            replaced: Vec::new(),
        };
        match self
            .apply(&mut dataplane, &plan, &interfaces, &mut undo)
            .await
        {
            Ok(attached) => {
                // What is no longer anywhere else is looked for there in vain, at worst.
                if let Err(error) = state.write(&directory) {
                    tracing::warn!(%error, "the state file names places that are empty by now");
                }
                Ok(BroughtUp {
                    dataplane,
                    plan,
                    attached,
                    owner,
                })
            }
            Err(error) => {
                self.undo(undo, &dataplane).await;
                match found {
                    Some(found) if !is_new => {
                        let object = self.object.digest();
                        State { object, ..found }.write(&directory)?;
                    }
                    None if !is_new => {}
                    _ => State::remove(&directory)?,
                }
                Err(error)
            }
        }
    }

    /// How the program of that id is attached to each configured interface;
    /// those it is not attached to are left out.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub async fn attached(&self, program_id: u32) -> Result<Vec<AttachedInterface>, InstanceError> {
        let interfaces = self.netlink.interfaces().await?;
        Ok(attached_among(&interfaces, &self.config, program_id))
    }

    /// Changes the threshold of the program that is loaded, for one that is `auto`.
    ///
    /// # Errors
    /// When the instance is not up, or its settings cannot be written.
    pub fn set_threshold(&self, _lock: &Lock, threshold: u32) -> Result<(), InstanceError> {
        if let Some(mut dataplane) = self.open()? {
            let threshold = threshold.into();
            let policy = dataplane.policy()?;
            dataplane.set_policy(Policy {
                threshold,
                ..policy
            })?;
        }
        Ok(())
    }

    async fn plan_with(
        &self,
        interfaces: &Interfaces,
        loaded: &Loaded,
    ) -> Result<Plan, InstanceError> {
        others::check(&self.config)?;
        let state = State::read(&self.config.instance_dir())?;
        let previous = state.as_ref().map(State::footprints).unwrap_or_default();
        // Of an instance that is not up nothing is placed, whatever a crash has left.
        let placed = state
            .as_ref()
            .filter(|_| !matches!(loaded, Loaded::Nothing));
        let placement = self.placement_with(placed);
        let routes =
            routes::plan_placed(&self.netlink, &self.config, &placement, &previous).await?;
        let found = state.as_ref().map_or(&[][..], |state| &state.found);
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
        let redirect = self.redirect(interfaces, &placement, loaded).await?;
        plan::assemble(
            &plan::Inputs {
                redirect,
                config: &self.config,
                interfaces,
                loaded,
                pins: &self.pins,
                policy,
            },
            shaping,
            routes,
        )
    }

    /// A threshold that is `auto` stays where an agent has moved it, as far as the bounds allow:
    /// also for the next agent.
    fn keep_automatic_threshold(&self, wanted: &mut Policy, present: &Policy) {
        let Config { flows, advise, .. } = &self.config;
        if flows.threshold == Threshold::Auto && wanted.unit == present.unit {
            let bounds = (advise.min.get().into(), advise.max.get().into());
            wanted.threshold = present.threshold.clamp(bounds.0, bounds.1);
        }
    }

    /// A bit for each class that has a tunnel with a carrier where some class is placed. Tunnels
    /// of their own are used whatever their state is: the programs know of no others for the
    /// class, and the rules fall through when its routes go.
    fn usable_tunnels(&self, interfaces: &Interfaces, placement: &Placement) -> u8 {
        let is_usable = |home: Tunnel| {
            let is_alive = |device: &InterfaceName| {
                let interface = interfaces.named(device);
                let is_up = interface.is_ok_and(|it| it.is_up && it.has_carrier);
                is_up && placement.uses(home, device)
            };
            let mut tunnels = self.config.tunnels_of(home).iter();
            !self.config.is_shared() || tunnels.any(|it| is_alive(&it.device))
        };
        u8::from(is_usable(Tunnel::Short)) | u8::from(is_usable(Tunnel::Long)) << 1
    }

    fn smallest_lan_mtu(&self, interfaces: &Interfaces) -> Result<u32, InstanceError> {
        let mut smallest = u32::MAX;
        for name in &self.config.lan {
            let interface = interfaces.named(name)?;
            if !interface.is_ethernet {
                return Err(InstanceError::NoEthernet(name.clone()));
            }
            smallest = smallest.min(interface.mtu);
        }
        Ok(smallest)
    }

    fn load(&self, policy: Policy) -> Result<Dataplane, InstanceError> {
        let options = self.load_options(policy);
        Ok(Dataplane::load(&self.object, &self.pins, &options)?)
    }

    fn replace(&self, policy: Policy) -> Result<Dataplane, InstanceError> {
        let options = self.load_options(policy);
        let dataplane = Dataplane::replace(&self.object, &self.pins, &options)?;
        tracing::warn!(
            "replaced the kernel programs of another build or log level; all flows start afresh as short"
        );
        Ok(dataplane)
    }

    fn load_options(&self, policy: Policy) -> LoadOptions {
        LoadOptions {
            table_size: self.config.flows.table_size.get(),
            steering: self.config.steering.mode,
            packet_log: self.config.packet_log,
            policy,
        }
    }

    async fn apply(
        &self,
        dataplane: &mut Dataplane,
        plan: &Plan,
        interfaces: &Interfaces,
        undo: &mut Undo,
    ) -> Result<Vec<AttachedInterface>, InstanceError> {
        let shaped = plan.shaping.apply(&self.netlink).await?;
        let attached = self.apply_steering(dataplane, plan, interfaces, undo).await;
        if attached.is_err() {
            shaped.roll_back(&self.netlink).await;
        }
        attached
    }

    /// Everything but the queues, which come first and go last.
    async fn apply_steering(
        &self,
        dataplane: &mut Dataplane,
        plan: &Plan,
        interfaces: &Interfaces,
        undo: &mut Undo,
    ) -> Result<Vec<AttachedInterface>, InstanceError> {
        let policy_before = dataplane.policy()?;
        let targets_before = dataplane.targets()?;
        let applied = plan
            .routes
            .clone()
            .apply(&self.netlink)
            .await
            .map_err(Box::new)?;
        let attached = async {
            // A shadow routes nothing.
            if !self.config.shadow {
                let verification = applied.verify(&self.netlink, &self.config).await?;
                for what in verification.skipped {
                    tracing::warn!("not verified: {what}");
                }
            }
            dataplane.set_policy(plan.policy)?;
            if let Some(redirect) = &plan.redirect {
                dataplane.set_targets(&redirect.targets)?;
            }
            self.attach_all(dataplane, plan, interfaces, undo).await?;
            self.attached(dataplane.program_id()?).await
        }
        .await;
        match attached {
            Ok(attached) => Ok(attached),
            Err(error) => {
                if let Err(error) = dataplane.set_targets(&targets_before) {
                    tracing::error!(%error, "cannot write again where packets were redirected to");
                }
                if let Err(error) = dataplane.set_policy(policy_before) {
                    tracing::error!(%error, "cannot write the earlier settings again");
                }
                let undone = applied.roll_back(&self.netlink).await;
                if !undone.remaining.is_empty() {
                    tracing::error!("{undone}");
                }
                Err(error)
            }
        }
    }

    async fn attach_all(
        &self,
        dataplane: &Dataplane,
        plan: &Plan,
        interfaces: &Interfaces,
        undo: &mut Undo,
    ) -> Result<(), InstanceError> {
        for attachment in &plan.attachments {
            let interface = attachment.interface.as_str();
            match attachment.action {
                AttachmentAction::Keep => {}
                AttachmentAction::Detach => self.detach(dataplane, interface).await?,
                AttachmentAction::Attach | AttachmentAction::Reattach => {
                    self.detach(dataplane, interface).await?;
                    let index = interfaces.named(&attachment.interface)?.index;
                    if attachment.action == AttachmentAction::Reattach {
                        undo.replaced.push((interface.to_owned(), index));
                    }
                    dataplane.attach(interface, index, self.config.attach)?;
                    undo.attached.push(interface.to_owned());
                }
            }
        }
        Ok(())
    }
}

/// How the program of that id is attached to each configured interface; those it
/// is not attached to are left out.
pub(crate) fn attached_among(
    interfaces: &Interfaces,
    config: &Config,
    program_id: u32,
) -> Vec<AttachedInterface> {
    let lan = config.lan.iter();
    lan.filter_map(|name| {
        let mode = attached_mode(interfaces, config, name, program_id)?;
        Some(AttachedInterface {
            interface: name.clone(),
            mode,
        })
    })
    .collect()
}

fn attached_mode(
    interfaces: &Interfaces,
    config: &Config,
    name: &InterfaceName,
    program_id: u32,
) -> Option<AttachedMode> {
    let interface = interfaces.named(name).ok()?;
    if config.steering.mode == SteeringMode::Mark {
        let pins = Pins::new(&config.bpffs, &config.pin_dir());
        return Dataplane::attached_ingress(&pins, name.as_str(), interface.index, program_id);
    }
    let xdp = interface.xdp?;
    match xdp.mode {
        _ if xdp.program_id != program_id => None,
        XdpMode::Native => Some(AttachedMode::Native),
        XdpMode::Generic => Some(AttachedMode::Generic),
        _ => None,
    }
}
