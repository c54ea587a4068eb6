//! Where the classes are, and moving them.

use std::sync::{Arc, PoisonError};

use splitter_config::Config;
use splitter_policy::config::PolicyConfig;
use splitter_steering::Placement;
use splitter_steering::routes;
use tokio::sync::watch;

use crate::{Instance, InstanceError, Lock, State};

impl Instance {
    /// Makes the same instance under another configuration: its classes are where they are, and nobody
    /// changes both at a time.
    ///
    /// # Errors
    /// As [`Instance::new`].
    pub fn successor(&self, config: Config) -> Result<Self, InstanceError> {
        Ok(Self {
            placement: Arc::clone(&self.placement),
            changing: Arc::clone(&self.changing),
            is_blind: Arc::clone(&self.is_blind),
            file: self.file.clone(),
            ..Self::new(config)?
        })
    }

    /// Returns where the classes are meant to be now. Without `health.enabled` each is in its own tunnel.
    ///
    /// # Errors
    /// When the state file cannot be read.
    pub fn placement(&self) -> Result<Placement, InstanceError> {
        let state = State::read(&self.config.instance_dir())?;
        Ok(self.placement_with(state.as_ref()))
    }

    /// Moves the classes: replaces the routes of those that go elsewhere, each in one step, and
    /// remembers it for the process that plans, verifies or takes down. All or nothing. Returns the steps.
    ///
    /// # Errors
    /// When a route cannot be changed; then the placement is as before.
    pub async fn place(
        &self,
        _lock: &Lock,
        placement: &Placement,
    ) -> Result<routes::Plan, InstanceError> {
        let _changing = self.changing.lock().await;
        self.place_now(placement).await
    }

    /// Moves the classes by the configuration that is in force when its turn comes, which somebody
    /// may be about to change; otherwise as [`Self::place`].
    ///
    /// # Errors
    /// When a route cannot be changed; then the placement is as before.
    pub async fn place_in_force(
        in_force: &watch::Receiver<Arc<Self>>,
        _lock: &Lock,
        placement: &Placement,
    ) -> Result<routes::Plan, InstanceError> {
        let changing = Arc::clone(&in_force.borrow().changing);
        let _changing = changing.lock().await;
        let instance = Arc::clone(&in_force.borrow());
        instance.place_now(placement).await
    }

    async fn place_now(&self, placement: &Placement) -> Result<routes::Plan, InstanceError> {
        let (netlink, config) = (&self.netlink, &self.config);
        let destinations = self.destinations_in_place().await?;
        let plan = routes::plan_move_with(netlink, config, placement, destinations).await?;
        let applied = plan.apply(netlink).await.map_err(Box::new)?;
        self.note_destinations(applied.plan());
        *self.placed() = Some(placement.clone());
        if let Err(error) = self.tell_usable(placement).await {
            tracing::warn!(event = "move_incomplete", %error, "moved, but long flows may be placed in a dead tunnel's stead");
        }
        if let Err(error) = self.follow(placement).await {
            tracing::warn!(event = "move_incomplete", %error, "moved, but packets go by the network stack until the next look");
        }
        // The routes are what counts: a full disk must not keep a class in a dead tunnel.
        if let Err(error) = self.remember(placement) {
            tracing::warn!(event = "move_not_noted", %error, "an agent that is restarted will not know where the classes are");
        }
        // A shadow routes nothing.
        if !self.config.shadow
            && let Err(error) = applied.verify(&self.netlink, &self.config).await
        {
            tracing::warn!(event = "move_not_verified", %error, "moved, but packets may not follow");
        }
        Ok(applied.plan().clone())
    }

    /// Where both tunnels carry both classes, the programs choose among those that are alive.
    async fn tell_usable(&self, placement: &Placement) -> Result<(), InstanceError> {
        let Some(mut dataplane) = self.open()?.filter(|_| self.config.is_shared()) else {
            return Ok(());
        };
        let interfaces = self.netlink.interfaces().await?;
        let usable = self.usable_tunnels(&interfaces, placement);
        let policy = dataplane.policy()?;
        Ok(dataplane.set_policy(PolicyConfig { usable, ..policy })?)
    }

    pub(crate) fn placement_with(&self, state: Option<&State>) -> Placement {
        if !self.config.health.enabled {
            return Placement::PRIMARY;
        }
        let remembered = || state.map(|state| state.placement.clone());
        self.placed()
            .clone()
            .or_else(remembered)
            .unwrap_or_default()
    }

    fn remember(&self, placement: &Placement) -> Result<(), InstanceError> {
        let directory = self.config.instance_dir();
        match State::read(&directory)? {
            Some(state) => {
                let placement = placement.clone();
                State { placement, ..state }.write(&directory)
            }
            None => Ok(()),
        }
    }

    fn placed(&self) -> std::sync::MutexGuard<'_, Option<Placement>> {
        // A panic elsewhere does not make a plain value wrong.
        self.placement
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
