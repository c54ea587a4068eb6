//! What Prometheus sees: the kernel's counters, read when somebody scrapes.
//!
//! docs/src/reference/metrics.md documents each; a test holds the two together.

mod health;

use std::fmt;
use std::sync::Arc;

use flow_telemetry::{Descriptor, Kind, Metrics, NameError};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use splitter_datapath::{AttachedMode, Dataplane, KernelError};
use splitter_netlink::Family;
use splitter_policy::config::Unit;
use splitter_policy::counters::{Counters, FlowEvent};
use splitter_policy::flow::{Class, TunnelRole};
use splitter_policy::forward::Fallback;
use splitter_policy::histogram::{Histogram, upper_bound_ns};
use splitter_policy::pass_reason::PassReason;

use crate::failover::SharedReport;
use crate::figures::{ChangeResult, ChangeSource, ControlResult};
use crate::monitor::Monitor;

/// The registry of an instance.
///
/// # Errors
/// A [`NameError`] when two metrics are called the same.
pub fn registry(monitor: Arc<Monitor>, health: SharedReport) -> Result<Metrics, NameError> {
    let mut metrics = Metrics::new("splitter")?;
    metrics.build_info(env!("CARGO_PKG_VERSION"))?;
    let families = Families::new()?;
    let collector = SplitterCollector {
        families: families.clone(),
        monitor,
        health,
    };
    metrics.collect(families.all(), collector)?;
    Ok(metrics)
}

/// Defines the families once: field, name, kind, help.
macro_rules! families {
    ($($field:ident: $name:literal, $kind:ident, $help:literal;)*) => {
        #[derive(Clone, Debug)]
        struct Families { $($field: Descriptor,)* }

        impl Families {
            fn new() -> Result<Self, NameError> {
                Ok(Self { $($field: Descriptor::new($name, Kind::$kind, $help)?,)* })
            }

            fn all(&self) -> Vec<&Descriptor> {
                vec![$(&self.$field,)*]
            }
        }
    };
}

families! {
    packets: "packets_total", Counter, "TCP packets that were split, by class of the flow and tunnel";
    bytes: "bytes_total", Counter, "Bytes of TCP packets that were split, Ethernet headers included";
    flows: "flows", Gauge, "Flows that are neither finished nor idle, as of the last sweep";
    started: "flows_started_total", Counter, "Flows whose first packet was seen";
    restarted: "flows_restarted_total", Counter, "Flows that started afresh under a known 5-tuple";
    finished: "flows_finished_total", Counter, "Flows that ended with FIN or RST";
    long: "flows_long_total", Counter, "Flows that counted more than the threshold";
    demotions: "demotions_total", Counter, "Long flows that were placed, by how";
    evictions: "evictions_total", Counter, "Young flows that the table forgot for want of room";
    untracked: "flows_untracked_total", Counter, "Flows whose SYN found no room in the table, or passed it by in a flood";
    passed: "passed_packets_total", Counter, "Packets that passed untreated";
    overridden: "marks_overridden_total", Counter, "Packets that were not split and carried a mark of ours";
    mark_failures: "mark_failures_total", Counter, "Packets whose mark could not be written";
    redirected: "redirected_packets_total", Counter, "Packets that were put into a tunnel without the network stack";
    fallbacks: "redirect_fallbacks_total", Counter, "Packets that were to be redirected and went by the network stack";
    entries: "flow_table_entries", Gauge, "Entries in the flow table, as of the last sweep";
    capacity: "flow_table_capacity", Gauge, "Flows that the table is made for; it holds twice as many";
    completion: "flow_completion_seconds", Histogram, "Time from a flow's first packet to its first FIN or RST at this border";
    repairs: "repairs_total", Counter, "Times that rules, routes, settings or attachments were changed by somebody else and put back, since the agent started";
    attached: "attached_interfaces", Gauge, "Interfaces that the program is attached to";
    threshold: "threshold", Gauge, "Packets or bytes up to which a flow is short";
    shadow: "shadow", Gauge, "Whether packets are only classified and counted, and not marked";
    changes: "config_changes_total", Counter, "Changes of configuration that the running agent was asked for";
    refused: "config_refused", Gauge, "Whether the last one was refused";
    control: "control_requests_total", Counter, "Lines on the control socket";
    tunnel_up: "tunnel_up", Gauge, "1 while a tunnel is alive, else 0";
    tunnel_in_use: "tunnel_in_use", Gauge, "1 while a tunnel carries packets of a class, else 0";
    tunnel_downs: "tunnel_downs_total", Counter, "How often a tunnel was given up";
    probes_sent: "probes_sent_total", Counter, "Probes that were sent to the peer";
    probes_lost: "probes_lost_total", Counter, "Probes that the peer did not answer within 3 s";
    loss: "tunnel_loss_ratio", Gauge, "Lost share of the last 100 probes";
    round_trip: "tunnel_round_trip_seconds", Gauge, "Smoothed round-trip time of probes";
    jitter: "tunnel_jitter_seconds", Gauge, "Smoothed difference between a probe's round-trip time and the next one's";
    refused_probes: "refused_probes_total", Counter, "Datagrams on the probes' port that were refused";
    placed: "class_in_tunnel", Gauge, "1 for the class whose tunnels a class is in, else 0";
    class_moves: "class_moves_total", Counter, "How often a class was moved, by where to";
}

#[derive(Debug)]
struct SplitterCollector {
    families: Families,
    monitor: Arc<Monitor>,
    health: SharedReport,
}

impl Collector for SplitterCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counters = {
            let dataplane = self.monitor.dataplane();
            self.encode_capacity(&mut encoder, &dataplane)?;
            dataplane.counters().map_err(unreadable)?
        };
        self.encode_traffic(&mut encoder, &counters)?;
        self.encode_flows(&mut encoder, &counters)?;
        self.encode_exceptions(&mut encoder, &counters)?;
        self.encode_attached(&mut encoder)?;
        self.encode_agent(&mut encoder)?;
        let report = self.health.snapshot();
        self.encode_tunnels(&mut encoder, &report)?;
        self.encode_classes(&mut encoder, &report)
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
    ) -> fmt::Result {
        let census = self.monitor.census();
        let families = &self.families;
        gauges(
            encoder,
            &families.flows,
            "class",
            [("short", census.short), ("long", census.long)],
        )?;
        gauges(
            encoder,
            &families.entries,
            "family",
            FAMILIES.map(|family| (label(family), census.entries(family))),
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
        counters_by(
            encoder,
            &families.demotions,
            "reason",
            [
                ("drained", events(FlowEvent::HandedOverDrained)),
                ("cap", events(FlowEvent::HandedOverAtMaxWait)),
                ("stayed", events(FlowEvent::KeptTunnel)),
                ("stayed_at_cap", events(FlowEvent::KeptTunnelAtMaxWait)),
            ],
        )?;
        counters_by(
            encoder,
            &families.finished,
            "class",
            Class::ALL.map(|class| (class.name(), counters.finished(class))),
        )?;
        let mut completion = families.completion.encode(encoder)?;
        for class in Class::ALL {
            let labels = [("class", class.name())];
            let Exposed {
                sum_s,
                count,
                buckets,
            } = Exposed::of(counters.completion(class));
            completion
                .encode_family(&labels)?
                .encode_histogram::<NoLabelSet>(sum_s, count, &buckets, None)?;
        }
        Ok(())
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
        counter(encoder, &families.redirected, counters.redirected)?;
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
                label(family),
                dataplane.table_capacity(family).map_err(unreadable)?.into(),
            );
        }
        gauges(encoder, &self.families.capacity, "family", capacities)
    }

    fn encode_agent(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let families = &self.families;
        counter(encoder, &families.repairs, self.monitor.repairs())?;
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
            [(unit, policy.threshold)],
        )?;
        families
            .shadow
            .encode(encoder)?
            .encode_gauge(&u64::from(policy.marking.is_shadow()))?;
        let figures = self.monitor.figures();
        let mut changes = families.changes.encode(encoder)?;
        for source in ChangeSource::ALL {
            for result in ChangeResult::ALL {
                changes
                    .encode_family(&[("source", source.name()), ("result", result.name())])?
                    .encode_counter::<NoLabelSet, _, u64>(&figures.changes(source, result), None)?;
            }
        }
        families
            .refused
            .encode(encoder)?
            .encode_gauge(&u64::from(figures.was_refused()))?;
        counters_by(
            encoder,
            &families.control,
            "result",
            ControlResult::ALL.map(|result| (result.name(), figures.control(result))),
        )
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

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

const fn label(family: Family) -> &'static str {
    match family {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    }
}

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

/// A kernel histogram as Prometheus wants it.
struct Exposed {
    sum_s: f64,
    count: u64,
    buckets: Vec<(f64, u64)>,
}

impl Exposed {
    fn of(histogram: &Histogram) -> Self {
        let buckets = histogram.buckets.iter().enumerate().map(|(index, &count)| {
            (
                upper_bound_ns(index).map_or(f64::INFINITY, |bound_ns| bound_ns as f64 / 1e9),
                count,
            )
        });
        Self {
            sum_s: histogram.sum_ns as f64 / 1e9,
            count: histogram.buckets.iter().sum(),
            buckets: buckets.collect(),
        }
    }
}

fn unreadable(error: KernelError) -> fmt::Error {
    tracing::error!(%error, "cannot read the kernel's counters");
    fmt::Error
}
