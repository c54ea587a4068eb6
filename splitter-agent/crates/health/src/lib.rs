//! Liveness of tunnels as pure state machines.
//!
//! [`Machine`] decides when a tunnel is dead and when it may be trusted again, [`TunnelWatch`] which
//! evidence counts, [`Prober`] and [`Responder`] what the echo between two borders says. With
//! [`OverloadDetector`] a missing answer proves nothing while this machine is overloaded. They know
//! no socket and no clock.

mod key;
mod key_rings;
mod link_state;
mod machine;
mod measure;
mod mismatch;
pub mod misrouting;
mod overload;
mod prober;
mod responder;
mod round_trip;
mod watch;
mod wire;

pub use key::{KeyError, KeyRing};
pub use key_rings::KeyRings;
pub use link_state::{LinkKind, LinkState, Start};
pub use machine::{Cause, Change, Condition, Grade, Machine, Timing};
pub use measure::{LOST_AFTER, Measure};
pub use mismatch::{KeyMismatch, KeyNews};
pub use overload::{
    BACKLOG_INTERVAL, CpuBacklog, Overload, OverloadCounts, OverloadDetector, OverloadReason,
};
pub use prober::Prober;
pub use responder::{REPLIES_PER_SECOND, Responder};
pub use round_trip::{Stamp, Untimed};
pub use watch::{ABSENT_AFTER_REFUSAL, Evidence, PeerPresence, TunnelWatch};
pub use wire::{DATAGRAM_BYTES, Nonce, Refusal};
