//! Results of a sweep: a row a scheme, load and class of sizes, as a table and as a page.

use flow_report::{Axis, Estimate, Page, Plot, Series, Table};
use serde::{Deserialize, Serialize};

use crate::{
    scenario::Overrides,
    summary::{ClassSummary, Manifest},
};

/// One scheme at one load in one class of sizes, over all seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepRow {
    /// The scheme; nothing is the file as it is.
    pub scheme: Option<String>,
    /// The load; nothing is that of the file.
    pub load: Option<f64>,
    /// The class of sizes.
    pub class: String,
    /// Number of seeds in the mean.
    pub seeds: usize,
    /// Flows, over all seeds.
    pub flows: usize,
    /// Flows that did not complete, over all seeds.
    pub unfinished: usize,
    /// Mean completion time in microseconds.
    pub mean_us: Option<Estimate>,
    /// 99th percentile of completion times in microseconds.
    pub p99_us: Option<Estimate>,
    /// Mean goodput of a flow in Mbit/s.
    pub goodput_mbps: Option<Estimate>,
    /// Segments sent again, in percent.
    pub retransmitted_percent: Option<Estimate>,
    /// Segments out of order, in percent.
    pub out_of_order_percent: Option<Estimate>,
    /// Time in queues, in microseconds a segment.
    pub queued_us: Option<Estimate>,
    /// Segments sent, of those that messages have.
    pub sent_ratio: Option<Estimate>,
    /// Segments that had arrived when messages were complete, of those they have.
    pub needed_ratio: Option<Estimate>,
    /// Segments that had been sent when messages were complete, of those they have.
    pub sent_by_end_ratio: Option<Estimate>,
    /// Mean utilisation of links between leaves and spines.
    pub utilisation: Option<Estimate>,
    /// Its standard deviation over links.
    pub utilisation_deviation: Option<Estimate>,
}

/// Means over seeds, with confidence intervals.
pub fn rows(runs: &[(Overrides, Manifest)]) -> Vec<SweepRow> {
    let mut rows: Vec<SweepRow> = Vec::new();
    for (overrides, manifest) in runs {
        for class in &manifest.classes {
            let known = rows.iter().any(|row| {
                (&row.scheme, row.load, &row.class)
                    == (&overrides.scheme, overrides.load, &class.class)
            });
            if !known {
                rows.push(row(runs, overrides, &class.class));
            }
        }
    }
    rows
}

fn row(runs: &[(Overrides, Manifest)], key: &Overrides, class: &str) -> SweepRow {
    let mine: Vec<(&Manifest, &ClassSummary)> = runs
        .iter()
        .filter(|(it, _)| (&it.scheme, it.load) == (&key.scheme, key.load))
        .filter_map(|(_, manifest)| {
            let class = manifest.classes.iter().find(|it| it.class == class)?;
            Some((manifest, class))
        })
        .collect();
    let over = |of: fn(&ClassSummary) -> Option<f64>| {
        Estimate::of(mine.iter().filter_map(|(_, class)| of(class)))
    };
    let paths = |of: fn(&Manifest) -> f64| Estimate::of(mine.iter().map(|(it, _)| of(it)));
    SweepRow {
        scheme: key.scheme.clone(),
        load: key.load,
        class: class.to_owned(),
        seeds: mine.len(),
        flows: mine.iter().map(|(_, it)| it.flows).sum(),
        unfinished: mine.iter().map(|(_, it)| it.unfinished).sum(),
        mean_us: over(|it| it.mean_us),
        p99_us: over(|it| it.p99_us),
        goodput_mbps: over(|it| it.goodput_mbps),
        retransmitted_percent: over(|it| it.retransmitted_percent),
        out_of_order_percent: over(|it| it.out_of_order_percent),
        queued_us: over(|it| it.queued_us),
        sent_ratio: over(|it| it.sent_ratio),
        needed_ratio: over(|it| it.needed_ratio),
        sent_by_end_ratio: over(|it| it.sent_by_end_ratio),
        utilisation: paths(|it| it.paths.mean_utilisation),
        utilisation_deviation: paths(|it| it.paths.deviation),
    }
}

/// Builds a table for people.
pub fn table(rows: &[SweepRow]) -> Table {
    let mut table = Table::new([
        "scheme",
        "load",
        "class",
        "seeds",
        "unfinished",
        "mean us",
        "p99 us",
        "goodput Mbit/s",
        "retx %",
        "out of order %",
        "queued us",
        "utilisation",
        "its deviation",
    ]);
    let text = |it: &Option<Estimate>, digits| it.map_or_else(String::new, |it| it.to_text(digits));
    for row in rows {
        table.row([
            row.scheme.clone().unwrap_or_else(|| "as is".to_owned()),
            row.load.map_or_else(String::new, |it| it.to_string()),
            row.class.clone(),
            row.seeds.to_string(),
            row.unfinished.to_string(),
            text(&row.mean_us, 1),
            text(&row.p99_us, 1),
            text(&row.goodput_mbps, 0),
            text(&row.retransmitted_percent, 3),
            text(&row.out_of_order_percent, 3),
            text(&row.queued_us, 2),
            text(&row.utilisation, 3),
            text(&row.utilisation_deviation, 3),
        ]);
    }
    table
}

/// A page with the table, and a plot over loads for each class if there are several.
pub fn page(name: &str, about: &str, rows: &[SweepRow]) -> Page {
    let mut page = Page::new(format!("Simulated: {name}"))
        .text(about)
        .note("Means over seeds, with 95 % confidence intervals (Student's t).");
    let mut classes: Vec<&str> = Vec::new();
    for row in rows {
        if !classes.contains(&row.class.as_str()) {
            classes.push(&row.class);
        }
    }
    type Metric = fn(&SweepRow) -> Option<Estimate>;
    let metrics: [(&str, Metric); 2] = [
        ("mean completion time", |it| it.mean_us),
        ("99th percentile of completion times", |it| it.p99_us),
    ];
    let several = rows.iter().any(|row| row.load != rows[0].load);
    for class in classes.into_iter().filter(|_| several) {
        for (title, metric) in metrics {
            page = page.plot(&over_loads(rows, class, title, metric));
        }
    }
    page.table(&table(rows))
}

fn over_loads(
    rows: &[SweepRow],
    class: &str,
    title: &str,
    metric: impl Fn(&SweepRow) -> Option<Estimate>,
) -> Plot {
    let mut plot = Plot::new(
        format!("{class}: {title}"),
        Axis::linear("load"),
        Axis::log("us"),
    );
    let mut series: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for row in rows.iter().filter(|it| it.class == class) {
        let (Some(load), Some(value)) = (row.load, metric(row)) else {
            continue;
        };
        let name = row.scheme.clone().unwrap_or_else(|| "as is".to_owned());
        match series.iter_mut().find(|(known, _)| *known == name) {
            Some((_, points)) => points.push((load, value.mean)),
            None => series.push((name, vec![(load, value.mean)])),
        }
    }
    for (name, points) in series {
        plot = plot.with(Series::line(name, points));
    }
    plot
}
