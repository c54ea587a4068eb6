//! Coding rates on the testbed: the table that is figure 14, `C7`.

use flow_report::{Axis, Plot, Series};

use super::experiment::{SIZES, figure};
use crate::{
    figure::Figure,
    tr::{
        band::Band,
        runs::{Metric, Runs},
    },
};

/// Builds `C7`: the table that is figure 14.
pub fn table(runs: &[Runs]) -> Figure {
    const NEEDED: [Metric; 5] = [
        needed::<0>,
        needed::<1>,
        needed::<2>,
        needed::<3>,
        needed::<4>,
    ];
    const SENT_BY_END: [Metric; 5] = [
        sent_by_end::<0>,
        sent_by_end::<1>,
        sent_by_end::<2>,
        sent_by_end::<3>,
        sent_by_end::<4>,
    ];
    const SENT: [Metric; 5] = [sent::<0>, sent::<1>, sent::<2>, sent::<3>, sent::<4>];
    const PAPER: [f64; 5] = [1.281, 1.331, 1.748, 1.373, 1.715];
    let over_all = |scheme: &str, metrics: &[Metric]| {
        let values: Vec<_> = runs
            .iter()
            .flat_map(|it| {
                metrics
                    .iter()
                    .map(move |metric| it.value(scheme, None, *metric))
            })
            .collect();
        let known: Option<Vec<_>> = values.into_iter().collect();
        // What happens at three rates with one seed is not independent: no interval.
        known.map(|known| known.iter().map(|it| it.mean).sum::<f64>() / known.len() as f64)
    };
    let mut checks = Vec::new();
    for (place, size) in SIZES.iter().enumerate() {
        let ours = over_all("cloudburst", &NEEDED[place..=place]);
        let paper = format!("{:.3}", PAPER[place]);
        checks.push(Band::about(1.2, 1.6).check_value(
            &format!("{size}, mean over rates"),
            &paper,
            ours,
        ));
    }
    let mean = over_all("cloudburst", &NEEDED);
    checks.push(Band::about(1.3, 1.6).check_value("mean", "1.490", mean));
    let number = |it: Option<f64>| it.map_or_else(String::new, |it| format!("{it:.2}"));
    let by_size = |metrics: &[Metric; 5]| {
        let each = metrics
            .iter()
            .map(|it| number(over_all("cloudburst", &[*it])));
        each.collect::<Vec<_>>().join(", ")
    };
    let note = format!(
        "Symbols that had arrived when the message was decoded, of those it has; the paper says sent, which at 1 Gbit/s cannot be \
         (A-C7). For {}: sent until it was decoded {} times, those on their way included, and until the stop came {}. With sums of halves {} had to arrive, in this project's own \
         mode {}, with {} sent.",
        SIZES.join(", "),
        by_size(&SENT_BY_END),
        by_size(&SENT),
        number(over_all("cloudburst-halves", &NEEDED)),
        number(over_all("cloudburst-native", &NEEDED)),
        number(over_all("cloudburst-native", &SENT)),
    );
    let line = |name: &str, scheme: &str, metrics: &[Metric; 5]| {
        let point = |place: usize| Some((place as f64, over_all(scheme, &metrics[place..=place])?));
        Series::line(name, (0..SIZES.len()).filter_map(point).collect())
    };
    let theirs = (0..SIZES.len()).map(|it| (it as f64, PAPER[it])).collect();
    let plot = Plot::new(
        "Symbols for each of the message",
        Axis::linear("5 · 10 · 20 · 50 · 93 kB"),
        Axis::linear("times"),
    )
    .with(Series::line("paper", theirs))
    .with(line("needed", "cloudburst", &NEEDED))
    .with(line("sent until decoded", "cloudburst", &SENT_BY_END))
    .with(line("sent", "cloudburst", &SENT))
    .with(line("ours, needed", "cloudburst-native", &NEEDED))
    .with(line("ours, sent", "cloudburst-native", &SENT));
    let all_runs: Vec<&Runs> = runs.iter().collect();
    figure(
        "C7",
        "coding rates, table 14",
        note,
        checks,
        &all_runs,
        vec![plot],
    )
}

fn needed<const CLASS: usize>(manifest: &netsim::Manifest) -> Option<f64> {
    manifest.classes.get(CLASS)?.needed_ratio
}

fn sent_by_end<const CLASS: usize>(manifest: &netsim::Manifest) -> Option<f64> {
    manifest.classes.get(CLASS)?.sent_by_end_ratio
}

fn sent<const CLASS: usize>(manifest: &netsim::Manifest) -> Option<f64> {
    manifest.classes.get(CLASS)?.sent_ratio
}
