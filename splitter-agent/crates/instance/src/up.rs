//! Bringing an instance up.

use splitter_datapath::{Dataplane, InheritedFlows, LoadOptions, TableSizes};
use splitter_netlink::Interfaces;

use crate::detach::Undo;
use crate::loaded::Loaded;
use crate::pin_owner::PinOwner;
use crate::{
    AttachedInterface, AttachmentAction, Instance, InstanceError, Lock, Owner, Plan, ProgramAction,
    Reading, State,
};

/// Records what was done to bring an instance up.
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

/// Whether other programs take the place of those that are loaded.
fn is_replaced(loaded: &Loaded, plan: &Plan) -> bool {
    let is_resized = plan.program == ProgramAction::Resize;
    is_resized || matches!(loaded, Loaded::OtherBuild { .. })
}

impl Instance {
    /// Brings the instance up, or what is missing of it. All or nothing.
    ///
    /// # Errors
    /// See [`InstanceError`]; what this call had changed is undone by then.
    pub async fn up(&self, _lock: &Lock, owner: Owner) -> Result<BroughtUp, InstanceError> {
        let _changing = self.changing.lock().await;
        let directory = self.config.instance_dir();
        let found = State::read(&directory)?;
        let interfaces = self.netlink.interfaces().await?;
        let loaded = self.loaded(found.as_ref())?;
        let plan = self.plan_with(&interfaces, &loaded, Reading::All).await?;
        let is_new = matches!(loaded, Loaded::Nothing);
        let is_replaced = is_replaced(&loaded, &plan);
        // What a crash has left says where things are, but not that the instance is up.
        let before = found.as_ref().filter(|_| !is_new);
        let mut state = self.state_once_up(&plan, found.as_ref(), before, owner);
        let on_the_way = state.coming_from(found.as_ref());
        let (mut dataplane, inherited) = self.programs(loaded, &plan, &on_the_way, before)?;
        state.inherited = inherited.or(state.inherited);
        let mut undo = Undo {
            pins: is_new.then(|| self.pins.clone()),
            attached: Vec::new(),
            replaced: Vec::new(),
        };
        let applied = self.apply(&mut dataplane, &plan, &interfaces, &mut undo);
        match applied.await {
            Ok(attached) => {
                self.note_destinations(&plan.routes);
                self.see_queues(&mut dataplane, &interfaces).await;
                // What is no longer anywhere else is looked for there in vain, at worst.
                if let Err(error) = state.write(&directory) {
                    tracing::warn!(event = "state_stale", %error, "the state file names places that are empty by now");
                }
                if let Err(error) = dataplane.settle() {
                    tracing::warn!(event = "programs_left", %error, "the programs that were replaced stay in memory until `splitter down`");
                }
                Ok(BroughtUp {
                    dataplane,
                    plan,
                    attached,
                    owner: state.owner,
                })
            }
            Err(error) => {
                self.undo(undo, &dataplane).await;
                match before {
                    // What failed first is what to report.
                    before if is_replaced => {
                        if let Err(error) = self.take_back(before) {
                            tracing::error!(event = "programs_not_restored", %error, "cannot restore the earlier kernel programs: the new ones stay");
                        }
                    }
                    Some(before) => before.clone().with_object(&self.object).write(&directory)?,
                    None if is_new => State::remove(&directory)?,
                    // Up without a state file: what was written for it is all there is.
                    None => {}
                }
                Err(error)
            }
        }
    }

    /// What the state file says when all went well. `found` is what it says now, and `before` the
    /// same where the instance is up.
    fn state_once_up(
        &self,
        plan: &Plan,
        found: Option<&State>,
        before: Option<&State>,
        owner: Owner,
    ) -> State {
        // What `up` was asked for stays, no matter who watches it meanwhile.
        let owner = match before {
            Some(state) if owner == Owner::Run => state.owner,
            _ => owner,
        };
        // What is to be restored stays noted until that has been done.
        let to_restore = found.iter().flat_map(|state| &state.original_qdiscs);
        let to_restore = to_restore.filter(|it| !plan.shaping.shapes(&it.device));
        let noted = plan
            .shaping
            .originals()
            .chain(to_restore)
            .cloned()
            .collect();
        let placements = plan.routes.placements.clone();
        // A file that is not known now may have been so before.
        let file = self.file.clone().or_else(|| found?.file.clone());
        let state = State::new(owner, &self.config, &self.object, placements, noted);
        let inherited = before.and_then(|state| state.inherited.clone());
        State { inherited, ..state }.of_file(file)
    }

    /// The programs that are loaded if they are ours, else new ones in their place. The state file
    /// says by then where things may be, `on_the_way`; or what it said `before`, on an error.
    fn programs(
        &self,
        loaded: Loaded,
        plan: &Plan,
        on_the_way: &State,
        before: Option<&State>,
    ) -> Result<(Dataplane, Option<InheritedFlows>), InstanceError> {
        let directory = self.config.instance_dir();
        let is_replaced = is_replaced(&loaded, plan);
        // Written before anything is changed, for `down` after a crash.
        let noted = match plan.program {
            // Half-way, interfaces have programs that are not the pinned ones.
            ProgramAction::Resize => on_the_way.clone().with_unknown_object(),
            _ => on_the_way.clone().with_object_of(&loaded),
        };
        noted.write(&directory)?;
        let options = self.load_options(plan);
        let known = |(dataplane, flows)| (dataplane, Some(flows));
        let dataplane = match loaded {
            Loaded::Current(dataplane) if !is_replaced => Ok((*dataplane, None)),
            Loaded::Current(_) => self.resize(&options).map(known),
            Loaded::Nothing => self.load(&options).map(|dataplane| (dataplane, None)),
            Loaded::OtherBuild { .. } => self.replace(&options).map(known),
        };
        let Ok(dataplane) = dataplane else {
            match before {
                Some(before) => before.write(&directory)?,
                None => State::remove(&directory)?,
            }
            return dataplane;
        };
        if let Err(error) = PinOwner::here(&directory).note(&self.pins) {
            tracing::warn!(event = "pins_not_noted", %error, "other instances will not know whose pins these are");
        }
        // From here on these are the programs, unless something fails.
        on_the_way.write(&directory).inspect_err(|_| {
            // The file still says that these are of another build.
            if is_replaced {
                self.put_programs_back();
            }
        })?;
        Ok(dataplane)
    }

    fn load(&self, options: &LoadOptions) -> Result<Dataplane, InstanceError> {
        Ok(Dataplane::load(&self.object, &self.pins, options)?)
    }

    fn resize(&self, options: &LoadOptions) -> Result<(Dataplane, InheritedFlows), InstanceError> {
        let (dataplane, flows) = Dataplane::resize(&self.object, &self.pins, options)?;
        const RESIZED: &str = "put the kernel programs in their place with other flow tables";
        let TableSizes { ipv4, ipv6 } = options.tables;
        match &flows {
            InheritedFlows::Forgotten { .. } => {
                tracing::warn!(event = "tables_resized", ipv4, ipv6, "{RESIZED}; {flows}");
            }
            _ => tracing::info!(event = "tables_resized", ipv4, ipv6, "{RESIZED}; {flows}"),
        }
        Ok((dataplane, flows))
    }

    fn replace(&self, options: &LoadOptions) -> Result<(Dataplane, InheritedFlows), InstanceError> {
        let (dataplane, flows) = Dataplane::replace(&self.object, &self.pins, options)?;
        const REPLACED: &str =
            "replaced the kernel programs of another build, log level or balance";
        match &flows {
            InheritedFlows::Forgotten { .. } => {
                tracing::warn!(event = "programs_replaced", "{REPLACED}; {flows}");
            }
            _ => tracing::info!(event = "programs_replaced", "{REPLACED}; {flows}"),
        }
        Ok((dataplane, flows))
    }

    fn load_options(&self, plan: &Plan) -> LoadOptions {
        LoadOptions {
            tables: plan.table_flows,
            numa_node: self.config.flows.table_numa_node.number(),
            steering: self.config.program_mode(),
            packet_log: self.config.log.packets,
            policy: plan.policy,
        }
    }

    async fn apply(
        &self,
        dataplane: &mut Dataplane,
        plan: &Plan,
        interfaces: &Interfaces,
        undo: &mut Undo,
    ) -> Result<Vec<AttachedInterface>, InstanceError> {
        self.forget_queues(dataplane, plan)?;
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
        let prefixes_before = dataplane.prefix_thresholds()?;
        let targets_before = dataplane.targets()?;
        let paths_before = dataplane.site_paths()?;
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
                    tracing::warn!(event = "not_verified", "not verified: {what}");
                }
            }
            dataplane.set_policy_by_prefix(plan.policy, &plan.prefixes)?;
            if let Some(paths) = plan.paths {
                dataplane.set_site_paths(paths)?;
            }
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
                    tracing::error!(event = "undo_failed", %error, "cannot write again where packets were redirected to");
                }
                let restored = dataplane.set_policy_by_prefix(policy_before, &prefixes_before);
                if let Err(error) = restored {
                    tracing::error!(event = "undo_failed", %error, "cannot write the earlier settings again");
                }
                if let Some(paths) = paths_before
                    && let Err(error) = dataplane.set_site_paths(paths)
                {
                    tracing::error!(event = "undo_failed", %error, "cannot write again which tunnels there were to choose among");
                }
                let undone = applied.roll_back(&self.netlink).await;
                if !undone.remaining.is_empty() {
                    tracing::error!(event = "undo_failed", "{undone}");
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
                    dataplane.attach(interface, index, self.config.attach.mode)?;
                    undo.attached.push(interface.to_owned());
                }
            }
        }
        Ok(())
    }
}
