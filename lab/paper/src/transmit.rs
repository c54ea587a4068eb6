//! Rounds: a symbol on each way to the receiver (Algorithm 1, lines 4 to 7).

use core::time::Duration;
use std::cmp::Reverse;

use cloudburst_proto::{Ecn, FourTuple, Reason, SendId, Time, Transmit};

use crate::{Paper, address::Verdict, outgoing};
use cloudburst_code::{Shape, wire::HEADER_BYTES};

/// Stops that wait to be sent, at most.
const MAX_WAITING: usize = 65_536;
/// By how much rounds may lag behind their time and catch up: timers come late.
const MAX_LAG: Duration = Duration::from_millis(1);
/// Bytes to an address that was not connected to that symbols leave to stops.
const RESERVE_BYTES: u64 = 200;
/// How long a stop may take after the last symbol that the budget allows, if
/// not longer than the round trip makes likely.
const LEAST_GRACE: Duration = Duration::from_millis(100);
const GRACE_ROUND_TRIPS: u32 = 4;

/// A stop that waits to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    pub(crate) four_tuple: FourTuple,
    datagram: [u8; HEADER_BYTES],
}

impl Paper {
    /// Says stop for a message, unless too many stops wait.
    pub(crate) fn stop(&mut self, four_tuple: FourTuple, id: u8, shape: &Shape) {
        if self.stops.len() >= MAX_WAITING {
            self.statistics.refused.answers_capped += 1;
            return;
        }
        let datagram = outgoing::stop(id, shape).to_bytes();
        self.stops.push_back(Stop {
            four_tuple,
            datagram,
        });
    }

    pub(crate) fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        if let Some(transmit) = self.transmit_stop(now, out) {
            return Some(transmit);
        }
        while self.pacer.room(now) > 0 {
            let Reverse((at, round, id)) = *self.rounds.peek()?;
            if at > now {
                return None;
            }
            self.rounds.pop();
            if let Some(transmit) = self.transmit_symbol(now, round, id, out) {
                return Some(transmit);
            }
        }
        None
    }

    /// The time at which something may be sent again.
    pub(crate) fn next_transmit(&self) -> Option<Time> {
        if !self.stops.is_empty() {
            return Some(Time::ZERO);
        }
        let Reverse((at, ..)) = self.rounds.peek()?;
        Some((*at).max(self.pacer.ready_at()))
    }

    fn transmit_stop(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        while let Some(stop) = self.stops.pop_front() {
            let out = out.get_mut(..HEADER_BYTES)?;
            match self
                .addresses
                .answer(now, stop.four_tuple.remote.ip(), HEADER_BYTES)
            {
                Verdict::Go => {}
                Verdict::Capped => {
                    self.statistics.refused.answers_capped += 1;
                    continue;
                }
                Verdict::Amplifies => {
                    self.statistics.refused.amplification_capped += 1;
                    continue;
                }
            }
            out.copy_from_slice(&stop.datagram);
            self.statistics.stops_sent += 1;
            return Some(self.sent(now, stop.four_tuple, HEADER_BYTES));
        }
        None
    }

    /// The next symbol of a round, if the message is still under way.
    fn transmit_symbol(
        &mut self,
        now: Time,
        round: u64,
        id: SendId,
        out: &mut [u8],
    ) -> Option<Transmit> {
        let outgoing = self.outgoing.get_mut(&id)?;
        let peer = self.peers.get_mut(&id.peer())?;
        // A way may have gone since the round began.
        let way = peer
            .way_from(outgoing.next_way)
            .or_else(|| peer.way_from(0));
        let Some(way) = way else {
            self.give_up(now, id, Reason::Unreachable);
            return None;
        };
        let four_tuple = peer.ways[way].four_tuple;
        let wanted = outgoing.datagram_bytes();
        let room = self.addresses.room(now, four_tuple.remote.ip());
        let may = peer.is_ours || room >= wanted as u64 + RESERVE_BYTES;
        if !may || out.len() < wanted {
            peer.parked.push(id);
            self.leave_rounds(id);
            self.fill_rounds(now);
            return None;
        }
        let Ok(bytes) = outgoing.write(self.config.schedule, out) else {
            // It was checked when the message was taken.
            self.give_up(now, id, Reason::Refused);
            return None;
        };
        outgoing.note_sent(now, way);
        peer.ways[way].sent += 1;
        if !peer.is_ours {
            self.addresses.sent(four_tuple.remote.ip(), bytes);
        }
        self.go_on(now, round, way, id);
        Some(self.sent(now, four_tuple, bytes))
    }

    /// Plans what comes after a symbol on this way: the round's next, the next
    /// round, or nothing more.
    fn go_on(&mut self, now: Time, round: u64, way: usize, id: SendId) {
        let Some(peer) = self.peers.get(&id.peer()) else {
            return;
        };
        let Some(outgoing) = self.outgoing.get_mut(&id) else {
            return;
        };
        if outgoing.is_spent() {
            let round_trip = peer.round_trip.unwrap_or_default();
            let grace = (round_trip * GRACE_ROUND_TRIPS).max(LEAST_GRACE);
            outgoing.wait_for_stop(now, grace, &mut self.timers);
            self.leave_rounds(id);
            return self.fill_rounds(now);
        }
        if let Some(next) = peer.way_from(way + 1) {
            outgoing.next_way = next;
            let at = outgoing.round_at;
            return self.rounds.push(Reverse((at, round, id)));
        }
        // 1/r x paths x packet / link; the pacer's rate is r x link (A-C6).
        let period = self.pacer.time_of(peer.width() * outgoing.datagram_bytes());
        let earliest = Time::from_nanos(now.as_nanos().saturating_sub(MAX_LAG.as_nanos() as u64));
        outgoing.next_way = 0;
        outgoing.round_at = (outgoing.round_at + period).max(earliest);
        let at = outgoing.round_at;
        self.plan_round(at, id);
    }

    /// Counts what is sent.
    fn sent(&mut self, now: Time, four_tuple: FourTuple, bytes: usize) -> Transmit {
        self.pacer.sent(now, bytes);
        self.statistics.datagrams_sent += 1;
        self.statistics.bytes_sent += bytes as u64;
        Transmit {
            four_tuple,
            bytes,
            segment_bytes: bytes,
            ecn: Ecn::NotCapable,
        }
    }
}
