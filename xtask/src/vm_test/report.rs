//! What came of each thing that was tried, as a table and as JSON.

use serde::{Deserialize, Serialize};

/// One thing that was tried, as the machine reports it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The program, or what the agent was made to do.
    pub(super) name: String,
    /// The object that a program comes from.
    pub(super) object: Option<String>,
    /// Every way in which it was attached.
    pub(super) attached: Vec<String>,
    /// How many instructions the verifier looked at.
    pub(super) verified_instructions: Option<u32>,
    passed: bool,
    problem: Option<String>,
}

impl Row {
    pub(super) fn failed(name: &str, problem: String) -> Self {
        Self {
            name: name.to_owned(),
            object: None,
            attached: Vec::new(),
            verified_instructions: None,
            passed: false,
            problem: Some(problem),
        }
    }
}

/// One thing that was tried on a kernel.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    #[serde(skip)]
    pub(super) series: &'static str,
    /// What `uname -r` says there.
    kernel: String,
    #[serde(flatten)]
    pub(super) row: Row,
    /// How many instructions the verifier looked at when somebody accepted it last.
    recorded_instructions: Option<u32>,
    /// What is wrong with that number.
    grown: Option<String>,
}

impl Outcome {
    pub(super) fn new(series: &'static str, kernel: &str, row: Row) -> Self {
        Self {
            series,
            kernel: kernel.to_owned(),
            row,
            recorded_instructions: None,
            grown: None,
        }
    }

    pub(super) fn judge(&mut self, recorded: Option<u32>, grown: Option<String>) {
        self.recorded_instructions = recorded;
        self.grown = grown;
    }

    pub(crate) fn passed(&self) -> bool {
        self.row.passed && self.grown.is_none()
    }

    /// What a summary calls it.
    pub(crate) fn name(&self) -> String {
        match &self.row.object {
            Some(object) => format!("Linux {}: {} of {object}", self.kernel, self.row.name),
            None => format!("Linux {}: {}", self.kernel, self.row.name),
        }
    }

    fn problems(&self) -> impl Iterator<Item = &str> {
        let problems = [self.row.problem.as_deref(), self.grown.as_deref()];
        problems.into_iter().flatten()
    }
}

/// A line for each, and what went wrong below.
pub(crate) fn table(outcomes: &[Outcome]) -> String {
    let header = [
        "kernel", "tried", "object", "attached", "verifier", "recorded", "result",
    ];
    let mut lines = vec![header.map(str::to_owned)];
    lines.extend(outcomes.iter().map(line));
    let widths = (0..header.len()).map(|column| {
        let cells = lines.iter().map(|line| line[column].chars().count());
        cells.max().unwrap_or(0)
    });
    let widths: Vec<_> = widths.collect();
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths);
        let cells: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    for outcome in outcomes {
        for problem in outcome.problems() {
            text.push_str(&format!("\n{}: {problem}\n", outcome.name()));
        }
    }
    text
}

fn line(outcome: &Outcome) -> [String; 7] {
    let Row {
        name,
        object,
        attached,
        verified_instructions,
        ..
    } = &outcome.row;
    let number = |number: Option<u32>| number.map_or_else(String::new, |it| it.to_string());
    [
        outcome.kernel.clone(),
        name.clone(),
        object.clone().unwrap_or_default(),
        attached.join(", "),
        number(*verified_instructions),
        number(outcome.recorded_instructions),
        if outcome.passed() { "pass" } else { "FAIL" }.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_aligned_and_says_what_is_wrong() {
        let row = Row {
            name: "split".to_owned(),
            object: Some("splitter.o".to_owned()),
            attached: vec!["native".to_owned(), "generic".to_owned()],
            verified_instructions: Some(1_200),
            passed: true,
            problem: None,
        };
        let mut grown = Outcome::new("6.1", "6.1.0-56-cloud-amd64", row);
        grown.judge(Some(1_000), Some("too much".to_owned()));
        let lost = Outcome::new(
            "6.12",
            "6.12.1",
            Row::failed("the machine", "it hung".to_owned()),
        );
        let table = table(&[grown, lost]);
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines[1].find("split"), lines[0].find("tried"));
        assert!(lines[1].ends_with("1200      1000      FAIL"), "{table}");
        assert!(table.contains("\nLinux 6.12.1: the machine: it hung\n"));
        assert!(table.contains("split of splitter.o: too much"));
    }
}
