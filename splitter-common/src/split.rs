//! The path of a packet: parse, find its flow, classify, mark, count.
//!
//! It fails open: whatever cannot or should not be treated passes with its
//! bytes unchanged, counted under a named reason. One exception guards the
//! long tunnel's users from the short's and the reverse: incoming marks are
//! never trusted, so a packet that is not split but carries the long mark is
//! given the short one.

use crate::buffer::BufferMut;
use crate::classify::{FlowPacket, Precision, Verdict, classify, precision};
use crate::config::Config;
use crate::counters::{Counters, FlowEvent};
use crate::drain::Tunnels;
use crate::dscp::{self, Dscp};
use crate::flow::{Class, FlowEntry, FlowKey, Tunnel};
use crate::packet::{Network, Refusal, Tcp, Transport, parse_plain};
use crate::table::{Memory, Opened, Table};

/// Time since boot, `CLOCK_MONOTONIC`.
pub trait Clock {
    /// To a clock tick (1 to 10 ms), in about a nanosecond.
    fn coarse_ns(&self) -> u64;

    /// To the nanosecond, at the price of some tens of them.
    fn precise_ns(&self) -> u64;
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was counted in a flow and marked for a tunnel.
    Split {
        /// The class of its flow.
        class: Class,
        /// The tunnel that its mark selects.
        tunnel: Tunnel,
    },
    /// It passes untreated.
    Passed(Refusal),
}

/// A splitter in its host: the kernel program or a test.
pub struct Splitter<'a, M, C> {
    /// What the operator set.
    pub config: &'a Config,
    /// The host's flows.
    pub table: Table<'a, M>,
    /// The host's clock.
    pub clock: C,
    /// The tunnels as the host models them.
    pub tunnels: &'a mut Tunnels,
    /// The host's counters.
    pub counters: &'a mut Counters,
}

impl<M: Memory, C: Clock> Splitter<'_, M, C> {
    /// Treats one frame, whatever it is; it is to be passed on whatever the outcome.
    #[inline(always)]
    pub fn split<B: BufferMut + ?Sized>(&mut self, frame: &mut B) -> Outcome {
        let network = match Network::parse(frame) {
            Ok(network) => network,
            Err(refusal) => return self.pass(refusal),
        };
        let refusal = match Transport::parse(frame, &network) {
            Ok(Transport::Tcp(tcp)) => match self.split_tcp(frame, &network, &tcp) {
                Ok(outcome) => return outcome,
                Err(refusal) => refusal,
            },
            Ok(Transport::Udp) => Refusal::Udp,
            Ok(Transport::Esp) => Refusal::Esp,
            Ok(Transport::Gre) => Refusal::Gre,
            Ok(Transport::Other) => Refusal::OtherProtocol,
            Err(refusal) => refusal,
        };
        self.distrust_mark(frame, &network);
        self.pass(refusal)
    }

    /// The case that most packets are: a plain segment of a known flow that is in
    /// no transition. It does what [`Splitter::split`] would, faster; `None`, and
    /// nothing done, for all else.
    #[inline(always)]
    pub fn split_plain<B: BufferMut + ?Sized>(&mut self, frame: &mut B) -> Option<Outcome> {
        let config = self.config;
        let (network, tcp) = parse_plain(frame)?;
        let bytes = network.frame_bytes as u64;
        let packet = FlowPacket::new(bytes, tcp.payload_bytes as u64, tcp.flags, config);
        let coarse_ns = self.clock.coarse_ns();
        let key = FlowKey::tcp(network.addresses, &tcp);
        let opened = self.table.find_at_home(&key)?;
        let (class, tunnel) = opened.count_steady(packet, config, self.tunnels, coarse_ns)?;
        Some(self.send(frame, &network, packet, class, tunnel))
    }

    #[inline(always)]
    fn split_tcp<B: BufferMut + ?Sized>(
        &mut self,
        frame: &mut B,
        network: &Network,
        tcp: &Tcp,
    ) -> Result<Outcome, Refusal> {
        let config = self.config;
        let bytes = network.frame_bytes as u64;
        let packet = FlowPacket::new(bytes, tcp.payload_bytes as u64, tcp.flags, config);
        let key = FlowKey::tcp(network.addresses, tcp);
        let coarse_ns = self.clock.coarse_ns();
        let timing = &self.counters.timing;
        let in_haste = || timing.is_used_up(coarse_ns);
        let Some(opened) = self.table.open(&key, coarse_ns, config, in_haste) else {
            if packet.flags.opens() {
                self.counters.count_event(FlowEvent::Untracked);
            }
            return Err(Refusal::TableFull);
        };
        if opened.has_evicted {
            self.counters.count_event(FlowEvent::Evicted);
        }
        let (class, tunnel) = match opened.count_steady(packet, config, self.tunnels, coarse_ns) {
            Some(steady) => steady,
            None => self.transition(&opened, packet, coarse_ns),
        };
        Ok(self.send(frame, network, packet, class, tunnel))
    }

    /// Counts and marks a packet whose flow has been dealt with.
    #[inline(always)]
    fn send<B: BufferMut + ?Sized>(
        &mut self,
        frame: &mut B,
        network: &Network,
        packet: FlowPacket,
        class: Class,
        tunnel: Tunnel,
    ) -> Outcome {
        self.counters
            .count_sent(class, tunnel, packet.segments, packet.bytes);
        let mark = match tunnel {
            Tunnel::Short => self.config.short_mark,
            Tunnel::Long => self.config.long_mark,
        };
        self.mark(frame, network, mark);
        Outcome::Split { class, tunnel }
    }

    /// Counts a packet of a flow that begins, ends, becomes long or changes
    /// tunnels, or that may.
    #[inline(always)]
    fn transition(
        &mut self,
        opened: &Opened<'_>,
        packet: FlowPacket,
        coarse_ns: u64,
    ) -> (Class, Tunnel) {
        let mut entry = opened.entry(coarse_ns);
        let now_ns = self.time_of(&entry, packet, coarse_ns);
        let verdict = classify(&mut entry, packet, self.config, self.tunnels, now_ns);
        let verdict = match self.forget_origin(&mut entry, verdict) {
            Some(verdict) => verdict,
            None => verdict,
        };
        opened.store(&entry, now_ns);
        self.count(&verdict);
        (verdict.class, verdict.tunnel)
    }

    /// See [`Memory::forget_origin`].
    #[inline(always)]
    fn forget_origin(&self, entry: &mut FlowEntry, verdict: Verdict) -> Option<Verdict> {
        let (bits, completed_ns) = verdict.to_bits();
        let values = [entry.flags, entry.long_since_ns, bits, completed_ns];
        let [flags, long_since_ns, bits, completed_ns] = self.table.memory.forget_origin(values)?;
        (entry.flags, entry.long_since_ns) = (flags, long_since_ns);
        Some(Verdict::from_bits(bits, completed_ns))
    }

    /// The time of a packet, as exact as it has to be.
    #[inline(always)]
    fn time_of(&mut self, entry: &FlowEntry, packet: FlowPacket, coarse_ns: u64) -> u64 {
        let is_precise = match precision(entry, packet, self.config, self.tunnels, coarse_ns) {
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
    fn count(&mut self, verdict: &Verdict) {
        for event in [verdict.start, verdict.moved].into_iter().flatten() {
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
    fn distrust_mark<B: BufferMut + ?Sized>(&mut self, frame: &mut B, network: &Network) {
        let mark = Dscp::of_traffic_class(network.traffic_class);
        // In a shadow no rule looks at marks, so that none is forged.
        if self.config.routes_long(mark) && !self.config.marking.is_shadow() {
            self.counters.marks_overridden += 1;
            self.mark(frame, network, self.config.short_mark);
        }
    }

    #[inline(always)]
    fn mark<B: BufferMut + ?Sized>(&mut self, frame: &mut B, network: &Network, mark: Dscp) {
        if !self.config.marking.is_shadow() && dscp::rewrite(frame, network, mark).is_none() {
            self.counters.mark_failures += 1;
        }
    }

    #[inline(always)]
    fn pass(&mut self, refusal: Refusal) -> Outcome {
        self.counters.count_passed(refusal);
        Outcome::Passed(refusal)
    }
}

#[cfg(test)]
mod tests;
