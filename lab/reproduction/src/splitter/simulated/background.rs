//! The background: messages of MGEN, which arrive as a Poisson process and enter behind the borders.

use std::time::Duration;

use flow_twin::CrossPacket;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::super::{
    cell::{Cell, Mode},
    server::{BACKGROUND_FLOWS, FRAME_BYTES},
};

/// No other stream of a seed has these numbers, which are ports of requests.
const FIRST_STREAM: u64 = 1;

/// Datagrams of both directions in the order of their times.
#[derive(Debug)]
pub(super) struct Background {
    directions: [Direction; 2],
    mode: Mode,
    capacity_bits: f64,
    until_ns: f64,
}

#[derive(Debug)]
struct Direction {
    random: ChaCha8Rng,
    mean_gap_ns: f64,
    next_ns: f64,
    /// Tunnel of each flow, where a hash chooses it.
    tunnels: Vec<usize>,
    sent: u64,
}

impl Background {
    /// The background of a cell: `load_percent` of both tunnels in each direction, until then.
    pub(super) fn new(rate_mbit: u32, cell: &Cell, seed: u64, until: Duration) -> Self {
        let capacity_bits = 2.0 * f64::from(rate_mbit) * 1e6;
        let bits = capacity_bits * f64::from(cell.load_percent) / 100.0;
        let directions = [0, 1].map(|number| {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            random.set_stream(FIRST_STREAM + number);
            let tunnels = (0..BACKGROUND_FLOWS).map(|_| random.random_range(0..2));
            let mut direction = Direction {
                tunnels: tunnels.collect(),
                // Without a load the first one never comes.
                mean_gap_ns: FRAME_BYTES * 8e9 / bits,
                next_ns: 0.0,
                random,
                sent: 0,
            };
            direction.advance();
            direction
        });
        Self {
            directions,
            mode: cell.mode,
            capacity_bits,
            until_ns: until.as_secs_f64() * 1e9,
        }
    }

    /// What was sent, in percent of both tunnels, from the site and to it.
    pub(super) fn sent_percent(&self) -> [f64; 2] {
        let seconds = self.until_ns / 1e9;
        self.directions
            .each_ref()
            .map(|it| it.sent as f64 * FRAME_BYTES * 8.0 / seconds / self.capacity_bits * 100.0)
    }
}

impl Iterator for Background {
    type Item = CrossPacket;

    fn next(&mut self) -> Option<CrossPacket> {
        let [from, to] = &self.directions;
        let to_site = to.next_ns < from.next_ns;
        let direction = &mut self.directions[usize::from(to_site)];
        let at_ns = direction.next_ns;
        if at_ns >= self.until_ns {
            return None;
        }
        let uplink = direction.uplink(self.mode);
        direction.sent += 1;
        direction.advance();
        Some(CrossPacket {
            at_ns: at_ns as u64,
            to_site,
            uplink,
            bytes: FRAME_BYTES as u32,
        })
    }
}

impl Direction {
    fn advance(&mut self) {
        self.next_ns -= (1.0 - self.random.random::<f64>()).ln() * self.mean_gap_ns;
    }

    /// With a tunnel for each class it is in the long one; else it is spread as without a splitter.
    fn uplink(&mut self, mode: Mode) -> usize {
        match mode {
            Mode::OneTunnel => 0,
            Mode::Generic | Mode::Dedicated => 1,
            Mode::EcmpPacket => (self.sent % 2) as usize,
            Mode::EcmpFlow | Mode::Share => {
                let flow = self.random.random_range(0..self.tunnels.len());
                self.tunnels[flow]
            }
        }
    }
}
