//! Figures over time: a ring of samples for each class and each tunnel.

use std::collections::VecDeque;
use std::time::Duration;

use serde::Serialize;
use serde::ser::{SerializeSeq as _, Serializer};

/// The time from one sample to the next.
pub const SPACING: Duration = Duration::from_secs(10);
/// Samples that are kept: an hour.
pub const MOST_SAMPLES: usize = 360;
/// Tunnels whose figures are kept, those that came first; a hub has more.
pub const MOST_TUNNELS: usize = 32;

/// The memory that samples take at most: less than 800 kB.
pub const MOST_BYTES: usize = MOST_SAMPLES
    * (size_of::<u64>()
        + 2 * size_of::<ClassSample>()
        + MOST_TUNNELS * size_of::<Option<TunnelSample>>());

const _: () = assert!(MOST_BYTES < 800_000, "as the documentation has it");

/// The figures of a class of flows in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassSample {
    /// Flows that are neither finished nor idle.
    pub flows: f32,
    /// Bits a second from the site.
    pub bits_per_s: Option<f32>,
    /// Packets a second from the site.
    pub packets_per_s: Option<f32>,
}

/// The figures of a tunnel in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TunnelSample {
    /// Bits a second that left by its device.
    pub sent_bits_per_s: Option<f32>,
    /// Bits a second that came in by its device.
    pub received_bits_per_s: Option<f32>,
    /// Bits a second that left with the mark of short flows.
    pub left_short_bits_per_s: Option<f32>,
    /// Bits a second that left with the mark of long flows.
    pub left_long_bits_per_s: Option<f32>,
    /// Time there and back, in seconds.
    pub rtt_s: Option<f32>,
    /// Share of probes that were lost.
    pub loss_ratio: Option<f32>,
    /// Bytes that waited in front of its device when the sample was taken.
    pub backlog_bytes: Option<f32>,
}

/// Names a tunnel by site, class and device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TunnelName {
    /// The site that it leads to, where sites are listed.
    pub site: Option<String>,
    /// "short" or "long": the class that it is for.
    pub tunnel: &'static str,
    /// Its device.
    pub device: String,
}

/// Samples of the last hour, the newest last.
#[derive(Clone, Debug)]
pub struct Samples {
    at_ms: VecDeque<u64>,
    pub(crate) classes: [VecDeque<ClassSample>; 2],
    pub(crate) tunnels: Vec<(TunnelName, VecDeque<Option<TunnelSample>>)>,
    /// Tunnels that were left out of the newest sample.
    left_out: usize,
}

impl Default for Samples {
    fn default() -> Self {
        Self {
            at_ms: VecDeque::with_capacity(MOST_SAMPLES),
            classes: [(); 2].map(|()| VecDeque::with_capacity(MOST_SAMPLES)),
            tunnels: Vec::new(),
            left_out: 0,
        }
    }
}

impl Samples {
    /// Tells if it is time for the next sample, by a clock in milliseconds that never goes back.
    #[must_use]
    pub fn is_due(&self, now_ms: u64) -> bool {
        let spacing_ms = SPACING.as_millis() as u64;
        let last = self.at_ms.back();
        // A timer that is a little early must not halve the samples.
        last.is_none_or(|last| now_ms.saturating_sub(*last) >= spacing_ms * 9 / 10)
    }

    /// Adds a sample. What is older than an hour, or beyond the number that an hour has, is forgotten.
    pub fn add(
        &mut self,
        now_ms: u64,
        classes: [ClassSample; 2],
        tunnels: impl IntoIterator<Item = (TunnelName, TunnelSample)>,
    ) {
        let window_ms = SPACING.as_millis() as u64 * MOST_SAMPLES as u64;
        let is_old = |at: &u64| now_ms.saturating_sub(*at) >= window_ms;
        while self.at_ms.len() >= MOST_SAMPLES || self.at_ms.front().is_some_and(is_old) {
            self.forget_oldest();
        }
        let before = self.at_ms.len();
        self.at_ms.push_back(now_ms);
        for (row, sample) in self.classes.iter_mut().zip(classes) {
            row.push_back(sample);
        }
        self.left_out = 0;
        for (name, sample) in tunnels {
            match self.row(name, before) {
                Some(row) if row.len() == before => row.push_back(Some(sample)),
                // It is listed twice.
                Some(_) => {}
                None => self.left_out += 1,
            }
        }
        for (_, row) in &mut self.tunnels {
            row.resize(before + 1, None);
        }
        self.tunnels
            .retain(|(_, row)| row.iter().any(Option::is_some));
    }

    fn forget_oldest(&mut self) {
        self.at_ms.pop_front();
        for row in &mut self.classes {
            row.pop_front();
        }
        for (_, row) in &mut self.tunnels {
            row.pop_front();
        }
    }

    /// The samples of a tunnel, of which nothing was known `before` where it is new; `None` where there
    /// are too many.
    fn row(
        &mut self,
        name: TunnelName,
        before: usize,
    ) -> Option<&mut VecDeque<Option<TunnelSample>>> {
        let found = self.tunnels.iter().position(|(it, _)| *it == name);
        let index = match found {
            Some(index) => index,
            None if self.tunnels.len() >= MOST_TUNNELS => return None,
            None => {
                let mut row = VecDeque::with_capacity(MOST_SAMPLES);
                row.resize(before, None);
                self.tunnels.push((name, row));
                self.tunnels.len() - 1
            }
        };
        Some(&mut self.tunnels[index].1)
    }

    /// Returns how long before `now_ms` each sample was taken, in seconds, as negative numbers.
    pub(crate) fn times_s(&self, now_ms: u64) -> Vec<f64> {
        let at = self.at_ms.iter();
        let ago = at.map(|at| -(now_ms.saturating_sub(*at) as f64) / 1e3);
        ago.collect()
    }

    /// Returns what `/history.json` has: by class and by tunnel, a list for each figure, with an entry
    /// for each sample.
    #[must_use]
    pub fn document(&self, now_ms: u64) -> impl Serialize + '_ {
        Document {
            spacing_s: SPACING.as_secs(),
            times_s: self.times_s(now_ms),
            classes: ["short", "long"]
                .into_iter()
                .zip(&self.classes)
                .map(class)
                .collect(),
            tunnels: self.tunnels.iter().map(tunnel).collect(),
            tunnels_left_out: self.left_out,
        }
    }

    /// Returns the memory that the samples take, names aside.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let classes = self.classes.iter().map(VecDeque::capacity);
        let tunnels = self.tunnels.iter().map(|(_, row)| row.capacity());
        self.at_ms.capacity() * size_of::<u64>()
            + classes.sum::<usize>() * size_of::<ClassSample>()
            + tunnels.sum::<usize>() * size_of::<Option<TunnelSample>>()
    }
}

#[derive(Serialize)]
struct Document<'s> {
    spacing_s: u64,
    times_s: Vec<f64>,
    classes: Vec<ClassColumns<'s>>,
    tunnels: Vec<TunnelColumns<'s>>,
    tunnels_left_out: usize,
}

#[derive(Serialize)]
struct ClassColumns<'s> {
    class: &'static str,
    flows: Column<'s, ClassSample>,
    bits_per_s: Column<'s, ClassSample>,
    packets_per_s: Column<'s, ClassSample>,
}

#[derive(Serialize)]
struct TunnelColumns<'s> {
    #[serde(flatten)]
    name: &'s TunnelName,
    sent_bits_per_s: Column<'s, Option<TunnelSample>>,
    received_bits_per_s: Column<'s, Option<TunnelSample>>,
    left_short_bits_per_s: Column<'s, Option<TunnelSample>>,
    left_long_bits_per_s: Column<'s, Option<TunnelSample>>,
    rtt_s: Column<'s, Option<TunnelSample>>,
    loss_ratio: Column<'s, Option<TunnelSample>>,
    backlog_bytes: Column<'s, Option<TunnelSample>>,
}

fn class<'s>((class, row): (&'static str, &'s VecDeque<ClassSample>)) -> ClassColumns<'s> {
    ClassColumns {
        class,
        flows: Column(row, |it| Some(it.flows)),
        bits_per_s: Column(row, |it| it.bits_per_s),
        packets_per_s: Column(row, |it| it.packets_per_s),
    }
}

fn tunnel((name, row): &(TunnelName, VecDeque<Option<TunnelSample>>)) -> TunnelColumns<'_> {
    TunnelColumns {
        name,
        sent_bits_per_s: Column(row, |it| it.as_ref()?.sent_bits_per_s),
        received_bits_per_s: Column(row, |it| it.as_ref()?.received_bits_per_s),
        left_short_bits_per_s: Column(row, |it| it.as_ref()?.left_short_bits_per_s),
        left_long_bits_per_s: Column(row, |it| it.as_ref()?.left_long_bits_per_s),
        rtt_s: Column(row, |it| it.as_ref()?.rtt_s),
        loss_ratio: Column(row, |it| it.as_ref()?.loss_ratio),
        backlog_bytes: Column(row, |it| it.as_ref()?.backlog_bytes),
    }
}

/// One figure of all samples.
struct Column<'s, T>(&'s VecDeque<T>, fn(&T) -> Option<f32>);

impl<T> Serialize for Column<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(row, figure) = self;
        let mut list = serializer.serialize_seq(Some(row.len()))?;
        for sample in *row {
            list.serialize_element(&figure(sample))?;
        }
        list.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACING_MS: u64 = SPACING.as_millis() as u64;

    fn name(number: usize) -> TunnelName {
        TunnelName {
            site: None,
            tunnel: "short",
            device: format!("wan{number}"),
        }
    }

    fn sample(bits: f32) -> TunnelSample {
        TunnelSample {
            sent_bits_per_s: Some(bits),
            ..TunnelSample::default()
        }
    }

    fn add(samples: &mut Samples, now_ms: u64, tunnels: std::ops::Range<usize>) {
        let tunnels = tunnels.map(|number| (name(number), sample(now_ms as f32)));
        samples.add(now_ms, Default::default(), tunnels);
    }

    #[test]
    fn memory_is_bounded_however_many_tunnels_and_hours_there_are() {
        let mut samples = Samples::default();
        for step in 0..3_000 {
            // Others each time: 100 sites that come and go.
            let first = step as usize % 100;
            add(&mut samples, step * SPACING_MS, first..first + 100);
            assert!(samples.bytes() <= MOST_BYTES, "{}", samples.bytes());
        }
        assert_eq!(samples.at_ms.len(), MOST_SAMPLES);
        assert_eq!(samples.tunnels.len(), MOST_TUNNELS);
        let text = serde_json::to_string(&samples.document(3_000 * SPACING_MS)).unwrap();
        assert!(text.len() < 1 << 20, "{}", text.len());
    }

    #[test]
    fn samples_are_due_by_their_spacing_and_forgotten_after_an_hour() {
        let mut samples = Samples::default();
        assert!(samples.is_due(5));
        add(&mut samples, 5, 0..1);
        assert!(!samples.is_due(5 + SPACING_MS / 2));
        assert!(samples.is_due(5 + SPACING_MS - 100), "a timer was early");
        add(&mut samples, 5 + SPACING_MS, 0..1);
        assert_eq!(samples.times_s(5 + SPACING_MS), [-10.0, 0.0]);
        // After a long pause nothing of before is of the last hour.
        add(&mut samples, 4_000_000, 0..1);
        assert_eq!(samples.times_s(4_000_000), [0.0]);
    }

    #[test]
    fn each_row_has_an_entry_for_each_sample_also_of_tunnels_that_come_and_go() {
        let mut samples = Samples::default();
        add(&mut samples, 0, 0..1);
        add(&mut samples, SPACING_MS, 0..2);
        add(&mut samples, 2 * SPACING_MS, 1..2);
        let json = serde_json::to_value(samples.document(2 * SPACING_MS)).unwrap();
        assert_eq!(json["times_s"], serde_json::json!([-20.0, -10.0, 0.0]));
        let sent = |index: usize| json["tunnels"][index]["sent_bits_per_s"].clone();
        assert_eq!(sent(0), serde_json::json!([0.0, 10_000.0, null]));
        assert_eq!(sent(1), serde_json::json!([null, 10_000.0, 20_000.0]));
        assert_eq!(json["classes"][1]["class"], "long");
        assert_eq!(
            json["classes"][1]["flows"],
            serde_json::json!([0.0, 0.0, 0.0])
        );
        // One that has been gone for an hour has no row any more.
        for step in 3..400 {
            add(&mut samples, step * SPACING_MS, 1..2);
        }
        assert_eq!(samples.tunnels.len(), 1);
    }

    #[test]
    fn tunnel_that_is_listed_twice_has_one_entry() {
        let mut samples = Samples::default();
        let twice = [(name(0), sample(1.0)), (name(0), sample(2.0))];
        samples.add(0, Default::default(), twice);
        assert_eq!(samples.tunnels[0].1, [Some(sample(1.0))]);
    }

    #[test]
    fn tunnels_beyond_the_bound_are_counted() {
        let mut samples = Samples::default();
        add(&mut samples, 0, 0..MOST_TUNNELS + 3);
        let json = serde_json::to_value(samples.document(0)).unwrap();
        assert_eq!(json["tunnels_left_out"], 3);
    }
}
