//! Flows from one look at the flow table to the next: when they began, what they counted, how they ended.
//!
//! A flow is known by a hash of its addresses and ports under a key that is drawn for the recording and
//! kept nowhere: the names themselves stay in the flow table.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use splitter_policy::flow::{Class, FlowEntry, FlowKey};
use splitter_policy::packet::protocol;
use splitter_policy::table::{FINISHED_LINGER_NS, is_expired};

use super::{Count, FlowEnd, FlowRecord, Transport, Unseen};

/// Flows that are watched at a time: as many as fit into a hash map of 2^18 places, 30 MB.
const MOST_FLOWS: usize = (1 << 18) / 8 * 7;

impl Count {
    fn since(self, before: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(before.packets),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }
}

/// Watches flows over many looks at a flow table, and makes a record of each that ends.
///
/// Memory is bounded: what it does not watch is missed, and counted.
#[derive(Debug)]
pub struct Tracker {
    began_ns: u64,
    last_look_ns: u64,
    look: u64,
    names: RandomState,
    watched: HashMap<u64, Watched>,
    /// Flows that began since, as the kernel counts them.
    begun: u64,
    /// Those of them that a look has found.
    seen: u64,
    /// The last look at which a flow was not taken, for too many were watched.
    full_ns: Option<u64>,
    unseen: Unseen,
}

/// State of a flow that has not ended.
#[derive(Clone, Copy, Debug)]
struct Watched {
    /// The look that saw it last.
    look: u64,
    first_ns: u64,
    last_ns: u64,
    out: Count,
    back: Option<Count>,
    /// Counts of the flow when the recording began; nothing for those that began since.
    out_before: Count,
    back_before: Count,
    kind: Kind,
}

/// Properties of a flow that are neither a time nor a count.
#[derive(Clone, Copy, Debug)]
struct Kind {
    transport: Transport,
    is_ipv6: bool,
    is_long: bool,
    is_finished: bool,
    began_before: bool,
}

impl Tracker {
    /// Watches from `now_ns` on, the time of the first look.
    pub fn new(now_ns: u64) -> Self {
        Self {
            began_ns: now_ns,
            last_look_ns: now_ns,
            look: 0,
            names: RandomState::new(),
            watched: HashMap::new(),
            begun: 0,
            seen: 0,
            full_ns: None,
            unseen: Unseen::default(),
        }
    }

    /// Returns the time of the last look.
    pub fn last_look_ns(&self) -> u64 {
        self.last_look_ns
    }

    /// Takes what the kernel has counted since the last look, before the next: flows that began, and those
    /// that found no room.
    pub fn begun(&mut self, flows: u64, untracked: u64) {
        self.begun += flows;
        self.unseen.untracked += untracked;
    }

    /// Begins a look at `now_ns`.
    pub fn look(&mut self, now_ns: u64, idle_timeout_ns: u64) -> Look<'_> {
        self.look += 1;
        Look {
            now_ns,
            idle_timeout_ns,
            tracker: self,
        }
    }

    /// Ends the recording: what goes on is open. Returns what was not seen.
    pub fn finish(mut self, mut write: impl FnMut(FlowRecord) -> bool) -> Unseen {
        let watched = std::mem::take(&mut self.watched);
        for flow in watched.into_values() {
            self.write(&flow, FlowEnd::Open, &mut write);
        }
        self.unseen.missed = self.begun.saturating_sub(self.seen);
        self.unseen
    }

    /// Says whether an entry that is not watched was: it has finished and is so old that a look before
    /// this one saw it, and would have taken it had there been room. A late FIN or RST touches such
    /// entries, which were written when they had lingered.
    fn was_forgotten(&self, entry: &FlowEntry) -> bool {
        let first_ns = entry.first_seen_ns;
        self.look > 1
            && entry.is_finished()
            && first_ns.saturating_add(FINISHED_LINGER_NS) <= self.last_look_ns
            && self.full_ns.is_none_or(|full_ns| full_ns < first_ns)
    }

    fn write(&mut self, flow: &Watched, end: FlowEnd, write: &mut impl FnMut(FlowRecord) -> bool) {
        let out = flow.out.since(flow.out_before);
        // What had begun before and was silent since is not of this recording.
        if out.packets == 0 {
            return;
        }
        let end = if flow.kind.is_finished {
            FlowEnd::Finished
        } else {
            end
        };
        let start_ns = flow.first_ns.max(self.began_ns);
        let record = FlowRecord {
            start_us: (start_ns - self.began_ns) / 1_000,
            // The last packet's time may be 17 ms too early, which short flows do not take.
            duration_us: flow.last_ns.saturating_sub(start_ns) / 1_000,
            is_long: flow.kind.is_long,
            transport: flow.kind.transport,
            is_ipv6: flow.kind.is_ipv6,
            began_before: flow.kind.began_before,
            end,
            out,
            back: flow
                .back
                .map(|it| it.since(flow.back_before))
                .filter(|it| it.packets > 0),
        };
        if !write(record) {
            self.unseen.beyond_file += 1;
        } else if end == FlowEnd::Vanished {
            self.unseen.vanished += 1;
        }
    }
}

/// One look at the flow table: see all there is, then end it.
#[derive(Debug)]
pub struct Look<'t> {
    now_ns: u64,
    idle_timeout_ns: u64,
    tracker: &'t mut Tracker,
}

impl Look<'_> {
    /// Takes an entry of the table. `back` is asked what came back of it where it has counted more.
    pub fn see(
        &mut self,
        key: &FlowKey,
        entry: &FlowEntry,
        back: impl FnOnce() -> Option<Count>,
        write: &mut impl FnMut(FlowRecord) -> bool,
    ) {
        let tracker = &mut *self.tracker;
        let name = tracker.names.hash_one(key);
        let known = tracker.watched.get(&name).copied();
        let is_first_look = tracker.look == 1;
        let had_ended = is_expired(entry, tracker.last_look_ns, self.idle_timeout_ns);
        let known = match known {
            Some(known) if known.first_ns != entry.first_seen_ns => {
                tracker.watched.remove(&name);
                tracker.write(&known, FlowEnd::Vanished, write);
                None
            }
            known => known,
        };
        // It was written down when it had ended, or has ended before all this.
        let is_old = known.is_none() && (had_ended || tracker.was_forgotten(entry));
        // What is not taken does not count as seen, so that it is missed in the end.
        let is_full = known.is_none() && tracker.watched.len() >= MOST_FLOWS;
        if is_full && !is_old {
            tracker.full_ns = Some(self.now_ns);
        }
        if is_old || is_full {
            return;
        }
        let out = Count {
            packets: entry.packets,
            bytes: entry.bytes,
        };
        let known = match known {
            Some(known) if known.out == out => known,
            _ => {
                let began_before = entry.first_seen_ns < tracker.began_ns;
                let counted = back();
                match known {
                    Some(known) => Watched {
                        back: counted.or(known.back),
                        ..known
                    },
                    None => {
                        tracker.seen += u64::from(!is_first_look);
                        let before = is_first_look && began_before;
                        Watched {
                            look: 0,
                            first_ns: entry.first_seen_ns,
                            last_ns: entry.last_seen_ns,
                            out,
                            back: counted,
                            out_before: if before { out } else { Count::default() },
                            back_before: counted.filter(|_| before).unwrap_or_default(),
                            kind: kind(key, entry, before),
                        }
                    }
                }
            }
        };
        let flow = Watched {
            look: tracker.look,
            last_ns: entry.last_seen_ns,
            out,
            kind: kind(key, entry, known.kind.began_before),
            ..known
        };
        if is_expired(entry, self.now_ns, self.idle_timeout_ns) {
            tracker.watched.remove(&name);
            tracker.write(&flow, FlowEnd::Idle, write);
        } else {
            tracker.watched.insert(name, flow);
        }
    }

    /// Ends the look: what was not seen has gone.
    pub fn end(self, write: &mut impl FnMut(FlowRecord) -> bool) {
        let tracker = self.tracker;
        let look = tracker.look;
        let mut gone = Vec::new();
        tracker.watched.retain(|_, flow| {
            let is_there = flow.look == look;
            if !is_there {
                gone.push(*flow);
            }
            is_there
        });
        for flow in gone {
            let is_idle = self.now_ns.saturating_sub(flow.last_ns) >= self.idle_timeout_ns;
            let end = if is_idle {
                FlowEnd::Idle
            } else {
                FlowEnd::Vanished
            };
            tracker.write(&flow, end, write);
        }
        tracker.last_look_ns = self.now_ns;
    }
}

fn kind(key: &FlowKey, entry: &FlowEntry, began_before: bool) -> Kind {
    Kind {
        transport: match key.protocol() {
            protocol::TCP => Transport::Tcp,
            protocol::UDP => Transport::Udp,
            _ => Transport::Tunnel,
        },
        is_ipv6: matches!(key, FlowKey::V6(_)),
        is_long: entry.class() == Class::Long,
        is_finished: entry.is_finished(),
        began_before,
    }
}

#[cfg(test)]
mod tests;
