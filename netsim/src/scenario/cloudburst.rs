//! Keys of `[transport.cloudburst]`: the endpoints of Cloudburst.

use std::time::Duration;

use cloudburst_code::{MAX_BLOCK_SYMBOLS, PaperDegree, Schedule, Shape, wire::HEADER_BYTES};
use cloudburst_proto::{
    self as protocol, DEFAULT_INITIAL_ROUND_TRIP,
    envelope::{ENVELOPE_BYTES, MAX_ENVELOPED_BYTES},
};
use cloudburst_wire::{Framing, symbol_bytes};
use serde::{Deserialize, Serialize};

/// Settings of `control = "cloudburst"`: messages go by Cloudburst's own state machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CloudburstSettings {
    /// Format and rules that endpoints speak.
    pub mode: CloudburstMode,
    /// How symbols are summed up; without it `uniform` in mode `paper` and `mds` in mode `native`.
    pub schedule: Option<CloudburstSchedule>,
    /// Number of paths to each peer, a pair of ports each; without it as many as there are spines.
    pub paths: Option<u8>,
    /// Mapping of endpoints' paths to spines.
    pub routing: Routing,
    /// A message takes one of the paths, drawn at random, instead of all.
    pub single_path: bool,
    /// Paths avoid broken links: routing has learnt of the failure.
    pub avoids_failed: bool,
    /// The share of the host's link that is sent at (Algorithm 1's *r*).
    pub share: f64,
    /// Round-trip time that endpoints in mode `native` assume before they have measured it, in us.
    pub initial_round_trip_us: f64,
    /// Time to encode a symbol, in ns. Sending hides it for all but the first.
    pub encode_ns: u64,
    /// Time to decode, in ns for each symbol that the message has.
    pub decode_ns: u64,
}

impl Default for CloudburstSettings {
    /// The product's mode. Times are those of `Mds` with many losses as measured on one thread (AMD
    /// EPYC, AVX-512), rounded up: 10.9 us for 20 sums of 64 symbols, 14.7 us for a message of 64.
    fn default() -> Self {
        Self {
            mode: CloudburstMode::Native,
            schedule: None,
            paths: None,
            routing: Routing::Explicit,
            single_path: false,
            avoids_failed: true,
            share: 1.0,
            initial_round_trip_us: us(DEFAULT_INITIAL_ROUND_TRIP),
            encode_ns: 550,
            decode_ns: 250,
        }
    }
}

fn us(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e3
}

/// The format and the rules that Cloudburst's endpoints speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CloudburstMode {
    /// The paper's format and Algorithm 1, without a bound on what is sent; see
    /// [`Source::with_paper_machine`](super::Source::with_paper_machine).
    Paper,
    /// The format and the rules of this project.
    #[default]
    Native,
}

/// How symbols are summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CloudburstSchedule {
    /// One to five symbols, each number as likely: how we read the paper.
    Uniform,
    /// Five picks, with replacement.
    Fixed,
    /// The symbols themselves, then sums of halves.
    Default,
    /// The symbols themselves, then sums of which none is in vain.
    Mds,
}

/// The mapping of endpoints' paths to spines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// Each path takes a spine of its own, in rotation (XPath).
    #[default]
    Explicit,
    /// Leaves hash ports (ECMP), so that several paths may share a spine.
    Ecmp,
}

/// Bytes that distinguish messages; shorter ones are filled up.
pub(crate) const LEAST_BYTES: u64 = 4;
/// UDP payload of a full Ethernet frame under IPv4.
const DATAGRAM_BYTES: usize = 1_472;
/// The application asks a second time after this; the paper does not say when.
const LIFETIME: Duration = Duration::from_secs(10);

impl CloudburstSettings {
    pub(crate) fn resolved_schedule(&self) -> CloudburstSchedule {
        self.schedule.unwrap_or(match self.mode {
            CloudburstMode::Paper => CloudburstSchedule::Uniform,
            CloudburstMode::Native => CloudburstSchedule::Mds,
        })
    }

    /// The longest message that it carries.
    pub(crate) fn max_message_bytes(&self) -> u64 {
        let most = match self.mode {
            CloudburstMode::Paper => MAX_BLOCK_SYMBOLS * (DATAGRAM_BYTES - HEADER_BYTES),
            CloudburstMode::Native => MAX_ENVELOPED_BYTES,
        };
        most as u64
    }

    /// Source symbols of a message.
    pub(crate) fn symbols(&self, bytes: u64) -> u32 {
        let (bytes, symbol_bytes) = match self.mode {
            CloudburstMode::Paper => (bytes as usize, DATAGRAM_BYTES - HEADER_BYTES),
            CloudburstMode::Native => (
                bytes as usize + ENVELOPE_BYTES,
                symbol_bytes(DATAGRAM_BYTES, Framing::PLAIN).unwrap_or(1),
            ),
        };
        Shape::fitting(bytes, symbol_bytes).map_or(1, |it| it.symbols() as u32)
    }

    /// Returns the configuration of an endpoint at a host with such a link, in a network of so many hosts.
    pub(crate) fn config(&self, link_bits_per_s: u64, hosts: usize) -> protocol::TransportConfig {
        let mut config = protocol::TransportConfig::unprotected();
        config.schedule = match self.resolved_schedule() {
            CloudburstSchedule::Uniform => Schedule::Paper(PaperDegree::Uniform),
            CloudburstSchedule::Fixed => Schedule::Paper(PaperDegree::Fixed),
            CloudburstSchedule::Default => Schedule::Default,
            CloudburstSchedule::Mds => Schedule::Mds,
        };
        // What is lost in a simulation harms nobody, and is what one wants to see.
        let reservation = protocol::Reservation::new(link_bits_per_s)
            .with_share(self.share)
            .with_most_loss(1.0);
        config.congestion = protocol::CongestionControl::Reserved(reservation);
        config.initial_round_trip = Duration::from_nanos((self.initial_round_trip_us * 1e3) as u64);
        config.datagrams.initial = DATAGRAM_BYTES;
        config.datagrams.most = DATAGRAM_BYTES;
        config.max_message_bytes = self.max_message_bytes() as usize;
        config.budget.lifetime = LIFETIME;
        if self.mode == CloudburstMode::Paper {
            // Algorithm 1 knows no end but the stop and the timer (A-C15).
            config.budget.symbols_factor = f64::from(u32::MAX);
        }
        let quotas = &mut config.quotas;
        quotas.peers = quotas.peers.max(hosts * usize::from(u8::MAX));
        quotas.unvalidated_peers = quotas.unvalidated_peers.max(quotas.peers);
        // Applications that have more to send than this are not slowed down by memory here.
        (quotas.outgoing_messages, quotas.outgoing_bytes) = (usize::MAX, usize::MAX / 2);
        config
    }
}
