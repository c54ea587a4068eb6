//! Counters of the kernel programs, one value for each CPU.

use crate::flow::{Class, TunnelRole};
use crate::forward::Fallback;
use crate::histogram::Histogram;
use crate::pass_reason::PassReason;

/// An event in the life of a flow: it starts, turns long, is handed over, ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FlowEvent {
    /// The flow's first packet was seen.
    Started = 0,
    /// The flow had been silent for the idle timeout and starts again.
    RestartedIdle = 1,
    /// A SYN came after FIN or RST: another connection with the same 5-tuple.
    RestartedSyn = 2,
    /// The flow counted more than the threshold.
    BecameLong = 3,
    /// A hand-over: the flow changed tunnels after its last packet in the one before had drained.
    HandedOverDrained = 4,
    /// A hand-over at the maximum wait: the flow changed to the long tunnel and may have overtaken
    /// itself.
    HandedOverAtMaxWait = 5,
    /// The flow was evicted for a new one before it had expired.
    Evicted = 6,
    /// The flow's SYN found the table full, or bypassed it in a flood; without one, it is not known
    /// to be a flow.
    Untracked = 7,
    /// The flow was placed on the tunnel that it was in (shared tunnels).
    KeptTunnel = 8,
    /// The flow kept its tunnel (shared tunnels): it was to change, could not without overtaking
    /// itself until the maximum wait, or until it had sent as much again as made it long, and
    /// stayed where it was.
    KeptTunnelAtMaxWait = 9,
    /// The flow changed tunnels after it had been placed (shared tunnels): it had paused, and the
    /// other one had fewer flows for its rate.
    ChangedTunnelLater = 10,
    /// A packet of a long flow in the short tunnel was dropped, so that its last one before leaves
    /// that before the next goes into the long one (dedicated tunnels).
    DroppedToDrain = 11,
}

impl FlowEvent {
    /// The number of kinds of events.
    pub const COUNT: usize = 12;

    /// The number that stands for an event, or for none.
    #[inline(always)]
    pub const fn code(event: Option<Self>) -> u64 {
        match event {
            Some(event) => event as u64,
            None => Self::COUNT as u64,
        }
    }

    /// The event that `code` stands for, as a number.
    #[inline(always)]
    pub const fn from_code(code: u64) -> Option<Self> {
        Some(match code {
            0 => Self::Started,
            1 => Self::RestartedIdle,
            2 => Self::RestartedSyn,
            3 => Self::BecameLong,
            4 => Self::HandedOverDrained,
            5 => Self::HandedOverAtMaxWait,
            6 => Self::Evicted,
            7 => Self::Untracked,
            8 => Self::KeptTunnel,
            9 => Self::KeptTunnelAtMaxWait,
            10 => Self::ChangedTunnelLater,
            11 => Self::DroppedToDrain,
            _ => return None,
        })
    }
}

/// Counters of one CPU; all rise from zero and never fall.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    packets: [u64; 4],
    bytes: [u64; 4],
    passed: [u64; PassReason::ALL.len()],
    events: [u64; FlowEvent::COUNT],
    finished: [u64; 2],
    /// Packets that were not split but carried a mark that stands for those that
    /// are; they were given another one.
    pub marks_overridden: u64,
    /// Packets whose header could not be written.
    pub mark_failures: u64,
    completion: [Histogram; 2],
    /// The rest of this CPU's budget of precise times.
    pub timing: TickBudget,
    /// The rest of this CPU's budget of evictions.
    pub evicting: TickBudget,
    /// Packets that were put into a tunnel without the network stack.
    pub redirected: u64,
    /// Packets that were to be redirected and for which the kernel's FIB was asked: no record of a next
    /// hop answered. Those that went by the stack after that are among them.
    pub fib_lookups: u64,
    fallbacks: [u64; Fallback::ALL.len()],
}

impl Counters {
    /// Counters before anything was counted.
    pub const ZERO: Self = Self {
        packets: [0; 4],
        bytes: [0; 4],
        passed: [0; PassReason::ALL.len()],
        events: [0; FlowEvent::COUNT],
        finished: [0; 2],
        marks_overridden: 0,
        mark_failures: 0,
        completion: [Histogram::EMPTY; 2],
        timing: TickBudget::NEW,
        evicting: TickBudget::NEW,
        redirected: 0,
        fib_lookups: 0,
        fallbacks: [0; Fallback::ALL.len()],
    };

    /// Counts `packets` with `bytes` of a class that go into a tunnel.
    #[inline(always)]
    pub fn count_sent(&mut self, class: Class, tunnel: TunnelRole, packets: u64, bytes: u64) {
        // Verifiers before Linux 6.10 forget the bounds of what is made by `|`,
        // as this sum is; the compiler must not drop the check below that
        // tells them.
        let index = core::hint::black_box(sent_index(class, tunnel));
        if let Some(count) = self.packets.get_mut(index) {
            *count += packets;
        }
        if let Some(count) = self.bytes.get_mut(index) {
            *count += bytes;
        }
    }

    /// Counts `packets` of a class that go into its own tunnel; the caller knows beforehand which
    /// one.
    #[inline(always)]
    pub const fn count_sent_dedicated(&mut self, class: Class, packets: u64, bytes: u64) {
        let index = sent_index(class, class.own_tunnel());
        self.packets[index] += packets;
        self.bytes[index] += bytes;
    }

    /// Counts a packet that passes untreated.
    #[inline(always)]
    pub fn count_passed(&mut self, reason: PassReason) {
        if let Some(count) = self.passed.get_mut(reason as usize) {
            *count += 1;
        }
    }

    /// Counts a packet that was to be redirected and goes by the network stack.
    #[inline(always)]
    pub fn count_fallback(&mut self, reason: Fallback) {
        // As in `count_sent`: the compiler knows the reasons, the verifier need not.
        let index = core::hint::black_box(reason as usize);
        if let Some(count) = self.fallbacks.get_mut(index) {
            *count += 1;
        }
    }

    /// Counts something that happened to a flow.
    #[inline(always)]
    pub fn count_event(&mut self, event: FlowEvent) {
        if let Some(count) = self.events.get_mut(event as usize) {
            *count += 1;
        }
    }

    /// Counts a flow that ended with FIN or RST, and how long it took.
    #[inline(always)]
    pub fn count_finished(&mut self, class: Class, completion_ns: u64) {
        if let Some(count) = self.finished.get_mut(class as usize) {
            *count += 1;
        }
        if let Some(histogram) = self.completion.get_mut(class as usize) {
            histogram.record(completion_ns);
        }
    }

    /// Packets of a class that went into a tunnel.
    pub const fn packets(&self, class: Class, tunnel: TunnelRole) -> u64 {
        self.packets[sent_index(class, tunnel)]
    }

    /// Bytes of a class that went into a tunnel.
    pub const fn bytes(&self, class: Class, tunnel: TunnelRole) -> u64 {
        self.bytes[sent_index(class, tunnel)]
    }

    /// Packets that passed untreated for a reason.
    pub const fn passed(&self, reason: PassReason) -> u64 {
        self.passed[reason as usize]
    }

    /// Packets that went by the network stack for a reason.
    pub const fn fallbacks(&self, reason: Fallback) -> u64 {
        self.fallbacks[reason as usize]
    }

    /// How often something happened to a flow.
    pub const fn events(&self, event: FlowEvent) -> u64 {
        self.events[event as usize]
    }

    /// Flows of a class that ended with FIN or RST.
    pub const fn finished(&self, class: Class) -> u64 {
        self.finished[class as usize]
    }

    /// Completion times of the flows of a class that ended with FIN or RST.
    pub const fn completion(&self, class: Class) -> &Histogram {
        &self.completion[class as usize]
    }

    /// Adds what another CPU counted.
    pub fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.packets[..], &other.packets[..]),
            (&mut self.bytes, &other.bytes),
            (&mut self.passed, &other.passed),
            (&mut self.events, &other.events),
            (&mut self.finished, &other.finished),
            (&mut self.fallbacks, &other.fallbacks),
        ];
        for (counts, more) in pairs {
            counts
                .iter_mut()
                .zip(more)
                .for_each(|(count, more)| *count += more);
        }
        self.marks_overridden += other.marks_overridden;
        self.mark_failures += other.mark_failures;
        self.redirected += other.redirected;
        self.fib_lookups += other.fib_lookups;
        for (histogram, more) in self.completion.iter_mut().zip(&other.completion) {
            histogram.add(more);
        }
    }
}

/// A budget by the clock tick, for what costs more than the rest of a new flow's path.
///
/// One is for reading the precise clock for nothing but the accuracy of completion
/// times: in a flood, flows beyond some thousand a second start and end at the time
/// of the tick. The other is for forgetting live flows for new ones: what would do so
/// more often is a flood, most of which then passes the table by.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TickBudget {
    tick_ns: u64,
    used: u64,
}

impl TickBudget {
    /// The budget of a tick: 6,400 to 64,000 a second at 100 to 1000 ticks.
    pub const PER_TICK: u64 = 64;

    const NEW: Self = Self {
        tick_ns: 0,
        used: 0,
    };

    /// Tells if nothing is left in the tick that began at `tick_ns`: flows come and go by the
    /// thousand.
    #[inline(always)]
    pub const fn is_spent(&self, tick_ns: u64) -> bool {
        self.tick_ns == tick_ns && self.used >= Self::PER_TICK
    }

    /// Takes one of the tick that began at `tick_ns`, if one is left.
    #[inline(always)]
    pub fn take(&mut self, tick_ns: u64) -> bool {
        if self.tick_ns != tick_ns {
            *self = Self { tick_ns, used: 0 };
        }
        if self.used >= Self::PER_TICK {
            return false;
        }
        self.used += 1;
        true
    }
}

#[inline(always)]
const fn sent_index(class: Class, tunnel: TunnelRole) -> usize {
    class as usize * 2 + tunnel as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_count_is_its_own_and_cpus_add_up() {
        let (mut one, mut other) = (Counters::ZERO, Counters::ZERO);
        for reason in PassReason::ALL {
            one.count_passed(reason);
        }
        one.count_sent(Class::Long, TunnelRole::Short, 2, 3_000);
        other.count_sent(Class::Long, TunnelRole::Long, 1, 1_500);
        other.count_finished(Class::Short, 4_000);
        other.count_event(FlowEvent::HandedOverAtMaxWait);
        other.redirected += 1;
        other.fib_lookups += 3;
        for reason in Fallback::ALL {
            other.count_fallback(reason);
        }
        one.add(&other);
        one.add(&other);

        assert!(
            PassReason::ALL
                .iter()
                .all(|&reason| one.passed(reason) == 1)
        );
        assert_eq!(one.packets(Class::Long, TunnelRole::Short), 2);
        assert_eq!(one.bytes(Class::Long, TunnelRole::Long), 3_000);
        assert_eq!(one.packets(Class::Short, TunnelRole::Short), 0);
        assert_eq!(one.finished(Class::Short), 2);
        assert_eq!(one.completion(Class::Short).sum_ns, 8_000);
        assert_eq!(one.events(FlowEvent::HandedOverAtMaxWait), 2);
        assert_eq!(one.events(FlowEvent::Started), 0);
        assert_eq!((one.redirected, one.fib_lookups), (2, 6));
        let is_own = |&reason: &Fallback| one.fallbacks(reason) == 2;
        assert!(Fallback::ALL.iter().all(is_own));
    }

    #[test]
    fn precise_times_are_rationed_by_the_tick() {
        let mut timing = TickBudget::NEW;
        let taken = |timing: &mut TickBudget, tick| (0..100).filter(|_| timing.take(tick)).count();
        assert_eq!(taken(&mut timing, 4_000_000), 64);
        assert_eq!(taken(&mut timing, 4_000_000), 0);
        assert_eq!(taken(&mut timing, 8_000_000), 64);
    }
}
