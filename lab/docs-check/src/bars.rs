//! Bars of what was measured, from figures that are kept with the command that printed them.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::{Faults, pages::Page};

/// Pixels in the inch that Pikchr measures in.
const INCH: f64 = 144.0;
/// Width of the longest bar, height of a row and of a bar, in inches.
const LONGEST: f64 = 1.75;
const ROW: f64 = 0.19;
const BAR: f64 = 0.12;

/// Measured figures, as kept in a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bars {
    /// What the picture is of, for those who do not see it.
    pub title: String,
    /// The command that printed the figures.
    pub command: String,
    /// When, on which commit, and on what.
    pub measured: String,
    /// Pages that have the same figures in a table.
    pub pages: Vec<String>,
    /// Names of the rows.
    pub rows: Vec<String>,
    /// Panels below each other, each with a scale of its own that begins at nought.
    pub panels: Vec<Panel>,
}

/// Bars of one kind.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Panel {
    /// What is shown, with its unit.
    pub heading: String,
    /// Name of the colour, without the `$`.
    pub colour: String,
    /// Values in the rows' order, as the pages write them; an empty one has no bar.
    pub values: Vec<String>,
    /// Rows that are drawn in full colour: those of this project.
    pub own: Vec<usize>,
}

impl Bars {
    /// Reads figures from a file's text.
    ///
    /// # Errors
    /// When a key is missing or unknown, or a panel has not one number for each row.
    pub fn parse(text: &str) -> Result<Self> {
        let bars: Self = toml::from_str(text)?;
        for panel in &bars.panels {
            let numbers = panel.numbers()?;
            anyhow::ensure!(
                numbers.len() == bars.rows.len(),
                "{:?} has {} values for {} rows",
                panel.heading,
                numbers.len(),
                bars.rows.len()
            );
        }
        Ok(bars)
    }

    /// Describes the bars in Pikchr.
    ///
    /// # Errors
    /// When a value is no number.
    pub fn description(&self) -> Result<String> {
        let mut text = String::new();
        let mut y = 0.0;
        for panel in &self.panels {
            writeln!(text, "text {:?} bold ljust at (0, {y:.3})", panel.heading)?;
            y -= ROW * 1.25;
            let numbers = panel.numbers()?;
            let longest = numbers.iter().copied().flatten().fold(0.0, f64::max);
            for (number, (row, value)) in self.rows.iter().zip(&numbers).enumerate() {
                writeln!(text, "text {row:?} rjust at (0, {y:.3})")?;
                let Some(value) = value else {
                    writeln!(text, "text \"-\" ljust color $note at (0.06, {y:.3})")?;
                    y -= ROW;
                    continue;
                };
                let length = (value / longest * LONGEST).max(0.01);
                let (fill, weight) = match panel.own.contains(&number) {
                    true => (panel.colour.clone(), " bold"),
                    false => ("rule".to_owned(), ""),
                };
                let middle = 0.06 + length / 2.0;
                writeln!(
                    text,
                    "box width {length:.3} height {BAR} fill ${fill} color ${fill} at ({middle:.3}, {y:.3})"
                )?;
                let end = 0.06 + length + 0.04;
                let shown = &panel.values[number];
                writeln!(text, "text \"{shown}\" ljust{weight} at ({end:.3}, {y:.3})")?;
                y -= ROW;
            }
            y -= ROW * 0.5;
        }
        // Headings begin where the names do.
        let names = self.rows.iter().map(|row| row.chars().count()).max();
        let left = names.unwrap_or(0) as f64 * 0.55 * 16.0 / INCH;
        Ok(text.replace("ljust at (0, ", &format!("ljust at ({:.3}, ", -left)))
    }

    /// Finds figures that a page which should have them does not have in a table.
    pub fn faults(&self, name: &str, pages: &[Page]) -> Faults {
        let mut faults = Faults::new();
        for path in &self.pages {
            let Some(page) = pages
                .iter()
                .find(|it| it.path == std::path::Path::new(path))
            else {
                faults.push(format!("{name}: there is no page {path}"));
                continue;
            };
            let rows = page
                .text
                .lines()
                .filter(|line| line.trim_start().starts_with('|'));
            let rows: Vec<Vec<&str>> = rows.map(numbers_of).collect();
            for panel in &self.panels {
                let values: Vec<&str> = panel.values.iter().map(|it| &**it).collect();
                // In a row of a table in their order, or each somewhere where the table is turned.
                let in_row = |row: &Vec<&str>| row.windows(values.len()).any(|it| it == values);
                let anywhere = |value: &&str| rows.iter().any(|row| row.contains(value));
                let missing = values
                    .iter()
                    .find(|value| !value.is_empty() && !anywhere(value));
                if !rows.iter().any(in_row)
                    && let Some(missing) = missing
                {
                    let heading = &panel.heading;
                    faults.push(format!(
                        "{path}: no table has {missing} of {name} ({heading})"
                    ));
                }
            }
        }
        faults
    }
}

impl Panel {
    fn numbers(&self) -> Result<Vec<Option<f64>>> {
        let number = |value: &String| match value.is_empty() {
            true => Ok(None),
            false => {
                let number = value.replace(',', "").parse();
                number
                    .map(Some)
                    .with_context(|| format!("{value:?} is no number"))
            }
        };
        self.values.iter().map(number).collect()
    }
}

/// Numbers of a line, as written.
fn numbers_of(line: &str) -> Vec<&str> {
    let words = line.split(|it: char| !(it.is_ascii_digit() || it == '.' || it == ','));
    let words = words.map(|it| it.trim_matches(['.', ',']));
    words.filter(|it| !it.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIGURES: &str = r#"
        title = "t"
        command = "c"
        measured = "m"
        pages = ["a.md"]
        rows = ["ecmp", "ours"]
        [[panels]]
        heading = "ms"
        colour = "short"
        values = ["24.0", "1,200"]
        own = [1]
    "#;

    #[test]
    fn a_page_with_another_number_is_found() {
        let bars = Bars::parse(FIGURES).unwrap();
        let page = |text| [Page::parse("a.md", text)];
        let good = "| ms | 24.0 ms | **1,200 ms** |\n";
        assert_eq!(bars.faults("f", &page(good)), [""; 0]);
        let turned = "| ecmp | 24.0 |\n| ours | 1,200 |\n";
        assert_eq!(bars.faults("f", &page(turned)), [""; 0]);
        let wrong = "| ms | 24.0 ms | **1,201 ms** |\n1,200\n";
        assert_eq!(
            bars.faults("f", &page(wrong)),
            ["a.md: no table has 1,200 of f (ms)"]
        );
        assert_eq!(bars.faults("f", &[]), ["f: there is no page a.md"]);
    }

    #[test]
    fn a_row_without_a_value_is_refused() {
        assert!(Bars::parse(&FIGURES.replace(", \"1,200\"", "")).is_err());
        assert!(Bars::parse(&FIGURES.replace("24.0", "24,x")).is_err());
    }

    #[test]
    fn bars_can_be_read() {
        let bars = Bars::parse(FIGURES).unwrap();
        let svg = crate::drawing::draw("t", &bars.description().unwrap()).unwrap();
        assert_eq!(crate::drawing::faults(&svg).unwrap(), [""; 0]);
    }
}
