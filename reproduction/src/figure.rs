//! A figure measured anew: its table, its files, and how it compares.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use flow_report::{Plot, Table};
use serde::Serialize;
use serde_json::Value;

/// One claim of the paper held against what was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What is compared.
    pub what: String,
    /// What the paper says or its figure shows.
    pub paper: String,
    /// What counts as reproduced.
    pub band: String,
    /// What was measured.
    pub ours: String,
    /// Whether that lies in the band.
    pub holds: bool,
    /// By how much it does not.
    pub miss: Option<String>,
}

impl Check {
    /// A check that holds unless `miss` says by how much it does not.
    pub fn new(what: &str, paper: &str, band: &str, ours: String, miss: Option<String>) -> Self {
        Self {
            what: what.to_owned(),
            paper: paper.to_owned(),
            band: band.to_owned(),
            ours,
            holds: miss.is_none(),
            miss,
        }
    }

    /// `holds`, or `misses` and by how much.
    pub fn verdict(&self) -> String {
        match &self.miss {
            None => "holds".to_owned(),
            Some(miss) => format!("misses: {miss}"),
        }
    }
}

/// What one id of the reproduction yields.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// As in `C1`.
    pub id: &'static str,
    /// What the paper shows there.
    pub title: &'static str,
    /// Whether all checks hold.
    pub holds: bool,
    /// What was compared.
    pub checks: Vec<Check>,
    /// What was measured, a row each.
    pub rows: Vec<Value>,
    /// The fields of a row, in the order of the CSV file.
    #[serde(skip)]
    pub columns: Vec<&'static str>,
    /// Tables for the terminal.
    #[serde(skip)]
    pub tables: Vec<Table>,
    /// The plot for `<id>.svg`.
    #[serde(skip)]
    pub plot: Plot,
}

impl Figure {
    /// For the terminal.
    pub fn to_text(&self) -> String {
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
        let mut text = format!("{}: {}\n", self.id, self.title);
        for table in self.tables.iter().chain([&checks]) {
            text += &table.to_text();
            text.push('\n');
        }
        text
    }

    /// Writes what was measured to `<id>.csv` and `<id>.svg`, and how it compares
    /// with the paper to `<id>-checks.csv`.
    ///
    /// # Errors
    ///
    /// If a file cannot be written.
    pub fn write(&self, directory: &Path) -> Result<()> {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot create the directory {}", directory.display()))?;
        let id = self.id.to_lowercase();
        for (name, content) in [
            (format!("{id}.csv"), self.rows_csv()?),
            (format!("{id}-checks.csv"), self.checks_csv()?),
            (format!("{id}.svg"), self.plot.to_svg().into_bytes()),
        ] {
            let file = directory.join(name);
            fs::write(&file, content)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(())
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
    fn files_and_text_tell_the_same() {
        let miss = Some("0.1 too much".to_owned());
        let figure = Figure {
            id: "C9",
            title: "a figure",
            holds: false,
            checks: vec![Check::new("ratio", "1.0", "< 1.5", "1.6".to_owned(), miss)],
            rows: vec![serde_json::json!({"a": 2.5, "b": 1})],
            columns: vec!["b", "a"],
            tables: vec![Table::new(["x"])],
            plot: Plot::new("t", Axis::linear("x"), Axis::linear("y")),
        };
        assert!(figure.to_text().contains("misses: 0.1 too much"));
        let directory = tempfile::tempdir().unwrap();
        figure.write(directory.path()).unwrap();
        let csv = fs::read_to_string(directory.path().join("c9.csv")).unwrap();
        assert_eq!(csv, "b,a\n1,2.5\n");
        let checks = fs::read_to_string(directory.path().join("c9-checks.csv")).unwrap();
        assert!(checks.ends_with("ratio,1.0,< 1.5,1.6,misses: 0.1 too much\n"));
        assert!(directory.path().join("c9.svg").exists());
    }
}
