//! Records of a run: its flows, its links and its totals.

use std::{io, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    fabric::{Network, port::Port},
    message::Message,
    scenario::Experiment,
    transport::{
        Hosts,
        flow::{Flow, FlowStats},
        segments,
    },
    workload::IterationRecord,
};

/// The result of one run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Name of the scenario.
    pub scenario: String,
    /// The scheme that was laid over the scenario.
    pub scheme: Option<String>,
    /// Seed of the random numbers.
    pub seed: u64,
    /// All messages but those in the background and in the warm-up, in the order in which they started.
    pub flows: Vec<FlowRecord>,
    /// Iterations of collective operations, in the order of the scenario's traffic.
    pub iterations: Vec<IterationRecord>,
    /// Links between switches.
    pub paths: Vec<PathRecord>,
    /// Sums over all flows and links.
    pub totals: Totals,
    /// Time that the run took, which is not part of what is the same on every machine.
    pub took: Duration,
}

/// The record of one message, or flow: its flow completion time (FCT) and its counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlowRecord {
    /// From 0, in the order in which they started.
    pub flow: u32,
    /// Which of the scenario's traffic it belongs to.
    pub traffic: u16,
    /// The host that sent.
    pub from: u16,
    /// The host that received.
    pub to: u16,
    /// Size in bytes, without headers.
    pub bytes: u64,
    /// Start time: when the message was due.
    pub start_ns: u64,
    /// Flow completion time, from the start until its last byte had arrived; nothing if the run
    /// ended before.
    pub fct_ns: Option<u64>,
    /// Segments that were sent.
    pub sent: u32,
    /// Segments among these that were retransmitted.
    pub retransmitted: u32,
    /// Retransmission timeouts of the flow.
    pub timeouts: u32,
    /// Segments that arrived, duplicates included.
    pub arrived: u32,
    /// Segments that arrived after one that was sent later.
    pub out_of_order: u32,
    /// Segments that arrived marked.
    pub marked: u32,
    /// Time that the segments which arrived had spent in queues of switches, added up.
    pub queued_ns: u64,
    /// Segments that the message has: symbols, if it is coded.
    pub segments: u32,
    /// Segments that had arrived when it was complete.
    pub needed: u32,
    /// Segments that had been sent when it was complete, those on their way included.
    pub sent_by_end: u32,
}

/// A link between two switches, one way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathRecord {
    /// From where to where.
    pub link: String,
    /// It leads from a switch that has hosts: load balancing is about these.
    #[serde(skip)]
    pub is_uplink: bool,
    /// Bytes of long flows' data that a leaf sent there, headers included: of messages above the last bound of the
    /// scenario's classes, those of the background included. 0 in another topology than leaf-spine.
    #[serde(skip)]
    pub long_bytes: u64,
    /// Share of the run's time that it was sending.
    pub utilisation: f64,
    /// Packets lost at its port, but for credits.
    pub drops: u32,
    /// Packets marked at its port.
    pub marks: u32,
}

/// Sums over everything that happened, background and warm-up included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// End of the run, in simulated time.
    pub end_ns: u64,
    /// Links passed by packets.
    pub hops: u64,
    /// Packets that hosts sent.
    pub injected: u64,
    /// Packets that hosts received.
    pub delivered: u64,
    /// Packets that were dropped, credits among them.
    pub dropped: u64,
    /// Credits that receivers sent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub credits_sent: u64,
    /// Credits that ports dropped.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub credits_dropped: u64,
    /// Credits that came to senders which had nothing left to send.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub credits_wasted: u64,
    /// Messages that had not arrived when the run ended, but for those of the warm-up.
    pub unfinished: u64,
    /// Bytes of messages in the background that arrived.
    pub background_bytes: u64,
}

impl Outcome {
    pub(crate) fn new(
        experiment: &Experiment,
        network: &Network,
        hosts: &Hosts,
        measured: &[bool],
        iterations: Vec<IterationRecord>,
        took: Duration,
    ) -> Self {
        let is_background = |it: &&Message| !measured[usize::from(it.origin)];
        let warm_up_ns = experiment.scenario.warm_up_ns();
        let is_measured = |it: &&Message| !is_background(it) && it.start_ns >= warm_up_ns;
        let stats = by_message(hosts);
        let mss = |it: &Message| experiment.transport(it.is_background).mss_bytes;
        let mut flows: Vec<FlowRecord> = Vec::new();
        for (message, stats) in hosts.messages.iter().zip(stats) {
            if is_measured(&message) {
                flows.push(record(flows.len() as u32, message, stats, mss(message)));
            }
        }
        let background = hosts.messages.iter().filter(is_background);
        let counters = network.counters;
        let end_ns = network.now();
        Self {
            scenario: experiment.name.clone(),
            scheme: experiment.scheme.clone(),
            seed: experiment.seed,
            iterations,
            paths: paths(network, end_ns),
            totals: Totals {
                end_ns,
                hops: counters.hops,
                injected: counters.injected,
                delivered: counters.delivered,
                dropped: counters.dropped,
                credits_sent: hosts.credit_counters.sent,
                credits_dropped: counters.credits_dropped,
                credits_wasted: hosts.credit_counters.wasted,
                unfinished: flows.iter().filter(|it| it.fct_ns.is_none()).count() as u64,
                background_bytes: background
                    .filter(|it| it.is_finished())
                    .map(|it| it.bytes)
                    .sum(),
            },
            flows,
            took,
        }
    }
}

impl Outcome {
    /// Returns names and contents of CSV files of its rows: `flows.csv`, `paths.csv`, and `iterations.csv` if there are
    /// any.
    ///
    /// # Errors
    /// When a row cannot be encoded, which no run's can fail to be.
    pub fn to_csv(&self) -> io::Result<Vec<(&'static str, Vec<u8>)>> {
        let mut files = vec![
            ("flows.csv", rows(&self.flows)?),
            ("paths.csv", rows(&self.paths)?),
        ];
        if !self.iterations.is_empty() {
            files.push(("iterations.csv", rows(&self.iterations)?));
        }
        Ok(files)
    }
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

fn rows(rows: &[impl Serialize]) -> io::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row)?;
    }
    writer.into_inner().map_err(|it| it.into_error())
}

/// Counters of one message, over all of its flows.
#[derive(Clone, Copy, Default)]
struct MessageStats {
    sum: FlowStats,
    out_of_order: u32,
    /// 0 unless it is coded.
    symbols: u32,
    /// Of a coded one.
    sent_by_end: u32,
}

/// MessageStats of all flows of each message.
fn by_message(hosts: &Hosts) -> Vec<MessageStats> {
    let mut all = vec![MessageStats::default(); hosts.messages.len()];
    if let Some(cloudburst) = &hosts.cloudburst {
        for (number, stats) in (0..).zip(&mut all) {
            if let Some((sum, symbols, sent_by_end)) = cloudburst.stats(number) {
                *stats = MessageStats {
                    sum,
                    symbols,
                    sent_by_end,
                    ..*stats
                };
            }
        }
    }
    for Flow {
        message,
        stats,
        receiver,
        ..
    } in &hosts.flows
    {
        let MessageStats {
            sum, out_of_order, ..
        } = &mut all[*message as usize];
        sum.sent += stats.sent;
        sum.retransmitted += stats.retransmitted;
        sum.timeouts += stats.timeouts;
        sum.arrived += stats.arrived;
        sum.marked += stats.marked;
        sum.queued_ns += stats.queued_ns;
        *out_of_order += receiver.out_of_order;
    }
    all
}

fn record(number: u32, message: &Message, stats: MessageStats, mss: u16) -> FlowRecord {
    let MessageStats {
        sum: stats,
        out_of_order,
        symbols,
        sent_by_end,
    } = stats;
    let is_coded = symbols > 0;
    FlowRecord {
        flow: number,
        traffic: message.origin,
        from: message.from,
        to: message.to,
        bytes: message.bytes,
        start_ns: message.start_ns,
        fct_ns: message
            .is_finished()
            .then(|| message.end_ns - message.start_ns),
        sent: stats.sent,
        retransmitted: stats.retransmitted,
        timeouts: stats.timeouts,
        arrived: stats.arrived,
        out_of_order,
        marked: stats.marked,
        queued_ns: stats.queued_ns,
        segments: if is_coded {
            symbols
        } else {
            segments(message.bytes, mss)
        },
        needed: if is_coded {
            stats.arrived
        } else {
            message.needed
        },
        sent_by_end: if is_coded {
            sent_by_end
        } else {
            message.sent_by_end
        },
    }
}

fn paths(network: &Network, end_ns: u64) -> Vec<PathRecord> {
    let first = 2 * network.layout.hosts();
    let record = |(number, port): (usize, &Port)| PathRecord {
        link: network.link_name(number),
        is_uplink: network.is_uplink(number),
        long_bytes: network.long_bytes[number],
        utilisation: port.time_of_ns(port.sent_bytes) as f64 / end_ns.max(1) as f64,
        drops: port.drops,
        marks: port.marks,
    };
    network
        .ports
        .iter()
        .enumerate()
        .skip(first)
        .map(record)
        .collect()
}
