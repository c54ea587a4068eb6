//! The data path of a packet: parse, look up the flow, classify, choose an egress, mark, count.
//!
//! It fails open: whatever cannot or should not be treated passes with its
//! bytes unchanged, counted under a named reason. One exception guards the
//! long tunnel's users from the short's and the reverse: incoming marks are
//! never trusted, so a packet that is not split but carries the long mark is
//! given the short one, and where the tunnels are shared one with any of our
//! marks is given none.
//!
//! [`Splitter::split`] is the whole. It has a few steps, of which each passes its
//! result on in plain data: a kernel program runs them as functions of their own,
//! which its verifier checks one by one. Before them comes a short cut for what
//! most packets are.

mod fast_path;

use crate::classify::{Precision, ShortTunnel, Verdict, classify_by_site, precision};
use crate::clock::Clock;
use crate::config::PolicyConfig;
use crate::counters::{Counters, FlowEvent};
use crate::dscp::{Dscp, Field};
use crate::egress::Egress;
use crate::flow::{Class, FlowEntry, TunnelRole};
use crate::flow_packet::FlowPacket;
use crate::fragments::{FragmentStore, Fragments};
use crate::headers::{Headers, Segment};
use crate::models::QueueModels;
use crate::pass_reason::PassReason;
use crate::sites::SiteThresholds;
use crate::steer::Steer;
use crate::table::{Memory, SlotRef, Table};

/// The outcome for a packet: split, or passed for a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was counted in a flow and marked for a tunnel.
    Split {
        /// The class of its flow.
        class: Class,
        /// The tunnel that its mark selects.
        tunnel: TunnelRole,
    },
    /// It is to be dropped, so that its flow changes tunnels in order.
    Dropped,
    /// It passes untreated.
    Passed(PassReason),
}

/// The decision on a packet: its flow's class, and its egress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The class of its flow.
    pub class: Class,
    /// The queue class that it goes into.
    pub queue_class: Class,
    /// The tunnel that it goes into.
    pub tunnel: TunnelRole,
    /// It goes nowhere, so that its flow changes tunnels in order.
    pub is_dropped: bool,
}

impl Decision {
    const REFUSED: u64 = 1 << 3;
    const DROPPED: u64 = 1 << 4;
    const REFUSAL_SHIFT: u32 = 4;

    /// Packs a decision into a number, for hosts that pass it on in plain data.
    #[inline(always)]
    pub const fn to_bits(decision: Result<Self, PassReason>) -> u64 {
        match decision {
            Ok(Self {
                class,
                queue_class,
                tunnel,
                is_dropped,
            }) => {
                let dropped = if is_dropped { Self::DROPPED } else { 0 };
                class as u64 | (queue_class as u64) << 1 | (tunnel as u64) << 2 | dropped
            }
            Err(refusal) => Self::REFUSED | (refusal as u64) << Self::REFUSAL_SHIFT,
        }
    }

    /// Unpacks what [`Decision::to_bits`] made a number of.
    ///
    /// # Errors
    /// The refusal that it says.
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Result<Self, PassReason> {
        if bits & Self::REFUSED != 0 {
            return Err(PassReason::numbered(bits >> Self::REFUSAL_SHIFT));
        }
        Ok(Self {
            class: Class::numbered(bits),
            queue_class: Class::numbered(bits >> 1),
            tunnel: TunnelRole::numbered(bits >> 2),
            is_dropped: bits & Self::DROPPED != 0,
        })
    }
}

/// The verdict of [`Splitter::decide`], in plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedVerdict {
    verdict: u64,
    completed_ns: u64,
    now_ns: u64,
}

/// The splitter in its host: the kernel program or a test.
pub struct Splitter<'a, M, C, T> {
    /// The settings of the operator.
    pub config: &'a PolicyConfig,
    /// The host's flows.
    pub table: Table<'a, M>,
    /// The host's clock.
    pub clock: C,
    /// The host's virtual queues of the tunnels.
    pub models: T,
    /// The host's counters.
    pub counters: &'a mut Counters,
}

impl<M, C, T> Splitter<'_, M, C, T>
where
    M: Memory + FragmentStore + SiteThresholds,
    C: Clock,
    T: QueueModels,
{
    /// Treats one frame, whatever it is; it is to be passed on whatever the outcome.
    #[inline(always)]
    pub fn split<B: Steer + ?Sized>(&mut self, frame: &mut B) -> Outcome {
        if let Some(outcome) = self.split_fast(frame) {
            return outcome;
        }
        let headers = Headers::read(frame, self.config, &self.fragments());
        let decision = headers
            .segment
            .and_then(|segment| self.decide_flow(&segment));
        self.finish(frame, headers.mark, decision)
    }

    /// The lookup of fragments, for a packet that comes now.
    #[inline(always)]
    pub fn fragments(&self) -> Fragments<'_, M> {
        Fragments {
            store: self.table.memory,
            seeds: &self.table.layout.seeds,
            now_ns: self.clock.coarse_ns(),
        }
    }

    /// Counts a packet in its flow and decides on its egress.
    ///
    /// # Errors
    /// When the table is full.
    #[inline(always)]
    pub fn decide_flow(&mut self, segment: &Segment) -> Result<Decision, PassReason> {
        let mut slot_ref = self.lookup(segment);
        if slot_ref.is_none() {
            slot_ref = self.insert(segment);
        }
        let mut entry = FlowEntry::default();
        let decided = self.decide(segment, &slot_ref, &mut entry);
        let decided = decided.ok_or(PassReason::TableFull)?;
        self.commit(segment, &slot_ref, &entry, &decided)
            .ok_or(PassReason::TableFull)
    }

    /// Looks up the flow's slot, if it has one: the first step of [`Splitter::decide_flow`].
    #[inline(always)]
    pub fn lookup(&self, segment: &Segment) -> SlotRef {
        let found = self.table.lookup(&segment.key);
        found.map_or(SlotRef::NONE, |slot| slot.to_ref())
    }

    /// Inserts a flow that has no slot, if one can be had: the second step.
    #[inline(always)]
    pub fn insert(&mut self, segment: &Segment) -> SlotRef {
        let Segment { key, packet } = *segment;
        let coarse_ns = self.clock.coarse_ns();
        let timing = &self.counters.timing;
        let is_hurried = || timing.is_spent(coarse_ns);
        let Some(slot) =
            self.table
                .insert(&key, coarse_ns, self.config.idle_timeout_ns, is_hurried)
        else {
            if packet.flags.opens() {
                self.counters.count_event(FlowEvent::Untracked);
            }
            return SlotRef::NONE;
        };
        if slot.has_evicted {
            self.count_evicted(coarse_ns);
        }
        slot.to_ref()
    }

    /// Writes into `entry` what is known of the flow with this packet, and decides on its egress:
    /// the third step. `None` when the table is full.
    #[inline(always)]
    pub fn decide(
        &mut self,
        segment: &Segment,
        slot_ref: &SlotRef,
        entry: &mut FlowEntry,
    ) -> Option<PackedVerdict> {
        let Segment { key, packet } = *segment;
        let coarse_ns = self.clock.coarse_ns();
        *entry = self.table.resume(&key, slot_ref)?.entry(coarse_ns);
        let now_ns = self.time_of(entry, packet, coarse_ns);
        let sites = self.table.memory;
        let find_threshold = || sites.threshold_of(&key);
        let models = &mut self.models;
        let verdict = classify_by_site(entry, packet, self.config, models, find_threshold, now_ns);
        let (verdict, completed_ns) = verdict.to_bits();
        Some(PackedVerdict {
            verdict,
            completed_ns,
            now_ns,
        })
    }

    /// Commits what is known of the flow now, and counts: the last step. `None` when the table is
    /// full.
    #[inline(always)]
    pub fn commit(
        &mut self,
        segment: &Segment,
        slot_ref: &SlotRef,
        entry: &FlowEntry,
        decided: &PackedVerdict,
    ) -> Option<Decision> {
        let Segment { key, packet } = *segment;
        self.table
            .resume(&key, slot_ref)?
            .commit(entry, decided.now_ns);
        let verdict = Verdict::from_bits(decided.verdict, decided.completed_ns);
        self.count(&verdict);
        let egress = Egress {
            hand_over: verdict.hand_over,
            queue_class: verdict.queue_class,
            tunnel: verdict.tunnel,
        };
        Some(self.sent(verdict.class, egress, packet))
    }

    /// The time of a packet, as exact as it has to be.
    #[inline(always)]
    fn time_of(&mut self, entry: &FlowEntry, packet: FlowPacket, coarse_ns: u64) -> u64 {
        let short_tunnel = match self.models.dedicated() {
            Some(tunnels) => ShortTunnel {
                may_have_long: coarse_ns < tunnels.long_on_short_until_ns(),
                is_busy: tunnels.is_short_busy(coarse_ns),
            },
            None => ShortTunnel::default(),
        };
        let is_precise = match precision(entry, packet, self.config, short_tunnel) {
            Precision::Coarse => false,
            Precision::Preferred => self.counters.timing.take(coarse_ns),
            Precision::Needed => true,
        };
        if is_precise {
            self.clock.precise_ns()
        } else {
            coarse_ns
        }
    }

    #[inline(always)]
    fn count_evicted(&mut self, coarse_ns: u64) {
        self.counters.count_event(FlowEvent::Evicted);
        let _ = self.counters.evicting.take(coarse_ns);
    }

    #[inline(always)]
    fn count(&mut self, verdict: &Verdict) {
        for event in [verdict.start, verdict.hand_over].into_iter().flatten() {
            self.counters.count_event(event);
        }
        if verdict.became_long {
            self.counters.count_event(FlowEvent::BecameLong);
        }
        if let Some(completed_ns) = verdict.completed_ns {
            self.counters.count_finished(verdict.class, completed_ns);
        }
    }

    #[inline(always)]
    fn sent(&mut self, class: Class, egress: Egress, packet: FlowPacket) -> Decision {
        let Egress {
            queue_class,
            tunnel,
            hand_over,
        } = egress;
        let is_dropped = matches!(hand_over, Some(FlowEvent::DroppedToDrain));
        if !is_dropped {
            self.counters
                .count_sent(class, tunnel, packet.segments, packet.bytes);
        }
        Decision {
            class,
            queue_class,
            tunnel,
            is_dropped,
        }
    }

    /// Marks a packet that was treated, and counts one that was not.
    #[inline(always)]
    pub fn finish<B: Steer + ?Sized>(
        &mut self,
        frame: &mut B,
        field: Option<Field>,
        decision: Result<Decision, PassReason>,
    ) -> Outcome {
        match (field, decision) {
            (Some(field), Ok(decision)) => {
                let Decision {
                    class,
                    queue_class,
                    tunnel,
                    is_dropped,
                } = decision;
                if is_dropped {
                    return Outcome::Dropped;
                }
                self.mark(frame, &field, self.config.mark(queue_class, tunnel));
                Outcome::Split { class, tunnel }
            }
            (field, Err(refusal)) => {
                if let Some(field) = field {
                    self.distrust_mark(frame, &field);
                }
                self.pass(refusal)
            }
            // What is not IP has no flow.
            (None, Ok(_)) => self.pass(PassReason::NotIp),
        }
    }

    #[inline(always)]
    fn distrust_mark<B: Steer + ?Sized>(&mut self, frame: &mut B, field: &Field) {
        let mark = frame.incoming_mark(self.config, field);
        // In a shadow no rule looks at marks, so that none is forged.
        if self.config.is_reserved(mark) && !self.config.marking.is_shadow() {
            self.counters.marks_overridden += 1;
            self.mark(frame, field, self.config.unsplit_mark());
        }
    }

    #[inline(always)]
    fn mark<B: Steer + ?Sized>(&mut self, frame: &mut B, field: &Field, mark: Dscp) {
        if !self.config.marking.is_shadow() && frame.steer(self.config, field, mark).is_none() {
            self.counters.mark_failures += 1;
        }
    }

    #[inline(always)]
    fn pass(&mut self, refusal: PassReason) -> Outcome {
        self.counters.count_passed(refusal);
        Outcome::Passed(refusal)
    }
}

#[cfg(test)]
mod tests;
