//! Which symbols are sent next, and by which way.

use super::{
    super::{
        event::{FourTuple, Reason, SendId, Transmit},
        outgoing::symbol_bytes,
        packet::{Stamp, Symbol, symbol_datagram_bytes},
        time::Time,
    },
    Native, TimerKey,
};
use cloudburst_code::wire;

/// Symbols for one way in a row, at most: a train that the kernel cuts (GSO) has
/// up to 64 datagrams, and other messages should not have to wait for long.
const MAX_TRAIN: u32 = 16;
/// Into how many trains a message is cut at least where losses are uneven.
const SPREAD_PARTS: u32 = 4;
/// Bytes to an address without token that symbols leave to challenges.
const RESERVE_BYTES: u64 = 200;

impl Native {
    pub(crate) fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        if let Some(transmit) = self.transmit_control(now, out) {
            return Some(transmit);
        }
        if self.pacer.credit(now) == 0 {
            return None;
        }
        while let Some((peer, message)) = self.next_message(now) {
            let id = SendId { peer, message };
            let transmit = self.transmit_symbols(now, id, out);
            // What cannot be sent goes on when something is heard, or the message's time comes.
            if transmit.is_some() || !self.outgoing.contains_key(&id) {
                self.requeue(now, peer);
            }
            if transmit.is_some() {
                return transmit;
            }
        }
        None
    }

    /// When symbols may be sent again.
    pub(super) fn next_transmit(&self) -> Option<Time> {
        if !self.control.is_empty() {
            return Some(Time::ZERO);
        }
        let earliest = self.scheduler.next()?;
        Some(earliest.max(self.pacer.ready_at()))
    }

    pub(super) fn transmit_symbols(
        &mut self,
        now: Time,
        id: SendId,
        out: &mut [u8],
    ) -> Option<Transmit> {
        let (four_tuple, count, datagram_bytes) = self.plan(now, id, out.len())?;
        let peer = self.peers.get_mut(id.peer)?;
        let outgoing = self.outgoing.get_mut(&id)?;
        let index = peer.paths.position(four_tuple)?;
        let ns_per_byte = peer.default_ns_per_byte(self.config.bytes_per_s());
        let Ok(encoder) = outgoing.encoder(self.config.schedule) else {
            // It was checked when the message was cut.
            self.abandon(id, Reason::Refused);
            return None;
        };
        let code_bytes = wire::HEADER_BYTES + outgoing.symbol_bytes();
        let mut at = 0;
        let mut expected = now;
        for sequence in outgoing.next(count) {
            expected = peer.paths.sending(now, index, datagram_bytes, ns_per_byte);
            let path = peer.paths.get_mut(index);
            let stamp = Stamp {
                path: path.id,
                sent_us: now.as_wire_micros(),
                sequence: path.take_sequence(now),
            };
            let written = peer.sealer.write_symbol(stamp, &mut out[at..], |body| {
                Symbol::write_with(id.message, body, code_bytes, |code| {
                    encoder
                        .write(sequence..sequence + 1, code)
                        .map(|_| ())
                        .map_err(|_| super::super::packet::BufferTooShort {
                            needed: code_bytes,
                            available: code.len(),
                        })
                })
            });
            let Ok(bytes) = written else {
                break;
            };
            at += bytes;
        }
        let path = peer.paths.get(index);
        outgoing.note_sent(count, path.id, path.group);
        outgoing.expected = outgoing.expected.max(expected);
        peer.sent_at = Some(now);
        peer.asked(now, count);
        peer.pacer.sent(now, at);
        self.pacer.sent(now, at);
        if !peer.is_ours {
            self.addresses.sent(four_tuple.remote.ip(), at);
        }
        if outgoing.remaining() == 0 {
            let look = outgoing.next_look(now, &peer.round_trip);
            outgoing
                .alarm
                .set(look, TimerKey::Message(id), &mut self.timers);
        }
        Some(self.sent(four_tuple, at, datagram_bytes))
    }

    /// By which way how many of a message's symbols go, and how long their datagrams are.
    fn plan(&mut self, now: Time, id: SendId, credit: usize) -> Option<(FourTuple, u32, usize)> {
        let peer = self.peers.get_mut(id.peer)?;
        let outgoing = self.outgoing.get_mut(&id)?;
        let is_sealing = peer.sealer.is_sealing();
        let mut datagram_bytes = symbol_datagram_bytes(outgoing.symbol_bytes(), is_sealing);
        let longest = peer.paths.live().map(|path| path.datagram_bytes()).max();
        let Some(longest) = longest else {
            self.abandon(id, Reason::Unreachable);
            return None;
        };
        if datagram_bytes > longest {
            // The ways have become narrower since it was cut.
            let path_statistics = (&peer.paths.loss(), peer.ack_timeout());
            if outgoing
                .resegment(
                    symbol_bytes(longest, is_sealing),
                    path_statistics,
                    &self.config.budget,
                )
                .is_err()
            {
                self.abandon(id, Reason::Refused);
                return None;
            }
            datagram_bytes = symbol_datagram_bytes(outgoing.symbol_bytes(), is_sealing);
        }
        if credit < datagram_bytes {
            return None;
        }
        let may = peer
            .pacer
            .credit(now)
            .min(self.pacer.credit(now))
            .div_ceil(datagram_bytes);
        let ns_per_byte = peer.default_ns_per_byte(self.config.bytes_per_s());
        let symbols = outgoing.remaining().min(may.max(1) as u32);
        let (index, share) = peer.paths.choose(
            now,
            datagram_bytes,
            symbols,
            ns_per_byte,
            outgoing.spread.as_ref(),
        )?;
        let most = (credit / datagram_bytes).min(MAX_TRAIN as usize) as u32;
        let mut count = share.clamp(1, most);
        if outgoing.spread.is_some() {
            count = count.min(outgoing.symbols().div_ceil(SPREAD_PARTS));
        }
        if !peer.is_ours {
            let ip = peer.paths.live().next()?.four_tuple.remote.ip();
            // Some is left for asking for a token, or nothing may ever be sent again.
            let credit = self.addresses.credit(now, ip).saturating_sub(RESERVE_BYTES);
            let leave = credit / datagram_bytes as u64;
            if leave == 0 {
                return None;
            }
            count = count.min(leave.min(u64::from(u32::MAX)) as u32);
        }
        Some((peer.paths.get_mut(index).four_tuple, count, datagram_bytes))
    }
}
