//! Contents of datagrams in flight, for transports that look into what they receive.
//!
//! What the simulator lets such a transport send is nearly all zeros, and so are sums of it. A
//! datagram is kept without its first long run of zeros and without those at its end, and comes out
//! as it went in: some 100 bytes each instead of 1,500.

/// Zeros are looked for in steps of so many bytes.
const STEP: usize = 16;

/// The datagrams that are in flight.
#[derive(Debug, Default)]
pub struct Datagrams {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

/// A datagram and what goes with it.
#[derive(Debug, Default)]
struct Entry {
    label: Label,
    /// The bytes in front of the zeros, then those behind them.
    kept: Vec<u8>,
    front: usize,
    behind_at: usize,
    bytes: usize,
}

/// The metadata of a datagram, known without looking into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// The host that sent it.
    pub from: u16,
    /// Index of the sender's path that it takes.
    pub path: u8,
    /// The spine that this path leads over; of no meaning within a leaf.
    pub spine: u8,
    /// The message that it is part of; [`NONE`](super::packet::NONE) for what is part of none.
    pub message: u32,
}

impl Datagrams {
    /// Keeps a datagram and returns its number.
    pub fn insert(&mut self, label: Label, datagram: &[u8]) -> u32 {
        let id = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry::default());
            self.entries.len() as u32 - 1
        });
        let is_zero = |chunk: &[u8]| chunk.iter().all(|it| *it == 0);
        let chunks = || datagram.chunks(STEP);
        let end = datagram
            .len()
            .min(STEP * (chunks().len() - chunks().rev().take_while(|it| is_zero(it)).count()));
        let front = chunks().position(is_zero).unwrap_or(chunks().len()) * STEP;
        let front = front.min(end);
        let zeros = chunks().skip(front / STEP).take_while(|it| is_zero(it));
        let behind_at = (front + STEP * zeros.count()).clamp(front, end);
        let entry = &mut self.entries[id as usize];
        entry.label = label;
        entry.kept.clear();
        entry.kept.extend_from_slice(&datagram[..front]);
        entry.kept.extend_from_slice(&datagram[behind_at..end]);
        (entry.front, entry.behind_at, entry.bytes) = (front, behind_at, datagram.len());
        id
    }

    /// Returns the label of a datagram.
    #[inline]
    pub fn label(&self, id: u32) -> Label {
        self.entries[id as usize].label
    }

    /// Takes a datagram out, to `out`.
    pub fn take(&mut self, id: u32, out: &mut Vec<u8>) -> Label {
        let entry = &self.entries[id as usize];
        let (front, behind) = entry.kept.split_at(entry.front);
        out.clear();
        out.extend_from_slice(front);
        out.resize(entry.behind_at, 0);
        out.extend_from_slice(behind);
        out.resize(entry.bytes, 0);
        let label = entry.label;
        self.remove(id);
        label
    }

    /// Forgets a datagram that was lost.
    pub fn remove(&mut self, id: u32) {
        self.free.push(id);
    }

    /// Counts the datagrams in flight; for checks.
    pub fn count(&self) -> u64 {
        (self.entries.len() - self.free.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn datagrams_come_out_as_they_went_in(
            runs in prop::collection::vec((any::<u8>(), 0..200usize), 0..8),
            others in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            // Mostly zeros, as they are in runs; then anything.
            let runs = runs.iter().flat_map(|(byte, count)| vec![byte % 2 * byte; *count]);
            let datagram: Vec<u8> = runs.chain(others).collect();
            let label = Label { from: 3, path: 1, spine: 2, message: 7 };
            let mut datagrams = Datagrams::default();
            datagrams.insert(Label::default(), &[0; 40]);
            let id = datagrams.insert(label, &datagram);
            let mut out = vec![1; 10];
            prop_assert_eq!(datagrams.take(id, &mut out), label);
            prop_assert_eq!(out, datagram);
            prop_assert_eq!(datagrams.count(), 1);
        }
    }

    #[test]
    fn zeros_take_no_memory() {
        let mut datagrams = Datagrams::default();
        let mut datagram = vec![0; 1472];
        datagram[..20].fill(1);
        datagram[1455..].fill(2);
        let id = datagrams.insert(Label::default(), &datagram);
        assert!(datagrams.entries[id as usize].kept.len() <= 64);
    }
}
