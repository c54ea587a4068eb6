//! C3: header overhead (Cloudburst §IV-A), from what the crate puts on the wire.

use cloudburst_code::{
    MAX_BLOCK_SYMBOLS, Shape,
    wire::{Code, HEADER_BYTES, Header, Row},
};
use flow_report::{Axis, Plot, Series, Table};
use serde_json::json;

use crate::{check::Check, figure::Figure};

const MTU: usize = 1500;
const IPV4_HEADER: usize = 20;
const UDP_HEADER: usize = 8;

/// Bits of the header's fields, found by changing one and counting what
/// changes in the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    /// The set of symbols.
    pub bits: u32,
    /// Number of the message.
    pub id: u32,
    /// Number of symbols in it.
    pub symbols: u32,
    /// Length of the message.
    pub size: u32,
    /// Which kind of row.
    pub flag: u32,
}

impl Fields {
    /// Returns the fields of the crate's header.
    pub fn on_the_wire() -> Self {
        let zero = Header {
            id: 0,
            block_symbols: 1,
            message_bytes: 0,
            row: Row::Bits(0),
        };
        let changed = |header: Header| {
            let pairs = zero.to_bytes().into_iter().zip(header.to_bytes());
            pairs.map(|(a, b)| (a ^ b).count_ones()).sum()
        };
        let named = Row::Named {
            code: Code::Binary,
            block: 0,
            index: 0,
            seed: 0,
        };
        Self {
            bits: changed(Header {
                row: Row::Bits(u64::MAX),
                ..zero
            }),
            id: changed(Header {
                id: u8::MAX,
                ..zero
            }),
            symbols: changed(Header {
                block_symbols: MAX_BLOCK_SYMBOLS as u8,
                ..zero
            }),
            size: changed(Header {
                message_bytes: u32::MAX,
                ..zero
            }),
            flag: changed(Header { row: named, ..zero }),
        }
    }

    /// Returns the fields of a header with a set of 2^`x` symbols of `symbol_bytes`.
    fn of(x: u32, symbol_bytes: usize) -> Self {
        let longest = symbol_bytes << x;
        Self {
            bits: 1 << x,
            symbols: x,
            size: usize::BITS - longest.leading_zeros(),
            ..Self::on_the_wire()
        }
    }

    /// Bytes of the header.
    pub fn bytes(self) -> usize {
        (self.bits + self.id + self.symbols + self.size + self.flag).div_ceil(8) as usize
    }
}

/// Returns the bytes that an Ethernet frame leaves for a symbol.
fn symbol_bytes() -> usize {
    MTU - IPV4_HEADER - UDP_HEADER - HEADER_BYTES
}

/// The figure; it needs no trials.
pub fn figure() -> Figure {
    let checks = checks();
    let rows: Vec<_> = (1..=10).map(|x| (x, overheads(x))).collect();
    let mut table = Table::new(["x", "n", "header B", "of 1,500 B", "with IP and UDP"]);
    for (x, (bytes, alone, with_ip)) in &rows {
        table.row([
            x.to_string(),
            (1 << x).to_string(),
            bytes.to_string(),
            format!("{alone:.2} %"),
            format!("{with_ip:.2} %"),
        ]);
    }
    let line = |of: fn(&(usize, f64, f64)) -> f64| {
        let points = rows.iter().map(|(x, row)| (f64::from(*x), of(row)));
        points.collect()
    };
    let title = "Header of a packet of 1,500 bytes";
    let x = Axis::linear("x = log2 n").range(1.0, 10.0);
    let plot = Plot::new(title, x, Axis::linear("share of the packet, %"))
        .with(Series::line("Cloudburst's header", line(|row| row.1)))
        .with(Series::line("with IP and UDP", line(|row| row.2)));
    Figure {
        id: "C3",
        title: "header overhead, section IV-A",
        note: String::new(),
        checks,
        rows: rows
            .iter()
            .map(|(x, (bytes, alone, with_ip))| {
                json!({"x": x, "header_bytes": bytes, "percent": alone, "percent_with_ip": with_ip})
            })
            .collect(),
        columns: vec!["x", "header_bytes", "percent", "percent_with_ip"],
        tables: vec![table],
        plots: vec![plot],
    }
}

/// Bytes of the header for 2^x symbols, and its share in percent of the packet,
/// alone and with those of IP and UDP.
fn overheads(x: u32) -> (usize, f64, f64) {
    let bytes = Fields::of(x, symbol_bytes()).bytes();
    let percent = |bytes: usize| 100.0 * bytes as f64 / MTU as f64;
    let with_ip = bytes + IPV4_HEADER + UDP_HEADER;
    (bytes, percent(bytes), percent(with_ip))
}

fn checks() -> Vec<Check> {
    let fields = Fields::on_the_wire();
    let symbol = symbol_bytes();
    let longest = longest_block(symbol);
    let (_, alone, with_ip) = overheads(9);
    let exact = |what, paper: &str, ours: String| {
        let miss = (ours != paper).then(|| format!("{ours} instead of {paper}"));
        Check::new(what, paper, "exactly", ours, miss)
    };
    let most = 7.0;
    let miss = (with_ip >= most).then(|| format!("by {:.2} %", with_ip - most));
    vec![
        exact(
            "symbol in a packet of 1,500 B",
            "1460 B",
            format!("{symbol} B"),
        ),
        exact("header", "12 B", format!("{HEADER_BYTES} B")),
        exact("set of symbols", "64 bits", format!("{} bits", fields.bits)),
        exact(
            "id, n, size, flag",
            "8, 6, 17, 1 bits",
            format!(
                "{}, {}, {}, {} bits",
                fields.id, fields.symbols, fields.size, fields.flag
            ),
        ),
        exact(
            "longest message of one block",
            "93440 B",
            format!("{longest} B"),
        ),
        Check::new(
            "x = 9",
            "less than 7 %",
            "< 7 %",
            format!("{alone:.2} %, {with_ip:.2} % with IP and UDP"),
            miss,
        )
        .with_numbers((0.0, most), None, with_ip),
    ]
}

/// Returns the longest message that the crate sends as one block.
fn longest_block(symbol_bytes: usize) -> usize {
    let fits = |bytes: &usize| Shape::new(*bytes, symbol_bytes).is_ok_and(|it| it.blocks() == 1);
    (1..)
        .map(|count| count * symbol_bytes)
        .take_while(fits)
        .last()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_fill_the_header() {
        let fields = Fields {
            bits: 64,
            id: 8,
            symbols: 6,
            size: 17,
            flag: 1,
        };
        assert_eq!(Fields::on_the_wire(), fields);
        assert_eq!(Fields::of(6, 1460), fields);
        assert_eq!(fields.bytes(), HEADER_BYTES);
    }

    #[test]
    fn all_that_the_paper_says_holds() {
        let figure = figure();
        assert!(figure.holds(), "{}", figure.to_text());
        assert_eq!(figure.rows.len(), 10);
        assert_eq!(longest_block(1460), 93_440);
    }
}
