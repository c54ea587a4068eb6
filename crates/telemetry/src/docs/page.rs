//! Reads the metrics page: Markdown tables whose header is
//! `name | type | unit | labels | meaning`.

use crate::names::{self, Kind};

/// A row of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentedFamily {
    /// Full name, as a user queries it.
    pub name: String,
    /// Kind by the `type` column.
    pub kind: Kind,
    /// Unit by the `unit` column; none for a dash.
    pub unit: Option<String>,
    /// Labels by the `labels` column; empty for a dash.
    pub labels: Vec<DocumentedLabel>,
    /// Text of the `meaning` column.
    pub meaning: String,
    /// Line of the row on the page, counted from 1.
    pub line: usize,
}

/// A label in the `labels` column: `` `class` ``, or with its whole set of
/// values `` `class` (short, long) ``.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentedLabel {
    /// Name of the label.
    pub name: String,
    /// The only values it takes; empty when the page leaves them open.
    pub values: Vec<String>,
}

/// A row that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// A row with more or fewer cells than the header.
    #[error("line {line}: a row of the metrics table has {actual} cells; it needs {COLUMNS:?}")]
    Columns {
        /// Number of the line, counted from 1.
        line: usize,
        /// Number of cells that it has.
        actual: usize,
    },
    /// A cell that is not what its column asks for.
    #[error("line {line}: `{cell}` is not {expected}")]
    Cell {
        /// Number of the line, counted from 1.
        line: usize,
        /// Text of the cell.
        cell: String,
        /// Form that the cell should have.
        expected: &'static str,
    },
    /// No table with the right header.
    #[error("no table with the columns {COLUMNS:?} on the page")]
    NoTable,
}

/// Reads every metrics table of a page; other tables and text are passed over.
///
/// # Errors
/// A [`PageError`] with the line that is not as the format asks.
pub fn parse_page(markdown: &str) -> Result<Vec<DocumentedFamily>, PageError> {
    let mut families = Vec::new();
    let mut seen_header = false;
    let mut in_table = false;
    for (index, text) in markdown.lines().enumerate() {
        let Some(cells) = cells(text) else {
            in_table = false;
            continue;
        };
        if cells == COLUMNS {
            (in_table, seen_header) = (true, true);
        } else if in_table && !is_rule(&cells) {
            families.push(row(index + 1, &cells)?);
        }
    }
    if seen_header {
        Ok(families)
    } else {
        Err(PageError::NoTable)
    }
}

fn row(line: usize, cells: &[&str]) -> Result<DocumentedFamily, PageError> {
    let &[name, kind, unit, labels, meaning] = cells else {
        return Err(PageError::Columns {
            line,
            actual: cells.len(),
        });
    };
    let is_not = |cell: &str, expected| PageError::Cell {
        line,
        cell: cell.to_owned(),
        expected,
    };
    if meaning.is_empty() {
        return Err(is_not(meaning, "the meaning of a metric"));
    }
    Ok(DocumentedFamily {
        name: code(name)
            .filter(|name| names::check_snake_case(name).is_ok())
            .ok_or_else(|| is_not(name, "a metric's name in back-quotes"))?
            .to_owned(),
        kind: Kind::parse_type(kind)
            .ok_or_else(|| is_not(kind, "counter, gauge, histogram or info"))?,
        unit: (!is_dash(unit)).then(|| unit.to_owned()),
        labels: parse_labels(labels).ok_or_else(|| {
            is_not(
                labels,
                "a dash or labels like `class` (short, long), `tunnel`",
            )
        })?,
        meaning: meaning.to_owned(),
        line,
    })
}

fn parse_labels(cell: &str) -> Option<Vec<DocumentedLabel>> {
    let mut labels = Vec::new();
    let mut rest = cell.trim();
    if is_dash(rest) {
        return Some(labels);
    }
    while !rest.is_empty() {
        let (name, after) = rest.strip_prefix('`')?.split_once('`')?;
        let mut label = DocumentedLabel {
            name: name.to_owned(),
            values: Vec::new(),
        };
        rest = after.trim_start();
        if let Some(list) = rest.strip_prefix('(') {
            let (values, after) = list.split_once(')')?;
            label.values = values.split(',').map(|v| v.trim().to_owned()).collect();
            rest = after.trim_start();
        }
        labels.push(label);
        rest = match rest.strip_prefix(',') {
            Some(more) => more.trim_start(),
            None if rest.is_empty() => rest,
            None => return None,
        };
    }
    Some(labels)
}

fn cells(text: &str) -> Option<Vec<&str>> {
    let inside = text.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inside.split('|').map(str::trim).collect())
}

fn code(cell: &str) -> Option<&str> {
    cell.strip_prefix('`')?.strip_suffix('`')
}

fn is_rule(cells: &[&str]) -> bool {
    cells
        .iter()
        .all(|cell| !cell.is_empty() && cell.chars().all(|c| matches!(c, '-' | ':')))
}

fn is_dash(cell: &str) -> bool {
    matches!(cell, "-" | "–" | "")
}

const COLUMNS: [&str; 5] = ["name", "type", "unit", "labels", "meaning"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_rows_and_passes_over_other_tables() {
        let page = "\
# Metrics

| key | value |
|---|---|
| a | b |

| name | type | unit | labels | meaning |
|:--|---|---|---|---|
| `x_bytes_total` | counter | bytes | `class` (short, long), `tunnel` | Bytes |
| `x_flows` | gauge | - | - | Flows |
";
        let rows = parse_page(page).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].line, 9);
        assert_eq!(rows[0].unit.as_deref(), Some("bytes"));
        assert_eq!(rows[0].labels[0].values, ["short", "long"]);
        assert_eq!(rows[0].labels[1].name, "tunnel");
        assert!(rows[1].labels.is_empty());
    }

    #[test]
    fn says_which_row_is_wrong() {
        let page = |row: &str| {
            parse_page(&format!(
                "| name | type | unit | labels | meaning |\n|---|---|---|---|---|\n{row}\n"
            ))
            .unwrap_err()
        };
        assert_eq!(
            page("| `a` | gauge |"),
            PageError::Columns { line: 3, actual: 2 }
        );
        assert!(
            page("| a | gauge | - | - | x |")
                .to_string()
                .contains("back-quotes")
        );
        assert!(
            page("| `a` | meter | - | - | x |")
                .to_string()
                .contains("`meter`")
        );
        assert!(
            page("| `a` | gauge | - | class | x |")
                .to_string()
                .contains("labels like")
        );
        assert_eq!(parse_page("nothing"), Err(PageError::NoTable));
    }
}
