//! The event core of a packet-level simulator: [packets](packet) in one slab, [datagrams](datagram) that some of them
//! carry, a [queue](event_queue) that orders them by time, and [random streams](random).
//!
//! ```
//! use flow_engine::{event_queue::EventQueue, packet::{EntryKind, Packet, Slab}};
//!
//! let (mut events, mut slab) = (EventQueue::new(), Slab::new());
//! let packet = slab.insert(Packet::new(EntryKind::Data));
//! assert!(events.push(packet, 1_200));
//! assert_eq!((events.pop(&slab), events.now()), (Some(packet), 1_200));
//! ```

pub mod datagram;
mod event_bucket;
pub mod event_queue;
pub mod packet;
mod prefetch;
pub mod random;
