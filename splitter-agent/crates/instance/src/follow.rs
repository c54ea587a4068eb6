//! Following the main table: what leads into the tunnels changes as routes come and go.

use std::sync::{Arc, PoisonError};

use splitter_netlink::NetlinkError;
use splitter_steering::routes::{Destinations, Plan, plan_follow};
use tokio::sync::watch;

use crate::{Instance, InstanceError, Lock};

impl Instance {
    /// Reads the main table, and changes what of the rules and routes in place depends on it. Returns
    /// the steps; none where nothing has changed, or nothing of this instance is in place yet.
    ///
    /// It goes by the configuration that is in force when its turn comes, which somebody may be about
    /// to change.
    ///
    /// # Errors
    /// When the kernel refuses; then rules and routes are as before, and the next plan reads the main
    /// table.
    pub async fn follow_in_force(
        in_force: &watch::Receiver<Arc<Self>>,
        _lock: &Lock,
    ) -> Result<Option<Plan>, InstanceError> {
        let changing = Arc::clone(&in_force.borrow().changing);
        let _changing = changing.lock().await;
        let instance = Arc::clone(&in_force.borrow());
        if !Destinations::follow_main(&instance.config) {
            return Ok(None);
        }
        let Some(from) = instance.noted_destinations() else {
            return Ok(None);
        };
        let to = Destinations::read(&instance.netlink, &instance.config).await?;
        if from == to {
            return Ok(None);
        }
        instance.follow_now(&from, &to).await.map(Some)
    }

    async fn follow_now(
        &self,
        from: &Destinations,
        to: &Destinations,
    ) -> Result<Plan, InstanceError> {
        let placements = self.placements()?;
        let placement = placements.of(&self.config.site_name());
        let plan = plan_follow(&self.netlink, &self.config, placement, from, to).await?;
        match plan.apply(&self.netlink).await {
            Ok(applied) => {
                self.note_destinations(applied.plan());
                Ok(applied.plan().clone())
            }
            Err(error) => {
                // What is in place may not be what was noted: whoever plans next looks at all of it.
                *self.destinations() = None;
                Err(Box::new(error).into())
            }
        }
    }

    /// What leads into the tunnels: as it was put in place, so that what has changed since is left to
    /// whoever follows; else by the main table as it is.
    pub(crate) async fn destinations_in_place(&self) -> Result<Destinations, NetlinkError> {
        match self.noted_destinations() {
            Some(destinations) => Ok(destinations),
            None => Destinations::read(&self.netlink, &self.config).await,
        }
    }

    /// Notes what leads into the tunnels, after it was put in place or found there.
    pub(crate) fn note_destinations(&self, plan: &Plan) {
        *self.destinations() = Some(plan.destinations.clone());
    }

    fn noted_destinations(&self) -> Option<Destinations> {
        self.destinations().clone()
    }

    pub(crate) fn destinations(&self) -> std::sync::MutexGuard<'_, Option<Destinations>> {
        // A panic elsewhere does not make plain values wrong.
        self.destinations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
