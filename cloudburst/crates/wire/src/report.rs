//! Reports on the paths that answers carry.

use core::fmt;

use super::{
    field::{Reader, Writer},
    header::Malformed,
};

/// Bytes of a report.
pub const REPORT_BYTES: usize = 14;
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

/// How one path from the asker to the answerer fares: 14 bytes.
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
}

/// The reports at the end of an answer: an iterator over borrowed bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Reports<'d>(&'d [[u8; REPORT_BYTES]]);

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
    /// Writes as many as there is capacity for.
    pub(super) fn write_all(reports: impl IntoIterator<Item = Self>, writer: &mut Writer<'_>) {
        let fitting = writer.available() / REPORT_BYTES;
        for report in reports.into_iter().take(fitting) {
            writer.put(&report.path.to_be_bytes());
            writer.put(&report.received.to_be_bytes());
            writer.put(&report.highest.to_be_bytes());
            writer.put(&report.delay_us.to_be_bytes());
        }
    }

    fn read(bytes: &[u8; REPORT_BYTES]) -> Self {
        let [p0, p1, r0, r1, r2, r3, h0, h1, h2, h3, d0, d1, d2, d3] = *bytes;
        Self {
            path: u16::from_be_bytes([p0, p1]),
            received: u32::from_be_bytes([r0, r1, r2, r3]),
            highest: u32::from_be_bytes([h0, h1, h2, h3]),
            delay_us: u32::from_be_bytes([d0, d1, d2, d3]),
        }
    }
}

impl<'d> Reports<'d> {
    /// Nothing but whole reports.
    pub(super) fn of(bytes: &'d [u8]) -> Option<Self> {
        let (reports, rest) = bytes.as_chunks();
        rest.is_empty().then_some(Self(reports))
    }
}

impl Iterator for Reports<'_> {
    type Item = Report;

    fn next(&mut self) -> Option<Report> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(Report::read(first))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.len(), Some(self.0.len()))
    }
}

impl ExactSizeIterator for Reports<'_> {}

impl fmt::Debug for Reports<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(*self).finish()
    }
}
