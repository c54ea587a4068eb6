//! The path of a packet: parse, find its flow, classify, mark, count.
//!
//! It fails open: whatever cannot or should not be treated passes with its
//! bytes unchanged, counted under a named reason. One exception guards the
//! long tunnel's users from the short's and the reverse: incoming marks are
//! never trusted, so a packet that is not split but carries the long mark is
//! given the short one.

use crate::buffer::BufferMut;
use crate::classify::{FlowPacket, classify, needs_precise_time};
use crate::config::Config;
use crate::counters::{Counters, FlowEvent};
use crate::drain::Tunnels;
use crate::dscp::{self, Dscp};
use crate::flow::{Class, FlowEntry, FlowKey, Tunnel};
use crate::packet::{Network, Refusal, Tcp, Transport};

/// Where flows are kept.
pub trait FlowTable {
    /// The entry of a flow, made (with all fields zero) if there is none;
    /// `None` when there is no room.
    fn find_or_insert(&mut self, key: &FlowKey) -> Option<&mut FlowEntry>;
}

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
pub struct Splitter<'a, T, C> {
    /// What the operator set.
    pub config: &'a Config,
    /// The host's flows.
    pub table: T,
    /// The host's clock.
    pub clock: C,
    /// The tunnels as the host models them.
    pub tunnels: &'a mut Tunnels,
    /// The host's counters.
    pub counters: &'a mut Counters,
}

impl<T: FlowTable, C: Clock> Splitter<'_, T, C> {
    /// Treats one frame; it is to be passed on whatever the outcome.
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
        let entry = self.table.find_or_insert(&key).ok_or(Refusal::TableFull)?;

        let now_ns = if needs_precise_time(entry, packet, config) {
            self.clock.precise_ns()
        } else {
            self.clock.coarse_ns()
        };
        let verdict = classify(entry, packet, config, self.tunnels, now_ns);

        let (class, tunnel) = (verdict.class, verdict.tunnel);
        self.counters
            .count_sent(class, tunnel, packet.segments, bytes);
        for event in [verdict.start, verdict.moved].into_iter().flatten() {
            self.counters.count_event(event);
        }
        if verdict.became_long {
            self.counters.count_event(FlowEvent::BecameLong);
        }
        if let Some(completed_ns) = verdict.completed_ns {
            self.counters.count_finished(class, completed_ns);
        }
        self.mark(
            frame,
            network,
            match tunnel {
                Tunnel::Short => config.short_mark,
                Tunnel::Long => config.long_mark,
            },
        );
        Ok(Outcome::Split { class, tunnel })
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
