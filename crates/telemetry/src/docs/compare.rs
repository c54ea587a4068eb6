//! Compares the page with a scrape, both ways.

use std::collections::BTreeSet;

use super::{DocumentedFamily, Family};
use crate::names::Kind;

/// A mismatch between the metrics page and a scrape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// The scrape shows a family that the page does not have.
    #[error("`{name}` is exposed but not documented; add a row for it")]
    Undocumented {
        /// Name of the family.
        name: String,
    },
    /// The page has a family that the scrape does not show.
    #[error("`{name}` is documented (line {line}) but not exposed; remove the row or expose it")]
    NotExposed {
        /// Name of the family.
        name: String,
        /// Line of the row.
        line: usize,
    },
    /// The page has two rows for one family.
    #[error("`{name}` is documented twice, again on line {line}")]
    DocumentedTwice {
        /// Name of the family.
        name: String,
        /// The second row's line.
        line: usize,
    },
    /// The types of a family differ.
    #[error("`{name}` is documented as {} (line {line}) but exposed as {}", documented.as_str(), live.as_str())]
    Kind {
        /// Name of the family.
        name: String,
        /// Line of the row.
        line: usize,
        /// Type or unit on the page.
        documented: Kind,
        /// Type or unit in the scrape.
        live: Kind,
    },
    /// The units differ, or the page leaves out one that the scrape declares.
    #[error("`{name}` is documented in {documented:?} (line {line}) but exposed in `{live}`")]
    Unit {
        /// Name of the family.
        name: String,
        /// Line of the row.
        line: usize,
        /// Type or unit on the page.
        documented: Option<String>,
        /// Type or unit in the scrape.
        live: String,
    },
    /// The label names differ.
    #[error(
        "`{name}` is documented with the labels {documented:?} (line {line}) but exposed with {live:?}"
    )]
    Labels {
        /// Name of the family.
        name: String,
        /// Line of the row.
        line: usize,
        /// Label names on the page, sorted.
        documented: Vec<String>,
        /// Label names in the scrape, sorted.
        live: Vec<String>,
    },
    /// A label has a value that is not in the page's list.
    #[error(
        "`{name}` is exposed with {label}=\"{value}\", which its row (line {line}) does not list"
    )]
    LabelValue {
        /// Name of the family.
        name: String,
        /// Line of the row.
        line: usize,
        /// Name of the label.
        label: String,
        /// The value that is not listed.
        value: String,
    },
}

/// Compares page and scrape, and returns every mismatch.
///
/// A family without samples (nothing of that reason happened yet) is compared by
/// name, type and unit only. A unit on the page that the scrape does not declare
/// (`packets`, `flows`) is for the reader and not compared.
pub fn compare(documented: &[DocumentedFamily], live: &[Family]) -> Vec<Mismatch> {
    let mut mismatches = Vec::new();
    let mut names = BTreeSet::new();
    for row in documented {
        if !names.insert(row.name.as_str()) {
            mismatches.push(Mismatch::DocumentedTwice {
                name: row.name.clone(),
                line: row.line,
            });
            continue;
        }
        match live.iter().find(|family| family.name == row.name) {
            Some(family) => compare_family(row, family, &mut mismatches),
            None => mismatches.push(Mismatch::NotExposed {
                name: row.name.clone(),
                line: row.line,
            }),
        }
    }
    let undocumented = live
        .iter()
        .filter(|family| !names.contains(family.name.as_str()));
    mismatches.extend(undocumented.map(|family| Mismatch::Undocumented {
        name: family.name.clone(),
    }));
    mismatches
}

fn compare_family(row: &DocumentedFamily, family: &Family, mismatches: &mut Vec<Mismatch>) {
    let (name, line) = (row.name.clone(), row.line);
    if row.kind != family.kind {
        mismatches.push(Mismatch::Kind {
            name: name.clone(),
            line,
            documented: row.kind,
            live: family.kind,
        });
    }
    if let Some(unit) = family
        .unit
        .as_ref()
        .filter(|u| row.unit.as_ref() != Some(*u))
    {
        mismatches.push(Mismatch::Unit {
            name: name.clone(),
            line,
            documented: row.unit.clone(),
            live: unit.clone(),
        });
    }
    if family.samples.is_empty() {
        return;
    }
    let documented: BTreeSet<&str> = row.labels.iter().map(|label| label.name.as_str()).collect();
    if documented != family.labels() {
        let owned = |labels: BTreeSet<&str>| labels.into_iter().map(str::to_owned).collect();
        mismatches.push(Mismatch::Labels {
            name: name.clone(),
            line,
            documented: owned(documented),
            live: owned(family.labels()),
        });
    }
    for label in row.labels.iter().filter(|label| !label.values.is_empty()) {
        for value in family.label_values(&label.name) {
            if !label.values.iter().any(|listed| listed == value) {
                mismatches.push(Mismatch::LabelValue {
                    name: name.clone(),
                    line,
                    label: label.name.clone(),
                    value: value.to_owned(),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{parse_exposition, parse_page};
    use super::*;

    fn mismatches(rows: &str, scrape: &str) -> Vec<String> {
        let page = format!("| name | type | unit | labels | meaning |\n|--|--|--|--|--|\n{rows}\n");
        compare(
            &parse_page(&page).unwrap(),
            &parse_exposition(&format!("{scrape}# EOF\n")).unwrap(),
        )
        .iter()
        .map(Mismatch::to_string)
        .collect()
    }

    #[test]
    fn agreement_is_silent() {
        let rows = "| `a_total` | counter | packets | `class` (short, long) | A |";
        let scrape = "# TYPE a counter\na_total{class=\"long\"} 1\n";
        assert_eq!(mismatches(rows, scrape), [""; 0]);
        assert_eq!(mismatches(rows, "# TYPE a counter\n"), [""; 0]);
    }

    #[test]
    fn each_disagreement_is_named() {
        let row = "| `a_seconds` | gauge | seconds | `class` (short) | A |";
        let one = |rows: &str, scrape: &str| match mismatches(rows, scrape).as_slice() {
            [only] => only.clone(),
            several => panic!("{several:?}"),
        };
        assert!(one("", "# TYPE b gauge\n").contains("not documented"));
        assert!(one(row, "").contains("not exposed"));
        assert!(one(&format!("{row}\n{row}"), "# TYPE a_seconds gauge\n").contains("twice"));
        assert!(one(row, "# TYPE a_seconds histogram\n").contains("exposed as histogram"));
        let unitless = row.replace("| seconds |", "| - |");
        assert!(one(&unitless, "# TYPE a_seconds gauge\n").contains("exposed in `seconds`"));
        let labelled = |labels: &str| format!("# TYPE a_seconds gauge\na_seconds{labels} 1\n");
        assert!(one(row, &labelled("")).contains("exposed with []"));
        assert!(one(row, &labelled("{class=\"long\"}")).contains("class=\"long\""));
    }
}
