//! A datagram arrives: a symbol of another's message, or a stop for one of ours.

use core::time::Duration;

use cloudburst_proto::{Ecn, Event, FourTuple, MessageKind, PeerId, SendId, Time};

use crate::{
    IDLE, Paper,
    incoming::{Incoming, Taken, memory_bytes, shape_of},
    peer::Arrival,
    quota::Held,
};
use cloudburst_code::{
    Shape,
    wire::{Header, Row},
};

/// A symbol, and what it says of itself.
struct Symbol<'d> {
    four_tuple: FourTuple,
    header: Header,
    shape: Shape,
    datagram: &'d [u8],
}

impl Symbol<'_> {
    fn key(&self) -> (core::net::IpAddr, u8) {
        (self.four_tuple.remote.ip(), self.header.id)
    }
}

impl Paper {
    pub(crate) fn handle_datagram(
        &mut self,
        now: Time,
        four_tuple: FourTuple,
        ecn: Ecn,
        datagram: &[u8],
    ) {
        self.statistics.datagrams_received += 1;
        self.statistics.bytes_received += datagram.len() as u64;
        self.statistics.congestion_marks += u64::from(ecn == Ecn::CongestionExperienced);
        self.addresses
            .received(now, four_tuple.remote.ip(), datagram.len());
        match Header::parse(datagram) {
            Ok((header, [])) if header.row == Row::Bits(0) => {
                self.take_stop(now, four_tuple, &header)
            }
            Ok((_, [])) | Err(_) => self.statistics.refused.malformed += 1,
            Ok(_) => self.take_symbol(now, four_tuple, datagram),
        }
    }

    fn take_stop(&mut self, now: Time, four_tuple: FourTuple, stop: &Header) {
        let id = self.by_ip.get(&four_tuple.remote.ip()).copied();
        let peer = id.and_then(|id| Some((id, self.peers.get_mut(&id)?)));
        let Some((id, peer)) = peer else {
            self.statistics.refused.unexpected += 1;
            return;
        };
        let user = peer.ids.user(stop.id);
        let meant = user.map(|message| SendId::new(id, message));
        let meant = meant.filter(|id| {
            self.outgoing
                .get(id)
                .is_some_and(|outgoing| outgoing.is_meant(stop))
        });
        let Some(message) = meant else {
            // Of a message that has been stopped there are more, one for each symbol.
            self.statistics.refused.unexpected += u64::from(!peer.ids.rests(now, stop.id));
            return;
        };
        peer.heard(now, four_tuple);
        if peer.is_ours {
            // Somebody is there who knows what we send there.
            self.addresses.validate(now, four_tuple.remote.ip());
        }
        self.delivered(now, message);
    }

    fn delivered(&mut self, now: Time, id: SendId) {
        let sample = self
            .outgoing
            .get(&id)
            .and_then(|outgoing| outgoing.round_trip(now));
        if let Some(peer) = self.peers.get_mut(&id.peer())
            && let Some(sample) = sample
        {
            peer.learn_round_trip(sample);
        }
        let Some(outgoing) = self.forget(now, id, Duration::ZERO) else {
            return;
        };
        let receipt = outgoing.receipt(now);
        self.statistics.messages_delivered += 1;
        self.statistics.stops_received += 1;
        self.statistics.symbols_delivered += u64::from(receipt.symbols);
        self.statistics.symbols_sent += u64::from(receipt.sent);
        self.statistics.symbols_needed += u64::from(receipt.needed);
        self.events.push_back(Event::Delivered { id, receipt });
        self.buffers.give(outgoing.into_memory());
    }

    fn take_symbol(&mut self, now: Time, four_tuple: FourTuple, datagram: &[u8]) {
        self.statistics.symbols_received += 1;
        let Some(symbol) = read(four_tuple, datagram) else {
            self.statistics.refused.bad_symbol += 1;
            return;
        };
        if symbol.shape.message_bytes() > self.config.max_message_bytes {
            self.statistics.refused.message_too_large += 1;
            return;
        }
        let Some(peer_id) = self.admit(now, four_tuple) else {
            return;
        };
        self.note(now, peer_id, four_tuple);
        if self.is_open(now, peer_id, &symbol) && self.make_place(now, peer_id, &symbol) {
            self.decode(now, peer_id, &symbol);
        }
        self.look_after(now, peer_id);
    }

    /// Who is at the address, if there is room for somebody new.
    fn admit(&mut self, now: Time, four_tuple: FourTuple) -> Option<PeerId> {
        if let Some(id) = self.by_ip.get(&four_tuple.remote.ip()) {
            return Some(*id);
        }
        let quotas = &self.config.quotas;
        if self.peers.len() >= quotas.peers || self.unvalidated >= quotas.unvalidated_peers {
            self.statistics.refused.too_many_peers += 1;
            return None;
        }
        let id = self.add_peer(now, false);
        self.by_ip.insert(four_tuple.remote.ip(), id);
        Some(id)
    }

    fn note(&mut self, now: Time, id: PeerId, four_tuple: FourTuple) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        // What we send back goes by the ways that it comes by.
        if !peer.is_ours {
            peer.add_way(four_tuple);
        }
        peer.heard(now, four_tuple);
        self.resume(now, id);
    }

    /// Whether the symbol is of a message that is not done. What is too old to
    /// be of the same message is forgotten.
    fn is_open(&mut self, now: Time, id: PeerId, symbol: &Symbol<'_>) -> bool {
        let memory = self.memory();
        let Some(peer) = self.peers.get_mut(&id) else {
            return false;
        };
        match peer.arrivals.get_mut(&symbol.key()) {
            None => true,
            Some(Arrival::UnderWay(incoming)) => {
                if now.since(incoming.last_at) >= IDLE {
                    self.statistics.refused.expired += 1;
                    self.drop_arrival(id, symbol.key());
                }
                true
            }
            Some(Arrival::Done { last_at, .. }) if now.since(*last_at) >= memory => {
                peer.arrivals.remove(&symbol.key());
                true
            }
            Some(Arrival::Done { shape, last_at }) if *shape == symbol.shape => {
                // The stop was lost, or is on its way.
                *last_at = now;
                self.statistics.symbols_wasted += 1;
                self.stop(symbol.four_tuple, symbol.header.id, &symbol.shape);
                false
            }
            Some(Arrival::Done { .. }) => {
                self.statistics.refused.bad_symbol += 1;
                false
            }
        }
    }

    /// Makes sure that there is a decoder for the symbol.
    fn make_place(&mut self, now: Time, id: PeerId, symbol: &Symbol<'_>) -> bool {
        let Some(peer) = self.peers.get_mut(&id) else {
            return false;
        };
        if peer.arrivals.contains_key(&symbol.key()) {
            return true;
        }
        let held = Held {
            messages: self.statistics.incoming_now as usize,
            peer_messages: peer.incoming,
            bytes: self.statistics.incoming_bytes_now as usize,
            peer_bytes: peer.incoming_bytes,
            unvalidated_bytes: (!peer.is_ours).then_some(self.unvalidated_bytes),
            unseen: self.events.len(),
            host_capacity: (!peer.is_ours).then_some(self.host_capacity),
        };
        let bytes = memory_bytes(&symbol.shape);
        let refused = &mut self.statistics.refused;
        if held
            .find_place(&self.config.quotas, bytes, refused)
            .is_err()
        {
            return false;
        }
        let incoming = Incoming::new(now, symbol.shape, &mut self.pool);
        peer.incoming += 1;
        peer.incoming_bytes += bytes;
        if !peer.is_ours {
            self.unvalidated_bytes += bytes;
        }
        self.statistics.incoming_now += 1;
        self.statistics.incoming_bytes_now += bytes as u64;
        peer.arrivals
            .insert(symbol.key(), Arrival::UnderWay(incoming));
        true
    }

    fn decode(&mut self, now: Time, id: PeerId, symbol: &Symbol<'_>) {
        let peer = self.peers.get_mut(&id);
        let arrival = peer.and_then(|peer| peer.arrivals.get_mut(&symbol.key()));
        let Some(Arrival::UnderWay(incoming)) = arrival else {
            return;
        };
        match incoming.take(now, symbol.datagram) {
            Taken::More => {}
            Taken::Redundant => self.statistics.symbols_wasted += 1,
            Taken::Bad => {
                self.statistics.refused.bad_symbol += 1;
                if incoming.is_outvoted() {
                    self.drop_arrival(id, symbol.key());
                }
            }
            Taken::Complete => {
                let message = incoming.message().unwrap_or_default().to_vec();
                let shape = *incoming.shape();
                self.events.push_back(Event::Received {
                    peer: id,
                    four_tuple: symbol.four_tuple,
                    id: symbol.header.id.into(),
                    kind: MessageKind::Message,
                    message,
                });
                self.statistics.messages_received += 1;
                self.drop_arrival(id, symbol.key());
                if let Some(peer) = self.peers.get_mut(&id) {
                    let done = Arrival::Done {
                        shape,
                        last_at: now,
                    };
                    peer.arrivals.insert(symbol.key(), done);
                }
                self.stop(symbol.four_tuple, symbol.header.id, &shape);
            }
        }
    }

    /// Forgets what has arrived of a message.
    pub(crate) fn drop_arrival(&mut self, id: PeerId, key: (core::net::IpAddr, u8)) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        if let Some(Arrival::UnderWay(incoming)) = peer.arrivals.remove(&key) {
            let bytes = incoming.memory_bytes();
            peer.incoming -= 1;
            peer.incoming_bytes -= bytes;
            if !peer.is_ours {
                self.unvalidated_bytes -= bytes;
            }
            self.statistics.incoming_now -= 1;
            self.statistics.incoming_bytes_now -= bytes as u64;
            self.pool.give(incoming);
        }
    }
}

/// A symbol whose header fits it.
fn read(four_tuple: FourTuple, datagram: &[u8]) -> Option<Symbol<'_>> {
    let (header, shape) = shape_of(datagram).ok()?;
    let is_one_block = shape.blocks() == 1;
    let fits = usize::from(header.block_symbols) == shape.symbols();
    let is_sum = header.row != Row::Bits(0);
    (is_one_block && fits && is_sum).then_some(Symbol {
        four_tuple,
        header,
        shape,
        datagram,
    })
}
