//! Statistics of the measurements: a row for each scheme, size and seed.

use std::time::Duration;

use flow_report::{Median, Summary};
use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    campaign::Round,
    measurement::{LIMIT, Message},
    scenario::Scenario,
};

/// Says what a row is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Traffic {
    /// Messages by the scheme.
    Message,
    /// Short TCP flows beside the scheme's messages.
    ShortTcp,
}

/// The results of one scheme with messages of one size in one scenario, with one seed. A message
/// that failed counts as one that took 5 s, and so does a flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Conditions on the paths meanwhile.
    pub scenario: Scenario,
    /// Round-trip time without queues.
    pub rtt_ms: f64,
    /// The load of transfers beside, in percent of all paths, in scenarios that have one.
    pub load_percent: Option<u32>,
    /// Name of the scheme.
    pub scheme: String,
    /// Tells messages from flows beside.
    pub traffic: Traffic,
    /// Size of the messages in bytes; `None` for short flows, whose sizes are mixed.
    pub size: Option<u32>,
    /// Seed of the arrivals, and of the routers' hash.
    pub seed: u64,
    /// How many were asked for.
    pub messages: usize,
    /// How many had not arrived after 5 s.
    pub failures: usize,
    /// Mean completion time of a message.
    #[serde(deserialize_with = "number")]
    pub mean_us: f64,
    /// Median completion time of a message.
    #[serde(deserialize_with = "number")]
    pub p50_us: f64,
    /// 99th percentile of completion times.
    #[serde(deserialize_with = "number")]
    pub p99_us: f64,
    /// Longest completion time of a message.
    #[serde(deserialize_with = "number")]
    pub max_us: f64,
    /// Packets sent for each packet of the message, for schemes that code.
    pub sent_per_n: Option<f64>,
    /// Packets needed to decode for each packet of the message, for schemes that code.
    pub needed_per_n: Option<f64>,
    /// CPU time of the server, over messages of all sizes.
    #[serde(deserialize_with = "number")]
    pub cpu_us_per_message: f64,
    /// Bytes on the paths towards the client for each byte of a message that arrived, over all
    /// sizes; `None` where nothing arrived.
    pub wire_bytes_per_byte: Option<f64>,
    /// Bytes on the paths in both directions for each message that arrived, over all sizes, as
    /// [`WireBytes`](crate::measurement::WireBytes) are counted; `None` where nothing arrived.
    pub bytes_per_message: Option<f64>,
    /// Goodput of bulk transfers next to the messages, over all paths and directions; `None` where
    /// there were none.
    pub bulk_mbit: Option<f64>,
    /// Goodput of bulk transfers again, under the name that readers of earlier results know.
    pub bulk_mbit_per_s: Option<f64>,
    /// Completion times in the order of arrivals; failures as 5 s.
    #[serde(skip)]
    pub completions_us: Vec<f64>,
}

/// A row as it is written down, with the times of which plots are made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KeptRow {
    #[serde(flatten)]
    row: Row,
    completions_us: Vec<f64>,
}

impl From<Row> for KeptRow {
    fn from(mut row: Row) -> Self {
        let completions_us = std::mem::take(&mut row.completions_us);
        Self {
            row,
            completions_us,
        }
    }
}

impl From<KeptRow> for Row {
    fn from(kept: KeptRow) -> Self {
        Self {
            completions_us: kept.completions_us,
            ..kept.row
        }
    }
}

/// What is not a number (there were no messages) is null in JSON.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// Rows of one round: messages by size, and short flows if there were some.
pub fn rows(round: &Round, sizes: &[u32]) -> Vec<Row> {
    let messages = sizes.iter().map(|size| of_messages(round, *size));
    messages.chain(of_short_flows(round)).collect()
}

/// Groups rows that differ by their seed alone, in the order in which they first come up.
pub(crate) fn by_seed<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Vec<Vec<&'a Row>> {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|it| it[0].differs_by_seed(row)) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

/// The median of a figure over the seeds, with its bounds; nothing where no row has it.
pub(crate) fn median(rows: &[&Row], figure: impl Fn(&Row) -> Option<f64>) -> Option<Median> {
    Median::of(rows.iter().filter_map(|it| figure(it)))
}

impl Row {
    fn differs_by_seed(&self, other: &Self) -> bool {
        self.is_of_the_cell_of(other)
            && (&self.scheme, self.traffic, self.size) == (&other.scheme, other.traffic, other.size)
    }

    /// Returns true if both were measured under the same conditions.
    pub(crate) fn is_of_the_cell_of(&self, other: &Self) -> bool {
        (self.scenario, self.rtt_ms, self.load_percent)
            == (other.scenario, other.rtt_ms, other.load_percent)
    }
}

/// A row with the times alone.
fn of_times(round: &Round, traffic: Traffic, times: impl Iterator<Item = Option<Duration>>) -> Row {
    let times: Vec<Option<Duration>> = times.collect();
    let microseconds = |time: &Option<Duration>| time.unwrap_or(LIMIT).as_secs_f64() * 1e6;
    let completions_us: Vec<f64> = times.iter().map(microseconds).collect();
    let summary = Summary::new(completions_us.iter().copied());
    let bulk_mbit = round.measurement.bulk_mbit_per_s;
    Row {
        scenario: round.cell.scenario,
        rtt_ms: round.cell.rtt_ms(),
        load_percent: round.cell.load_percent,
        scheme: round.scheme.to_owned(),
        traffic,
        size: None,
        seed: round.seed,
        messages: times.len(),
        failures: times.iter().filter(|it| it.is_none()).count(),
        mean_us: summary.mean(),
        p50_us: summary.percentile(50.0),
        p99_us: summary.percentile(99.0),
        max_us: summary.percentile(100.0),
        sent_per_n: None,
        needed_per_n: None,
        cpu_us_per_message: f64::NAN,
        wire_bytes_per_byte: None,
        bytes_per_message: None,
        bulk_mbit,
        bulk_mbit_per_s: bulk_mbit,
        completions_us,
    }
}

fn of_messages(round: &Round, size: u32) -> Row {
    let of_size = || {
        let messages = round.measurement.messages.iter();
        messages.filter(move |it| it.bytes == size)
    };
    let codings = || of_size().filter_map(|it| it.coding.as_ref()?.get());
    let coded_packets: u32 = codings().map(|it| it.n).sum();
    let per_n =
        |packets: u32| (coded_packets > 0).then(|| f64::from(packets) / f64::from(coded_packets));
    let needed: Option<u32> = codings().map(|it| it.needed).sum();
    Row {
        size: Some(size),
        sent_per_n: per_n(codings().map(|it| it.sent).sum()),
        needed_per_n: needed.and_then(per_n),
        cpu_us_per_message: cpu_us_per_message(round),
        wire_bytes_per_byte: wire_bytes_per_byte(round),
        bytes_per_message: bytes_per_message(round),
        ..of_times(round, Traffic::Message, of_size().map(|it| it.completion))
    }
}

fn of_short_flows(round: &Round) -> Option<Row> {
    let flows = round.measurement.short_flows.as_ref()?;
    Some(of_times(round, Traffic::ShortTcp, flows.iter().copied()))
}

fn cpu_us_per_message(round: &Round) -> f64 {
    let messages = round.measurement.messages.len();
    round.measurement.server_cpu.as_secs_f64() * 1e6 / messages as f64
}

fn arrived(round: &Round) -> impl Iterator<Item = &Message> {
    let messages = round.measurement.messages.iter();
    messages.filter(|it| it.completion.is_some())
}

fn wire_bytes_per_byte(round: &Round) -> Option<f64> {
    let bytes: u64 = arrived(round).map(|it| u64::from(it.bytes)).sum();
    (bytes > 0).then(|| round.measurement.wire.to_client as f64 / bytes as f64)
}

fn bytes_per_message(round: &Round) -> Option<f64> {
    let count = arrived(round).count();
    (count > 0).then(|| round.measurement.wire.both() as f64 / count as f64)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::{Arc, OnceLock};

    use super::*;
    use crate::{
        cell::Cell,
        measurement::{Measurement, WireBytes},
        scheme::Coding,
    };

    pub(crate) fn round(
        seed: u64,
        completions_ms: &[Option<u64>],
        coding: Option<Coding>,
    ) -> Round {
        let messages = completions_ms.iter().map(|completion| Message {
            bytes: 5_000,
            completion: completion.map(Duration::from_millis),
            coding: coding.map(|it| Arc::new(OnceLock::from(it))),
        });
        Round {
            cell: Cell {
                rtt: Duration::from_millis(10),
                scenario: Scenario::Loss1,
                load_percent: None,
            },
            scheme: "tried",
            seed,
            measurement: Measurement {
                messages: messages.collect(),
                server_cpu: Duration::from_millis(2),
                wire: WireBytes {
                    to_server: 3_000,
                    to_client: 11_000,
                },
                bulk_mbit_per_s: Some(9.0),
                short_flows: None,
            },
        }
    }

    #[test]
    fn row_is_of_one_seed_and_size() {
        let rows = rows(&round(7, &[Some(1), Some(3), None], None), &[5_000, 93_000]);
        let [row, without] = &rows[..] else {
            panic!("two sizes: {rows:?}");
        };
        assert_eq!((row.seed, row.messages, row.failures), (7, 3, 1));
        assert_eq!((row.p50_us, row.max_us), (3_000.0, 5e6));
        assert_eq!(row.completions_us, [1_000.0, 3_000.0, 5e6]);
        assert_eq!(row.rtt_ms, 10.0);
        assert_eq!((row.sent_per_n, row.bulk_mbit), (None, Some(9.0)));
        assert_eq!(without.messages, 0);
        assert!(without.p99_us.is_nan());
    }

    #[test]
    fn short_flows_have_a_row_of_their_own() {
        let mut round = round(7, &[Some(1)], None);
        round.cell.scenario = Scenario::WholeBoth;
        round.cell.load_percent = Some(40);
        round.measurement.short_flows = Some(vec![Some(Duration::from_millis(4)), None]);
        let rows = rows(&round, &[5_000]);
        let [message, flows] = &rows[..] else {
            panic!("messages and flows: {rows:?}");
        };
        assert_eq!((message.size, message.messages), (Some(5_000), 1));
        let expected = (Traffic::ShortTcp, None, 2, 1);
        let found = (flows.traffic, flows.size, flows.messages, flows.failures);
        assert_eq!(found, expected);
        assert_eq!((flows.p50_us, flows.max_us), (4_000.0, 5e6));
        assert_eq!(by_seed(&rows).len(), 2);
        let json = serde_json::to_value(flows).expect("plain data");
        assert_eq!(
            (&json["traffic"], &json["load_percent"]),
            (&"short_tcp".into(), &40.into())
        );
        assert!(json["size"].is_null() && json["cpu_us_per_message"].is_null());
    }

    #[test]
    fn wire_is_of_what_arrived_and_counts_both_directions_for_a_message() {
        let row = &rows(&round(1, &[Some(1), Some(2), None], None), &[5_000])[0];
        assert_eq!(row.wire_bytes_per_byte, Some(1.1));
        assert_eq!(row.bytes_per_message, Some(7_000.0));
        let failed = &rows(&round(1, &[None], None), &[5_000])[0];
        assert_eq!(
            (failed.wire_bytes_per_byte, failed.bytes_per_message),
            (None, None)
        );
    }

    #[test]
    fn rows_of_a_scheme_are_summed_up_over_seeds() {
        let of = |seed, ms: u64| rows(&round(seed, &[Some(ms)], None), &[5_000, 93_000]);
        let rows = [of(1, 2), of(2, 40), of(3, 3)].concat();
        let groups = by_seed(&rows);
        assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3]);
        let p99 = median(&groups[0], |it| Some(it.p99_us)).expect("three seeds");
        assert_eq!(p99.to_text(0), "3000 [2000, 40000]");
        assert_eq!(median(&groups[1], |it| Some(it.p99_us)), None);
    }

    #[test]
    fn coding_is_stated_per_packet_of_the_message() {
        let coding = Coding {
            n: 4,
            needed: Some(5),
            sent: 6,
        };
        let rows = rows(&round(1, &[Some(1), Some(1)], Some(coding)), &[5_000]);
        assert_eq!(
            (rows[0].sent_per_n, rows[0].needed_per_n),
            (Some(1.5), Some(1.25))
        );
        let silent = Coding {
            needed: None,
            ..coding
        };
        let row = &super::rows(&round(1, &[Some(1)], Some(silent)), &[5_000])[0];
        assert_eq!((row.sent_per_n, row.needed_per_n), (Some(1.5), None));
    }

    #[test]
    fn json_has_the_fields_that_readers_expect() {
        let rows = rows(&round(1, &[Some(1)], None), &[5_000]);
        let json = serde_json::to_value(&rows[0]).expect("plain data");
        assert_eq!(
            (&json["scenario"], &json["seed"]),
            (&"loss1".into(), &1.into())
        );
        assert!(json["sent_per_n"].is_null() && json["p99_us"].is_number());
        assert_eq!(json["bytes_per_message"], 14_000.0);
        assert_eq!(
            (&json["bulk_mbit"], &json["bulk_mbit_per_s"]),
            (&9.0.into(), &9.0.into())
        );
        assert!(json.get("completions_us").is_none());
    }
}
