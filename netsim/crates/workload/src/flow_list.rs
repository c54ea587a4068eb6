//! Lists of flows out of files: read line by line, in bounded memory.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read as _},
    path::Path,
};

use crate::{
    error::{FlowListError, MAX_FLOWS, MAX_LINE, Problem},
    formats::Parser,
    listed_flow::{FlowListFormat, ListedFlow, StartUnit},
};

/// A list of flows in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowList {
    /// The flows, in that order.
    pub flows: Vec<ListedFlow>,
    /// Lines of the file that they are from, by their places.
    lines: Vec<u32>,
}

impl FlowList {
    /// Returns the line of the file, from 1, that a flow is from.
    pub fn line(&self, flow: usize) -> Option<u32> {
        self.lines.get(flow).copied()
    }

    /// Reads the list of a file.
    ///
    /// # Errors
    /// When it cannot be read, or a line of it is wrong.
    pub fn read(
        path: &Path,
        format: FlowListFormat,
        unit: StartUnit,
    ) -> Result<Self, FlowListError> {
        let file = File::open(path).map_err(|it| FlowListError::Unreadable(it.to_string()))?;
        Self::parse(BufReader::new(file), format, unit)
    }

    /// Reads a list line by line; `unit` is that of htsim's start times.
    ///
    /// # Errors
    /// When it cannot be read, or a line of it is wrong.
    pub fn parse(
        mut input: impl BufRead,
        format: FlowListFormat,
        unit: StartUnit,
    ) -> Result<Self, FlowListError> {
        let mut parser = Parser::new(format, unit);
        let (mut flows, mut lines) = (Vec::new(), Vec::new());
        let (mut bytes, mut line) = (Vec::new(), 0);
        loop {
            line += 1;
            let wrong = |problem| FlowListError::Line { line, problem };
            if read_line(&mut input, &mut bytes)
                .map_err(|it| FlowListError::Unreadable(it.to_string()))?
            {
                break;
            }
            if bytes.len() as u64 > MAX_LINE {
                return Err(wrong(Problem::TooLong));
            }
            let text = str::from_utf8(&bytes).map_err(|_| wrong(Problem::NotText))?;
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let Some(flow) = parser.line(text).map_err(wrong)? else {
                continue;
            };
            if flow.from == flow.to {
                return Err(wrong(Problem::ToItself(flow.from)));
            }
            if flows.len() == MAX_FLOWS {
                return Err(wrong(Problem::TooMany));
            }
            if parser.said().is_some_and(|it| flows.len() as u64 >= it) {
                return Err(wrong(Problem::MoreThanSaid(parser.said().unwrap_or(0))));
            }
            flows.push(flow);
            // Nobody reads a file of more lines to its end.
            lines.push(u32::try_from(line).unwrap_or(u32::MAX));
        }
        let found = flows.len() as u64;
        match parser.said() {
            Some(said) if found < said => Err(FlowListError::Short { found, said }),
            _ if flows.is_empty() => Err(FlowListError::Empty),
            _ => Ok(Self { flows, lines }),
        }
    }
}

/// Reads at most one byte more than a line may have. Returns whether there was none left.
fn read_line(input: &mut impl BufRead, bytes: &mut Vec<u8>) -> io::Result<bool> {
    bytes.clear();
    Ok(input.take(MAX_LINE + 1).read_until(b'\n', bytes)? == 0)
}
