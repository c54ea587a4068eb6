//! What several tests and the fuzz target use.

pub(crate) mod checks;
pub(crate) mod model;

use cloudburst_code::{Encoder, PaperDegree, Schedule};

pub(crate) const SCHEDULES: [Schedule; 4] = [
    Schedule::Default,
    Schedule::Mds,
    Schedule::Paper(PaperDegree::Fixed),
    Schedule::Paper(PaperDegree::Uniform),
];

/// A message of so many bytes in which no two symbols are alike.
pub(crate) fn message(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at as u8).wrapping_mul(151) ^ (at >> 8) as u8)
        .collect()
}

/// The datagrams `0..count`, written at once.
pub(crate) fn datagrams(encoder: &Encoder<'_>, count: u32) -> Vec<Vec<u8>> {
    let mut out = vec![0xee; encoder.datagram_bytes() * count as usize];
    encoder.write(0..count, &mut out).expect("there is room");
    out.chunks(encoder.datagram_bytes())
        .map(<[u8]>::to_vec)
        .collect()
}

/// 0 to 99, as if at random.
pub(crate) fn draw(sequence: u32) -> u32 {
    (sequence.wrapping_mul(2_654_435_761) >> 7) % 100
}
