//! Flow sizes from a file: of flows one by one, or as a distribution.

use std::io::Read;

use super::sizes::{FlowSize, Sizes};

/// A stretch of a distribution is cut into so many parts, each of which stands for its middle.
const PARTS: u32 = 256;
/// No field of such a file is longer; what is, is something else.
const MAX_FIELD_BYTES: usize = 64;

/// Holds the flow sizes that a file lists.
#[derive(Debug, Clone)]
pub struct FlowFile {
    /// The flows by size.
    pub sizes: Sizes,
    /// Whether they were counted one by one, and not given as a distribution.
    pub is_sample: bool,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {problem}; {HELP}")]
pub struct FlowFileError {
    line: u64,
    problem: String,
}

const HELP: &str = "give CSV with a flow's payload in bytes on each line, or with size in bytes and cumulative probability from 0 to 1, both rising; lines with # are comments, and the first line may name the columns";

/// Reads CSV, in memory that does not grow with the file.
///
/// With one column each row is a flow, in bytes of payload. With two, each row is a size and the
/// share of flows that are not larger; between rows it rises in a straight line, and a size that
/// is repeated is one that many flows have.
///
/// # Errors
/// With the first line that cannot be used, and when there is none.
pub fn read(source: impl Read) -> Result<FlowFile, FlowFileError> {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .comment(Some(b'#'))
        .trim(csv::Trim::All)
        .from_reader(source.take_lines());
    let (mut record, mut rows) = (csv::StringRecord::new(), Rows::default());
    loop {
        let line = reader.position().line();
        match reader.read_record(&mut record) {
            Ok(true) => {}
            Ok(false) => return rows.finish(line),
            Err(error) => return Err(wrong(line, error.to_string())),
        }
        let line = record.position().map_or(line, csv::Position::line);
        rows.take(&record).map_err(|problem| wrong(line, problem))?;
    }
}

fn wrong(line: u64, problem: impl Into<String>) -> FlowFileError {
    FlowFileError {
        line,
        problem: problem.into(),
    }
}

/// Ends with an error where a line is longer than any that is meant, which a reader of CSV would
/// keep in memory.
trait TakeLines: Read + Sized {
    fn take_lines(self) -> BoundedLines<Self> {
        BoundedLines {
            source: self,
            since_newline: 0,
        }
    }
}

impl<R: Read> TakeLines for R {}

struct BoundedLines<R> {
    source: R,
    since_newline: usize,
}

impl<R: Read> Read for BoundedLines<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        /// Comments may be longer than rows.
        const MAX_LINE_BYTES: usize = 4_096;
        let length = self.source.read(buffer)?;
        for byte in &buffer[..length] {
            self.since_newline = if *byte == b'\n' {
                0
            } else {
                self.since_newline + 1
            };
            if self.since_newline > MAX_LINE_BYTES {
                return Err(std::io::Error::other(format!(
                    "a line of more than {MAX_LINE_BYTES} bytes"
                )));
            }
        }
        Ok(length)
    }
}

#[derive(Default)]
struct Rows {
    count: u64,
    columns: usize,
    /// The last point of a distribution.
    last: Option<(f64, f64)>,
    flows: Vec<(FlowSize, f64)>,
    sizes: Sizes,
}

impl Rows {
    fn take(&mut self, record: &csv::StringRecord) -> Result<(), String> {
        if record.iter().any(|field| field.len() > MAX_FIELD_BYTES) {
            return Err(format!("a field of more than {MAX_FIELD_BYTES} bytes"));
        }
        let numbers: Result<Vec<f64>, _> = record.iter().map(str::parse).collect();
        self.count += 1;
        let numbers = match numbers {
            Ok(numbers) => numbers,
            // It names the columns.
            Err(_) if self.count == 1 => return Ok(()),
            Err(_) => {
                return Err(format!(
                    "{:?} is not a row of numbers",
                    record.iter().collect::<Vec<_>>()
                ));
            }
        };
        if self.columns != 0 && self.columns != numbers.len() {
            return Err(format!(
                "{} columns, and {} before",
                numbers.len(),
                self.columns
            ));
        }
        self.columns = numbers.len();
        match numbers[..] {
            [bytes] => self.flow(bytes),
            [bytes, share] => self.point(bytes, share),
            _ => Err(format!("{} columns", numbers.len())),
        }
    }

    fn flow(&mut self, bytes: f64) -> Result<(), String> {
        self.sizes.add(FlowSize::of_payload(whole(bytes)?));
        Ok(())
    }

    fn point(&mut self, bytes: f64, share: f64) -> Result<(), String> {
        whole(bytes)?;
        if !(0.0..=1.0).contains(&share) {
            return Err(format!("{share} is not a probability"));
        }
        let (from, before) = self.last.replace((bytes, share)).unwrap_or((bytes, 0.0));
        if bytes < from || share < before {
            return Err(format!("{bytes},{share} after {from},{before} falls"));
        }
        let mass = share - before;
        if mass > 0.0 {
            // Bounded: the sizes keep no more than their buckets.
            let part = |index: u32| {
                let middle = from + (bytes - from) * (f64::from(index) + 0.5) / f64::from(PARTS);
                (
                    FlowSize::of_payload(middle.round() as u64),
                    mass / f64::from(PARTS),
                )
            };
            self.flows.extend((0..PARTS).map(part));
        }
        if self.flows.len() > 1 << 20 {
            return Err("more points than a distribution needs".to_owned());
        }
        Ok(())
    }

    fn finish(self, line: u64) -> Result<FlowFile, FlowFileError> {
        match (self.columns, self.last) {
            (0, _) => Err(wrong(line, "no flows")),
            (1, _) => Ok(FlowFile {
                sizes: self.sizes,
                is_sample: true,
            }),
            (_, Some((_, share))) if (share - 1.0).abs() < 1e-6 => Ok(FlowFile {
                sizes: self.flows.into_iter().collect(),
                is_sample: false,
            }),
            _ => Err(wrong(line, "the distribution does not end at 1")),
        }
    }
}

fn whole(bytes: f64) -> Result<u64, String> {
    /// A petabyte: beyond that it is no flow.
    const MOST: f64 = 1e15;
    if (0.0..=MOST).contains(&bytes) {
        Ok(bytes.round() as u64)
    } else {
        Err(format!(
            "{bytes} is not a number of bytes from 0 to {MOST:e}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ThresholdUnit::Packets;

    fn text(text: &str) -> Result<FlowFile, FlowFileError> {
        read(text.as_bytes())
    }

    #[test]
    fn flows_one_by_one() {
        let file = text("# taken on Monday\nbytes\n1448\n 2896 \n0\n").unwrap();
        assert!(file.is_sample);
        assert_eq!(file.sizes.sample(Packets).flows(), 3.0);
    }

    #[test]
    fn a_distribution_with_an_atom() {
        // Four of ten have 1448 bytes; the others have 0 to 100 more segments.
        let file = text("size_bytes,cdf\n1448,0\n1448,0.4\n146248,1\n").unwrap();
        assert!(!file.is_sample);
        let filled = file.sizes.sample(Packets).filled();
        let share: f64 = filled.iter().map(|bucket| bucket.flows).sum();
        assert!((share - 1.0).abs() < 1e-9, "{share}");
        assert!((filled[0].flows - 0.4).abs() < 0.01, "{:?}", filled[0]);
        let mean = filled.iter().map(|bucket| bucket.units).sum::<f64>();
        assert!((mean - (0.4 * 4.0 + 0.6 * 54.5)).abs() < 0.5, "{mean}");
    }

    #[test]
    fn what_is_wrong_is_reported_with_its_line() {
        let cases = [
            ("", "no flows"),
            ("bytes\n", "no flows"),
            ("1\nx\n", "line 2: [\"x\"] is not a row of numbers"),
            ("1\n2,0.5\n", "line 2: "),
            ("1,2,3\n", "line 1: 3 columns"),
            ("-1\n", "line 1: -1 is not a number of bytes"),
            ("NaN\n", "line 1: NaN is not a number of bytes"),
            ("inf\n", "is not a number of bytes"),
            ("1,0\n2,1.5\n", "line 2: 1.5 is not a probability"),
            ("5,0\n2,0.5\n", "line 2: 2,0.5 after 5,0 falls"),
            ("1,0\n2,0.9\n", "does not end at 1"),
        ];
        for (given, expected) in cases {
            let reported = text(given).unwrap_err().to_string();
            assert!(reported.contains(expected), "{given:?}: {reported}");
            assert!(reported.ends_with("may name the columns"), "{reported}");
        }
        let endless = "7".repeat(1 << 20);
        let reported = text(&endless).unwrap_err().to_string();
        assert!(
            reported.contains("a line of more than 4096 bytes"),
            "{reported}"
        );
    }
}
