//! Queueing disciplines of ports that do not serve in order of arrival: strict priority, deficit
//! round robin, pFabric, and every port of a switch with a shared buffer or with a queue for credits.
//!
//! Such a port keeps real queues, chained through the packets, and one event of its own: the end of
//! a transmission while something waits.

use super::credit_queue::CreditQueue;
use crate::{
    engine::packet::{EntryKind, NONE, Packet, Slab, flag},
    fabric::FlowInfo,
    scenario::{Discipline, PortSettings},
};

/// Queues of a port.
#[derive(Debug)]
pub(crate) struct Scheduler {
    discipline: Discipline,
    queues: Vec<Queue>,
    bytes: u64,
    buffer_bytes: u64,
    mark_bytes: u64,
    /// The queue that `wrr` serves now.
    turn: usize,
    /// The event of the port, and whether it is pending.
    event: u32,
    pub(super) pending: bool,
    /// What goes before all queues, as fast as it may.
    pub(super) credits: Option<CreditQueue>,
}

#[derive(Debug)]
pub(super) struct Queue {
    pub(super) first: u32,
    last: u32,
    pub(super) bytes: u64,
    pub(super) buffer_bytes: u64,
    mark_bytes: u64,
    quantum: u64,
    deficit: u64,
}

/// Bytes that weight 1 may send in a turn: a full packet.
const QUANTUM_BYTES: u64 = 1500;

impl Scheduler {
    pub(crate) fn new(settings: &PortSettings, event: u32, credits: Option<CreditQueue>) -> Self {
        let buffer_bytes = u64::from(settings.buffer_bytes);
        let mark = |bytes: Option<u32>| bytes.map_or(u64::MAX, u64::from);
        let mut queues: Vec<Queue> = Vec::new();
        for queue in &settings.queue {
            queues.push(Queue::new(
                queue.buffer_bytes.map_or(buffer_bytes, u64::from),
                mark(queue.ecn_bytes),
                u64::from(queue.weight) * QUANTUM_BYTES,
            ));
        }
        if queues.is_empty() {
            queues.push(Queue::new(buffer_bytes, u64::MAX, QUANTUM_BYTES));
        }
        Self {
            discipline: settings.discipline,
            queues,
            bytes: 0,
            buffer_bytes,
            mark_bytes: mark(settings.ecn_bytes),
            turn: 0,
            event,
            pending: false,
            credits,
        }
    }

    /// Bytes that wait, without what is being sent and without credits.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// One of the port's events is no longer pending.
    pub(super) fn event_came(&mut self, id: u32) {
        match &mut self.credits {
            Some(credits) if credits.event == id => credits.pending = false,
            _ => self.pending = false,
        }
    }

    /// The event after which to look again, and its time, now that the transmitter is busy until `free_ns`: when that is,
    /// while something waits that may leave then, and for credits when one may. Nothing if none is needed.
    pub(super) fn next_look(&mut self, slab: &Slab, free_ns: u64) -> Option<(u32, u64)> {
        if self.bytes > 0 {
            self.pending = true;
            return Some((self.event, free_ns));
        }
        let credits = self.credits.as_mut().filter(|it| !it.pending)?;
        let at_ns = credits.eligible_ns(slab)?.max(free_ns);
        credits.pending = true;
        Some((credits.event, at_ns))
    }

    /// Puts a packet into its queue. `shared_limit` is what a shared buffer leaves to the port.
    /// Returns the packet that is dropped for it: the packet itself, one that waited, or nothing;
    /// and whether it was marked.
    pub(crate) fn enqueue(
        &mut self,
        slab: &mut Slab,
        flow_info: &[FlowInfo],
        id: u32,
        shared_limit: u64,
    ) -> (Option<u32>, bool) {
        let Packet { bytes, .. } = slab[id];
        if let Some(credits) = &mut self.credits
            && slab[id].kind() == EntryKind::Credit
        {
            return (credits.enqueue(slab, id), false);
        }
        let bytes = u64::from(bytes);
        let index = usize::from(slab[id].priority()).min(self.queues.len() - 1);
        let limit = self.buffer_bytes.min(shared_limit);
        let queue = &mut self.queues[index];
        let marks = queue.bytes > queue.mark_bytes || self.bytes > self.mark_bytes;
        let full = self.bytes + bytes > limit || queue.bytes + bytes > queue.buffer_bytes;
        let mut dropped = None;
        if full {
            if self.discipline != Discipline::Pfabric {
                return (Some(id), false);
            }
            let worst = queue.worst(slab, flow_info);
            if worst.is_none_or(|worst| {
                remaining(slab, flow_info, worst) <= remaining(slab, flow_info, id)
            }) {
                return (Some(id), false);
            }
            if let Some(worst) = worst {
                queue.unlink(slab, worst);
                self.bytes -= u64::from(slab[worst].bytes);
                dropped = Some(worst);
            }
        }
        let marked = marks && slab[id].has(flag::ECT);
        queue.push(slab, id);
        self.bytes += bytes;
        (dropped, marked)
    }

    /// The packet that leaves now.
    pub(crate) fn dequeue(
        &mut self,
        slab: &mut Slab,
        flow_info: &[FlowInfo],
        now_ns: u64,
    ) -> Option<u32> {
        if let Some(credits) = &mut self.credits
            && let Some(id) = credits.dequeue(slab, now_ns)
        {
            return Some(id);
        }
        if self.bytes == 0 {
            return None;
        }
        let id = match self.discipline {
            Discipline::Fifo | Discipline::Priority => {
                let queue = self.queues.iter_mut().find(|it| it.first != NONE)?;
                queue.pop(slab)
            }
            Discipline::Wrr => self.next_in_turn(slab),
            Discipline::Pfabric => {
                let best = self.queues[0].best(slab, flow_info)?;
                self.queues[0].unlink(slab, best);
                best
            }
        };
        self.bytes -= u64::from(slab[id].bytes);
        Some(id)
    }

    /// Deficit round robin (Shreedhar and Varghese 1995). Something waits.
    fn next_in_turn(&mut self, slab: &mut Slab) -> u32 {
        loop {
            let queue = &mut self.queues[self.turn];
            if queue.first != NONE {
                let bytes = u64::from(slab[queue.first].bytes);
                if queue.deficit >= bytes {
                    queue.deficit -= bytes;
                    return queue.pop(slab);
                }
            } else {
                queue.deficit = 0;
            }
            self.turn = (self.turn + 1) % self.queues.len();
            let queue = &mut self.queues[self.turn];
            if queue.first != NONE {
                queue.deficit += queue.quantum;
            }
        }
    }

    /// Packets that wait; for checks.
    pub(crate) fn count(&self, slab: &Slab) -> u64 {
        let credits = self.credits.iter().map(|it| &it.queue);
        let queues = self.queues.iter().chain(credits);
        queues.map(|it| it.ids(slab).count()).sum::<usize>() as u64
    }
}

/// Segments from this one to the end of its flow: pFabric's priority. ACKs go before all data.
fn remaining(slab: &Slab, flow_info: &[FlowInfo], id: u32) -> u32 {
    let packet = &slab[id];
    match packet.kind() {
        EntryKind::Data => flow_info[packet.flow as usize]
            .segments
            .saturating_sub(packet.seq),
        _ => 0,
    }
}

impl Queue {
    pub(super) fn new(buffer_bytes: u64, mark_bytes: u64, quantum: u64) -> Self {
        Self {
            first: NONE,
            last: NONE,
            bytes: 0,
            buffer_bytes,
            mark_bytes,
            quantum,
            deficit: 0,
        }
    }

    pub(super) fn push(&mut self, slab: &mut Slab, id: u32) {
        slab[id].next = NONE;
        if self.last == NONE {
            self.first = id;
        } else {
            slab[self.last].next = id;
        }
        self.last = id;
        self.bytes += u64::from(slab[id].bytes);
    }

    pub(super) fn pop(&mut self, slab: &mut Slab) -> u32 {
        let id = self.first;
        self.first = slab[id].next;
        if self.first == NONE {
            self.last = NONE;
        }
        self.bytes -= u64::from(slab[id].bytes);
        id
    }

    fn unlink(&mut self, slab: &mut Slab, id: u32) {
        if self.first == id {
            self.pop(slab);
            return;
        }
        let before = self.ids(slab).find(|it| slab[*it].next == id);
        if let Some(before) = before {
            slab[before].next = slab[id].next;
            if self.last == id {
                self.last = before;
            }
            self.bytes -= u64::from(slab[id].bytes);
        }
    }

    fn ids<'a>(&self, slab: &'a Slab) -> impl Iterator<Item = u32> + use<'a> {
        let some = |id: u32| (id != NONE).then_some(id);
        std::iter::successors(some(self.first), move |id| some(slab[*id].next))
    }

    /// The earliest packet of the flow that is nearest to its end (pFabric §4.1: a flow's packets
    /// must not overtake each other).
    fn best(&self, slab: &Slab, flow_info: &[FlowInfo]) -> Option<u32> {
        let nearest = self
            .ids(slab)
            .min_by_key(|id| remaining(slab, flow_info, *id))?;
        let same = |id: &u32| {
            slab[*id].flow == slab[nearest].flow && slab[*id].kind() == slab[nearest].kind()
        };
        self.ids(slab).find(same)
    }

    /// The last of the packets that are farthest from the end of their flow.
    fn worst(&self, slab: &Slab, flow_info: &[FlowInfo]) -> Option<u32> {
        self.ids(slab)
            .max_by_key(|id| remaining(slab, flow_info, *id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::QueueSettings;

    fn packet(slab: &mut Slab, flow: u32, seq: u32, priority: u8) -> u32 {
        let mut packet = Packet::new(EntryKind::Data);
        (packet.flow, packet.seq, packet.bytes) = (flow, seq, 1500);
        packet.set_priority(priority);
        packet.set(flag::ECT, true);
        slab.insert(packet)
    }

    fn settings(discipline: Discipline, weights: &[u32]) -> PortSettings {
        let queue = weights.iter().map(|weight| QueueSettings {
            weight: *weight,
            ..QueueSettings::default()
        });
        PortSettings {
            buffer_bytes: 15_000,
            ecn_bytes: Some(4_500),
            discipline,
            queue: queue.collect(),
            ..PortSettings::default()
        }
    }

    fn drain(scheduler: &mut Scheduler, slab: &mut Slab, flow_info: &[FlowInfo]) -> Vec<u32> {
        std::iter::from_fn(|| scheduler.dequeue(slab, flow_info, 0)).collect()
    }

    #[test]
    fn the_urgent_go_first_and_queues_have_limits_of_their_own() {
        let mut slab = Slab::new();
        let mut settings = settings(Discipline::Priority, &[1, 1]);
        settings.queue[1].buffer_bytes = Some(3_000);
        let mut scheduler = Scheduler::new(&settings, NONE, None);
        let ids: Vec<u32> = [1, 0, 1, 1, 7, 0]
            .map(|it| packet(&mut slab, 0, 0, it))
            .to_vec();
        let mut verdicts = Vec::new();
        for id in &ids {
            verdicts.push(scheduler.enqueue(&mut slab, &[], *id, u64::MAX).0);
        }
        assert_eq!(
            verdicts,
            [None, None, None, Some(ids[3]), Some(ids[4]), None]
        );
        assert_eq!(scheduler.count(&slab), 4);
        let order = drain(&mut scheduler, &mut slab, &[]);
        assert_eq!(order, [ids[1], ids[5], ids[0], ids[2]]);
        assert_eq!(scheduler.bytes(), 0);
    }

    #[test]
    fn turns_follow_weights() {
        let mut slab = Slab::new();
        let mut scheduler = Scheduler::new(&settings(Discipline::Wrr, &[1, 2]), NONE, None);
        for index in 0..9 {
            let id = packet(&mut slab, u32::from(index % 2), 0, index % 2);
            assert_eq!(scheduler.enqueue(&mut slab, &[], id, u64::MAX).0, None);
        }
        let order = drain(&mut scheduler, &mut slab, &[]);
        let flows: Vec<u32> = order.iter().map(|id| slab[*id].flow).collect();
        assert_eq!(flows, [1, 1, 0, 1, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn pfabric_sends_the_nearest_and_drops_the_farthest() {
        let mut slab = Slab::new();
        let flow_info = [3, 100].map(|segments| FlowInfo {
            segments,
            ..FlowInfo::default()
        });
        let mut scheduler = Scheduler::new(&settings(Discipline::Pfabric, &[]), NONE, None);
        let long: Vec<u32> = (0..10).map(|seq| packet(&mut slab, 1, seq, 0)).collect();
        for id in &long {
            assert_eq!(
                scheduler.enqueue(&mut slab, &flow_info, *id, u64::MAX).0,
                None
            );
        }
        let short = [packet(&mut slab, 0, 0, 0), packet(&mut slab, 0, 1, 0)];
        let victims = short.map(|id| scheduler.enqueue(&mut slab, &flow_info, id, u64::MAX).0);
        assert_eq!(victims, [Some(long[0]), Some(long[1])]);
        let late = packet(&mut slab, 1, 0, 0);
        assert_eq!(
            scheduler.enqueue(&mut slab, &flow_info, late, u64::MAX).0,
            Some(late)
        );
        // Segment 1 is nearer to the end, but segment 0 of its flow leaves first.
        let order = drain(&mut scheduler, &mut slab, &flow_info);
        assert_eq!(order[..3], [short[0], short[1], long[2]]);
    }

    #[test]
    fn a_shared_buffer_limits_and_a_threshold_marks() {
        let mut slab = Slab::new();
        let mut scheduler = Scheduler::new(&settings(Discipline::Fifo, &[]), NONE, None);
        let mut marks = Vec::new();
        for seq in 0..6 {
            let id = packet(&mut slab, 0, seq, 0);
            let (dropped, marked) = scheduler.enqueue(&mut slab, &[], id, 7_500);
            marks.push((dropped.is_some(), marked));
        }
        assert_eq!(marks[3..], [(false, false), (false, true), (true, false)]);
    }
}
