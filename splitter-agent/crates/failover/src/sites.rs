//! The remote sites: a monitor watches each, and what they find together is published here.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use flow_telemetry::Readiness;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use splitter_config::{Config, SiteName};
use splitter_health::KeyRings;
use splitter_instance::report::SharedReport;
use splitter_instance::{Instance, Lock};
use splitter_steering::Placements;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::health_monitor::HealthMonitor;
use super::shared::{HealthMonitorError, Shared};

/// How often the report is written when nothing happens.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// The part of readiness that this speaks for.
const TUNNELS: &str = "tunnels";

/// Watches the tunnels of one instance, to all its sites.
#[derive(Debug)]
pub struct HealthMonitors {
    shared: Shared,
    monitors: Vec<HealthMonitor>,
}

impl HealthMonitors {
    /// Prepares everything that can fail for reasons that will not pass: the key, and the sockets
    /// of the devices that are there. Changes nothing.
    ///
    /// # Errors
    /// See [`HealthMonitorError`].
    pub async fn new(config: &Config) -> Result<Self, HealthMonitorError> {
        let shared = Shared::new(config)?;
        let mut monitors = Vec::new();
        for site in config.by_site() {
            monitors.push(HealthMonitor::new(&site, &shared).await?);
        }
        Ok(Self { shared, monitors })
    }

    /// Returns what others see of it.
    #[must_use]
    pub fn report(&self) -> SharedReport {
        self.shared.report.clone()
    }

    /// Returns the keys that it goes by, for who changes them; none without a peer.
    #[must_use]
    pub fn keys(&self) -> KeyRings {
        self.shared.keys.clone()
    }

    /// Chooses where the classes of each site are to be when the instance comes up, from what lives now.
    /// `left` is where an earlier agent has them. To be called before the instance is brought up.
    pub fn starting_placements(&mut self, left: &Placements) -> Placements {
        let mut placements = Placements::default();
        for monitor in &mut self.monitors {
            let placement = monitor.starting_placement(left.of(monitor.site()));
            placements.set(monitor.site().clone(), placement);
        }
        placements
    }

    /// Watches the tunnels of an instance that is up, for ever: each site by itself, so that none
    /// waits for another, and those that another configuration adds or drops.
    pub async fn run(
        self,
        mut in_force: watch::Receiver<Arc<Instance>>,
        lock: &Lock,
        readiness: &Readiness,
    ) -> &'static str {
        let Self { shared, monitors } = self;
        let directory = in_force.borrow().config().instance_dir();
        let mut watched: BTreeSet<_> = monitors.iter().map(|it| it.site().clone()).collect();
        let monitors = monitors.into_iter();
        let mut running: FuturesUnordered<_> =
            monitors.map(|it| it.run(in_force.clone(), lock)).collect();
        let mut ticks = interval(WRITE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_noted = true;
        loop {
            tokio::select! {
                Some(site) = running.next() => {
                    shared.report.forget(&site);
                    watched.remove(&site);
                }
                () = shared.report.changed() => {}
                Ok(()) = in_force.changed() => {}
                _ = ticks.tick() => {}
            }
            let instance = Arc::clone(&in_force.borrow_and_update());
            for monitor in added(instance.config(), &watched, &shared).await {
                watched.insert(monitor.site().clone());
                running.push(monitor.run(in_force.clone(), lock));
            }
            publish(&shared, readiness);
            let was_noted = std::mem::replace(&mut is_noted, true);
            if let Err(error) = shared.report.write(&directory) {
                is_noted = false;
                if was_noted {
                    tracing::warn!(event = "health_not_noted", %error, "`splitter status` will not know how the tunnels are");
                }
            }
        }
    }
}

/// Monitors for the sites that are not watched yet. What cannot be watched is tried again.
async fn added(
    config: &Config,
    watched: &BTreeSet<SiteName>,
    shared: &Shared,
) -> Vec<HealthMonitor> {
    let mut added = Vec::new();
    let names = config.site_names().into_iter();
    for name in names.filter(|it| !watched.contains(it)) {
        let Some(alone) = config.of_site(&name) else {
            continue;
        };
        match HealthMonitor::new(&alone, shared).await {
            Ok(monitor) => added.push(monitor),
            Err(error) => {
                tracing::error!(event = "site_unwatched", site = %name, %error, "cannot watch the tunnels");
            }
        }
    }
    added
}

fn publish(shared: &Shared, readiness: &Readiness) {
    match (shared.report.unready(), shared.report.degraded()) {
        (problems, _) if !problems.is_empty() => readiness.fail(TUNNELS, problems),
        (_, lacking) if !lacking.is_empty() => readiness.degrade(TUNNELS, lacking),
        _ => readiness.ok(TUNNELS),
    }
}
