//! Virtual queues that all CPUs share, and what each CPU has of them for itself.
//!
//! A model says when the last byte that was sent will have left. If all CPUs write it for each packet, they
//! wait for each other's caches rather than for their packets, and a plain write loses what another
//! has written meanwhile. So
//!
//! - a queue that must never seem emptier than it is (`LateQueue`) is added to in one step that
//!   loses nothing, and in advance: where it is busy beyond now, a CPU pays for more than its packet and
//!   then uses that up by itself. What was paid for stands in the queue where it was paid, so that it is
//!   good until the queue has come to there, and for what is sent until then it is the same whether it
//!   came at that time or before;
//! - one that must never seem fuller than it is (`EarlyQueue`) is added to afterwards: a CPU keeps what
//!   it has sent to itself for some microseconds of traffic, and then adds it as of its first packet, as far
//!   as the queue was busy meanwhile. One that is taken away in the middle of a packet for longer than a tick
//!   may add that much too late.

use flow_balance::ServiceTime;

/// A number that several CPUs read and change at once.
pub trait SharedWord {
    /// Reads the number as it is now.
    fn get(&self) -> u64;

    /// Replaces `old` by `new` in one step; true when `old` was found there.
    fn exchange(&self, old: u64, new: u64) -> bool;

    /// Adds to the number in one step; returns what it was before.
    fn add(&self, amount: u64) -> u64;
}

/// A number of one host that has one CPU.
impl SharedWord for core::cell::Cell<u64> {
    fn get(&self) -> u64 {
        self.get()
    }

    fn exchange(&self, old: u64, new: u64) -> bool {
        let is_it = self.get() == old;
        if is_it {
            self.set(new);
        }
        is_it
    }

    fn add(&self, amount: u64) -> u64 {
        self.replace(self.get().wrapping_add(amount))
    }
}

/// A cache line of its own, for what some CPUs write and others only read.
#[repr(C, align(64))]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line<W>(pub(crate) W);

/// A packet that is put into a queue, and the most that the queue holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// The size of the packet.
    pub(crate) bytes: u64,
    /// How long the tunnel takes for a byte.
    pub(crate) service: ServiceTime,
    /// How much traffic the queue holds.
    pub(crate) limit_ns: u64,
    /// The time of the packet.
    pub(crate) now_ns: u64,
}

/// A queue that must never seem emptier than it is: when it will have drained, never too early.
#[repr(C)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LateQueue<W> {
    free_at_ns: Line<W>,
}

/// One CPU's share of a [`LateQueue`]: what it has paid for in advance.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PaidShare {
    /// Where in the queue the part begins that was paid for: that is good until then.
    from_ns: u64,
    /// Where it ends.
    to_ns: u64,
    /// What is left of it.
    left_ns: u64,
    /// What was sent of late, by which the next payment goes.
    used_ns: u64,
}

/// A queue that must never seem fuller than it is: when it will have drained, never too late.
#[repr(C)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EarlyQueue<W> {
    free_at_ns: Line<W>,
}

/// One CPU's share of an [`EarlyQueue`]: what it still has to add.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwedShare {
    /// What went into the queue and is yet to be added.
    owed_ns: u64,
    /// Since when.
    since_ns: u64,
    /// Until when the queue was busy then, as far as is known.
    until_ns: u64,
    /// When the queue would have drained as it was seen last.
    seen_ns: u64,
}

/// The most that is paid for in advance or owed: less than what a record of a flow can tell apart.
pub(crate) const MOST_AHEAD_NS: u64 = 50_000;

/// A 32nd of what was used of late is paid for in advance. What is not used in time makes the queue
/// seem fuller by no more than this.
const AHEAD_SHIFT: u32 = 5;

impl<W: SharedWord> LateQueue<W> {
    /// When the last byte that was sent will have left.
    #[inline(always)]
    pub(crate) fn free_at_ns(&self) -> u64 {
        self.free_at_ns.0.get()
    }

    /// The time at which a packet that is sent at `now_ns` would begin to leave.
    #[inline(always)]
    pub(crate) fn next_start_ns(&self, now_ns: u64) -> u64 {
        later(self.free_at_ns(), now_ns)
    }

    /// How long what was sent so far takes to leave, from `now_ns` on.
    #[inline(always)]
    pub(crate) fn backlog_ns(&self, now_ns: u64) -> u64 {
        self.free_at_ns().saturating_sub(now_ns)
    }

    /// Tells if the model has run ahead of a queue in which `bytes` still wait at `now_ns`: what
    /// serves it has stood still, as a shaper does whose timer is late.
    #[inline(always)]
    pub(crate) fn is_ahead_of(&self, bytes: u64, now_ns: u64, service: ServiceTime) -> bool {
        bytes > 0 && now_ns + service.of(bytes) > self.free_at_ns()
    }

    /// Puts a packet into the queue; returns when it will have left, rather too late. Its time may be
    /// coarse, and lie behind by `slack_ns`, where the queue is busy beyond that.
    #[inline(always)]
    pub(crate) fn send(&self, sent: Sent, own: &mut PaidShare, slack_ns: u64) -> u64 {
        let Sent {
            bytes,
            service,
            limit_ns,
            now_ns,
        } = sent;
        let (cost_ns, latest_ns) = (service.of(bytes), now_ns + slack_ns);
        if cost_ns <= own.left_ns && latest_ns <= own.from_ns {
            own.left_ns -= cost_ns;
            return own.to_ns;
        }
        let most_ns = now_ns + limit_ns;
        let free_at_ns = self.free_at_ns();
        if free_at_ns >= most_ns {
            return most_ns;
        }
        if free_at_ns >= latest_ns {
            let ahead_ns = own.ahead_ns(cost_ns, service);
            // What goes beyond the limit is dropped.
            let paid_ns = lesser(cost_ns + ahead_ns, most_ns - free_at_ns);
            own.from_ns = self.free_at_ns.0.add(paid_ns);
            own.to_ns = own.from_ns + paid_ns;
            own.left_ns = paid_ns.saturating_sub(cost_ns);
            return own.to_ns;
        }
        own.used_ns /= 2;
        self.extend(free_at_ns, cost_ns, now_ns, most_ns)
    }

    /// Puts traffic into a queue without limit that takes `cost_ns`, and is sent by few enough packets
    /// that each may write.
    #[inline(always)]
    pub(crate) fn add(&self, cost_ns: u64, now_ns: u64) {
        const NO_LIMIT_NS: u64 = u64::MAX;
        let free_at_ns = self.free_at_ns();
        if free_at_ns >= now_ns {
            self.free_at_ns.0.add(cost_ns);
        } else {
            self.extend(free_at_ns, cost_ns, now_ns, NO_LIMIT_NS);
        }
    }

    /// Adds to a queue that was not busy beyond now.
    #[inline(always)]
    fn extend(&self, free_at_ns: u64, cost_ns: u64, now_ns: u64, most_ns: u64) -> u64 {
        let queue = &self.free_at_ns.0;
        let to_ns = lesser(later(free_at_ns, now_ns) + cost_ns, most_ns);
        if queue.exchange(free_at_ns, to_ns) {
            return to_ns;
        }
        // Another CPU came before, and has ended the idle time but for what has passed since.
        let missing_ns = cost_ns + now_ns.saturating_sub(queue.get());
        queue.add(missing_ns) + missing_ns
    }
}

impl PaidShare {
    /// How much to pay for in advance. Nothing where the tunnel is so slow that CPUs do not get into each
    /// other's way: what is paid for would be out of date before it is used.
    #[inline(always)]
    fn ahead_ns(&mut self, cost_ns: u64, service: ServiceTime) -> u64 {
        const FULL_FRAMES_BYTES: u64 = 4 * 1_514;
        if service.of(FULL_FRAMES_BYTES) > MOST_AHEAD_NS {
            return 0;
        }
        self.used_ns += cost_ns;
        let ahead_ns = lesser(self.used_ns >> AHEAD_SHIFT, MOST_AHEAD_NS);
        self.used_ns += ahead_ns;
        ahead_ns
    }
}

impl<W: SharedWord> EarlyQueue<W> {
    /// The time at which a packet that is sent at `now_ns` would begin to leave.
    #[inline(always)]
    pub(crate) fn next_start_ns(&self, now_ns: u64) -> u64 {
        later(self.free_at_ns.0.get(), now_ns)
    }

    /// How long what was sent so far takes to leave, from `now_ns` on.
    #[inline(always)]
    pub(crate) fn backlog_ns(&self, now_ns: u64) -> u64 {
        self.free_at_ns.0.get().saturating_sub(now_ns)
    }

    /// Puts a packet into the queue. Its time may be coarse.
    #[inline(always)]
    pub(crate) fn send(&self, sent: Sent, own: &mut OwedShare) {
        let Sent {
            bytes,
            service,
            limit_ns,
            now_ns,
        } = sent;
        let queue = &self.free_at_ns.0;
        let free_at_ns = queue.get();
        // As it was before: by now others may have come after the time of this packet.
        let busy_until_ns = core::mem::replace(&mut own.seen_ns, free_at_ns);
        // What came at the same coarse time, or while the queue was busy until now, is one with this
        // packet. What came before may have left before others came, and is forgotten.
        let is_one = own.since_ns == now_ns || own.until_ns >= now_ns;
        if own.owed_ns == 0 || !is_one {
            own.owed_ns = 0;
            own.since_ns = now_ns;
            own.until_ns = busy_until_ns;
        }
        own.owed_ns += service.of(bytes);
        if own.owed_ns < MOST_AHEAD_NS {
            return;
        }
        let to_ns = later(free_at_ns, own.since_ns) + own.owed_ns;
        let to_ns = lesser(to_ns, now_ns + limit_ns);
        // It is owed on where another CPU came before. A queue that is full takes no more.
        if to_ns <= free_at_ns || queue.exchange(free_at_ns, to_ns) {
            own.owed_ns = 0;
        }
    }
}

#[cfg(test)]
impl<W> LateQueue<W> {
    pub(crate) const fn word(&self) -> &W {
        &self.free_at_ns.0
    }
}

#[cfg(test)]
impl<W> EarlyQueue<W> {
    pub(crate) const fn word(&self) -> &W {
        &self.free_at_ns.0
    }
}

#[inline(always)]
const fn later(one_ns: u64, other_ns: u64) -> u64 {
    if one_ns > other_ns { one_ns } else { other_ns }
}

#[inline(always)]
const fn lesser(one_ns: u64, other_ns: u64) -> u64 {
    if one_ns < other_ns { one_ns } else { other_ns }
}

#[cfg(test)]
pub(crate) mod contended;
