//! Statistics of the measurements: mean and percentiles of completion times.

use std::time::Duration;

use flow_report::Summary;
use serde::Serialize;

use crate::{
    campaign::Round,
    measurement::{LIMIT, Message},
    scenario::Scenario,
};

/// The results of one scheme with messages of one size in one scenario. Over several seeds, times
/// are medians of each seed's value, `max_us` is the highest, and counts are sums. A message that
/// failed counts as one that took 5 s.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Conditions on the paths meanwhile.
    pub scenario: Scenario,
    /// Round-trip time without queues.
    pub rtt_ms: f64,
    /// Name of the scheme.
    pub scheme: &'static str,
    /// Size of the messages in bytes.
    pub size: u32,
    /// How many were asked for.
    pub messages: usize,
    /// How many had not arrived after 5 s.
    pub failures: usize,
    /// Mean completion time of a message.
    pub mean_us: f64,
    /// Median completion time of a message.
    pub p50_us: f64,
    /// 99th percentile of completion times.
    pub p99_us: f64,
    /// Longest completion time of a message.
    pub max_us: f64,
    /// Packets sent for each packet of the message, for schemes that code.
    pub sent_per_n: Option<f64>,
    /// Packets needed to decode for each packet of the message, for schemes that code.
    pub needed_per_n: Option<f64>,
    /// CPU time of the server, over messages of all sizes.
    pub cpu_us_per_message: f64,
    /// Bytes on the paths towards the client for each byte of a message that arrived, over all
    /// sizes; `None` where there was other traffic.
    pub wire_bytes_per_byte: Option<f64>,
    /// Goodput of bulk transfers next to the messages, both directions of all paths together.
    pub bulk_mbit_per_s: Option<f64>,
}

/// Which rounds belong together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Key {
    pub(crate) rtt: Duration,
    pub(crate) scenario: Scenario,
    pub(crate) scheme: &'static str,
}

/// Rows in the order in which the rounds first name what they are of, and by size within.
pub fn rows(rounds: &[Round], sizes: &[u32]) -> Vec<Row> {
    let mut rows = Vec::new();
    for key in keys(rounds) {
        let same: Vec<&Round> = of(rounds, key).collect();
        rows.extend(sizes.iter().map(|size| row(key, &same, *size)));
    }
    rows
}

/// Returns the keys of the rounds: by round-trip time, by scenario, and by scheme as listed.
pub(crate) fn keys(rounds: &[Round]) -> Vec<Key> {
    let mut keys: Vec<Key> = Vec::new();
    for round in rounds {
        let key = Key {
            rtt: round.rtt,
            scenario: round.scenario,
            scheme: round.scheme,
        };
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

/// The rounds of one kind.
pub(crate) fn of(rounds: &[Round], key: Key) -> impl Iterator<Item = &Round> {
    rounds
        .iter()
        .filter(move |it| (it.rtt, it.scenario, it.scheme) == (key.rtt, key.scenario, key.scheme))
}

/// Completion times in us of one size; failures as 5 s.
pub(crate) fn completions(round: &Round, size: u32) -> impl Iterator<Item = f64> {
    of_size(round, size).map(|it| it.completion.unwrap_or(LIMIT).as_secs_f64() * 1e6)
}

fn of_size(round: &Round, size: u32) -> impl Iterator<Item = &Message> {
    let messages = round.measurement.messages.iter();
    messages.filter(move |it| it.bytes == size)
}

fn row(key: Key, rounds: &[&Round], size: u32) -> Row {
    let by_seed: Vec<Summary> = rounds
        .iter()
        .map(|it| Summary::new(completions(it, size)))
        .collect();
    let over_seeds =
        |value: &dyn Fn(&Summary) -> f64| Summary::new(by_seed.iter().map(value)).median();
    let messages = || rounds.iter().flat_map(|round| of_size(round, size));
    let each_round = |value: &dyn Fn(&Round) -> Option<f64>| {
        let values: Vec<f64> = rounds.iter().filter_map(|round| value(round)).collect();
        (!values.is_empty()).then(|| Summary::new(values).median())
    };
    let codings = || messages().filter_map(|it| it.coding.as_ref()?.get());
    let coded_packets: u32 = codings().map(|it| it.n).sum();
    let per_n =
        |packets: u32| (coded_packets > 0).then(|| f64::from(packets) / f64::from(coded_packets));
    Row {
        scenario: key.scenario,
        rtt_ms: key.rtt.as_secs_f64() * 1e3,
        scheme: key.scheme,
        size,
        messages: messages().count(),
        failures: messages().filter(|it| it.completion.is_none()).count(),
        mean_us: over_seeds(&Summary::mean),
        p50_us: over_seeds(&|it| it.percentile(50.0)),
        p99_us: over_seeds(&|it| it.percentile(99.0)),
        max_us: by_seed
            .iter()
            .map(|it| it.percentile(100.0))
            .fold(f64::NAN, f64::max),
        sent_per_n: per_n(codings().map(|it| it.sent).sum()),
        needed_per_n: per_n(codings().map(|it| it.needed).sum()),
        cpu_us_per_message: each_round(&cpu_us_per_message).unwrap_or(f64::NAN),
        wire_bytes_per_byte: each_round(&wire_bytes_per_byte),
        bulk_mbit_per_s: each_round(&|it| it.measurement.bulk_mbit_per_s),
    }
}

fn cpu_us_per_message(round: &Round) -> Option<f64> {
    let messages = round.measurement.messages.len();
    (messages > 0).then(|| round.measurement.server_cpu.as_secs_f64() * 1e6 / messages as f64)
}

fn wire_bytes_per_byte(round: &Round) -> Option<f64> {
    let messages = round.measurement.messages.iter();
    let arrived = messages.filter(|it| it.completion.is_some());
    let bytes: u64 = arrived.map(|it| u64::from(it.bytes)).sum();
    let wire_bytes = round.measurement.wire_bytes?;
    (bytes > 0).then(|| wire_bytes as f64 / bytes as f64)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, OnceLock};

    use super::*;
    use crate::{measurement::Measurement, scheme::Coding};

    fn round(completions_ms: &[Option<u64>], coding: Option<Coding>) -> Round {
        let messages = completions_ms.iter().map(|completion| Message {
            bytes: 5_000,
            completion: completion.map(Duration::from_millis),
            coding: coding.map(|it| Arc::new(OnceLock::from(it))),
        });
        Round {
            rtt: Duration::from_millis(10),
            scenario: Scenario::Loss1,
            scheme: "tried",
            measurement: Measurement {
                messages: messages.collect(),
                server_cpu: Duration::from_millis(2),
                wire_bytes: Some(11_000),
                bulk_mbit_per_s: None,
            },
        }
    }

    #[test]
    fn seeds_are_summed_up() {
        let rounds = [
            round(&[Some(1), Some(3)], None),
            round(&[Some(2), Some(2)], None),
            round(&[Some(40), None], None),
        ];
        let rows = rows(&rounds, &[5_000, 93_000]);
        let [row, without] = &rows[..] else {
            panic!("two sizes: {rows:?}");
        };
        assert_eq!((row.messages, row.failures), (6, 1));
        assert_eq!((row.p50_us, row.p99_us), (2_000.0, 3_000.0));
        assert_eq!((row.mean_us, row.max_us), (2_000.0, 5e6));
        assert_eq!((row.rtt_ms, row.cpu_us_per_message), (10.0, 1_000.0));
        assert_eq!(row.wire_bytes_per_byte, Some(1.1));
        assert_eq!(row.sent_per_n, None);
        assert_eq!(without.messages, 0);
        assert!(without.p99_us.is_nan());
    }

    #[test]
    fn coding_is_stated_per_packet_of_the_message() {
        let coding = Coding {
            n: 4,
            needed: 5,
            sent: 6,
        };
        let rows = rows(&[round(&[Some(1), Some(1)], Some(coding))], &[5_000]);
        assert_eq!(
            (rows[0].sent_per_n, rows[0].needed_per_n),
            (Some(1.5), Some(1.25))
        );
    }

    #[test]
    fn json_has_the_fields_that_readers_expect() {
        let rows = rows(&[round(&[Some(1)], None)], &[5_000]);
        let json = serde_json::to_value(&rows[0]).expect("plain data");
        assert_eq!(json["scenario"], "loss1");
        assert!(json["sent_per_n"].is_null() && json["p99_us"].is_number());
    }
}
