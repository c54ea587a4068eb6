//! Tables, plots and the page.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use flow_report::{Axis, Median, Page, Plot, Series, Summary, Table};

use crate::summary::{Row, by_seed, median};

/// Points of a cumulative distribution.
const CURVE_POINTS: usize = 200;
/// File that holds all plots on one page.
const PAGE: &str = "index.html";

/// A group of rows for one plot: everything measured under the same conditions. There is one at least.
#[derive(Clone, Debug)]
struct Group<'a> {
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
pub fn write(directory: &Path, rows: &[Row], about: &str) -> io::Result<PathBuf> {
    fs::create_dir_all(directory)?;
    let mut page = Page::new("Small messages over several paths").text(about).note(
        "Times run from when a request was due to the last byte of its answer. A message that had \
         not arrived after 5 s counts as one that took 5 s, and as a failure. CPU time is the \
         server's, and bytes are those on the paths in both directions, over messages of all sizes. Figures \
         are medians over the seeds, with the least and the greatest; max is the greatest, counts are sums.",
    );
    for group in groups(rows) {
        let tail = group.tail_plot();
        fs::write(directory.join(group.file("p99")), tail.to_svg())?;
        page = page.heading(&group.title()).plot(&tail);
        for size in group.sizes() {
            let curves = group.distribution_plot(size);
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
        let mut known = groups.iter_mut();
        match known.find(|it| it.rows[0].is_of_the_cell_of(row)) {
            Some(group) => group.rows.push(row),
            None => groups.push(Group { rows: vec![row] }),
        }
    }
    groups
}

impl Group<'_> {
    fn title(&self) -> String {
        let row = self.rows[0];
        let (name, about) = (row.scenario.name(), row.scenario.about());
        let load = row.load_percent;
        let load = load.map_or_else(String::new, |it| format!(", transfers at {it} %"));
        format!("{name}: {about}{load}, RTT {} ms", row.rtt_ms)
    }

    fn file(&self, what: &str) -> String {
        let row = self.rows[0];
        let load = row.load_percent;
        let load = load.map_or_else(String::new, |it| format!("-load{it}"));
        format!("{}-{}ms{load}-{what}.svg", row.scenario.name(), row.rtt_ms)
    }

    /// Returns the schemes in the order in which they come up.
    fn schemes(&self) -> Vec<&str> {
        let mut schemes: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !schemes.contains(&row.scheme.as_str()) {
                schemes.push(&row.scheme);
            }
        }
        schemes
    }

    /// Returns the rows of a scheme and a size, one for each seed.
    fn of(&self, scheme: &str, size: u32) -> impl Iterator<Item = &Row> {
        let rows = self.rows.iter().copied();
        rows.filter(move |row| row.scheme == scheme && row.size == Some(size))
    }

    fn sizes(&self) -> Vec<u32> {
        let mut sizes: Vec<_> = self.rows.iter().filter_map(|row| row.size).collect();
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
            "bytes/message",
            "bulk Mbit/s",
        ]);
        for rows in by_seed(self.rows.iter().copied()) {
            table.row(line(&rows));
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
            let points = self.sizes().into_iter().filter_map(|size| {
                let p99 = Median::of(self.of(scheme, size).map(|it| it.p99_us / 1e3))?;
                Some((f64::from(size) / 1e3, p99.median))
            });
            plot = plot.with(Series::line(scheme, points.collect()));
        }
        plot
    }

    /// Plots the empirical distribution (CDF) of completion times, all seeds together.
    fn distribution_plot(&self, size: u32) -> Plot {
        let mut plot = Plot::new(
            format!("{} kB ({})", kilobytes(size), self.title()),
            Axis::log("completion time, ms"),
            Axis::linear("share of messages").range(0.0, 1.0),
        );
        for scheme in self.schemes() {
            let times = self.of(scheme, size).flat_map(|it| &it.completions_us);
            let summary = Summary::new(times.map(|us| us / 1e3));
            plot = plot.with(Series::steps(scheme, summary.cumulative(CURVE_POINTS)));
        }
        plot
    }
}

/// The line of rows that differ by their seed alone.
fn line(rows: &[&Row]) -> [String; 14] {
    let sum = |count: &dyn Fn(&Row) -> usize| rows.iter().map(|it| count(it)).sum::<usize>();
    let text = |digits, figure: &dyn Fn(&Row) -> Option<f64>| {
        median(rows, figure).map_or_else(String::new, |it| it.to_text(digits))
    };
    let ms = |figure: &dyn Fn(&Row) -> f64| text(2, &|it| Some(figure(it) / 1e3));
    let longest = rows.iter().map(|it| it.max_us).fold(f64::NAN, f64::max);
    [
        rows[0].scheme.clone(),
        rows[0]
            .size
            .map_or("short TCP beside".to_owned(), kilobytes),
        sum(&|it| it.messages).to_string(),
        sum(&|it| it.failures).to_string(),
        ms(&|it| it.mean_us),
        ms(&|it| it.p50_us),
        ms(&|it| it.p99_us),
        number(longest / 1e3, 2),
        text(2, &|it| it.sent_per_n),
        text(2, &|it| it.needed_per_n),
        text(0, &|it| Some(it.cpu_us_per_message)),
        text(2, &|it| it.wire_bytes_per_byte),
        text(0, &|it| it.bytes_per_message),
        text(0, &|it| it.bulk_mbit),
    ]
}

fn kilobytes(bytes: u32) -> String {
    format!("{}", f64::from(bytes) / 1e3)
}

/// Nothing for what is not a number: there were no messages.
fn number(value: f64, digits: usize) -> String {
    if value.is_nan() {
        String::new()
    } else {
        format!("{value:.digits$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::{rows, tests::round};

    #[test]
    fn table_has_a_line_for_all_seeds_of_a_scheme() {
        let of = |seed, ms| rows(&round(seed, &[Some(ms), None], None), &[5_000]);
        let rows = [of(1, 2), of(2, 4)].concat();
        let [(title, table)] = &tables(&rows)[..] else {
            panic!("one scenario");
        };
        assert!(title.contains("loss1"), "{title}");
        let text = table.to_text();
        let line = text.lines().find(|it| it.contains("tried")).unwrap_or("");
        // Two messages a seed, one of which failed; half of each seed's are within its first time.
        let words: Vec<_> = line.split(['│', '┆']).map(str::trim).collect();
        assert_eq!(words[1..5], ["tried", "5", "4", "2"], "{text}");
        assert!(line.contains("3.00 [2.00, 4.00]"), "{text}");
    }
}
