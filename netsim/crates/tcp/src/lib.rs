//! TCP of simulated hosts as state machines: a [`Sender`] with congestion control and loss recovery, and a
//! [`Receiver`]. ACKs and timeouts go in, segment numbers come out; packets, clock and network are the
//! host's.
//!
//! ```
//! use flow_tcp::{Ack, Receiver, Sender, Settings};
//!
//! let (mut sender, mut receiver) = (Sender::new(3, &Settings::default()), Receiver::default());
//! while let Some(segment) = sender.poll() {
//!     receiver.on_segment(segment.number, segment.is_retransmission);
//!     let ack = Ack {
//!         missing: receiver.missing(),
//!         trigger: segment.number,
//!         is_duplicate: false,
//!         marked: false,
//!         now_ns: 20_000_000,
//!         round_trip_ns: 20_000_000,
//!     };
//!     sender.on_ack(ack, None);
//! }
//! assert_eq!(receiver.missing(), 3);
//! ```

mod ack;
mod bitset;
mod congestion_control;
mod cubic;
mod rack;
mod rate_reduction;
mod receiver;
mod retransmission_timeout;
mod sender;
mod settings;

pub use ack::Ack;
pub use congestion_control::{CongestionWindow, ONE};
pub use receiver::Receiver;
pub use retransmission_timeout::Rto;
pub use sender::{Segment, Sender};
pub use settings::{CongestionControl, LossRecovery, Settings};
