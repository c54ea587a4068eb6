//! Queueing disciplines of tunnels that both classes share: strict priority for short flows.
//!
//! ```text
//! htb 7400:            root of the tunnel's device; what no filter selects is long
//! └ 7400:1             what the tunnel is shaped to
//!   ├ 7400:10  prio 0  short flows, pure acknowledgements, what is not IP
//!   ├ 7400:20  prio 1  long flows and what is not split
//!   └ 7400:30  prio 0  Cloudburst, if it is given a queue
//! ```
//!
//! A filter of the root, a classic BPF program of some ten instructions, looks at the DSCP that
//! the program has written and names the class. Everything hangs from the root, so that it is
//! gone with it, and nothing has to be pinned.
//!
//! Each class has a FIFO; the long one may have `fq_codel` instead. Packets of the short class have to leave in
//! the order in which they came, whatever their flows: when a flow may change tunnels is worked out from that.
//!
//! The short class is guaranteed nearly all of the tunnel, and the long one next to nothing: HTB
//! serves a class below its guarantee before any that borrows, whatever their priorities are.
//!
//! What was the root before is noted ([`SavedQdisc`]) and restored.

use std::fmt;

use serde::{Deserialize, Serialize};

mod apply;
mod filter;
mod plan;
mod saved_qdisc;
mod wanted;
mod wire;

pub use apply::{Applied, ShapeError, remove_leftovers, restore_all};
pub use plan::{Action, Plan, plan};
pub use saved_qdisc::SavedQdisc;
pub use wanted::{SHORT_QUEUE_HANDLE, Shape};

/// The major number of our root and of its classes.
///
/// Below 0x8000: from there on the kernel numbers queueing disciplines that were added without one,
/// and in time it comes to each.
pub const HANDLE: u16 = 0x7400;
const _: () = assert!(HANDLE < 0x7f00, "with room for the queues of its classes");

/// A qdisc, class or filter, reduced to what distinguishes one from another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct TcObject {
    tc_kind: TcKind,
    /// What it hangs from.
    parent: u32,
    /// Its number; 0 for a filter, whose number the kernel chooses.
    handle: u32,
    /// Such as `htb`.
    kind: String,
    /// The options that it is made with.
    options: Vec<u8>,
    /// The part of them that the kernel shows again.
    fingerprint: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum TcKind {
    Qdisc,
    Class,
    Filter,
}

impl TcObject {
    /// Whether both do the same.
    fn is_like(&self, other: &Self) -> bool {
        let key = |object: &Self| {
            (
                object.tc_kind,
                object.parent,
                object.handle,
                object.kind.clone(),
            )
        };
        key(self) == key(other) && self.fingerprint == other.fingerprint
    }
}

/// A number as `tc` writes it.
fn handle_text(handle: u32) -> impl fmt::Display {
    let (major, minor) = (handle >> 16, handle & 0xffff);
    match minor {
        0 => format!("{major:x}:"),
        _ => format!("{major:x}:{minor:x}"),
    }
}
