//! Timers of the machine, and what they are for.

pub(super) use cloudburst_congestion::{Alarm, Timers};

use super::event::{PeerId, SendId};

/// What a timer of the machine is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TimerKey {
    Message(SendId),
    Peer(PeerId),
    /// Symbols of a peer wait to be acknowledged.
    Feedback(PeerId),
    /// Messages that were given up, of which the peer has not answered.
    Cancellations(PeerId),
    /// Somebody has keys that are not ours.
    KeyMismatches,
}
