//! A flow's slot, held for one packet.

use super::owner::{Owner, moments_between};
use super::record::Record;
use crate::classify::{FlowPacket, note_sent_long, note_sent_short};
use crate::config::Config;
use crate::flow::{Class, FlowEntry};
use crate::models::Models;
use crate::share::Ride;
use crate::split::Clock;
use flow_balance::ActiveFlows;
use flow_balance::VirtualQueue;

/// A flow's slot, held for one packet.
#[derive(Debug)]
pub struct Opened<'a> {
    record: &'a Record,
    owner: Owner,
    index: usize,
    /// Whether the slot was given to the flow just now.
    pub is_new: bool,
    /// Whether a live flow that is not protected was forgotten for it.
    pub has_evicted: bool,
}

/// The same in plain data: where the slot is in its group, and the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    owner: u64,
    index: u32,
    is_new: bool,
}

impl Held {
    /// None at all: a number like the others, where the kernel's verifier would
    /// miss what an `Option` leaves unwritten.
    pub const NONE: Self = Self {
        owner: 0,
        index: u32::MAX,
        is_new: false,
    };

    /// Whether there is none.
    #[inline(always)]
    pub const fn is_none(&self) -> bool {
        self.index == Self::NONE.index
    }

    #[inline(always)]
    pub(super) const fn index(&self) -> usize {
        self.index as usize
    }
}

/// A packet that changed nothing about its flow but counts and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steady {
    /// Its flow is of this class, and in the tunnel for that.
    Own(Class),
    /// Its flow is long and was placed in one of two shared tunnels.
    Placed(Ride),
}

impl<'a> Opened<'a> {
    #[inline(always)]
    pub(super) const fn known(index: usize, record: &'a Record, owner: Owner) -> Self {
        Self {
            record,
            owner,
            index,
            is_new: false,
            has_evicted: false,
        }
    }

    #[inline(always)]
    pub(super) const fn new(
        index: usize,
        record: &'a Record,
        owner: Owner,
        has_evicted: bool,
    ) -> Self {
        Self {
            record,
            owner,
            index,
            is_new: true,
            has_evicted,
        }
    }

    #[inline(always)]
    pub(super) const fn held(record: &'a Record, held: &Held) -> Self {
        Self {
            record,
            owner: Owner(held.owner),
            index: held.index as usize,
            is_new: held.is_new,
            has_evicted: false,
        }
    }

    /// Lets go of it, to be [reopened](super::Table::reopen).
    #[inline(always)]
    pub fn hold(&self) -> Held {
        Held {
            owner: self.owner.0,
            index: self.index as u32,
            is_new: self.is_new,
        }
    }

    /// What is known of the flow; `now_ns` may be coarse.
    #[inline(always)]
    pub fn entry(&self, now_ns: u64) -> FlowEntry {
        if self.is_new {
            return FlowEntry::default();
        }
        self.record.unpack(self.owner, now_ns)
    }

    /// Counts a packet of a flow that is not in transition: it is long and stays
    /// in its tunnel, or stays short, and neither begins nor ends. `None`, and
    /// nothing changed, when it may be.
    ///
    /// This is what most packets pass through. It says and keeps what
    /// [`classify`](crate::classify::classify) would, and reads the precise clock
    /// where [`precision`](crate::classify::precision) needs that.
    #[inline(always)]
    pub fn count_steady(
        &self,
        packet: FlowPacket,
        config: &Config,
        models: &mut impl Models,
        clock: &impl Clock,
        now_ns: u64,
    ) -> Option<Steady> {
        let owner = self.owner;
        let is_idle = owner.is_as_old_as(moments_between(config.idle_timeout_ns), now_ns);
        if is_idle || packet.flags.opens() || packet.flags.closes() {
            return None;
        }
        let is_shared = config.is_shared();
        if owner.is_settled(is_shared) {
            self.record.count_wide(owner, packet, now_ns);
            if is_shared {
                let is_first = ActiveFlows::is_first_of_window(owner.last_seen_ns(now_ns), now_ns);
                let ride = models.send_placed(config, owner.tunnel(), packet, is_first, now_ns);
                return Some(Steady::Placed(ride));
            }
            if config.long_service.is_known()
                && let Some(tunnels) = models.dedicated()
            {
                note_sent_long(packet.bytes, config, tunnels, now_ns);
            }
            return Some(Steady::Own(Class::Long));
        }
        if is_shared || !owner.is_plainly_short() {
            return None;
        }
        let counts = self.record.counted_narrow(packet, config)?;
        let (mut now_ns, mut drained_ns) = (now_ns, now_ns);
        if config.short_service.is_known()
            && let Some(tunnels) = models.dedicated()
        {
            if VirtualQueue::needs_precise_time(packet.bytes) {
                now_ns = clock.precise_ns();
            }
            drained_ns = note_sent_short(packet.bytes, config, tunnels, now_ns);
        }
        self.record.set_narrow(owner, counts, drained_ns, now_ns);
        Some(Steady::Own(Class::Short))
    }

    /// Keeps what is known of a short flow with its first packet.
    #[inline(always)]
    pub fn store_first(&self, packet: FlowPacket, drained_ns: u64, now_ns: u64) {
        self.record
            .set_first(self.owner, packet, drained_ns, now_ns);
    }

    /// Keeps what is known of the flow now.
    #[inline(always)]
    pub fn store(&self, entry: &FlowEntry, now_ns: u64) {
        self.record.pack(self.owner, entry, now_ns);
    }
}
