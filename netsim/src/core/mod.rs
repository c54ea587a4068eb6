//! The event core: [packets](packet) in one slab, [datagrams](datagram) that some of them carry, a
//! [wheel] that orders them by time, and [random streams](random).

mod bucket;
pub(crate) mod datagram;
pub(crate) mod packet;
pub(crate) mod prefetch;
pub(crate) mod random;
pub(crate) mod wheel;
