//! Counts of each flow over time.

use std::ops::Range;

/// Bins of a run.
const BINS: usize = 600;

/// Counts of a flow in a bin of time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Packets that came to the bottleneck, and their bytes.
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
    /// Packets that the queue had no capacity for.
    pub(crate) dropped: u64,
    /// Packets that were lost by chance.
    pub(crate) lost: u64,
    /// Packets that the queue marked.
    pub(crate) marked: u64,
    /// Bytes that went through the bottleneck.
    pub(crate) through_bytes: u64,
    /// Bytes that an application got.
    pub(crate) goodput_bytes: u64,
}

impl Counts {
    /// The share of its packets that the queue dropped.
    pub(crate) fn loss(&self) -> f64 {
        self.dropped as f64 / self.sent.max(1) as f64
    }

    fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.dropped += other.dropped;
        self.lost += other.lost;
        self.marked += other.marked;
        self.through_bytes += other.through_bytes;
        self.goodput_bytes += other.goodput_bytes;
    }
}

/// Counts of all flows, and the longest queue, bin by bin.
#[derive(Debug)]
pub(crate) struct Series {
    bin_ns: u64,
    flows: Vec<Vec<Counts>>,
    queue_bytes: Vec<usize>,
}

impl Series {
    pub(crate) fn new(duration_ns: u64, flows: usize) -> Self {
        Self {
            bin_ns: duration_ns.div_ceil(BINS as u64).max(1),
            flows: vec![vec![Counts::default(); BINS + 1]; flows],
            queue_bytes: vec![0; BINS + 1],
        }
    }

    fn bin(&self, now: u64) -> usize {
        ((now / self.bin_ns) as usize).min(BINS)
    }

    pub(crate) fn at(&mut self, now: u64, flow: usize) -> &mut Counts {
        let bin = self.bin(now);
        &mut self.flows[flow][bin]
    }

    pub(crate) fn note_queue(&mut self, now: u64, bytes: usize) {
        let bin = self.bin(now);
        self.queue_bytes[bin] = self.queue_bytes[bin].max(bytes);
    }

    /// The longest queue of each bin that begins in a span of time, in bytes.
    pub(crate) fn queues(&self, span: Range<u64>) -> Vec<f64> {
        let bins = self.queue_bytes.iter().enumerate();
        let bins = bins.filter(|(bin, _)| span.contains(&(*bin as u64 * self.bin_ns)));
        bins.map(|(_, bytes)| *bytes as f64).collect()
    }

    /// Sums of the bins that begin in a span of time.
    pub(crate) fn total(&self, flow: usize, span: Range<u64>) -> Counts {
        let mut total = Counts::default();
        for (bin, counts) in self.flows[flow].iter().enumerate() {
            if span.contains(&(bin as u64 * self.bin_ns)) {
                total.add(counts);
            }
        }
        total
    }

    /// Rate of a flow through the bottleneck over time, in s and Mbit/s.
    pub(crate) fn rate(&self, flow: usize) -> Vec<(f64, f64)> {
        let seconds = self.bin_ns as f64 / 1e9;
        let bins = self.flows[flow][..BINS].iter().enumerate();
        bins.map(|(bin, counts)| {
            let mbit = counts.through_bytes as f64 * 8e-6 / seconds;
            (bin as f64 * seconds, mbit)
        })
        .collect()
    }

    /// Longest queue over time, in s and kB.
    pub(crate) fn queue(&self) -> Vec<(f64, f64)> {
        let seconds = self.bin_ns as f64 / 1e9;
        let bins = self.queue_bytes[..BINS].iter().enumerate();
        bins.map(|(bin, bytes)| (bin as f64 * seconds, *bytes as f64 / 1e3))
            .collect()
    }
}
