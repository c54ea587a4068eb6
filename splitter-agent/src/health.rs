//! Whether the tunnels are alive, and where each class goes while one is not.
//!
//! Policy and protocol are pure: [`Machine`] decides when a tunnel is dead and when it may be
//! trusted again, [`TunnelWatch`] which evidence counts, [`choose`] which tunnel carries
//! which class, [`Prober`] and [`Responder`] what the echo between two borders says. They know no
//! socket and no clock. Around them, [`Guard`] is the loop of the agent that sends, listens and
//! carries out, and [`Report`] is what others see of it.

mod choose;
mod guard;
mod key;
mod life;
mod line;
mod links;
mod machine;
mod measure;
mod mover;
mod next_hops;
mod placement;
mod prober;
mod report;
mod responder;
mod socket;
mod subject;
mod tell;
mod watch;
mod wire;

pub use choose::{Graded, choose};
pub use guard::{Guard, GuardError};
pub use key::{KeyError, ProbeKey};
pub use machine::{Cause, Change, Condition, Grade, Machine, Timing};
pub use measure::Measure;
pub use placement::{Placement, Seat};
pub use prober::Prober;
pub use report::{ClassReport, Move, Report, SharedReport, TunnelReport};
pub use responder::{REPLIES_PER_SECOND, Responder};
pub use socket::SocketError;
pub use watch::{ABSENT_AFTER_REFUSAL, Evidence, LinkState, PeerPresence, TunnelWatch};
pub use wire::{DATAGRAM_BYTES, Nonce, Refusal};
