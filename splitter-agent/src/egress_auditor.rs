//! Compares once a second what was marked for the tunnels of each class with what their devices
//! really sent.
//!
//! A class that is misrouted is a state: a log line when it comes and when it goes, a metric, and an
//! objection to readiness.

use std::sync::Arc;
use std::time::Duration;

use flow_telemetry::Readiness;
use splitter_config::{Config, SteeringMode};
use splitter_instance::Instance;
use splitter_netlink::{Interfaces, Netlink, NetlinkError};
use splitter_policy::counters::Counters;
use splitter_policy::flow::{Class, TunnelRole};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::monitor::Monitor;
use splitter_health::misrouting::{Interval, Misrouted, MisroutingDetector, other};
use splitter_instance::report::SharedReport;

/// How long an interval is.
const INTERVAL: Duration = Duration::from_secs(1);

/// The part of readiness that this speaks for.
const EGRESS: &str = "egress";

/// Watches whether packets leave by the tunnels that they were marked for.
#[derive(Debug)]
pub struct EgressAuditor {
    monitor: Arc<Monitor>,
    netlink: Netlink,
    report: SharedReport,
    readiness: Readiness,
    /// In the order of [`TunnelRole::ALL`].
    detectors: [MisroutingDetector; 2],
    last: Option<Totals>,
}

/// What was marked for the tunnels of each class and what they sent, ever.
type Totals = [Interval; 2];

impl EgressAuditor {
    /// Prepares to compare what `monitor` counts. Changes nothing.
    ///
    /// # Errors
    /// When netlink is not to be had.
    pub fn new(
        monitor: Arc<Monitor>,
        report: SharedReport,
        readiness: Readiness,
    ) -> Result<Self, NetlinkError> {
        Ok(Self {
            monitor,
            netlink: Netlink::connect()?,
            report,
            readiness,
            detectors: Default::default(),
            last: None,
        })
    }

    /// Compares once a second, for ever.
    pub async fn run(mut self, mut in_force: watch::Receiver<Arc<Instance>>) -> &'static str {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let instance = Arc::clone(&in_force.borrow_and_update());
            match self.totals(&instance).await {
                Some(totals) => self.take(totals),
                None => self.begin_again(),
            }
        }
    }

    /// None where there is nothing to compare: a shadow marks nothing, what is redirected is counted
    /// where it is put into its tunnel, and a class that is away from home shares its tunnels.
    async fn totals(&self, instance: &Instance) -> Option<Totals> {
        let config = instance.config();
        let is_compared = !config.shadow && config.steering.mode != SteeringMode::Redirect;
        if !is_compared || !instance.placements().is_ok_and(|it| it.are_primary()) {
            return None;
        }
        // First what was marked: what leaves meanwhile is no surplus.
        let counters = self.monitor.dataplane().counters().ok()?;
        let interfaces = self.netlink.interfaces().await.ok()?;
        let totals = TunnelRole::ALL.map(|role| {
            Some(Interval {
                meant: meant(&counters, role),
                sent: sent(config, &interfaces, role)?,
            })
        });
        Some([totals[0]?, totals[1]?])
    }

    fn take(&mut self, totals: Totals) {
        let Some(before) = self.last.replace(totals) else {
            return;
        };
        let grown = |index: usize| {
            let (now, before) = (totals[index], before[index]);
            Some(Interval {
                meant: now.meant.checked_sub(before.meant)?,
                sent: now.sent.checked_sub(before.sent)?,
            })
        };
        // Programs or devices that are others count from the start.
        let (Some(short), Some(long)) = (grown(0), grown(1)) else {
            return self.begin_again();
        };
        let grown = [short, long];
        for role in TunnelRole::ALL {
            let (own, other) = (grown[role as usize], grown[other(role) as usize]);
            if let Some(found) = self.detectors[role as usize].observe(own, other) {
                self.announce(role, found);
            }
        }
    }

    fn announce(&mut self, role: TunnelRole, found: Option<Misrouted>) {
        let words = found.map(|found| describe(role, found));
        match &words {
            Some(words) => tracing::warn!(event = "misrouted", "misrouted: {words}"),
            None => tracing::info!(
                event = "not_misrouted",
                "what is meant for the {} tunnels leaves by them again",
                role.name()
            ),
        }
        self.report.set_misrouted(role, words);
        self.tell_readiness();
    }

    fn begin_again(&mut self) {
        self.last = None;
        self.detectors = Default::default();
        for role in TunnelRole::ALL {
            self.report.set_misrouted(role, None);
        }
        self.tell_readiness();
    }

    fn tell_readiness(&self) {
        match self.report.misrouted() {
            problems if problems.is_empty() => self.readiness.ok(EGRESS),
            problems => self.readiness.fail(EGRESS, problems.join("; ")),
        }
    }
}

fn describe(role: TunnelRole, found: Misrouted) -> String {
    let (own, other) = (role.name(), other(role).name());
    let (meant, sent) = (found.meant / 1_000, found.sent / 1_000);
    format!(
        "of {meant} kB that were marked for the {own} tunnels these sent {sent} kB, and the {other} \
         tunnels sent what is missing; look for what comes before the splitter's rules (`ip rule`) \
         or takes its marks away (`nft list ruleset`)"
    )
}

fn meant(counters: &Counters, role: TunnelRole) -> u64 {
    let classes = Class::ALL.iter();
    classes.map(|class| counters.bytes(*class, role)).sum()
}

fn sent(config: &Config, interfaces: &Interfaces, role: TunnelRole) -> Option<u64> {
    let tunnels = config.tunnels_of(role).iter();
    tunnels
        .map(|it| Some(interfaces.named(&it.device).ok()?.traffic?.sent_bytes))
        .sum()
}
