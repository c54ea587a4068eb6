//! Where the classes are, and moving them.

use std::sync::{Arc, PoisonError};

use splitter_config::{Config, SiteName};
use splitter_policy::config::PolicyConfig;
use splitter_steering::{Placement, Placements, routes};
use tokio::sync::watch;

use crate::{Instance, InstanceError, Lock, Needed, State};

impl Instance {
    /// Makes the same instance under another configuration: its classes are where they are, and nobody
    /// changes both at a time. Interfaces that the present one does not name have to be there.
    ///
    /// # Errors
    /// As [`Instance::new`].
    pub fn successor(&self, config: Config) -> Result<Self, InstanceError> {
        Ok(Self {
            placed: Arc::clone(&self.placed),
            changing: Arc::clone(&self.changing),
            is_blind: Arc::clone(&self.is_blind),
            needed: Needed::after(&self.config),
            uncounted: Arc::clone(&self.uncounted),
            growth: self.growth.clone(),
            file: self.file.clone(),
            ..Self::new(config)?
        })
    }

    /// Returns where the classes of every site are meant to be now.
    ///
    /// # Errors
    /// When the state file cannot be read.
    pub fn placements(&self) -> Result<Placements, InstanceError> {
        let state = State::read(&self.config.instance_dir())?;
        Ok(self.placements_with(state.as_ref()))
    }

    /// Moves the classes of a site: replaces the routes of those that go elsewhere, each in one step, and
    /// remembers it for the process that plans, verifies or takes down. All or nothing. Returns the steps.
    ///
    /// # Errors
    /// When a route cannot be changed; then the placement is as before.
    pub async fn place(
        &self,
        _lock: &Lock,
        site: &SiteName,
        placement: &Placement,
    ) -> Result<routes::Plan, InstanceError> {
        let _changing = self.changing.lock().await;
        self.place_now(site, placement).await
    }

    /// Moves the classes of a site by the configuration that is in force when its turn comes, which somebody
    /// may be about to change; otherwise as [`Self::place`].
    ///
    /// # Errors
    /// When a route cannot be changed; then the placement is as before.
    pub async fn place_in_force(
        in_force: &watch::Receiver<Arc<Self>>,
        _lock: &Lock,
        site: &SiteName,
        placement: &Placement,
    ) -> Result<routes::Plan, InstanceError> {
        let changing = Arc::clone(&in_force.borrow().changing);
        let _changing = changing.lock().await;
        let instance = Arc::clone(&in_force.borrow());
        instance.place_now(site, placement).await
    }

    async fn place_now(
        &self,
        site: &SiteName,
        placement: &Placement,
    ) -> Result<routes::Plan, InstanceError> {
        let Some(alone) = self.config.of_site(site) else {
            return Err(InstanceError::NoSuchSite(site.clone()));
        };
        // First, so that nobody chooses a tunnel that is about to lose its route.
        if let Err(error) = self.tell_paths(placement) {
            tracing::warn!(event = "move_incomplete", %error, "packets may choose a dead tunnel, and fall back to those of their class");
        }
        let netlink = &self.netlink;
        let whole = self.destinations_in_place().await?;
        let destinations = whole.of_site(&self.config, &alone).into_owned();
        let plan = routes::plan_move_with(netlink, &alone, placement, destinations.into()).await?;
        self.settled.forget();
        let applied = plan.apply(netlink).await.map_err(Box::new)?;
        *self.destinations() = Some(Arc::clone(&whole));
        let mut placements = self.placements().unwrap_or_default();
        placements.set(site.clone(), placement.clone());
        *self.placed() = Some(placements.clone());
        if let Err(error) = self.tell_usable(placement).await {
            tracing::warn!(event = "move_incomplete", %error, "moved, but long flows may be placed in a dead tunnel's stead");
        }
        if let Err(error) = self.follow(placement).await {
            tracing::warn!(event = "move_incomplete", %error, "moved, but packets go by the network stack until the next look");
        }
        // The routes are what counts: a full disk must not keep a class in a dead tunnel.
        if let Err(error) = self.remember(placements) {
            tracing::warn!(event = "move_not_noted", %error, "an agent that is restarted will not know where the classes are");
        }
        // A shadow routes nothing.
        if !self.config.shadow
            && let Err(error) = applied
                .verify_site(&self.netlink, &self.config, site, &whole)
                .await
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

    pub(crate) fn placements_with(&self, state: Option<&State>) -> Placements {
        let remembered = || state.map(|state| state.placements.clone());
        let placements = self.placed().clone().or_else(remembered);
        placements.unwrap_or_default().of_sites_in(&self.config)
    }

    fn remember(&self, placements: Placements) -> Result<(), InstanceError> {
        let directory = self.config.instance_dir();
        match State::read(&directory)? {
            Some(state) => State {
                placements,
                ..state
            }
            .write(&directory),
            None => Ok(()),
        }
    }

    pub(crate) fn placed(&self) -> std::sync::MutexGuard<'_, Option<Placements>> {
        // A panic elsewhere does not make a plain value wrong.
        self.placed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
