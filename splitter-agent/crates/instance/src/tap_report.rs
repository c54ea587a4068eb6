//! The report of `splitter tap`: flows and packets at each device, and delays between them.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use flow_report::Table;
use serde::{Deserialize, Serialize};
use splitter_datapath::TcHook;
use splitter_datapath::tap::{
    CAPACITY, DelaySummary, PACKET_CAPACITY, PacketDelays, Tap, TapError, TapPoint, TappedFlow,
    Taps, TimedPacket, TimedPackets,
};
use thiserror::Error;

/// Everything that taps have noted, as JSON has it.
#[derive(Debug, Serialize)]
pub struct TapReport {
    points: Vec<TapPoint>,
    hooks: Vec<TcHook>,
    flows: Vec<TappedFlow>,
    packets: Vec<TimedPackets>,
    /// From the first point to the others; nothing where packets were not timed, or at one point alone.
    delays: Option<DelaySummary>,
}

/// The part of a report that another is held against.
#[derive(Deserialize)]
struct PacketReport {
    packets: Vec<TimedPackets>,
}

/// A report cannot be read.
#[derive(Debug, Error)]
pub enum TapReportError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// It holds something else.
    #[error("{} is no report of timed packets: {source}; `splitter tap --json --packets N` prints one", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The reason why it is none.
        source: serde_json::Error,
    },
    /// No packet was timed in one of them.
    #[error("{} has no packets: none passed, or it was made without --packets", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

impl TapReport {
    /// Reads what the taps have noted, and warns of what they had no place for. `times_packets` says that they
    /// were told to.
    ///
    /// # Errors
    /// [`TapError::Read`].
    pub fn collect(taps: &Taps, times_packets: bool) -> Result<Self, TapError> {
        for tap in taps.iter() {
            if tap.flows()?.len() >= CAPACITY {
                tracing::warn!(event = "tap_full", point = %tap.point(), "full: flows after the first {CAPACITY} are missing");
            }
        }
        let packets = match times_packets {
            true => taps.packets()?,
            false => Vec::new(),
        };
        for full in packets.iter().filter(|it| it.missing > 0) {
            let TimedPackets { point, missing, .. } = full;
            tracing::warn!(event = "tap_full", %point, "full: {missing} packets after the first {PACKET_CAPACITY} are missing");
        }
        let delays = match packets.split_first() {
            Some((first, others)) if !others.is_empty() => {
                Some(between(std::slice::from_ref(first), others))
            }
            _ => None,
        };
        Ok(Self {
            points: taps.iter().map(|tap| tap.point().clone()).collect(),
            hooks: taps.iter().map(Tap::hook).collect(),
            flows: taps.collect()?,
            packets,
            delays,
        })
    }

    /// Writes a line for each flow and tap, and one for each mark of packets; `number` writes counts.
    pub fn to_text(&self, number: fn(u64) -> String) -> String {
        let flows = flow_table(&self.flows, number).to_text();
        match &self.delays {
            Some(delays) => flows + "\n" + &delay_text(delays, number),
            None => flows,
        }
    }
}

/// Reads the reports of two borders, and finds packets of the one at the other, by whichever of their devices.
///
/// # Errors
/// See [`TapReportError`].
pub fn delays_between(from: &Path, to: &Path) -> Result<DelaySummary, TapReportError> {
    Ok(between(&read(from)?, &read(to)?))
}

/// Writes what delays were made of, and how they vary by mark.
pub fn delay_text(summary: &DelaySummary, number: fn(u64) -> String) -> String {
    let mut table = Table::new(["DSCP", "fwmark", "packets", "mean us", "p50 us", "p99 us"]);
    for it in &summary.variation {
        let [mean, p50, p99] = [it.mean_us, it.p50_us, it.p99_us].map(|us| format!("{us:.1}"));
        let (dscp, fwmark) = (it.dscp.to_string(), format!("{:#x}", it.fwmark));
        table.row([dscp, fwmark, number(it.packets as u64), mean, p50, p99]);
    }
    let [matched, unmatched, ambiguous] =
        [summary.matched, summary.unmatched, summary.ambiguous].map(|it| number(it as u64));
    format!(
        "Differences between the delays of a flow's packets that follow each other, by mark where they came from.\n\
         {matched} packets passed both, {unmatched} only where they came from, {ambiguous} could not be told apart.\n{}",
        table.to_text()
    )
}

fn read(path: &Path) -> Result<Vec<TimedPackets>, TapReportError> {
    let path = path.to_owned();
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(source) => return Err(TapReportError::Unreadable { path, source }),
    };
    match serde_json::from_reader(BufReader::new(file)) {
        Ok(PacketReport { packets }) if packets.iter().all(|it| it.packets.is_empty()) => {
            Err(TapReportError::Empty { path })
        }
        Ok(PacketReport { packets }) => Ok(packets),
        Err(source) if source.is_io() => {
            let source = source.into();
            Err(TapReportError::Unreadable { path, source })
        }
        Err(source) => Err(TapReportError::Malformed { path, source }),
    }
}

fn between(from: &[TimedPackets], to: &[TimedPackets]) -> DelaySummary {
    let all = |points: &[TimedPackets]| -> Vec<TimedPacket> {
        points.iter().flat_map(|it| &it.packets).copied().collect()
    };
    PacketDelays::between(&all(from), &all(to)).summary()
}

/// Times count from the first packet of all.
fn flow_table(flows: &[TappedFlow], number: fn(u64) -> String) -> Table {
    let mut table = Table::new([
        "flow",
        "seen at",
        "first s",
        "last s",
        "duration ms",
        "packets",
        "bytes",
        "completion ms",
    ]);
    let passages = flows.iter().flat_map(|flow| &flow.seen);
    let begin_ns = passages.map(|passage| passage.first_ns).min().unwrap_or(0);
    let seconds = |at_ns: u64| format!("{:.6}", (at_ns - begin_ns) as f64 / 1e9);
    for flow in flows {
        for (index, passage) in flow.seen.iter().enumerate() {
            let is_first = index == 0;
            let name = match is_first {
                true => flow.to_string(),
                false => String::new(),
            };
            let completion = flow.completion_ms.filter(|_| is_first);
            table.row([
                name,
                passage.point.to_string(),
                seconds(passage.first_ns),
                seconds(passage.last_ns),
                format!("{:.3}", passage.duration_ms),
                number(passage.packets),
                number(passage.bytes),
                completion.map_or_else(String::new, |ms| format!("{ms:.3}")),
            ]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(packets: &[(&str, u64)]) -> tempfile::NamedTempFile {
        let packets: Vec<_> = packets
            .iter()
            .map(|(packet, at_ns)| {
                serde_json::json!({
                    "packet": packet, "at_ns": at_ns, "source": "10.0.0.1:80",
                    "destination": "[2001:db8::1]:7", "dscp": 4, "fwmark": 0,
                })
            })
            .collect();
        let report = serde_json::json!({
            "flows": [], "packets": [{ "point": "wan0:egress", "missing": 0, "packets": packets }],
        });
        let file = tempfile::NamedTempFile::new().unwrap();
        serde_json::to_writer(&file, &report).unwrap();
        file
    }

    #[test]
    fn packets_of_two_files_are_joined() {
        let from = report(&[("00000000000000a1", 1_000), ("ffffffffffffffff", 3_000)]);
        let to = report(&[
            ("ffffffffffffffff", 1_003_500),
            ("00000000000000a1", 1_001_000),
        ]);
        let summary = delays_between(from.path(), to.path()).unwrap();
        assert_eq!(
            (summary.matched, summary.unmatched, summary.ambiguous),
            (2, 0, 0)
        );
        let [class] = summary.variation[..] else {
            panic!("{summary:?}");
        };
        assert_eq!((class.dscp, class.packets, class.mean_us), (4, 1, 0.5));
        let text = delay_text(&summary, |it| it.to_string());
        assert!(text.contains("2 packets passed both, 0 only"), "{text}");
    }

    #[test]
    fn what_is_no_report_of_packets_is_refused_by_name() {
        let error = |from: &Path| {
            let whole = report(&[("1", 1)]);
            delays_between(from, whole.path()).unwrap_err().to_string()
        };
        let nothing = report(&[]);
        assert!(error(nothing.path()).contains("without --packets"));
        assert!(error(Path::new("/nonexistent")).contains("cannot read /nonexistent"));
        assert!(error(Path::new("/")).contains("cannot read /"));
        let other = tempfile::NamedTempFile::new().unwrap();
        for text in [
            "",
            "[]",
            "{\"flows\":[]}",
            "{\"packets\":[{\"point\":\"a b\"}]}",
        ] {
            std::fs::write(other.path(), text).unwrap();
            let error = error(other.path());
            assert!(error.contains("is no report of timed packets"), "{error}");
        }
        assert!(error(report(&[("xyz", 1)]).path()).contains("hexadecimal digits"));
    }
}
