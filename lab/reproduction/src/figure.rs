//! A reproduced figure: its table, its files, and how it compares.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use flow_report::{Claim, Claims, Plot, Table};
use serde::Serialize;
use serde_json::Value;

use crate::check::{self, Check};

/// How an item came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// All of the checks hold.
    Reproduced,
    /// Some checks are shown to lie beyond their bands.
    Outside,
    /// Some checks are contradicted by the measurement.
    Refuted,
    /// None is outside, and of some too little was measured.
    #[serde(rename = "not decided")]
    NotDecided,
    /// None is outside, and some hold at some loads and are contradicted at others; the paper does not say which
    /// it has.
    #[serde(rename = "depends on load")]
    DependsOnLoad,
    /// There is nothing to measure; the item's note says why.
    Note,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Reproduced => "reproduced",
            Self::Outside => "outside",
            Self::Refuted => "refuted",
            Self::NotDecided => "not decided",
            Self::DependsOnLoad => "depends on load",
            Self::Note => "note",
        })
    }
}

/// The result of one id of the reproduction.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Id of the figure, as in `C1`.
    pub id: &'static str,
    /// Subject of the paper's figure.
    pub title: &'static str,
    /// Notes: why a check misses, what a second mode does.
    pub note: String,
    /// Checks against the paper.
    pub checks: Vec<Check>,
    /// Rows of what was measured.
    pub rows: Vec<Value>,
    /// The fields of a row, in the order of the CSV file.
    #[serde(skip)]
    pub columns: Vec<&'static str>,
    /// Tables for the terminal.
    #[serde(skip)]
    pub tables: Vec<Table>,
    /// The plots for `<id>.svg`, `<id>-2.svg` and so on.
    #[serde(skip)]
    pub plots: Vec<Plot>,
}

/// A figure in a line, for scripts: the same fields whatever was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Item<'a> {
    /// Id of the figure, as in `C1`.
    pub id: &'a str,
    /// Statement of the paper.
    pub paper: String,
    /// Value that was measured here.
    pub ours: String,
    /// Band that counts as reproduced.
    pub band: String,
    /// How it came out.
    pub verdict: Verdict,
    /// By how much checks miss, and what else there is to know.
    pub note: String,
    /// All of the checks hold.
    pub holds: bool,
    #[serde(flatten)]
    #[expect(missing_docs, reason = "the figure itself")]
    pub figure: Value,
}

impl Figure {
    /// Returns whether there are checks, and all hold.
    pub fn holds(&self) -> bool {
        !self.checks.is_empty() && self.checks.iter().all(|it| it.holds)
    }

    /// Returns the figure with its checks [judged together](check::correct).
    pub fn corrected(mut self) -> Self {
        check::correct(&mut self.checks);
        self
    }

    /// How it came out: as the worst of its checks.
    pub fn verdict(&self) -> Verdict {
        let some = |is: fn(&Check) -> bool| self.checks.iter().any(is);
        if self.checks.is_empty() {
            Verdict::Note
        } else if self.holds() {
            Verdict::Reproduced
        } else if some(|it| it.refuted) {
            Verdict::Refuted
        } else if some(|it| !it.holds && !it.undecided && !it.by_load) {
            Verdict::Outside
        } else if some(|it| it.by_load) {
            Verdict::DependsOnLoad
        } else {
            Verdict::NotDecided
        }
    }

    /// The figure in a line.
    ///
    /// # Errors
    ///
    /// If a row cannot be encoded.
    pub fn item(&self) -> Result<Item<'_>> {
        let each = |of: fn(&Check) -> &str| {
            let parts = self
                .checks
                .iter()
                .map(|it| format!("{}: {}", it.what, of(it)));
            parts.collect::<Vec<_>>().join("; ")
        };
        let mut figure = serde_json::to_value(self).context("cannot encode a figure")?;
        if let Some(fields) = figure.as_object_mut() {
            // They are fields of the item already.
            fields.remove("id");
            fields.remove("note");
        }
        Ok(Item {
            id: self.id,
            paper: each(|it| &it.paper),
            ours: each(|it| &it.ours),
            band: each(|it| &it.band),
            verdict: self.verdict(),
            note: self.note(),
            holds: self.holds(),
            figure,
        })
    }

    /// By how much checks miss, and what else there is to know.
    pub fn note(&self) -> String {
        let missed = self.checks.iter().filter_map(|it| {
            let miss = it.miss.as_ref()?;
            Some(format!("{}: {miss}.", it.what))
        });
        let note = Some(self.note.clone()).filter(|it| !it.is_empty());
        missed.chain(note).collect::<Vec<_>>().join(" ")
    }

    /// Builds a table of the checks.
    pub fn checks_table(&self) -> Table {
        let mut checks = Table::new(["check", "paper", "band", "ours", "verdict"]);
        for check in &self.checks {
            checks.row([
                &check.what,
                &check.paper,
                &check.band,
                &check.ours,
                &check.verdict(),
            ]);
        }
        checks
    }

    /// Draws the checks that compare numbers: the paper's beside ours.
    pub fn claims(&self) -> Option<Claims> {
        let claim = |it: &Check| {
            let numbers = it.numbers?;
            Some(Claim {
                name: it.what.clone(),
                band: numbers.band,
                stated: numbers.paper,
                measured: numbers.ours,
                text: match numbers.ours {
                    // Of several values there is one in the picture.
                    Some(ours) if it.ours.contains(',') => ours.to_text(3),
                    _ => it.ours.clone(),
                },
            })
        };
        let rows: Vec<Claim> = self.checks.iter().filter_map(claim).collect();
        let title = format!("{}: {}", self.id, self.title);
        (!rows.is_empty()).then(|| Claims::new(title, rows))
    }

    /// Writes the figure for the terminal.
    pub fn to_text(&self) -> String {
        let checks = self.checks_table();
        let mut text = format!("{}: {} ({})\n", self.id, self.title, self.verdict());
        for table in self.tables.iter().chain([&checks]) {
            text += &table.to_text();
            text.push('\n');
        }
        if !self.note.is_empty() {
            text += &self.note;
            text.push('\n');
        }
        text
    }

    /// Writes what was measured to `<id>.csv` and `<id>.svg`, its tables to `<id>-table.csv`, and how it
    /// compares with the paper to `<id>-checks.csv` and `<id>-paper.svg`.
    ///
    /// # Errors
    ///
    /// If a file cannot be written.
    pub fn write(&self, directory: &Path) -> Result<()> {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot create the directory {}", directory.display()))?;
        for (name, content) in self.files()? {
            let file = directory.join(name);
            fs::write(&file, content)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(())
    }

    /// Names and contents of its files, that of its rows first.
    ///
    /// # Errors
    ///
    /// If a row cannot be encoded.
    pub fn files(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let id = self.id.to_lowercase();
        let mut files = vec![
            (format!("{id}.csv"), self.rows_csv()?),
            (format!("{id}-checks.csv"), self.checks_csv()?),
        ];
        for (number, table) in (1..).zip(&self.tables) {
            let name = match number {
                1 => format!("{id}-table.csv"),
                _ => format!("{id}-table-{number}.csv"),
            };
            let mut csv = csv::Writer::from_writer(Vec::new());
            for record in table.records() {
                csv.write_record(record)?;
            }
            files.push((name, csv.into_inner()?));
        }
        if let Some(claims) = self.claims() {
            files.push((format!("{id}-paper.svg"), claims.to_svg().into_bytes()));
        }
        for (number, plot) in (1..).zip(&self.plots) {
            let name = match number {
                1 => format!("{id}.svg"),
                _ => format!("{id}-{number}.svg"),
            };
            files.push((name, plot.to_svg().into_bytes()));
        }
        Ok(files)
    }

    /// The rows, whose fields are plain numbers and names.
    fn rows_csv(&self) -> Result<Vec<u8>> {
        let mut csv = csv::Writer::from_writer(Vec::new());
        csv.write_record(&self.columns)?;
        for row in &self.rows {
            let cell = |column: &&str| match &row[*column] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            csv.write_record(self.columns.iter().map(cell))?;
        }
        Ok(csv.into_inner()?)
    }

    fn checks_csv(&self) -> Result<Vec<u8>> {
        let mut csv = csv::Writer::from_writer(Vec::new());
        csv.write_record(["check", "paper", "band", "ours", "verdict"])?;
        for check in &self.checks {
            let verdict = check.verdict();
            csv.write_record([
                &check.what,
                &check.paper,
                &check.band,
                &check.ours,
                &verdict,
            ])?;
        }
        Ok(csv.into_inner()?)
    }
}

#[cfg(test)]
mod tests {
    use flow_report::Axis;

    use super::*;

    #[test]
    fn verdict_is_that_of_the_worst_check() {
        let holds = Check::new("a", "", "", String::new(), None);
        let open = Check::undecided("b", "", "", "too little");
        let misses = Check::new("c", "", "", String::new(), Some("1 too much".to_owned()));
        let refuted = Check {
            refuted: true,
            ..misses.clone()
        };
        let verdict = |checks: &[&Check]| {
            let figure = Figure {
                id: "C9",
                title: "a figure",
                note: String::new(),
                checks: checks.iter().map(|it| (*it).clone()).collect(),
                rows: Vec::new(),
                columns: Vec::new(),
                tables: Vec::new(),
                plots: Vec::new(),
            };
            (figure.verdict(), figure.holds())
        };
        assert_eq!(verdict(&[]), (Verdict::Note, false));
        assert_eq!(verdict(&[&holds]), (Verdict::Reproduced, true));
        assert_eq!(verdict(&[&holds, &open]), (Verdict::NotDecided, false));
        assert_eq!(verdict(&[&open, &misses]), (Verdict::Outside, false));
        let worst = verdict(&[&open, &misses, &refuted]);
        assert_eq!(worst, (Verdict::Refuted, false));
        let by_load = Check {
            by_load: true,
            ..misses.clone()
        };
        let depends = (Verdict::DependsOnLoad, false);
        assert_eq!(verdict(&[&open, &by_load, &holds]), depends);
        assert_eq!(verdict(&[&by_load, &misses]), (Verdict::Outside, false));
        assert_eq!(by_load.verdict(), "depends on load: 1 too much");
        assert_eq!(open.verdict(), "not decided: too little");
        let json = serde_json::to_value(Verdict::NotDecided).unwrap();
        assert_eq!(json, "not decided");
    }

    #[test]
    fn files_and_text_say_the_same() {
        let miss = Some("0.1 too much".to_owned());
        let figure = Figure {
            id: "C9",
            title: "a figure",
            note: "a note".to_owned(),
            checks: vec![
                Check::new("ratio", "1.0", "< 1.5", "1.6".to_owned(), miss).with_numbers(
                    (0.0, 1.5),
                    Some(1.0),
                    1.6,
                ),
            ],
            rows: vec![serde_json::json!({"a": 2.5, "b": 1})],
            columns: vec!["b", "a"],
            tables: vec![Table::new(["x", "y, z"])],
            plots: vec![Plot::new("t", Axis::linear("x"), Axis::linear("y")); 2],
        };
        assert_eq!(figure.verdict(), Verdict::Outside);
        let item = figure.item().unwrap();
        assert_eq!(item.note, "ratio: 0.1 too much. a note");
        assert_eq!(
            (item.paper.as_str(), item.ours.as_str()),
            ("ratio: 1.0", "ratio: 1.6")
        );
        assert!(figure.to_text().contains("outside: 0.1 too much"));
        let directory = tempfile::tempdir().unwrap();
        figure.write(directory.path()).unwrap();
        let csv = fs::read_to_string(directory.path().join("c9.csv")).unwrap();
        assert_eq!(csv, "b,a\n1,2.5\n");
        let checks = fs::read_to_string(directory.path().join("c9-checks.csv")).unwrap();
        assert!(checks.ends_with("ratio,1.0,< 1.5,1.6,outside: 0.1 too much\n"));
        let table = fs::read_to_string(directory.path().join("c9-table.csv")).unwrap();
        assert_eq!(table, "x,\"y, z\"\n");
        let claims = fs::read_to_string(directory.path().join("c9-paper.svg")).unwrap();
        assert!(
            claims.contains("C9: a figure") && claims.contains(">1.6<"),
            "{claims}"
        );
        assert!(directory.path().join("c9.svg").exists());
        assert!(directory.path().join("c9-2.svg").exists());
    }
}
