//! Metrics for Prometheus: the kernel's counters, read when somebody scrapes.
//!
//! `families` declares each; docs/src/reference/metrics.md has its tables from there, and a test
//! compares it with a live scrape.

mod completion;
mod egress;
mod fabric;
mod families;
mod health;
mod process;
mod queues;
mod reference;

use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use flow_telemetry::otlp::Recorder;
use flow_telemetry::{Descriptor, Exemplars, Metrics, NameError};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use splitter_datapath::{AttachedMode, Dataplane, KernelError};
use splitter_netlink::Family;
use splitter_policy::config::Unit;
use splitter_policy::counters::{Counters, FlowEvent};
use splitter_policy::flow::{Class, TunnelRole};
use splitter_policy::forward::Fallback;
use splitter_policy::pass_reason::PassReason;

pub use self::fabric::{fabric_names, fabric_registry, fill_fabric_reference};
use self::families::Families;
pub use self::families::fill_reference;
use splitter_control::stats::{ChangeResult, ChangeSource, ControlResult};
use splitter_steering::routes::{Unsplit, UnsplitReason};

use crate::egress_auditor::SharedEgress;
use crate::monitor::Monitor;
use crate::route_auditor::SharedAudit;
use crate::route_follower::SharedFollowed;
use splitter_instance::report::SharedReport;
use splitter_instance::{TunnelEgress, family_label};

/// The registry of an instance of this name.
///
/// # Errors
/// A [`NameError`] when two metrics are called the same.
pub fn registry(
    instance: &str,
    monitor: Arc<Monitor>,
    health: SharedReport,
    routing: SharedAudit,
    egress: SharedEgress,
    followed: SharedFollowed,
    recorder: &Recorder,
) -> Result<Metrics, NameError> {
    let mut metrics = Metrics::new("splitter")?;
    metrics.build_info(env!("CARGO_PKG_VERSION"))?;
    let families = Families::new()?;
    let collector = SplitterCollector {
        families: families.clone(),
        slow: metrics.exemplars(&families.completion)?,
        instance: instance.to_owned(),
        monitor,
        health,
        routing,
        egress,
        followed,
        started: SystemTime::now(),
    };
    metrics.collect(families.all(), collector)?;
    recorder.register(&mut metrics)?;
    Ok(metrics)
}

#[derive(Debug)]
struct SplitterCollector {
    families: Families,
    slow: Exemplars,
    instance: String,
    monitor: Arc<Monitor>,
    health: SharedReport,
    routing: SharedAudit,
    egress: SharedEgress,
    followed: SharedFollowed,
    started: SystemTime,
}

impl Collector for SplitterCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let began = Instant::now();
        let (counters, hands_over) = {
            let dataplane = self.monitor.dataplane();
            self.encode_capacity(&mut encoder, &dataplane)?;
            let hands_over = dataplane.hands_over().map_err(unreadable)?;
            (dataplane.counters().map_err(unreadable)?, hands_over)
        };
        self.encode_traffic(&mut encoder, &counters)?;
        self.encode_flows(&mut encoder, &counters, hands_over)?;
        self.encode_exceptions(&mut encoder, &counters)?;
        self.encode_attached(&mut encoder)?;
        self.encode_agent(&mut encoder)?;
        self.encode_routing(&mut encoder)?;
        let report = self.health.snapshot();
        self.encode_tunnels(&mut encoder, &report)?;
        self.encode_egress(&mut encoder, &report)?;
        self.encode_queues(&mut encoder)?;
        self.encode_process(&mut encoder)?;
        self.encode_classes(&mut encoder, &report)?;
        let scrape = began.elapsed().as_secs_f64();
        let mut family = self.families.scrape.encode(&mut encoder)?;
        family.encode_gauge(&scrape)
    }
}

impl SplitterCollector {
    fn encode_traffic(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        counters: &Counters,
    ) -> fmt::Result {
        type Count = fn(&Counters, Class, TunnelRole) -> u64;
        let families = [
            (&self.families.packets, Counters::packets as Count),
            (&self.families.bytes, Counters::bytes),
        ];
        for (family, count) in families {
            let mut family = family.encode(encoder)?;
            for class in Class::ALL {
                for tunnel in TunnelRole::ALL {
                    let labels = [("class", class.name()), ("tunnel", tunnel.name())];
                    family
                        .encode_family(&labels)?
                        .encode_counter::<NoLabelSet, _, u64>(
                            &count(counters, class, tunnel),
                            None,
                        )?;
                }
            }
        }
        Ok(())
    }

    fn encode_flows(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        counters: &Counters,
        hands_over: bool,
    ) -> fmt::Result {
        let totals = self.monitor.totals();
        let families = &self.families;
        gauges(
            encoder,
            &families.flows,
            "class",
            [("short", totals.short), ("long", totals.long)],
        )?;
        gauges(
            encoder,
            &families.entries,
            "family",
            FAMILIES.map(|family| (family_label(family), totals.entries(family))),
        )?;
        let events = |event| counters.events(event);
        counter(encoder, &families.started, events(FlowEvent::Started))?;
        counters_by(
            encoder,
            &families.restarted,
            "reason",
            [
                ("idle", events(FlowEvent::RestartedIdle)),
                ("syn", events(FlowEvent::RestartedSyn)),
            ],
        )?;
        counter(encoder, &families.long, events(FlowEvent::BecameLong))?;
        let handed_over = |event| if hands_over { events(event) } else { 0 };
        counters_by(
            encoder,
            &families.handovers,
            "reason",
            [
                ("drained", handed_over(FlowEvent::HandedOverDrained)),
                ("max_wait", handed_over(FlowEvent::HandedOverAtMaxWait)),
                ("stayed", events(FlowEvent::KeptTunnel)),
                ("stayed_at_max_wait", events(FlowEvent::KeptTunnelAtMaxWait)),
                ("paused", events(FlowEvent::ChangedTunnelLater)),
            ],
        )?;
        counters_by(
            encoder,
            &families.finished,
            "class",
            Class::ALL.map(|class| (class.name(), counters.finished(class))),
        )?;
        self.encode_completion(encoder, counters)
    }

    fn encode_exceptions(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        counters: &Counters,
    ) -> fmt::Result {
        let families = &self.families;
        let events = |event| counters.events(event);
        counter(encoder, &families.evictions, events(FlowEvent::Evicted))?;
        counter(encoder, &families.untracked, events(FlowEvent::Untracked))?;
        counters_by(
            encoder,
            &families.passed,
            "reason",
            PassReason::ALL.map(|reason| (reason.name(), counters.passed(reason))),
        )?;
        let dropped = [("hand_over", events(FlowEvent::DroppedToDrain))];
        counters_by(encoder, &families.dropped, "reason", dropped)?;
        counter(encoder, &families.redirected, counters.redirected)?;
        counter(encoder, &families.fib_lookups, counters.fib_lookups)?;
        counters_by(
            encoder,
            &families.fallbacks,
            "reason",
            Fallback::ALL.map(|reason| (reason.name(), counters.fallbacks(reason))),
        )?;
        counter(encoder, &families.overridden, counters.marks_overridden)?;
        counter(encoder, &families.mark_failures, counters.mark_failures)
    }

    fn encode_capacity(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        dataplane: &Dataplane,
    ) -> fmt::Result {
        let mut capacities = [("", 0); 2];
        for (slot, family) in capacities.iter_mut().zip(FAMILIES) {
            *slot = (
                family_label(family),
                dataplane.table_capacity(family).map_err(unreadable)?.into(),
            );
        }
        gauges(encoder, &self.families.capacity, "family", capacities)
    }

    fn encode_agent(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let families = &self.families;
        counter(
            encoder,
            &families.reconciliations,
            self.monitor.reconciliations(),
        )?;
        let policy = self.monitor.dataplane().policy().map_err(unreadable)?;
        let unit = if policy.unit == Unit::BYTES {
            "bytes"
        } else {
            "packets"
        };
        gauges(
            encoder,
            &families.threshold,
            "unit",
            [(unit, policy.thresholds.common())],
        )?;
        families
            .shadow
            .encode(encoder)?
            .encode_gauge(&u64::from(policy.marking.is_shadow()))?;
        let stats = self.monitor.stats();
        let mut changes = families.changes.encode(encoder)?;
        for source in ChangeSource::ALL {
            for result in ChangeResult::ALL {
                changes
                    .encode_family(&[("source", source.name()), ("result", result.name())])?
                    .encode_counter::<NoLabelSet, _, u64>(&stats.changes(source, result), None)?;
            }
        }
        families
            .refused
            .encode(encoder)?
            .encode_gauge(&u64::from(stats.was_refused()))?;
        counters_by(
            encoder,
            &families.control,
            "result",
            ControlResult::ALL.map(|result| (result.name(), stats.control(result))),
        )
    }

    fn encode_routing(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let audit = self.routing.snapshot();
        let mut unsplit = self.families.unsplit.encode(encoder)?;
        for family in FAMILIES {
            for reason in UnsplitReason::ALL {
                let is_meant = |it: &&Unsplit| it.family() == family && it.reason == reason;
                let count = audit.unsplit.iter().filter(is_meant).count() as u64;
                unsplit
                    .encode_family(&[("family", family_label(family)), ("reason", reason.name())])?
                    .encode_gauge(&count)?;
            }
        }
        let mut followed = self.families.followed.encode(encoder)?;
        for it in self.followed.snapshot() {
            followed
                .encode_family(&[
                    ("site", it.site.as_str()),
                    ("family", family_label(it.family)),
                ])?
                .encode_gauge(&(it.prefixes as u64))?;
        }
        Ok(())
    }

    fn encode_attached(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let attached = self.monitor.attached();
        let count = |mode| attached.iter().filter(|&&found| found == mode).count() as u64;
        gauges(
            encoder,
            &self.families.attached,
            "mode",
            AttachedMode::ALL.map(|mode| (mode.as_str(), count(mode))),
        )
    }
}

/// The labels of what is counted by tunnel.
fn labels_of(tunnel: &TunnelEgress) -> [(&'static str, String); 3] {
    [
        ("tunnel", tunnel.tunnel.name().to_owned()),
        ("device", tunnel.device.to_string()),
        ("site", tunnel.site.to_string()),
    ]
}

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

fn counter(encoder: &mut DescriptorEncoder<'_>, family: &Descriptor, value: u64) -> fmt::Result {
    family
        .encode(encoder)?
        .encode_counter::<NoLabelSet, _, u64>(&value, None)
}

fn counters_by<const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    family: &Descriptor,
    label: &str,
    values: [(&str, u64); N],
) -> fmt::Result {
    let mut family = family.encode(encoder)?;
    for (name, value) in values {
        family
            .encode_family(&[(label, name)])?
            .encode_counter::<NoLabelSet, _, u64>(&value, None)?;
    }
    Ok(())
}

fn gauges<const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    family: &Descriptor,
    label: &str,
    values: [(&str, u64); N],
) -> fmt::Result {
    let mut family = family.encode(encoder)?;
    for (name, value) in values {
        family
            .encode_family(&[(label, name)])?
            .encode_gauge(&value)?;
    }
    Ok(())
}

fn unreadable(error: KernelError) -> fmt::Error {
    tracing::error!(event = "scrape_failed", %error, "cannot read the kernel's counters");
    fmt::Error
}
