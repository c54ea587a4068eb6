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
use std::time::Duration;

use serde::{Deserialize, Serialize};
use splitter_config::{Config, Share};

use crate::redirection::Hint;

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

/// Queues so short that packets which choose by arrival never wait until the slowest tunnel would do as well, by the delays that
/// are stated: what would take it is dropped in front of a faster one.
#[must_use]
pub fn short_queue(config: &Config) -> Option<Hint> {
    let predicts = { config.balancers() }.is_some_and(|it| {
        let both = [it.short, it.long];
        both.iter().any(|it| it.needs_rates())
    });
    if !predicts || !config.is_shared() {
        return None;
    }
    let difference = |site: &Config| {
        let delays: Option<Vec<_>> = site.tunnels().map(|(_, it)| it.delay).collect();
        let delays = delays?;
        Some(*delays.iter().max()? - *delays.iter().min()?)
    };
    let sites = config.by_site();
    let largest = sites.iter().filter_map(|it| difference(it)).max()?;
    let queue = config.share.queue;
    (largest >= queue && !largest.is_zero()).then(|| Hint {
        problem: format!(
            "delays of tunnels differ by {} ms, and queues hold {} ms: packets are dropped in front of a faster tunnel before \
             they would take the slowest one",
            largest.as_millis(),
            queue.as_millis()
        ),
        remedy: match largest + QUEUE_BEYOND_DELAYS {
            queue if queue <= Share::LONGEST_QUEUE => {
                format!("set share.queue_ms to {} or more", queue.as_millis())
            }
            _ => "leave out the slowest: no queue may be that long".to_owned(),
        },
    })
}

/// Room for what comes in bursts, as where the laboratory of bonding has queues of 60 ms and delays that differ by 20.
const QUEUE_BEYOND_DELAYS: Duration = Duration::from_millis(40);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_is_too_short_where_delays_differ_by_as_much_and_packets_choose_by_arrival() {
        let hint = |policy: &str, balance: &str, queue_ms: u32, delays_ms: [u32; 2]| {
            let [first, second] = delays_ms.map(|it| format!("delay_ms = {it}"));
            let text = format!(
                "lan = 'l'\npolicy = '{policy}'\nbalance = '{balance}'\n[short]\ndevice = 'a'\nrate_mbit = 30\n{first}\n\
                 [long]\ndevice = 'b'\nrate_mbit = 8\n{second}\n[steering]\nmode = 'mark'\n[share]\nqueue_ms = {queue_ms}\n"
            );
            let config = Config::parse(&text, "").expect("it is right");
            short_queue(&config).map(|it| it.to_string())
        };
        let reported = hint("share", "tr", 20, [10, 30]).expect("nothing ever waits for more");
        assert!(
            reported.contains("differ by 20 ms, and queues hold 20 ms"),
            "{reported}"
        );
        assert!(reported.ends_with("queue_ms to 60 or more"), "{reported}");
        assert_eq!(hint("share", "tr", 60, [10, 30]), None);
        let reported = hint("share", "tr", 20, [10, 1_000]).expect("nothing ever waits for more");
        assert!(
            reported.ends_with("no queue may be that long"),
            "{reported}"
        );
        assert_eq!(hint("share", "tr", 20, [10, 10]), None);
        assert_eq!(hint("share", "drb", 20, [10, 30]), None);
        assert_eq!(hint("dedicated", "tr", 20, [10, 30]), None);
    }
}
