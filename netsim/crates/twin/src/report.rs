//! What came out, for people: a sentence, a table, notes, and a page with plots.

use flow_recording::{Header, ThresholdUnit};
use flow_report::{Axis, Bars, Page, Plot, Series, Table};
use serde::Serialize;

use crate::{Distribution, FlowStatistics, TwinOutcome, TwinSettings};

/// Report of a recording and what several schemes would have done to it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct TwinReport<'a> {
    /// The version of the program that made it.
    pub version: &'static str,
    /// What the recording says of itself.
    pub recording: &'a Header,
    /// The settings of all schemes.
    pub settings: &'a TwinSettings,
    /// An outcome of each scheme.
    pub schemes: &'a [TwinOutcome],
}

impl TwinReport<'_> {
    /// Says in a sentence what was simulated.
    pub fn summary(&self) -> String {
        let Self {
            recording,
            settings,
            ..
        } = self;
        let all_s = recording.duration_us / 1_000_000;
        let from_s = settings.skip_s.min(all_s);
        let seconds = settings.for_s.unwrap_or(u64::MAX).min(all_s - from_s);
        let uplinks: Vec<String> = settings.uplinks.iter().map(ToString::to_string).collect();
        format!(
            "{} connections in {all_s} s, of which {seconds} s are simulated over {}; queues of {} ms.",
            recording.flows,
            uplinks.join(", "),
            settings.buffer_ms
        )
    }

    /// Makes a row of each scheme.
    pub fn table(&self) -> Table {
        let mut table = Table::new([
            "scheme",
            "short connections",
            "short: mean ms",
            "short: p99 ms",
            "long connections",
            "long: mean ms",
            "long: p99 ms",
            "slowdown",
            "unfinished",
            "sent again %",
            "out/in used %",
        ]);
        let number = |it: Option<f64>| it.map_or_else(|| "-".to_owned(), |it| format!("{it:.2}"));
        for it in self.schemes {
            let again = it.retransmitted as f64 / it.segments.max(1) as f64 * 100.0;
            let percent =
                |[out, back]: &[f64; 2]| format!("{:.0}/{:.0}", out * 100.0, back * 100.0);
            let used: Vec<String> = it.utilisation.iter().map(percent).collect();
            table.row([
                it.scheme.clone(),
                it.short.flows.to_string(),
                number(it.short.mean_ms),
                number(it.short.p99_ms),
                it.long.flows.to_string(),
                number(it.long.mean_ms),
                number(it.long.p99_ms),
                number(mean_slowdown(it)),
                (it.short.unfinished + it.long.unfinished).to_string(),
                format!("{again:.2}"),
                used.join(" "),
            ]);
        }
        table
    }

    /// Lists what a reader of the figures has to know besides: what is not in them.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let unseen = self.recording.unseen;
        let missing = unseen.flows();
        if missing > 0 {
            notes.push(format!(
                "{missing} connections are not in the recording, so that there was more traffic than here."
            ));
        }
        if unseen.blind_us > 0 {
            let seconds = unseen.blind_us / 1_000_000;
            notes.push(format!(
                "For {seconds} s of the recording nothing was seen."
            ));
        }
        if let Some(paced) = self.schemes.iter().map(|it| it.paced_flows).max()
            && paced > 0
        {
            notes.push(format!(
                "{paced} connections were slow for long by themselves: they are paced as they came, and have no completion time."
            ));
        }
        if let Some(cut) = self.schemes.iter().map(|it| it.cut_by_skip).max()
            && cut > 0
        {
            notes.push(format!(
                "{cut} connections were under way where --skip ends: they are not simulated, so that there was more traffic than here."
            ));
        }
        for it in self.schemes.iter().filter(|it| it.left_out > 0) {
            notes.push(format!(
                "{}: {} connections were left out, for 100,000 were under way: there is more traffic than the uplinks carry.",
                it.scheme, it.left_out
            ));
        }
        notes
    }

    /// Makes a page with the table and plots.
    pub fn page(&self) -> Page {
        let outcomes = self.schemes;
        let threshold = self.settings.threshold;
        let threshold = threshold.unwrap_or(self.recording.threshold.into());
        let unit = match self.recording.unit {
            ThresholdUnit::Packets => "packets",
            ThresholdUnit::Bytes => "bytes",
        };
        let mut page = Page::new("A twin of this network")
            .text(&self.summary())
            .text(&format!(
                "Completion times are those of connections, from the first packet of the handshake to the last byte of both directions. Short connections have at most {threshold} {unit} in each direction, as they were recorded: the same in each row, whatever the threshold of a scheme."
            ))
            .text("The slowdown is the mean over all connections of completion time over serialisation and the round trips that there must be, on the uplink on which that is least; below 1 where one connection fills several uplinks.");
        for note in self.notes() {
            page = page.text(&note);
        }
        page = page
            .table(&self.table())
            .bars(&bars("Short connections", outcomes, |it| &it.short))
            .bars(&bars("Long connections", outcomes, |it| &it.long))
            .plot(&distribution("Short connections", outcomes, |it| {
                &it.short.distribution
            }))
            .plot(&distribution("Long connections", outcomes, |it| {
                &it.long.distribution
            }))
            .heading("What the schemes are");
        let meanings = outcomes
            .iter()
            .map(|it| format!("{}: {}", it.scheme, meaning(it)));
        page.list(meanings).note(
            "Simulated packet by packet, with CUBIC, SACK and delayed acknowledgements; no receive windows, no pacing.",
        )
    }
}

/// Mean slowdown over all connections, each counting the same.
fn mean_slowdown(outcome: &TwinOutcome) -> Option<f64> {
    let classes = [&outcome.short, &outcome.long];
    let flows: u64 = classes.iter().map(|it| it.flows).sum();
    let weighted = |it: &&FlowStatistics| it.mean_slowdown.unwrap_or(0.0) * it.flows as f64;
    (flows > 0).then(|| classes.iter().map(weighted).sum::<f64>() / flows as f64)
}

fn meaning(outcome: &TwinOutcome) -> &'static str {
    match outcome.scheme.split('@').next() {
        Some("ecmp") => "a hash of each flow chooses its uplink, with a FIFO in front",
        Some("fair") => "as ecmp, with a queue for each flow in front of a shaped uplink",
        Some("dedicated") => "the first uplink for short flows, the second for long ones",
        Some("share") => "both classes on both uplinks, short flows first",
        _ => "each packet takes the uplink by which it arrives first, short flows first",
    }
}

fn bars(
    title: &str,
    outcomes: &[TwinOutcome],
    class: impl Fn(&TwinOutcome) -> &FlowStatistics,
) -> Bars {
    let values = |of: fn(&FlowStatistics) -> Option<f64>| {
        let values = outcomes.iter().map(|it| of(class(it)).unwrap_or(f64::NAN));
        values.collect::<Vec<_>>()
    };
    let mut bars = Bars::new(title);
    for it in outcomes {
        bars = bars.row(it.scheme.clone(), "");
    }
    bars.panel("mean completion time", "ms", values(|it| it.mean_ms))
        .panel("99th percentile", "ms", values(|it| it.p99_ms))
}

fn distribution(
    title: &str,
    outcomes: &[TwinOutcome],
    class: impl Fn(&TwinOutcome) -> &Distribution,
) -> Plot {
    let (x, y) = (
        Axis::log("completion time in ms"),
        Axis::linear("share of connections").range(0.0, 1.0),
    );
    let plot = Plot::new(format!("{title}: completion times"), x, y);
    outcomes.iter().fold(plot, |plot, it| {
        plot.with(Series::steps(it.scheme.clone(), class(it).cumulative()))
    })
}
