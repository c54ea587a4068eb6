//! Frames as an attacker's generator makes them.

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::shapes::every_shape_with;

/// A stream of frames, always the same for a seed.
#[derive(Debug)]
pub struct Frames {
    random: SmallRng,
    shapes: Vec<Vec<u8>>,
    frame: Vec<u8>,
}

/// What is done to a frame, one or two after the other.
const MUTATIONS: [fn(&mut Frames); 8] = [
    Frames::flip_bits,
    Frames::cut,
    Frames::splice,
    Frames::nest,
    Frames::lie_about_lengths,
    Frames::repeat_a_part,
    Frames::overwrite_at_random,
    Frames::move_to_another_flow,
];

/// Longer than what any header chain needs, and as long as what a jumbo link carries.
const LONGEST: usize = 9_018;

impl Frames {
    /// Begins the stream of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let shapes = [0x00, 0x09, 0x12, 0xbb]
            .into_iter()
            .flat_map(every_shape_with);
        Self {
            random: SmallRng::seed_from_u64(seed),
            shapes: shapes.map(|shape| shape.frame).collect(),
            frame: Vec::new(),
        }
    }

    /// Makes the next frame.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend")]
    pub fn next(&mut self) -> &[u8] {
        self.frame = self.any_shape().to_vec();
        for _ in 0..self.random.random_range(0..=3) {
            let mutation = self.random.random_range(0..MUTATIONS.len());
            MUTATIONS[mutation](self);
            self.frame.truncate(LONGEST);
        }
        &self.frame
    }

    fn any_shape(&mut self) -> &[u8] {
        let number = self.random.random_range(0..self.shapes.len());
        &self.shapes[number]
    }

    /// A place within the frame, early ones more often: headers are there.
    fn place(&mut self) -> usize {
        let length = self.frame.len().max(1);
        let end = if self.random.random_bool(0.8) {
            length.min(96)
        } else {
            length
        };
        self.random.random_range(0..end)
    }

    fn flip_bits(&mut self) {
        for _ in 0..self.random.random_range(1..=8) {
            let (place, bit) = (self.place(), self.random.random_range(0..8));
            if let Some(byte) = self.frame.get_mut(place) {
                *byte ^= 1 << bit;
            }
        }
    }

    fn cut(&mut self) {
        let end = self.place();
        self.frame.truncate(end);
    }

    fn splice(&mut self) {
        let (end, start) = (self.place(), self.place());
        let other = self.any_shape();
        let tail = other.get(start..).unwrap_or(&[]).to_vec();
        self.frame.truncate(end);
        self.frame.extend(tail);
    }

    /// Puts tags or headers that lead to themselves in front of what is there.
    fn nest(&mut self) {
        const TAG: [u8; 4] = [0x81, 0x00, 0, 7];
        const SERVICE_TAG: [u8; 4] = [0x88, 0xa8, 0, 7];
        // Hop-by-hop options, routing, destination options and fragment, each with another behind it.
        const EXTENSIONS: [[u8; 8]; 4] = [
            [0, 0, 1, 4, 0, 0, 0, 0],
            [43, 0, 0, 0, 0, 0, 0, 0],
            [60, 255, 1, 4, 0, 0, 0, 0],
            [44, 0, 0, 1, 0, 0, 0, 9],
        ];
        let times = self.random.random_range(1..=20);
        let number = self.random.random_range(0..6);
        let (at, header): (usize, &[u8]) = match number {
            0 => (12, &TAG),
            1 => (12, &SERVICE_TAG),
            other => {
                // Behind an IPv6 header without tags, which then leads to it.
                if let Some(next) = self.frame.get_mut(14 + 6) {
                    *next = EXTENSIONS[other - 2][0];
                }
                (14 + 40, &EXTENSIONS[other - 2])
            }
        };
        if at <= self.frame.len() {
            let nested = header.repeat(times);
            self.frame.splice(at..at, nested);
        }
    }

    /// Of the header, of the packet, of what it carries, of an extension.
    fn lie_about_lengths(&mut self) {
        const FIELDS: [usize; 8] = [14, 16, 17, 18, 19, 46, 54 + 1, 38];
        const LIES: [u8; 8] = [0, 1, 4, 0x40, 0x4f, 0x7f, 0xfe, 0xff];
        let field = FIELDS[self.random.random_range(0..FIELDS.len())];
        let lie = LIES[self.random.random_range(0..LIES.len())];
        if let Some(byte) = self.frame.get_mut(field) {
            *byte = lie;
        }
    }

    fn repeat_a_part(&mut self) {
        let (one, other) = (self.place(), self.place());
        let range = one.min(other)..one.max(other).min(self.frame.len());
        let part = self.frame.get(range).unwrap_or(&[]).to_vec();
        let at = self.place().min(self.frame.len());
        let times = self.random.random_range(1..=4);
        self.frame.splice(at..at, part.repeat(times));
    }

    fn overwrite_at_random(&mut self) {
        let start = self.place().min(self.frame.len());
        let end = self
            .frame
            .len()
            .min(start + self.random.random_range(1..=40));
        self.random.fill(&mut self.frame[start..end]);
    }

    /// Addresses and ports of an IPv4 packet without tags; of others, something else.
    fn move_to_another_flow(&mut self) {
        if let Some(key) = self.frame.get_mut(26..38) {
            self.random.fill(key);
        }
    }
}
