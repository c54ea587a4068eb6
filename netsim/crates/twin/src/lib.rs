//! A twin of one's own network: the flows of a recording, over uplinks that are stated, under one scheme
//! after the other.
//!
//! Two borders have the same uplinks between them. The connections of the recording start when they did, TCP's
//! with a handshake, and each direction carries the payload that it had: the site asks, and the other side
//! answers. Hosts speak the TCP of `flow-tcp`; each border chooses uplink and queue with the code that the kernel runs.
//!
//! Memory does not grow with the recording: flows are read as they are due, forgotten when they are
//! complete, and counted in histograms.

mod beside;
mod border;
mod connection;
mod event;
mod port;
mod report;
mod scheme;
mod settings;
mod statistics;
mod world;

use std::io::Read;

use flow_recording::{ReadError, Reader};
use serde::Serialize;

use self::beside::Beside;
pub use self::beside::{CrossPacket, Observer, Passage};
pub use self::report::TwinReport;
pub use self::scheme::{Scheme, SchemeError};
pub use self::settings::{TwinSettings, Uplink, UplinkError};
pub use self::statistics::{Distribution, FlowStatistics};
use self::world::World;

/// Reports what one scheme would have done to a recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TwinOutcome {
    /// The scheme.
    pub scheme: String,
    /// The threshold between short and long that the scheme goes by; `None` where it has none.
    pub threshold: Option<u64>,
    /// Connections that were short by the threshold of the recording.
    pub short: FlowStatistics,
    /// Connections that were long by that threshold in one direction or both.
    pub long: FlowStatistics,
    /// Share of the stated rate that each uplink carried in the simulated time, from the site and to it, 0
    /// to 1.
    pub utilisation: Vec<[f64; 2]>,
    /// Packets that were dropped in front of uplinks.
    pub dropped_packets: u64,
    /// Segments that were sent.
    pub segments: u64,
    /// Segments of these that were sent again.
    pub retransmitted: u64,
    /// Retransmission timeouts, those of handshakes among them.
    pub timeouts: u64,
    /// Connections that were paced as they came and have no completion time: slow for long, by themselves.
    pub paced_flows: u64,
    /// Connections that were not simulated, for too many were under way.
    pub left_out: u64,
    /// Connections that were not simulated, for they began in the part that is left out, and went on.
    pub cut_by_skip: u64,
    /// Packets that passed a link, on which the time of a run depends.
    pub hops: u64,
}

/// Runs a recording under one scheme. The same recording, settings and scheme give the same outcome on
/// every machine. `progress` is called now and then with the simulated share of the time, 0 to 1.
///
/// # Errors
/// When the recording cannot be read to its end.
pub fn run_twin(
    reader: Reader<impl Read>,
    settings: &TwinSettings,
    scheme: &Scheme,
    mut progress: impl FnMut(f64),
) -> Result<TwinOutcome, ReadError> {
    World::new(reader, settings, scheme, Beside::default()).run(&mut progress)
}

/// Runs a recording under one scheme beside other traffic, which enters behind the borders, and lets an
/// observer see each packet that arrives. The same recording, settings, scheme and traffic give the same outcome on every
/// machine.
///
/// # Errors
/// When the recording cannot be read to its end.
pub fn run_twin_beside(
    reader: Reader<impl Read>,
    settings: &TwinSettings,
    scheme: &Scheme,
    cross: &mut dyn Iterator<Item = CrossPacket>,
    observer: &mut dyn Observer,
) -> Result<TwinOutcome, ReadError> {
    World::new(reader, settings, scheme, Beside::new(cross, observer)).run(&mut |_| ())
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
