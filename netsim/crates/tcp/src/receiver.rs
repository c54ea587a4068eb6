//! The receiving half of a flow: reassembly and cumulative ACKs.

use crate::bitset::Bitset;

/// Receives one flow: it answers each segment with an ACK.
#[derive(Debug, Default)]
pub struct Receiver {
    /// The first that is missing.
    missing: u32,
    /// The first that is beyond all that came.
    beyond: u32,
    ahead: Bitset,
    /// Segments that came after one that was sent later, and were not retransmitted.
    pub out_of_order: u32,
}

impl Receiver {
    /// Takes a segment; returns whether it is new.
    #[inline]
    pub fn on_segment(&mut self, number: u32, is_retransmission: bool) -> bool {
        if number < self.beyond && !is_retransmission {
            self.out_of_order += 1;
        }
        self.beyond = self.beyond.max(number + 1);
        if number == self.missing {
            self.missing += 1;
            if !self.ahead.is_empty() {
                self.missing = self.ahead.first_missing(self.missing);
                self.ahead.remove_below(self.missing);
            }
            return true;
        }
        number > self.missing && self.ahead.insert(number)
    }

    /// Returns how many different segments came.
    pub fn count(&self) -> u32 {
        self.missing + self.ahead.len()
    }

    /// Returns the first segment that is missing.
    #[inline]
    pub fn missing(&self) -> u32 {
        self.missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_puts_segments_in_order() {
        let mut receiver = Receiver::default();
        let mut take = |number| (receiver.on_segment(number, false), receiver.missing());
        assert_eq!(take(0), (true, 1));
        assert_eq!(take(3), (true, 1));
        assert_eq!(take(2), (true, 1));
        assert_eq!(take(2), (false, 1));
        assert_eq!(take(1), (true, 4));
        assert_eq!(take(1), (false, 4));
        assert_eq!(take(4), (true, 5));
        assert_eq!(receiver.out_of_order, 4);
    }
}
