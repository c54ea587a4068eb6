//! The virtual queues of two dedicated tunnels, as a CPU sees them.

use flow_balance::ServiceTime;

use crate::cpu_queues::{EarlyQueue, LateQueue, Line, OwedShare, PaidShare, Sent, SharedWord};

/// The models that all CPUs share; the one value of the tunnels map.
#[repr(C)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedModels<W> {
    /// The short tunnel's queue, which drains never too early.
    short: LateQueue<W>,
    /// The long tunnel's queue, which drains never too late.
    long: EarlyQueue<W>,
    /// Until when a long flow is taken to be still in the short tunnel.
    long_on_short_until_ns: Line<W>,
}

/// The share of one CPU: what it has paid for in advance, and what it still has to add.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnShare {
    short: PaidShare,
    long: OwedShare,
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
        self.shared.short.next_start_ns(now_ns)
    }

    /// The time at which a packet that is sent at `now_ns` would begin to leave the long tunnel.
    #[inline(always)]
    pub fn long_start_ns(&self, now_ns: u64) -> u64 {
        self.shared.long.next_start_ns(now_ns)
    }

    /// Tells if the short tunnel's queue holds packets beyond now, of which `coarse_ns` is all that is
    /// known: what is sent now leaves when it does whatever the time is.
    #[inline(always)]
    pub fn is_short_busy(&self, coarse_ns: u64) -> bool {
        self.shared.short.free_at_ns() >= coarse_ns + self.slack_ns
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
        let sent = Sent {
            bytes,
            service,
            limit_ns,
            now_ns,
        };
        self.shared
            .short
            .send(sent, &mut self.own.short, self.slack_ns)
    }

    /// Puts a packet into the long tunnel's queue, which holds at most `limit_ns` of traffic. `now_ns` may be
    /// coarse.
    #[inline(always)]
    pub fn send_long(&mut self, bytes: u64, service: ServiceTime, limit_ns: u64, now_ns: u64) {
        let sent = Sent {
            bytes,
            service,
            limit_ns,
            now_ns,
        };
        self.shared.long.send(sent, &mut self.own.long);
    }
}

#[cfg(test)]
mod tests;
