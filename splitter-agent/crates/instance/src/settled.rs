//! Rules and routes that are known to be in place, so that they need not be read each second: some
//! thousands of routes take a while, during which nothing else can be changed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use splitter_config::Config;
use splitter_netlink::{ChangeWatch, Netlink};
use splitter_steering::Placements;
use splitter_steering::routes::{Destinations, Plan};

/// How often everything is read without a sign that anybody has changed it.
const READ_INTERVAL: Duration = Duration::from_secs(60);

/// The kernel announces that a device goes down before it takes away the device's routes, of which it
/// says nothing: what was read after a notification is read once more.
const READINGS_AFTER_CHANGE: u8 = 2;

/// Knows the plan that was found to be carried out, for as long as nobody else changes anything.
#[derive(Debug, Default)]
pub(crate) struct SettledRoutes(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// None until it is needed, or where notifications are not to be had.
    watch: Option<ChangeWatch>,
    /// Without its steps.
    plan: Option<Plan>,
    read_at: Option<Instant>,
    readings_due: u8,
}

impl SettledRoutes {
    /// Returns the plan without a step where everything is known to be in place.
    pub(crate) fn plan(
        &self,
        config: &Config,
        placements: &Placements,
        destinations: &Arc<Destinations>,
    ) -> Option<Plan> {
        let mut known = self.lock();
        if known.watch.as_mut()?.has_changed() {
            known.readings_due = READINGS_AFTER_CHANGE;
        }
        let is_recent = known.read_at?.elapsed() < READ_INTERVAL;
        let plan = known.plan.as_ref()?;
        let is_it = known.readings_due == 0 && is_recent && plan.placements == *placements;
        is_it.then(|| plan.carried_out(config, Arc::clone(destinations)))
    }

    /// Watches from now on for what others change, before everything is read.
    pub(crate) fn before_reading(&self, own: &Netlink) {
        let mut known = self.lock();
        if known.watch.is_none() {
            known.watch = ChangeWatch::begin(own).ok();
        }
    }

    /// Notes what was read.
    pub(crate) fn after_reading(&self, plan: &Plan, config: &Config) {
        let mut known = self.lock();
        known.read_at = Some(Instant::now());
        known.readings_due = known.readings_due.saturating_sub(1);
        let destinations = Arc::clone(&plan.destinations);
        known.plan = plan
            .is_in_place()
            .then(|| plan.carried_out(config, destinations));
    }

    /// Has everything read the next time.
    pub(crate) fn forget(&self) {
        self.lock().plan = None;
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // A panic elsewhere does not make plain values wrong.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
