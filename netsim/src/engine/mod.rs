//! The event core: [packets](packet) in one slab, [datagrams](datagram) that some of them carry, a
//! [queue](event_queue) that orders them by time, and [random streams](random).

pub(crate) mod datagram;
mod event_bucket;
pub(crate) mod event_queue;
pub(crate) mod packet;
pub(crate) mod prefetch;
pub(crate) mod random;
