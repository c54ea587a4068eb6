//! The settings of the policy, in the shape that the kernel programs read.

use crate::dscp::Dscp;
use crate::flow::{Class, TunnelRole};
use crate::fwmark::MarkBits;
use crate::thresholds::{ThresholdIndex, Thresholds};
use flow_balance::ServiceTime;

/// The unit in which the threshold counts: packets or bytes.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unit(u8);

impl Unit {
    /// The threshold counts packets, as in the paper.
    pub const PACKETS: Self = Self(0);
    /// The threshold counts bytes, Ethernet headers included.
    pub const BYTES: Self = Self(1);
}

/// The protocols that are split besides TCP, as a set.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protocols(u8);

impl Protocols {
    /// TCP alone is split, as in the paper (§II-B).
    pub const NONE: Self = Self(0);
    /// UDP is split: a flow for each 5-tuple, QUIC connections among them.
    pub const UDP: Self = Self(1);
    /// ESP is split: a flow for each SPI.
    pub const ESP: Self = Self(2);
    /// GRE is split: a flow for each key.
    pub const GRE: Self = Self(4);

    /// Unites two sets of protocols.
    #[must_use]
    #[inline(always)]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Tells if all protocols of `other` are in this set.
    #[inline(always)]
    pub const fn contain(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The marking mode: packets are marked, or only counted as if they were.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marking(u8);

impl Marking {
    /// Packets are marked for their tunnel.
    pub const ON: Self = Self(0);
    /// Packets pass as they are: everything is classified and counted, and nothing changed.
    pub const SHADOW: Self = Self(1);

    /// Tells if packets pass as they are.
    #[inline(always)]
    pub const fn is_shadow(self) -> bool {
        self.0 != 0
    }
}

/// The use of the two tunnels: one class each, or both classes on both.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelUse(u8);

impl TunnelUse {
    /// One for short flows and one for long ones, as in the paper.
    pub const DEDICATED: Self = Self(0);
    /// Both carry both classes, short flows first.
    pub const SHARED: Self = Self(1);
}

/// Settings of the policy; 584 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyConfig {
    /// A flow that was silent for so long starts again (paper §II-B: 30 s).
    pub idle_timeout_ns: u64,
    /// The margin after its drain before a flow is handed over: the longest by which the short
    /// tunnel's path may lag behind the long one's. Without a known rate it is the gap that has to
    /// pass.
    pub drain_margin_ns: u64,
    /// A long flow waits so long for a pause of its own to be handed over in.
    pub max_wait_ns: u64,
    /// The service time of the short tunnel.
    pub short_service: ServiceTime,
    /// The service time of the long tunnel.
    pub long_service: ServiceTime,
    /// How much traffic the queue in front of the long tunnel holds at least.
    pub long_queue_ns: u64,
    /// Payload bytes of a full segment, by which the segments of a GRO
    /// aggregate are counted; 0 counts each aggregate as one packet.
    pub segment_bytes: u16,
    /// Packets are marked, or only counted (shadow).
    pub marking: Marking,
    /// The tunnels carry one class each, or both.
    pub tunnel_use: TunnelUse,
    /// The protocols that are split besides TCP.
    pub protocols: Protocols,
    /// The unit of `thresholds`.
    pub unit: Unit,
    /// The DSCP of the short tunnel.
    pub short_mark: Dscp,
    /// The DSCP of the long tunnel.
    pub long_mark: Dscp,
    /// The bits of the DSCP that the routing rules look at: all six, or the lower three where only
    /// the legacy ToS selector exists.
    pub match_mask: Dscp,
    /// The mark of the short class on the long tunnel, where tunnels are shared;
    /// [`PolicyConfig::short_mark`] is then that in the other.
    pub short_on_long_mark: Dscp,
    /// The mark of the long class on the short tunnel, where tunnels are shared;
    /// [`PolicyConfig::long_mark`] is that in the other.
    pub long_on_short_mark: Dscp,
    /// The tunnels that forward packets, as far as is known: bit 0 stands for the short one, bit 1
    /// for the long one.
    pub usable: u8,
    /// The bits of the fwmark that carry marks, where the DSCP stays as it came.
    pub mark_bits: MarkBits,
    /// A flow is long once it has counted more than one of these: that of its site.
    pub thresholds: Thresholds,
}

impl PolicyConfig {
    /// 40 packets: the paper's threshold is never given; this is the upper end of what it calls the
    /// typical size of an RPC (§III-B).
    pub const DEFAULT_THRESHOLD: u64 = 40;
    /// The paper forgets a flow after 30 s of silence (§II-B).
    pub const DEFAULT_IDLE_TIMEOUT_NS: u64 = 30_000_000_000;
    /// The gap that is waited for while the short tunnel's rate is not known:
    /// longer than most queues that a class of short flows builds.
    pub const DEFAULT_GAP_NS: u64 = 10_000_000;
    /// The margin for what the model of a drain does not see: the burst of a token bucket, two full
    /// packets at 50 Mbit/s, and jitter between the border's CPUs.
    pub const DEFAULT_DRAIN_MARGIN_NS: u64 = 500_000;
    /// The maximum wait where both rates are known, for a pause of the flow's own: long enough for what
    /// ends just after the threshold, 16 packets at 100 Mbit/s, short against what a sender that never
    /// pauses puts in front of a tunnel.
    pub const DEFAULT_MAX_WAIT_NS: u64 = 2_000_000;
    /// The maximum wait where a rate is unknown: it alone moves a flow that never pauses, and each
    /// millisecond that it stays is one more that short flows wait. Longer than the gap, so
    /// that what ends just after the threshold is spared.
    pub const DEFAULT_BLIND_MAX_WAIT_NS: u64 = 12_000_000;
    /// The maximum wait on shared tunnels: a flow that could not change until then stays where it
    /// is, in order; until then short ones wait behind it.
    pub const DEFAULT_SHARED_MAX_WAIT_NS: u64 = 5_000_000;
    /// A queue's length that any queue has at least: 5 ms of traffic.
    pub const DEFAULT_QUEUE_NS: u64 = 5_000_000;
    /// DSCP 4 and 2, ToS 0x10 and 0x08: the classic low-delay and throughput
    /// bits, which differ within the three bits that legacy ToS rules see.
    pub const DEFAULT_SHORT_MARK: Dscp = Dscp::new(4).unwrap();
    /// The classic throughput bit: see [`PolicyConfig::DEFAULT_SHORT_MARK`].
    pub const DEFAULT_LONG_MARK: Dscp = Dscp::new(2).unwrap();

    /// DSCP 5 marks [`PolicyConfig::short_on_long_mark`] by default.
    pub const DEFAULT_SHORT_ON_LONG_MARK: Dscp = Dscp::new(5).unwrap();
    /// DSCP 3 marks [`PolicyConfig::long_on_short_mark`] by default.
    pub const DEFAULT_LONG_ON_SHORT_MARK: Dscp = Dscp::new(3).unwrap();

    /// A flow with these counts is long by the threshold at `index`: what `unit` names of them is
    /// above it.
    #[inline(always)]
    pub const fn exceeds_threshold(&self, index: ThresholdIndex, packets: u64, bytes: u64) -> bool {
        let count = if self.unit.0 == Unit::BYTES.0 {
            bytes
        } else {
            packets
        };
        count > self.thresholds.at(index)
    }

    /// Tells if both tunnels carry both classes.
    #[inline(always)]
    pub const fn is_shared(&self) -> bool {
        self.tunnel_use.0 == TunnelUse::SHARED.0
    }

    /// The mark of packets in a queue class of a tunnel; a tunnel that is not shared has one class.
    #[inline(always)]
    pub const fn mark(&self, queue_class: Class, tunnel: TunnelRole) -> Dscp {
        match (queue_class, tunnel) {
            (Class::Short, TunnelRole::Short) => self.short_mark,
            (Class::Long, TunnelRole::Long) => self.long_mark,
            (Class::Short, TunnelRole::Long) => self.short_on_long_mark,
            (Class::Long, TunnelRole::Short) => self.long_on_short_mark,
        }
    }

    /// Tells if rules or queues would take a packet with this mark for one that was split.
    #[inline(always)]
    pub const fn is_reserved(&self, mark: Dscp) -> bool {
        if !self.is_shared() {
            return self.selects(self.long_mark, mark);
        }
        self.selects(self.long_mark, mark)
            || self.selects(self.short_on_long_mark, mark)
            || mark.value() == self.short_mark.value()
            || mark.value() == self.long_on_short_mark.value()
    }

    /// The mark of packets that are not split but came with one that
    /// [is reserved](Self::is_reserved).
    #[inline(always)]
    pub const fn unsplit_mark(&self) -> Dscp {
        if self.is_shared() {
            Dscp::NONE
        } else {
            self.short_mark
        }
    }

    /// A routing rule for the mark `own` selects a packet with `mark`.
    #[inline(always)]
    const fn selects(&self, own: Dscp, mark: Dscp) -> bool {
        let mask = self.match_mask.value();
        mark.value() & mask == own.value() & mask
    }
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self {
            idle_timeout_ns: Self::DEFAULT_IDLE_TIMEOUT_NS,
            drain_margin_ns: Self::DEFAULT_GAP_NS,
            max_wait_ns: Self::DEFAULT_BLIND_MAX_WAIT_NS,
            short_service: ServiceTime::UNKNOWN,
            long_service: ServiceTime::UNKNOWN,
            long_queue_ns: Self::DEFAULT_QUEUE_NS,
            segment_bytes: 0,
            marking: Marking::ON,
            tunnel_use: TunnelUse::DEDICATED,
            protocols: Protocols::NONE,
            unit: Unit::PACKETS,
            short_mark: Self::DEFAULT_SHORT_MARK,
            long_mark: Self::DEFAULT_LONG_MARK,
            match_mask: Dscp::ALL_BITS,
            short_on_long_mark: Self::DEFAULT_SHORT_ON_LONG_MARK,
            long_on_short_mark: Self::DEFAULT_LONG_ON_SHORT_MARK,
            usable: 0b11,
            mark_bits: MarkBits::NONE,
            thresholds: Thresholds::uniform(Self::DEFAULT_THRESHOLD),
        }
    }
}
