//! Models of the two tunnels' queues that all CPUs share, and what each CPU has of them for itself.
//!
//! A model says when the last byte that was sent will have left. If all CPUs write it for each packet, they
//! wait for each other's caches rather than for their packets, and a plain write loses what another
//! has written meanwhile. So
//!
//! - the *short* tunnel's queue, which must never seem emptier than it is, is added to in one step that
//!   loses nothing, and in advance: where it is busy beyond now, a CPU pays for more than its packet and
//!   then uses that up by itself. What was paid for stands in the queue where it was paid, so that it is
//!   good until the queue has come to there, and for what is sent until then it is the same whether it
//!   came at that time or before;
//! - the *long* tunnel's, which must never seem fuller than it is, is added to afterwards: a CPU keeps what
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
struct Line<W>(W);

/// The models that all CPUs share; the one value of the tunnels map.
#[repr(C)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedModels<W> {
    /// When the short tunnel's queue will have drained: never too early.
    short_free_at_ns: Line<W>,
    /// When the long tunnel's queue will have drained: never too late.
    long_free_at_ns: Line<W>,
    /// Until when a long flow is taken to be still in the short tunnel.
    long_on_short_until_ns: Line<W>,
}

/// The share of one CPU: what it has paid for in advance, and what it still has to add.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnShare {
    /// Where in the short tunnel's queue the part begins that was paid for: that is good until then.
    paid_from_ns: u64,
    /// Where it ends.
    paid_to_ns: u64,
    /// What is left of it.
    left_ns: u64,
    /// What was sent of late, by which the next payment goes.
    used_ns: u64,
    /// What went into the long tunnel and is yet to be added.
    owed_ns: u64,
    /// Since when.
    owed_since_ns: u64,
    /// Until when the queue was busy then, as far as is known.
    owed_until_ns: u64,
    /// When the long tunnel's queue would have drained as it was seen last.
    long_seen_ns: u64,
}

/// The virtual queues of two dedicated tunnels, as one CPU sees them.
#[derive(Debug)]
pub struct DedicatedQueues<'a, W> {
    /// The models that all CPUs share.
    pub shared: &'a SharedModels<W>,
    /// The share of this one.
    pub own: &'a mut OwnShare,
    /// The most by which a packet's coarse time lies behind.
    pub slack_ns: u64,
}

/// The most that is paid for in advance or owed: less than what a record of a flow can tell apart.
const MOST_AHEAD_NS: u64 = 50_000;

/// A 32nd of what was used of late is paid for in advance. What is not used in time makes the queue
/// seem fuller by no more than this.
const AHEAD_SHIFT: u32 = 5;

impl<W: SharedWord> DedicatedQueues<'_, W> {
    /// The time until which a long flow is taken to be still in the short tunnel.
    #[inline(always)]
    pub fn long_on_short_until_ns(&self) -> u64 {
        self.shared.long_on_short_until_ns.0.get()
    }

    /// Takes a long flow to be in the short tunnel until then. Somebody else may say so at the same time.
    #[inline(always)]
    pub fn occupy_short(&mut self, until_ns: u64) {
        let until = &self.shared.long_on_short_until_ns.0;
        let before_ns = until.get();
        if before_ns < until_ns {
            let _ = until.exchange(before_ns, until_ns);
        }
    }

    /// The time at which a packet that is sent at `now_ns` would begin to leave the short tunnel.
    #[inline(always)]
    pub fn short_start_ns(&self, now_ns: u64) -> u64 {
        later(self.shared.short_free_at_ns.0.get(), now_ns)
    }

    /// The time at which a packet that is sent at `now_ns` would begin to leave the long tunnel.
    #[inline(always)]
    pub fn long_start_ns(&self, now_ns: u64) -> u64 {
        later(self.shared.long_free_at_ns.0.get(), now_ns)
    }

    /// Tells if the short tunnel's queue holds packets beyond now, of which `coarse_ns` is all that is
    /// known: what is sent now leaves when it does whatever the time is.
    #[inline(always)]
    pub fn is_short_busy(&self, coarse_ns: u64) -> bool {
        self.shared.short_free_at_ns.0.get() >= coarse_ns + self.slack_ns
    }

    /// Puts a packet into the short tunnel's queue, which holds at most `limit_ns` of traffic; returns when it
    /// will have left, rather too late. `now_ns` may be coarse where the queue [is busy](Self::is_short_busy).
    #[inline(always)]
    pub fn send_short(
        &mut self,
        bytes: u64,
        service: ServiceTime,
        limit_ns: u64,
        now_ns: u64,
    ) -> u64 {
        let (cost_ns, latest_ns) = (service.of(bytes), now_ns + self.slack_ns);
        if cost_ns <= self.own.left_ns && latest_ns <= self.own.paid_from_ns {
            self.own.left_ns -= cost_ns;
            return self.own.paid_to_ns;
        }
        let (queue, most_ns) = (&self.shared.short_free_at_ns.0, now_ns + limit_ns);
        let free_at_ns = queue.get();
        if free_at_ns >= most_ns {
            return most_ns;
        }
        if free_at_ns >= latest_ns {
            let ahead_ns = self.ahead_ns(cost_ns, service);
            // What goes beyond the limit is dropped.
            let paid_ns = lesser(cost_ns + ahead_ns, most_ns - free_at_ns);
            self.own.paid_from_ns = queue.add(paid_ns);
            self.own.paid_to_ns = self.own.paid_from_ns + paid_ns;
            self.own.left_ns = paid_ns.saturating_sub(cost_ns);
            return self.own.paid_to_ns;
        }
        self.own.used_ns /= 2;
        let to_ns = lesser(later(free_at_ns, now_ns) + cost_ns, most_ns);
        if queue.exchange(free_at_ns, to_ns) {
            return to_ns;
        }
        // Another CPU came before, and has ended the idle time but for what has passed since.
        let missing_ns = cost_ns + now_ns.saturating_sub(queue.get());
        queue.add(missing_ns) + missing_ns
    }

    /// How much to pay for in advance. Nothing where the tunnel is so slow that CPUs do not get into each
    /// other's way: what is paid for would be out of date before it is used.
    #[inline(always)]
    fn ahead_ns(&mut self, cost_ns: u64, service: ServiceTime) -> u64 {
        const FULL_FRAMES_BYTES: u64 = 4 * 1_514;
        if service.of(FULL_FRAMES_BYTES) > MOST_AHEAD_NS {
            return 0;
        }
        self.own.used_ns += cost_ns;
        let ahead_ns = lesser(self.own.used_ns >> AHEAD_SHIFT, MOST_AHEAD_NS);
        self.own.used_ns += ahead_ns;
        ahead_ns
    }

    /// Puts a packet into the long tunnel's queue, which holds at most `limit_ns` of traffic. `now_ns` may be
    /// coarse.
    #[inline(always)]
    pub fn send_long(&mut self, bytes: u64, service: ServiceTime, limit_ns: u64, now_ns: u64) {
        let queue = &self.shared.long_free_at_ns.0;
        let free_at_ns = queue.get();
        // As it was before: by now others may have come after the time of this packet.
        let busy_until_ns = core::mem::replace(&mut self.own.long_seen_ns, free_at_ns);
        // What came at the same coarse time, or while the queue was busy until now, is one with this
        // packet. What came before may have left before others came, and is forgotten.
        let is_one = self.own.owed_since_ns == now_ns || self.own.owed_until_ns >= now_ns;
        if self.own.owed_ns == 0 || !is_one {
            self.own.owed_ns = 0;
            self.own.owed_since_ns = now_ns;
            self.own.owed_until_ns = busy_until_ns;
        }
        self.own.owed_ns += service.of(bytes);
        if self.own.owed_ns < MOST_AHEAD_NS {
            return;
        }
        let to_ns = later(free_at_ns, self.own.owed_since_ns) + self.own.owed_ns;
        let to_ns = lesser(to_ns, now_ns + limit_ns);
        // It is owed on where another CPU came before. A queue that is full takes no more.
        if to_ns <= free_at_ns || queue.exchange(free_at_ns, to_ns) {
            self.own.owed_ns = 0;
        }
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
mod tests;
