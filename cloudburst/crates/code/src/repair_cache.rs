//! Repair symbols of one message that is sent several times, computed once.

use super::encoder::{EncodeError, Encoder, Layout};

/// Symbols that are kept of a layout: half of a block, for a first burst and what follows. Those of longer
/// messages beyond them are computed each time, for their memory would be that of the message again.
const MOST_REPAIRS: usize = 32;
/// Layouts that symbols are kept of: datagrams of the length that all begin with, and some that were found.
const MOST_LAYOUTS: usize = 4;

/// Cache of repair symbols of one message, for whoever sends it to several receivers: 32 symbols of each of 4
/// layouts at most.
///
/// The layout of an [`Encoder`] is all that its symbols depend on besides the message: how it is cut, the
/// schedule, and what tells messages and rows apart. Encoders of equal layouts get the same symbols, which are
/// computed when the first of them is asked for one.
///
/// ```
/// use cloudburst_code::{Encoder, RepairCache, Schedule, Shape};
///
/// let message = [7; 10_000];
/// let shape = Shape::fitting(message.len(), 1440)?;
/// let encoder = Encoder::new(&message, shape, Schedule::Mds, 1, 42)?;
/// let mut cache = RepairCache::default();
/// let first_repair = shape.symbols() as u32;
/// let mut datagrams = [[0; 2_000]; 3];
/// for datagram in &mut datagrams {
///     cache.write(&encoder, first_repair, datagram)?;
/// }
/// assert_eq!(datagrams[0], datagrams[2]);
/// assert_eq!(cache.bytes(), encoder.datagram_bytes());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RepairCache(Vec<Repairs>);

/// Repair symbols of encoders of one layout.
#[derive(Clone, Debug)]
struct Repairs {
    layout: Layout,
    /// One after the other, as they are written to datagrams.
    datagrams: Vec<u8>,
}

impl RepairCache {
    /// Returns true for the symbols that may be kept: others need no cache.
    pub fn may_keep(encoder: &Encoder<'_>, sequence: u32) -> bool {
        repair_index(encoder, sequence).is_some()
    }

    /// Writes one datagram to the beginning of `out`, as [`Encoder::write`] does, and returns how many bytes it
    /// takes. All encoders have to be of the same message.
    ///
    /// # Errors
    ///
    /// If `out` is too small; it is unchanged then.
    pub fn write(
        &mut self,
        encoder: &Encoder<'_>,
        sequence: u32,
        out: &mut [u8],
    ) -> Result<usize, EncodeError> {
        if let Some(index) = repair_index(encoder, sequence)
            && let Some(repairs) = self.of(encoder.layout())
        {
            return repairs.write(encoder, index, out);
        }
        encoder.write(sequence..sequence.saturating_add(1), out)
    }

    /// Returns how many bytes the symbols take that are kept.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|it| it.datagrams.len()).sum()
    }

    /// Symbols of a layout; nothing if they are not kept, as there are too many layouts.
    fn of(&mut self, layout: Layout) -> Option<&mut Repairs> {
        let known = self.0.iter().position(|it| it.layout == layout);
        if known.is_none() && self.0.len() < MOST_LAYOUTS {
            let datagrams = Vec::new();
            self.0.push(Repairs { layout, datagrams });
            return self.0.last_mut();
        }
        self.0.get_mut(known?)
    }
}

/// Which of the symbols that may be kept it is.
fn repair_index(encoder: &Encoder<'_>, sequence: u32) -> Option<usize> {
    let index = (sequence as usize).checked_sub(encoder.shape().symbols())?;
    (index < MOST_REPAIRS).then_some(index)
}

impl Repairs {
    /// Writes one of them, and computes it before, with those before it, if that was not done.
    fn write(
        &mut self,
        encoder: &Encoder<'_>,
        index: usize,
        out: &mut [u8],
    ) -> Result<usize, EncodeError> {
        let (needed, given) = (encoder.datagram_bytes(), out.len());
        let too_small = EncodeError::BufferTooSmall { needed, given };
        let out = out.get_mut(..needed).ok_or(too_small)?;
        let wanted = index.saturating_add(1);
        let have = self.datagrams.chunks_exact(needed).len();
        if have < wanted {
            // Nothing is kept that was not computed to its end.
            let missing = wanted.saturating_sub(have);
            let mut datagrams = vec![0; missing.saturating_mul(needed)];
            let sequence = |index: usize| encoder.shape().symbols().saturating_add(index) as u32;
            encoder.write(sequence(have)..sequence(wanted), &mut datagrams)?;
            self.datagrams.append(&mut datagrams);
        }
        let kept = self.datagrams.chunks_exact(needed).nth(index);
        out.copy_from_slice(kept.ok_or(too_small)?);
        Ok(needed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Schedule, Shape};

    fn message() -> Vec<u8> {
        (0..20_000_u32).map(|it| ((it * it) >> 7) as u8).collect()
    }

    fn encoder(message: &[u8], symbol_bytes: usize, id: u8) -> Encoder<'_> {
        let shape = Shape::fitting(message.len(), symbol_bytes).unwrap();
        Encoder::new(message, shape, Schedule::Mds, id, 7).unwrap()
    }

    #[test]
    fn symbols_are_those_that_the_encoder_makes_whoever_asks_first_and_for_whichever() {
        let (message, mut cache) = (message(), RepairCache::default());
        let layouts = [
            (1_200, Schedule::Default, 0, 7),
            (1_200, Schedule::Default, 0, 8),
            (1_200, Schedule::Mds, 0, 7),
            (1_400, Schedule::Mds, 0, 7),
            (1_200, Schedule::Mds, 1, 7),
            (256, Schedule::Mds, 0, 7),
        ];
        // Others' symbols in between, some twice, some left out, some beyond those that are kept.
        for sequences in [0..30, 40..45, 20..120] {
            for (symbol_bytes, schedule, id, seed) in layouts {
                let shape = Shape::fitting(message.len(), symbol_bytes).unwrap();
                let encoder = Encoder::new(&message, shape, schedule, id, seed).unwrap();
                for sequence in sequences.clone() {
                    let mut expected = vec![0; encoder.datagram_bytes() + 1];
                    let next = sequence + 1;
                    let bytes = encoder.write(sequence..next, &mut expected);
                    let mut written = vec![0; encoder.datagram_bytes() + 1];
                    assert_eq!(cache.write(&encoder, sequence, &mut written), bytes);
                    assert_eq!(written, expected, "{sequence} of {:?}", encoder.layout());
                }
            }
        }
    }

    #[test]
    fn what_is_kept_is_bounded_whatever_is_asked_for() {
        let (message, mut cache) = (message(), RepairCache::default());
        let mut out = vec![0; 2_000];
        for id in 0..=u8::MAX {
            let encoder = encoder(&message, 1_200, id);
            for sequence in (0..200).chain([u32::MAX]) {
                cache.write(&encoder, sequence, &mut out).unwrap();
            }
        }
        let bytes = encoder(&message, 1_200, 0).datagram_bytes();
        assert_eq!(cache.bytes(), MOST_LAYOUTS * MOST_REPAIRS * bytes);
    }

    #[test]
    fn what_no_cache_is_needed_for_is_not_kept() {
        let (message, mut cache) = (message(), RepairCache::default());
        let encoder = encoder(&message, 1_200, 0);
        let own = encoder.shape().symbols() as u32;
        let mut out = vec![0; 2_000];
        for sequence in 0..200 {
            let before = cache.bytes();
            cache.write(&encoder, sequence, &mut out).unwrap();
            let is_kept = cache.bytes() > before;
            assert_eq!(RepairCache::may_keep(&encoder, sequence), is_kept);
            assert_eq!(is_kept, (own..own + 32).contains(&sequence));
        }
    }

    #[test]
    fn a_buffer_that_is_too_short_is_refused() {
        let (message, mut cache) = (message(), RepairCache::default());
        let encoder = encoder(&message, 1_200, 0);
        let own = encoder.shape().symbols() as u32;
        for sequence in [0, own] {
            let written = cache.write(&encoder, sequence, &mut [0; 100]);
            assert!(matches!(written, Err(EncodeError::BufferTooSmall { .. })));
        }
    }
}
