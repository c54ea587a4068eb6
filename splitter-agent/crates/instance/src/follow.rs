//! Following the main table: what leads into the tunnels changes as routes come and go.

use std::sync::{Arc, PoisonError};

use splitter_netlink::{Interfaces, NetlinkError};
use splitter_steering::routes::{Destinations, FollowedPrefixes, MainTables, Plan, plan_follow};
use tokio::sync::watch;

use crate::{Instance, InstanceError, Lock};

impl Instance {
    /// Changes what of the rules and routes in place depends on the main table, so far as it is known; what
    /// of it is in doubt is read. Returns the steps; none where nothing has changed, or nothing of this
    /// instance is in place yet.
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
        main: &mut MainTables,
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
        main.refresh(&instance.netlink, &instance.config).await?;
        let interfaces = instance.netlink.interfaces().await?;
        let to = Destinations::by(main, &instance.config, &interfaces);
        if *from == to {
            return Ok(None);
        }
        let plan = instance.follow_now(&interfaces, &from, to.into()).await?;
        Ok(Some(plan))
    }

    /// Counts what leads into the tunnels of each site because the main table does: 0 where that is not
    /// followed, or not known to be in place.
    #[must_use]
    pub fn followed_prefixes(&self) -> Vec<FollowedPrefixes> {
        let noted = self.noted_destinations().unwrap_or_default();
        noted.followed(&self.config)
    }

    async fn follow_now(
        &self,
        interfaces: &Interfaces,
        from: &Arc<Destinations>,
        to: Arc<Destinations>,
    ) -> Result<Plan, InstanceError> {
        let placements = self.placements()?;
        let plan = plan_follow(
            &self.netlink,
            &self.config,
            &placements,
            interfaces,
            from,
            &to,
        )
        .await?;
        match plan.apply(&self.netlink).await {
            Ok(applied) => {
                self.note_destinations(applied.plan());
                self.follow_thresholds(&applied.plan().destinations)?;
                Ok(applied.plan().clone())
            }
            Err(error) => {
                // What is in place may not be what was noted: whoever plans next looks at all of it.
                *self.destinations() = None;
                self.settled.forget();
                Err(Box::new(error).into())
            }
        }
    }

    /// Tells what leads into the tunnels: as it was put in place, so that what has changed since is left to
    /// whoever follows; else by the main table as it is.
    ///
    /// # Errors
    /// When the kernel does not list the main table.
    pub async fn destinations_in_place(&self) -> Result<Arc<Destinations>, NetlinkError> {
        match self.noted_destinations() {
            Some(destinations) => Ok(destinations),
            None => {
                let destinations = Destinations::read(&self.netlink, &self.config).await?;
                Ok(destinations.into())
            }
        }
    }

    /// Notes what leads into the tunnels, after it was put in place or found there.
    pub(crate) fn note_destinations(&self, plan: &Plan) {
        *self.destinations() = Some(Arc::clone(&plan.destinations));
    }

    fn noted_destinations(&self) -> Option<Arc<Destinations>> {
        self.destinations().clone()
    }

    pub(crate) fn destinations(&self) -> std::sync::MutexGuard<'_, Option<Arc<Destinations>>> {
        // A panic elsewhere does not make plain values wrong.
        self.destinations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
