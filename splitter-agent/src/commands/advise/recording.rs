//! Advice for the flows of a recording.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use flow_recording::{Reader, ThresholdUnit as Unit};
use splitter_advise::{Advice, FlowSize, Question, Sizes, ThresholdUnit, Traffic, advise};

use crate::cli::AdviseArgs;

/// Recommends a threshold for the flows of a recording, at the rate at which they came.
pub(super) fn advice(path: &Path, args: &AdviseArgs) -> Result<Advice> {
    let cannot = || format!("cannot use {}", path.display());
    let mut reader = Reader::open(path).with_context(cannot)?;
    let header = reader.header().clone();
    let mut sizes = Sizes::default();
    let mut flows = 0u64;
    for flow in &mut reader {
        let flow = flow.with_context(cannot)?;
        // How large one was that had begun before is not known.
        if !flow.began_before {
            flows += 1;
            sizes.add(FlowSize {
                packets: flow.out.packets,
                bytes: flow.out.bytes,
            });
        }
    }
    let (unit, most) = match header.unit {
        Unit::Packets => (ThresholdUnit::Packets, 1_000_000),
        Unit::Bytes => (ThresholdUnit::Bytes, 1_500_000_000),
    };
    let unseen = header.unseen.flows();
    let all = flows.saturating_add(unseen) as f64;
    let seen_us = header.duration_us.saturating_sub(header.unseen.blind_us);
    let seconds = Duration::from_micros(seen_us.max(1)).as_secs_f64();
    let rates = args.rates.map(|it| it.0);
    let rates = rates.or(header.rates_mbit.map(|it| it.map(f64::from)));
    let question = Question {
        unit,
        current: args.threshold.unwrap_or(header.threshold.max(1)),
        bounds: [1, most],
        rates: rates.map(|it| it.map(|mbit| mbit * 1e6)),
        rtt: Duration::from_secs_f64(args.rtt_ms / 1e3),
        traffic: Traffic::FlowsPerSecond(all / seconds),
    };
    let mut advice = advise(sizes.sample(unit), &question, true);
    if unseen > 0 && unseen as f64 > 0.02 * all {
        advice.notes.push(format!(
            "{:.0} % of the flows of the recording were not seen; a shorter interval sees more",
            unseen as f64 / all * 100.0
        ));
    }
    Ok(advice)
}

#[cfg(test)]
mod tests {
    use flow_recording::{Count, FlowEnd, FlowRecord, Header, Transport, Unseen, Writer};

    use super::*;

    #[test]
    fn as_many_unseen_flows_as_a_header_can_state_are_taken() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("day.flows");
        let mut writer = Writer::create(&path, false).expect("a file");
        let flow = FlowRecord {
            start_us: 0,
            duration_us: 1_000,
            is_long: false,
            transport: Transport::Tcp,
            is_ipv6: false,
            began_before: false,
            end: FlowEnd::Finished,
            out: Count {
                packets: 3,
                bytes: 300,
            },
            back: None,
        };
        assert!(writer.add(&flow).expect("space"));
        let header = Header {
            duration_us: 1_000_000,
            unseen: Unseen {
                missed: u64::MAX,
                ..Unseen::default()
            },
            ..Header::default()
        };
        writer.finish(header).expect("space");
        let args = AdviseArgs {
            sizes: None,
            recording: Some(path.clone()),
            load: 50,
            rates: None,
            rtt_ms: 20.0,
            threshold: None,
            bytes: false,
        };
        let advice = advice(&path, &args).expect("it is whole");
        let notes = advice.notes.concat();
        assert!(notes.contains("100 % of the flows"), "{notes}");
    }
}
