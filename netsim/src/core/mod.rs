//! The event core: [packets](packet) in one slab, a [wheel] that orders them by time, and
//! [random streams](random).

mod bucket;
pub(crate) mod packet;
pub(crate) mod prefetch;
pub(crate) mod random;
pub(crate) mod wheel;
