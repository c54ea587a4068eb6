//! Reports on the paths that answers carry.

use core::fmt;

use super::{
    ecn::EcnCounts,
    field::{Reader, Writer},
    header::Malformed,
    varint::{self, Varint},
};

/// Bytes of the shortest report: that of a path by which nothing has come that is capable of ECN, or which does not tell.
pub const MIN_REPORT_BYTES: usize = 15;
/// Codes of what is said of marks: that nothing has arrived that is capable of ECN, counts that follow, or nothing.
const NONE_CAPABLE: u8 = 0;
const COUNTED: u8 = 1;
const UNTOLD: u8 = 2;
pub(super) const ECHO_BYTES: usize = 10;

/// Which datagram an answer answers: round-trip time = arrival of the answer
/// - `sent_us` - `hold_us`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Echo {
    /// Its path id, as its sender chose it.
    pub path: u16,
    /// Its time of sending, on its sender's clock, µs modulo 2^32.
    pub sent_us: u32,
    /// From its arrival to the answer, µs.
    pub hold_us: u32,
}

/// How one path from the asker to the answerer fares: 15 bytes, and more where datagrams arrive that are capable of ECN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The path's id, as the asker chose it.
    pub path: u16,
    /// Datagrams that arrived on it so far, modulo 2^32.
    pub received: u32,
    /// Highest sequence number that arrived on it, its low 32 bits.
    pub highest: u32,
    /// Delay of the newest datagram on it: arrival on the answerer's clock less
    /// sending on the asker's, µs modulo 2^32.
    pub delay_us: u32,
    /// How many of those that arrived were marked; nothing, if there was no capacity for that.
    pub ecn: Option<EcnCounts>,
}

/// The reports at the end of an answer: an iterator over borrowed bytes, which are well-formed.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Reports<'d>(&'d [u8]);

impl Echo {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            path: reader.u16()?,
            sent_us: reader.u32()?,
            hold_us: reader.u32()?,
        })
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) {
        writer.put(&self.path.to_be_bytes());
        writer.put(&self.sent_us.to_be_bytes());
        writer.put(&self.hold_us.to_be_bytes());
    }
}

impl Report {
    /// Writes as many as there is capacity for, and of a path's marks nothing if there is none for that.
    pub(super) fn write_all(reports: impl IntoIterator<Item = Self>, writer: &mut Writer<'_>) {
        for report in reports {
            let Some(for_counts) = writer.available().checked_sub(MIN_REPORT_BYTES) else {
                return;
            };
            writer.put(&report.path.to_be_bytes());
            writer.put(&report.received.to_be_bytes());
            writer.put(&report.highest.to_be_bytes());
            writer.put(&report.delay_us.to_be_bytes());
            match report.ecn {
                Some(EcnCounts { capable: 0, .. }) => writer.put(&[NONE_CAPABLE]),
                Some(EcnCounts { capable, marked }) => {
                    let (capable, marked) = (Varint::new(capable), Varint::new(marked));
                    let counts = [capable.as_bytes(), marked.as_bytes()];
                    if counts[0].len().saturating_add(counts[1].len()) > for_counts {
                        writer.put(&[UNTOLD]);
                        continue;
                    }
                    writer.put(&[COUNTED]);
                    counts.iter().for_each(|count| writer.put(count));
                }
                None => writer.put(&[UNTOLD]),
            }
        }
    }

    /// Takes one from the beginning of `bytes`, if it is a whole one.
    fn take(bytes: &mut &[u8]) -> Option<Self> {
        let (start, rest) = bytes.split_first_chunk::<MIN_REPORT_BYTES>()?;
        *bytes = rest;
        let [p0, p1, r0, r1, r2, r3, h0, h1, h2, h3, d0, d1, d2, d3, e] = *start;
        let ecn = match e {
            NONE_CAPABLE => Some(EcnCounts::default()),
            COUNTED => Some(EcnCounts {
                capable: varint::take(bytes).filter(|it| *it > 0)?,
                marked: varint::take(bytes)?,
            }),
            UNTOLD => None,
            _ => return None,
        };
        Some(Self {
            path: u16::from_be_bytes([p0, p1]),
            received: u32::from_be_bytes([r0, r1, r2, r3]),
            highest: u32::from_be_bytes([h0, h1, h2, h3]),
            delay_us: u32::from_be_bytes([d0, d1, d2, d3]),
            ecn,
        })
    }
}

impl<'d> Reports<'d> {
    /// Nothing but whole reports.
    pub(super) fn of(bytes: &'d [u8]) -> Option<Self> {
        let mut rest = bytes;
        while !rest.is_empty() {
            Report::take(&mut rest)?;
        }
        Some(Self(bytes))
    }
}

impl Iterator for Reports<'_> {
    type Item = Report;

    fn next(&mut self) -> Option<Report> {
        Report::take(&mut self.0)
    }
}

impl fmt::Debug for Reports<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(*self).finish()
    }
}
