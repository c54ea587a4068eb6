//! The fast path: plain segments of flows that are in no transition.

use super::{Decision, Outcome, Splitter};
use crate::buffer::Buffer;
use crate::clock::Clock;
use crate::counters::FlowEvent;
use crate::dedicated::{enqueue_long, enqueue_short};
use crate::dscp::Dscp;
use crate::egress::Egress;
use crate::flow::{Class, TunnelRole};
use crate::flow_packet::FlowPacket;
use crate::fragments::FragmentStore;
use crate::models::QueueModels;
use crate::packet::{PlainSegment, PlainV4, PlainV6, is_v4};
use crate::sites::SiteThresholds;
use crate::steer::Steer;
use crate::table::{EvictionRank, HomeLine, LineKey, Memory, SlotGuard};
use crate::thresholds::ThresholdIndex;
use flow_balance::{ActiveFlows, VirtualQueue};

/// A packet that changes nothing about its flow but counts and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Steady {
    /// Its flow is of this class, and in the tunnel for that.
    Own(Class),
    /// Its flow is long and was placed in one of two shared tunnels.
    Placed(Egress),
}

/// An address family, by the plain segments that there are of it.
trait Family {
    /// A plain segment where it lies in its frame.
    type Segment<'f>: PlainSegment<Key: LineKey> + Copy;

    const IS_V6: bool;

    /// The segment that a frame is; `None` where it is none.
    fn segment_of<B: Buffer + ?Sized>(frame: &B) -> Option<Self::Segment<'_>>;
}

struct V4;

struct V6;

impl Family for V4 {
    type Segment<'f> = PlainV4<'f>;

    const IS_V6: bool = false;

    #[inline(always)]
    fn segment_of<B: Buffer + ?Sized>(frame: &B) -> Option<PlainV4<'_>> {
        PlainV4::of(frame)
    }
}

impl Family for V6 {
    type Segment<'f> = PlainV6<'f>;

    const IS_V6: bool = true;

    #[inline(always)]
    fn segment_of<B: Buffer + ?Sized>(frame: &B) -> Option<PlainV6<'_>> {
        PlainV6::of(frame)
    }
}

impl<M, C, T> Splitter<'_, M, C, T>
where
    M: Memory + FragmentStore + SiteThresholds,
    C: Clock,
    T: QueueModels,
{
    /// Splits what most packets are: a plain segment of a known flow that is in no transition, or
    /// of a new one that finds a slot in its home line; and, in a flood, any of a flow that is not
    /// known. `None`, and nothing done, for all else.
    #[inline(always)]
    pub fn split_fast<B: Steer + ?Sized>(&mut self, frame: &mut B) -> Option<Outcome> {
        // Before anything else: a call later on would have more to keep.
        let coarse_ns = self.clock.coarse_ns();
        // Each family apart to the end: keys and places differ.
        if is_v4(frame)? {
            self.split_plain::<V4, B>(frame, coarse_ns)
        } else {
            self.split_plain::<V6, B>(frame, coarse_ns)
        }
    }

    #[inline(always)]
    fn split_plain<F: Family, B: Steer + ?Sized>(
        &mut self,
        frame: &mut B,
        coarse_ns: u64,
    ) -> Option<Outcome> {
        let payload_bytes = F::segment_of(frame)?.payload_bytes() as u64;
        // An aggregate apart to the end, too: of all others it need not be kept how many segments one is.
        if FlowPacket::is_aggregate(payload_bytes, self.config) {
            if !M::SPLITS_AGGREGATES_FAST {
                return None;
            }
            let segments = FlowPacket::segments_of(payload_bytes, self.config);
            self.split_segments::<F, B>(frame, segments, coarse_ns)
        } else {
            self.split_segments::<F, B>(frame, 1, coarse_ns)
        }
    }

    #[inline(always)]
    fn split_segments<F: Family, B: Steer + ?Sized>(
        &mut self,
        frame: &mut B,
        segments: u64,
        coarse_ns: u64,
    ) -> Option<Outcome> {
        let plain = F::segment_of(frame)?;
        let line = &self.table.line(plain.key())?;
        // Made where it is needed, so that flags are read then.
        let packet = || FlowPacket {
            segments,
            bytes: plain.frame_bytes() as u64,
            flags: plain.flags(),
            payload_bytes: plain.payload_bytes() as u64,
        };
        if self.counters.evicting.is_spent(coarse_ns) {
            let packet = packet();
            if self.bypasses_table(line, packet, coarse_ns) {
                return Some(self.send_dedicated(frame, F::IS_V6, Class::Short, packet));
            }
        }
        let (steady, packet) = match line.lookup_tcp() {
            Some(slot) => {
                let packet = packet();
                (self.count_steady(&slot, packet, coarse_ns)?, packet)
            }
            None => {
                let packet = packet();
                self.count_first(line, packet, coarse_ns)?;
                (Steady::Own(Class::Short), packet)
            }
        };
        // Each case apart to the end: what they count and mark is known beforehand.
        Some(match steady {
            Steady::Own(Class::Short) => self.send_dedicated(frame, F::IS_V6, Class::Short, packet),
            Steady::Own(Class::Long) => self.send_dedicated(frame, F::IS_V6, Class::Long, packet),
            Steady::Placed(egress) => {
                let Decision {
                    class,
                    queue_class,
                    tunnel,
                    ..
                } = self.sent(Class::Long, egress, packet);
                self.mark_untagged(frame, F::IS_V6, self.config.mark(queue_class, tunnel));
                Outcome::Split { class, tunnel }
            }
        })
    }

    #[inline(always)]
    fn send_dedicated<B: Steer + ?Sized>(
        &mut self,
        frame: &mut B,
        is_v6: bool,
        class: Class,
        packet: FlowPacket,
    ) -> Outcome {
        let (segments, bytes) = (packet.segments, packet.bytes);
        self.counters.count_sent_dedicated(class, segments, bytes);
        let tunnel = class.own_tunnel();
        self.mark_untagged(frame, is_v6, self.config.mark(class, tunnel));
        Outcome::Split { class, tunnel }
    }

    #[inline(always)]
    fn mark_untagged<B: Steer + ?Sized>(&mut self, frame: &mut B, is_v6: bool, mark: Dscp) {
        let config = self.config;
        if !config.marking.is_shadow() && frame.steer_untagged(config, is_v6, mark).is_none() {
            self.counters.mark_failures += 1;
        }
    }

    /// A packet, in a flood, goes as a short one and is counted in no flow: it is of none that is
    /// known, and the table is not even looked at. One in a few gets a slot as ever, so that
    /// a flow that goes on sending has one soon.
    #[inline(always)]
    fn bypasses_table<K: LineKey>(
        &mut self,
        line: &HomeLine<'_, M, K>,
        packet: FlowPacket,
        coarse_ns: u64,
    ) -> bool {
        const ADMITTED: u64 = 8;
        let config = self.config;
        let number = self.counters.packets(Class::Short, TunnelRole::Short);
        if config.is_shared() || number.is_multiple_of(ADMITTED) || !line.is_ruled_out() {
            return false;
        }
        if config.short_service.is_known() {
            let Some(mut tunnels) = self.models.dedicated() else {
                return false;
            };
            // Where new flows may start on the long tunnel, what follows a packet that passed by might
            // overtake it.
            let may_start_on_long = coarse_ns < tunnels.long_on_short_until_ns();
            if may_start_on_long || VirtualQueue::needs_precise_time(packet.bytes) {
                return false;
            }
            enqueue_short(packet.bytes, config, &mut tunnels, coarse_ns);
        }
        if packet.flags.opens() {
            self.counters.count_event(FlowEvent::Untracked);
        }
        true
    }

    /// Counts a packet of a flow that is not in transition: it is long and stays
    /// in its tunnel, or stays short, and neither begins nor ends. `None`, and
    /// nothing changed, when it may be.
    ///
    /// This is what most packets pass through. It says and keeps what
    /// [`classify`](crate::classify::classify) would, and reads the precise clock
    /// where [`precision`](crate::classify::precision) needs that.
    #[inline(always)]
    pub(super) fn count_steady(
        &mut self,
        slot: &SlotGuard<'_>,
        packet: FlowPacket,
        now_ns: u64,
    ) -> Option<Steady> {
        let config = self.config;
        let is_idle = slot.may_be_idle(config.idle_timeout_ns, now_ns);
        if is_idle || packet.flags.opens() || packet.flags.closes() {
            return None;
        }
        let (packets, bytes) = (packet.segments, packet.bytes);
        if config.is_shared() {
            return self.count_placed(slot, packet, now_ns);
        }
        if slot.is_settled(false) {
            slot.count_settled(packets, bytes, now_ns);
            if config.long_service.is_known()
                && let Some(mut tunnels) = self.models.dedicated()
            {
                enqueue_long(bytes, config, &mut tunnels, now_ns);
            }
            return Some(Steady::Own(Class::Long));
        }
        if !slot.is_plainly_short() {
            return None;
        }
        let is_long = |index, packets, bytes| config.exceeds_threshold(index, packets, bytes);
        let counted = slot.counted_short(packets, bytes, is_long)?;
        let (mut now_ns, mut drained_ns) = (now_ns, None);
        if config.short_service.is_known()
            && let Some(mut tunnels) = self.models.dedicated()
        {
            if VirtualQueue::needs_precise_time(bytes) && !tunnels.is_short_busy(now_ns) {
                now_ns = self.clock.precise_ns();
            }
            drained_ns = Some(enqueue_short(bytes, config, &mut tunnels, now_ns));
        }
        slot.commit_short(counted, drained_ns, now_ns);
        Some(Steady::Own(Class::Short))
    }

    /// Counts a packet of a flow that was placed in one of two shared tunnels, and stays there.
    #[inline(always)]
    fn count_placed(
        &mut self,
        slot: &SlotGuard<'_>,
        packet: FlowPacket,
        now_ns: u64,
    ) -> Option<Steady> {
        if !slot.is_settled(true) {
            return None;
        }
        let (config, tunnel) = (self.config, slot.tunnel());
        let last_seen_ns = slot.last_seen_ns(now_ns);
        // Its record is one of the slow path then.
        if packet.carries_data() && self.models.may_change(config, tunnel, last_seen_ns, now_ns) {
            return None;
        }
        slot.count_settled(packet.segments, packet.bytes, now_ns);
        let is_first = ActiveFlows::is_first_of_window(last_seen_ns, now_ns);
        let egress = self
            .models
            .send_placed(config, tunnel, packet, is_first, now_ns);
        Some(Steady::Placed(egress))
    }

    /// Counts the first packet of a flow that goes into the short tunnel. It says
    /// and keeps what [`Splitter::decide_flow`] would.
    #[inline(always)]
    fn count_first<K: LineKey>(
        &mut self,
        line: &HomeLine<'_, M, K>,
        packet: FlowPacket,
        coarse_ns: u64,
    ) -> Option<()> {
        let config = self.config;
        let unknown = ThresholdIndex::UNKNOWN;
        let becomes_long = config.exceeds_threshold(unknown, packet.segments, packet.bytes);
        if config.is_shared() || packet.flags.closes() || becomes_long {
            return None;
        }
        let timing = &self.counters.timing;
        let chosen = line.victim_at_home(&EvictionRank::new(coarse_ns, config.idle_timeout_ns));
        if !EvictionRank::suffices(chosen, || timing.is_spent(coarse_ns)) {
            return None;
        }
        let mut tunnels = None;
        if config.short_service.is_known() {
            let known = self.models.dedicated()?;
            let may_start_on_long = coarse_ns < known.long_on_short_until_ns();
            if may_start_on_long || VirtualQueue::needs_precise_time(packet.bytes) {
                return None;
            }
            tunnels = Some(known);
        }
        let slot = line.insert_at_home(chosen, coarse_ns)?;
        let is_precise = self.counters.timing.take(coarse_ns);
        let now_ns = if is_precise {
            self.clock.precise_ns()
        } else {
            coarse_ns
        };
        let drained_ns = tunnels.map(|mut it| enqueue_short(packet.bytes, config, &mut it, now_ns));
        slot.commit_first(packet.segments, packet.bytes, drained_ns, now_ns);
        if slot.has_evicted {
            self.count_evicted(coarse_ns);
        }
        self.counters.count_event(FlowEvent::Started);
        Some(())
    }
}

#[cfg(test)]
mod tests;
