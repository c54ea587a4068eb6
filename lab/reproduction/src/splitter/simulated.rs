//! Rounds in the simulator: both borders run the policy that the kernel runs ([`flow_twin`]), between hosts that speak TCP.
//!
//! The same requests as on real packets, and a background of Poisson datagrams that enters behind the borders. What grows with
//! the rate of the tunnels are the requests and the sizes of transfers, so that each has the same share of a tunnel.

mod background;
mod watch;

use std::{
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use flow_recording::{Count, FlowEnd, FlowRecord, Header, Reader, Transport, Writer};
use flow_twin::{Scheme, TwinSettings, Uplink, run_twin_beside};

use self::{background::Background, watch::Watch};
use super::{
    cell::{self, Cell, Length, Mode, RATE_MBIT, Round},
    schedule::{Kind, PAYLOAD_BYTES, Request, requests_at},
};

/// Round trips over a tunnel without a queue: the routers' part, which the paper does not tell.
const ROUND_TRIP_NS: u64 = 100_000;
/// Queue in front of each tunnel in milliseconds of its rate: that of the testbed.
const QUEUE_MS: u64 = 20;
/// Time that answers have after the last request: that on real packets, where rounds are as long.
const DRAIN: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];
/// Ethernet, IP and TCP with time stamps, on each segment.
const HEADER_BYTES: u64 = 66;
/// Options that a SYN has beyond those.
const SYN_OPTION_BYTES: u64 = 8;
/// What a client sends to ask, about, and what it is told when a file is stored.
const REQUEST_BYTES: u64 = 90;
const STORED_BYTES: u64 = 150;

/// Two tunnels of one rate, and how much passes them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// Rate of each tunnel, and of the hosts' links to their borders.
    pub rate_mbit: u32,
    /// How many times as large as on real packets videos and uploads are; 100 times is the paper's size.
    pub size_factor: u32,
    /// How long a round is.
    pub length: Length,
}

impl Network {
    fn new(rate_mbit: u32, size_factor: u32, [whole_s, warm_up_s]: [f64; 2]) -> Self {
        Self {
            rate_mbit,
            size_factor,
            length: Length { whole_s, warm_up_s },
        }
    }

    /// The testbed's tunnels with its rounds, and then those of the paper's rate and of ten times that, with the paper's sizes.
    pub fn full(packets: Length) -> [Self; 3] {
        [
            Self::new(RATE_MBIT, 1, [packets.whole_s, packets.warm_up_s]),
            Self::new(1_000, 100, [30.0, 5.0]),
            Self::new(10_000, 100, [3.0, 0.5]),
        ]
    }

    /// Returns the same rates from less, with a tenth of the paper's sizes.
    pub fn quick(packets: Length) -> [Self; 3] {
        [
            Self::new(RATE_MBIT, 1, [packets.whole_s, packets.warm_up_s]),
            Self::new(1_000, 10, [1.0, 0.2]),
            Self::new(10_000, 10, [0.1, 0.02]),
        ]
    }

    /// Its name in tables and rows.
    pub fn name(&self) -> String {
        match self.rate_mbit {
            rate if rate >= 1_000 => format!("simulated, {} Gbit/s", rate / 1_000),
            rate => format!("simulated, {rate} Mbit/s"),
        }
    }

    /// Simulates rounds of these cells and seeds, or takes from `directory` those that are there; so many at a time.
    ///
    /// # Errors
    ///
    /// If a round cannot be written.
    pub fn rounds(
        &self,
        order: &[(Cell, u64)],
        directory: &Path,
        jobs: usize,
    ) -> Result<Vec<Round>> {
        let directory = directory.join(format!(
            "splitter-{}mbit-{}",
            self.rate_mbit, self.size_factor
        ));
        let progress = crate::progress(order.len(), self.name());
        let (next, rounds) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for _ in 0..jobs.clamp(1, order.len().max(1)) {
                scope.spawn(|| {
                    while let Some((cell, seed)) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let simulate = || self.round(cell, *seed);
                        let round = cell::round(cell, self.length, *seed, &directory, simulate);
                        if let Ok(mut rounds) = rounds.lock() {
                            rounds.push(round);
                        }
                        progress.inc(1);
                    }
                });
            }
        });
        progress.finish_and_clear();
        let rounds: Result<Vec<Round>> = rounds
            .into_inner()
            .unwrap_or_default()
            .into_iter()
            .collect();
        let mut rounds = rounds?;
        // Whoever sets two cells beside each other takes them seed by seed.
        rounds.sort_by_key(|it| it.seed);
        Ok(rounds)
    }

    /// Simulates a round.
    fn round(&self, cell: &Cell, seed: u64) -> Result<Round> {
        let whole = Duration::from_secs_f64(self.length.whole_s);
        let requests = requests_at(|it| self.per_second(it), cell.kinds(), whole, seed);
        let records = self.records(&requests);
        let recording = recording(&records, whole, cell.threshold)?;
        let until = whole + drain(whole);
        let mut background = Background::new(self.rate_mbit, cell, seed, until);
        let mut watch = Watch::new(&requests, &records);
        run_twin_beside(
            Reader::new(recording.as_slice())?,
            &self.settings(seed),
            &scheme(cell)?,
            &mut background,
            &mut watch,
        )?;
        let counts = |at: Duration| at.as_secs_f64() >= self.length.warm_up_s;
        let seen = watch.seen(until);
        let ended = |it: &&watch::Seen| counts(it.request.at) && it.ended.is_some();
        Ok(Round {
            cell: *cell,
            length: self.length,
            seed,
            list_ms: seen
                .iter()
                .filter(|it| ended(it) && it.request.kind == Kind::List)
                .map(|it| it.completion_ms)
                .collect(),
            jitter_us: watch.jitter_us(),
            long_jitter_us: Vec::new(),
            transfer_mbit: seen
                .iter()
                .filter(|it| ended(it) && it.request.kind != Kind::List)
                .filter_map(|it| {
                    let bits = self.payload(it.request.kind) as f64 * 8.0;
                    Some(bits / it.ended?.as_secs_f64() / 1e6)
                })
                .collect(),
            page_ms: Vec::new(),
            unanswered: seen.iter().filter(|it| it.ended.is_none()).count(),
            background_percent: background.sent_percent(),
            objection: None,
        })
    }

    fn settings(&self, seed: u64) -> TwinSettings {
        let bits_per_second = u64::from(self.rate_mbit) * 1_000_000;
        let tunnel = Uplink {
            bits_per_second,
            round_trip_ns: ROUND_TRIP_NS,
        };
        TwinSettings {
            buffer_ms: QUEUE_MS,
            access_bits_per_second: Some(bits_per_second),
            seed,
            ..TwinSettings::new(vec![tunnel; 2])
        }
    }

    /// Requests in a second: with the rate, but for what is larger instead.
    fn per_second(&self, kind: Kind) -> f64 {
        let rate = f64::from(self.rate_mbit) / f64::from(RATE_MBIT);
        match kind {
            Kind::List => kind.per_second() * rate,
            Kind::Video | Kind::Upload => kind.per_second() * rate / f64::from(self.size_factor),
        }
    }

    /// Payload of what is listed, watched or stored; the listing's is the paper's at all rates.
    fn payload(&self, kind: Kind) -> u64 {
        let factor = if kind == Kind::List {
            1
        } else {
            self.size_factor
        };
        (kind.packets() * PAYLOAD_BYTES) as u64 * u64::from(factor)
    }

    /// Flows of these requests in their order, each with a start of its own.
    fn records(&self, requests: &[Request]) -> Vec<FlowRecord> {
        let mut last_us = None;
        let record = |request: &Request| {
            let at_us = request.at.as_micros() as u64;
            let start_us = last_us.map_or(at_us, |last: u64| at_us.max(last + 1));
            last_us = Some(start_us);
            let payload = self.payload(request.kind);
            let (out, back) = match request.kind {
                Kind::Upload => (payload, STORED_BYTES),
                Kind::List | Kind::Video => (REQUEST_BYTES, payload),
            };
            FlowRecord {
                start_us,
                // It is not slow by itself.
                duration_us: 1,
                is_long: false,
                transport: Transport::Tcp,
                is_ipv6: false,
                began_before: false,
                end: FlowEnd::Finished,
                out: count(out),
                back: Some(count(back)),
            }
        };
        requests.iter().map(record).collect()
    }
}

/// The least packets that carry a payload.
fn count(payload: u64) -> Count {
    let packets = payload.div_ceil(PAYLOAD_BYTES as u64).max(1);
    Count {
        packets,
        bytes: payload + packets * HEADER_BYTES + SYN_OPTION_BYTES,
    }
}

/// As long as the round, within bounds.
fn drain(whole: Duration) -> Duration {
    let [least, most] = DRAIN;
    whole.clamp(least, most)
}

/// The bytes of a recording of these flows.
fn recording(records: &[FlowRecord], whole: Duration, threshold: u32) -> Result<Vec<u8>> {
    let directory = tempfile::tempdir().context("cannot make a directory for a recording")?;
    let path = directory.path().join("requests.flows");
    let mut writer = Writer::create(&path, false)?;
    for record in records {
        writer.add(record)?;
    }
    writer.finish(Header {
        // All of them are due.
        duration_us: (whole + drain(whole)).as_micros() as u64,
        threshold,
        ..Header::default()
    })?;
    std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// The scheme of a cell. What programs cost a packet is not simulated, and so are no ways to attach them.
fn scheme(cell: &Cell) -> Result<Scheme> {
    let threshold = Some(cell.threshold.into());
    Ok(match cell.mode {
        Mode::EcmpFlow => Scheme::Ecmp,
        Mode::EcmpPacket => Scheme::Spray,
        Mode::Share => Scheme::Share { threshold },
        Mode::Dedicated => Scheme::Dedicated { threshold },
        Mode::OneTunnel | Mode::Generic => bail!("{} is not simulated", cell.mode.name()),
    })
}

#[cfg(test)]
mod tests;
