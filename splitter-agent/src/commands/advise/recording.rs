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
        traffic: Traffic::FlowsPerSecond((flows + unseen) as f64 / seconds),
    };
    let mut advice = advise(sizes.sample(unit), &question, true);
    if unseen > 0 && unseen as f64 > 0.02 * (flows + unseen) as f64 {
        advice.notes.push(format!(
            "{:.0} % of the flows of the recording were not seen; a shorter interval sees more",
            unseen as f64 / (flows + unseen) as f64 * 100.0
        ));
    }
    Ok(advice)
}
