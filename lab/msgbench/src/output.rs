//! Tables, plots and the page.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use flow_report::{Axis, Page, Plot, Series, Summary, Table};

use crate::{
    campaign::Round,
    scenario::Scenario,
    summary::{Key, Row, completions, keys, of},
};

/// Points of a cumulative distribution.
const CURVE_POINTS: usize = 200;
/// File that holds all plots on one page.
const PAGE: &str = "index.html";

/// A group of rows for one plot: everything measured under the same conditions.
#[derive(Clone, Debug)]
struct Group<'a> {
    scenario: Scenario,
    rtt_ms: f64,
    rows: Vec<&'a Row>,
}

/// A title and a table for each scenario and round-trip time.
pub fn tables(rows: &[Row]) -> Vec<(String, Table)> {
    let tables = groups(rows).into_iter();
    tables.map(|it| (it.title(), it.table())).collect()
}

/// Writes all plots as SVG files, and a page with plots and tables, into `directory`. Returns the
/// page's path.
///
/// # Errors
/// When a file cannot be written.
pub fn write(directory: &Path, rows: &[Row], rounds: &[Round], about: &str) -> io::Result<PathBuf> {
    fs::create_dir_all(directory)?;
    let mut page = Page::new("Small messages over several paths").text(about).note(
        "Times run from when a request was due to the last byte of its answer. A message that had \
         not arrived after 5 s counts as one that took 5 s, and as a failure. CPU time is the \
         server's, over messages of all sizes.",
    );
    for group in groups(rows) {
        let tail = group.tail_plot();
        fs::write(directory.join(group.file("p99")), tail.to_svg())?;
        page = page.heading(&group.title()).plot(&tail);
        for size in group.sizes() {
            let curves = group.distribution_plot(rounds, size);
            let file = group.file(&format!("cdf-{}kB", kilobytes(size)));
            fs::write(directory.join(file), curves.to_svg())?;
            page = page.plot(&curves);
        }
        page = page.table(&group.table());
    }
    let path = directory.join(PAGE);
    fs::write(&path, page.to_html())?;
    Ok(path)
}

fn groups(rows: &[Row]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for row in rows {
        let known = groups
            .iter_mut()
            .find(|it| (it.scenario, it.rtt_ms) == (row.scenario, row.rtt_ms));
        match known {
            Some(group) => group.rows.push(row),
            None => groups.push(Group {
                scenario: row.scenario,
                rtt_ms: row.rtt_ms,
                rows: vec![row],
            }),
        }
    }
    groups
}

impl Group<'_> {
    fn title(&self) -> String {
        let (name, about) = (self.scenario.name(), self.scenario.about());
        format!("{name}: {about}, RTT {} ms", self.rtt_ms)
    }

    fn file(&self, what: &str) -> String {
        format!("{}-{}ms-{what}.svg", self.scenario.name(), self.rtt_ms)
    }

    /// Returns the schemes in the order in which they come up.
    fn schemes(&self) -> Vec<&'static str> {
        let mut schemes: Vec<_> = self.rows.iter().map(|row| row.scheme).collect();
        schemes.dedup();
        schemes
    }

    fn sizes(&self) -> Vec<u32> {
        let mut sizes: Vec<_> = self.rows.iter().map(|row| row.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    fn table(&self) -> Table {
        let mut table = Table::new([
            "scheme",
            "kB",
            "messages",
            "failed",
            "mean ms",
            "p50 ms",
            "p99 ms",
            "max ms",
            "sent/n",
            "needed/n",
            "CPU us",
            "wire/byte",
            "bulk Mbit/s",
        ]);
        for row in &self.rows {
            table.row([
                row.scheme.to_owned(),
                kilobytes(row.size),
                row.messages.to_string(),
                row.failures.to_string(),
                ms(row.mean_us),
                ms(row.p50_us),
                ms(row.p99_us),
                ms(row.max_us),
                optional(row.sent_per_n, 2),
                optional(row.needed_per_n, 2),
                number(row.cpu_us_per_message, 0),
                optional(row.wire_bytes_per_byte, 2),
                optional(row.bulk_mbit_per_s, 0),
            ]);
        }
        table
    }

    fn tail_plot(&self) -> Plot {
        let mut plot = Plot::new(
            format!("99th percentile ({})", self.title()),
            Axis::log("message, kB"),
            Axis::log("completion time, ms"),
        );
        for scheme in self.schemes() {
            let rows = self.rows.iter().filter(|row| row.scheme == scheme);
            let points = rows.map(|row| (f64::from(row.size) / 1e3, row.p99_us / 1e3));
            plot = plot.with(Series::line(scheme, points.collect()));
        }
        plot
    }

    /// Plots the empirical distribution (CDF) of completion times, all seeds together.
    fn distribution_plot(&self, rounds: &[Round], size: u32) -> Plot {
        let mut plot = Plot::new(
            format!("{} kB ({})", kilobytes(size), self.title()),
            Axis::log("completion time, ms"),
            Axis::linear("share of messages").range(0.0, 1.0),
        );
        for key in keys(rounds).into_iter().filter(|key| self.holds(key)) {
            let times = of(rounds, key).flat_map(|round| completions(round, size));
            let summary = Summary::new(times.map(|us| us / 1e3));
            plot = plot.with(Series::steps(key.scheme, summary.cumulative(CURVE_POINTS)));
        }
        plot
    }

    fn holds(&self, key: &Key) -> bool {
        key.scenario == self.scenario && key.rtt.as_secs_f64() * 1e3 == self.rtt_ms
    }
}

fn kilobytes(bytes: u32) -> String {
    format!("{}", f64::from(bytes) / 1e3)
}

fn ms(us: f64) -> String {
    number(us / 1e3, 2)
}

fn optional(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(String::new, |value| number(value, digits))
}

/// Nothing for what is not a number: there were no messages.
fn number(value: f64, digits: usize) -> String {
    if value.is_nan() {
        String::new()
    } else {
        format!("{value:.digits$}")
    }
}
