//! Lists of flows as CSV with a heading (RFC 4180, one line each).

use std::borrow::Cow;

use crate::{
    error::Problem,
    listed_flow::ListedFlow,
    number::{host, size, time_ns, whole},
};

/// Places of the columns of a CSV file.
pub(crate) struct Columns {
    count: usize,
    from: usize,
    to: usize,
    bytes: usize,
    start: usize,
    start_is_us: bool,
    priority: Option<usize>,
}

impl Columns {
    pub(crate) fn new(heading: &str) -> Result<Self, Problem> {
        let names = cells(heading);
        let find = |name: &str| names.iter().position(|it| it == name);
        let must = |name| find(name).ok_or(Problem::NoColumn(name));
        let start_ns = find("start_ns");
        let start = start_ns.or_else(|| find("start_us"));
        Ok(Self {
            count: names.len(),
            from: must("from")?,
            to: must("to")?,
            bytes: must("bytes")?,
            start: start.ok_or(Problem::NoColumn("start_ns or start_us"))?,
            start_is_us: start_ns.is_none(),
            priority: find("priority"),
        })
    }

    pub(crate) fn flow(&self, text: &str) -> Result<ListedFlow, Problem> {
        let cells = cells(text);
        if cells.len() != self.count {
            return Err(Problem::Columns {
                found: cells.len(),
                expected: "as many as the heading has",
            });
        }
        let start_ns = if self.start_is_us {
            time_ns("start_us", &cells[self.start], 1e3)?
        } else {
            whole("start_ns", &cells[self.start])?
        };
        let priority = match self.priority {
            Some(column) => {
                let number: u64 = whole("priority", &cells[column])?;
                u8::try_from(number).map_err(|_| Problem::Number {
                    what: "priority",
                    value: cells[column].to_string(),
                    must: "a number up to 255",
                })?
            }
            None => 0,
        };
        Ok(ListedFlow {
            from: host("from", &cells[self.from])?,
            to: host("to", &cells[self.to])?,
            bytes: size("bytes", &cells[self.bytes])?,
            start_ns,
            priority,
        })
    }
}

/// The cells of a line. Hardly any line of a list has quotes, and without them commas are all that there is.
fn cells(line: &str) -> Vec<Cow<'_, str>> {
    if !line.contains('"') {
        return line.split(',').map(|it| it.trim().into()).collect();
    }
    let mut csv = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .from_reader(line.as_bytes());
    let record = csv.records().next().and_then(Result::ok);
    let record = record.unwrap_or_default();
    let cells = record.iter().map(|it| unquoted(it).to_owned().into());
    cells.collect()
}

/// Programs that write a space behind a comma have it in front of the quote, which is part of the cell then.
fn unquoted(cell: &str) -> &str {
    let cell = cell.trim();
    let inner = cell.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    inner.unwrap_or(cell)
}
