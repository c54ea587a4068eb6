//! A datagram arrives.

use super::{
    super::{
        event::{Ecn, FourTuple, PeerId},
        packet::{Body, Header, OpenError, Opener, PacketKind},
        time::Time,
    },
    Native, ScheduleSlot,
    control::SourceDatagram,
};

/// Keys of a peer whose ciphers are kept.
const OPENERS: usize = 4;

impl Native {
    pub(crate) fn handle_datagram(
        &mut self,
        now: Time,
        four_tuple: FourTuple,
        ecn: Ecn,
        datagram: &mut [u8],
    ) {
        self.statistics.datagrams_received += 1;
        self.statistics.bytes_received += datagram.len() as u64;
        self.statistics.congestion_marks += u64::from(ecn == Ecn::CongestionExperienced);
        self.addresses
            .received(now, four_tuple.remote.ip(), datagram.len());
        let Ok(header) = Header::parse(datagram) else {
            self.statistics.refused.malformed += 1;
            return;
        };
        let known = self.peers.by_session(header.session);
        if known.is_some_and(|peer| !self.may_be_new(peer, &header)) {
            self.statistics.refused.replayed += 1;
            return;
        }
        let bytes = datagram.len();
        let new_opener = match self.opener(known, &header) {
            Ok(opener) => opener,
            Err(_) => {
                self.statistics.refused.unknown_key += 1;
                return;
            }
        };
        let opener = new_opener
            .as_ref()
            .or_else(|| self.kept_opener(known, &header));
        let body = opener.map(|opener| opener.open(&header, datagram));
        let body = match body {
            Some(Ok(body)) => body,
            Some(Err(OpenError::Damaged)) => {
                self.statistics.refused.damaged += 1;
                return;
            }
            _ => {
                self.statistics.refused.not_authentic += 1;
                return;
            }
        };
        let source = SourceDatagram {
            four_tuple,
            peer: known,
            asker: header.session,
            arrived: now,
            path: header.path,
            sent_us: header.sent_us,
            bytes,
        };
        if header.kind.is_answer() {
            self.take_answer(now, &header, source, new_opener, body);
        } else {
            self.take_question(now, &header, source, new_opener, body);
        }
    }

    fn may_be_new(&self, peer: PeerId, header: &Header) -> bool {
        let peer = self.peers.get(peer);
        peer.is_none_or(|peer| peer.inbound.may_be_new(header.path, header.sequence))
    }

    /// What opens the datagram, unless the peer has it already.
    fn opener(&self, peer: Option<PeerId>, header: &Header) -> Result<Option<Opener>, OpenError> {
        if self.kept_opener(peer, header).is_some() {
            return Ok(None);
        }
        self.config
            .keys
            .opener(header.key_id, header.session)
            .map(Some)
    }

    fn kept_opener(&self, peer: Option<PeerId>, header: &Header) -> Option<&Opener> {
        let peer = self.peers.get(peer?)?;
        let mut openers = peer.openers.iter();
        openers
            .find(|opener| opener.key_id() == header.key_id && opener.session() == header.session)
    }

    /// Notes a datagram of a peer that is authentic.
    pub(super) fn note(
        &mut self,
        now: Time,
        peer: PeerId,
        header: &Header,
        four_tuple: FourTuple,
        opener: Option<Opener>,
    ) {
        let datagrams = self.config.datagrams;
        let Some(known) = self.peers.get_mut(peer) else {
            return;
        };
        known.heard_at = now;
        let have_waited = known.answered(now);
        known
            .inbound
            .take(now, header.path, header.sequence, header.sent_us);
        // What we send back goes by the ways that it comes by.
        if !known.is_ours {
            let is_other = known.paths.arrived(now, four_tuple, &datagrams);
            if is_other {
                known.shared_bottleneck.restart(now);
            }
        }
        if let Some(opener) = opener {
            known.openers.truncate(OPENERS - 1);
            known.openers.insert(0, opener);
        }
        if known.slot == ScheduleSlot::Away && !known.ready.is_empty() {
            // It was waiting for leave to send more to its address.
            self.requeue(now, peer);
        }
        if have_waited {
            self.resume(now, peer);
        }
    }

    fn take_question(
        &mut self,
        now: Time,
        header: &Header,
        mut source: SourceDatagram,
        opener: Option<Opener>,
        body: &[u8],
    ) {
        let body = match Body::parse(header.kind, body, 0) {
            Ok(body) => body,
            Err(_) => {
                self.statistics.refused.malformed += 1;
                return;
            }
        };
        if source.peer.is_none() {
            source.peer = match &body {
                Body::Symbol(symbol) => self.admit(now, &source, symbol),
                Body::Token(token) => self.admit_by_token(now, &source, token),
                _ => None,
            };
        }
        if let Some(peer) = source.peer {
            self.note(now, peer, header, source.four_tuple, opener);
            if header.kind != PacketKind::Token {
                self.challenge_if_needed(now, peer, source);
            }
        }
        match body {
            Body::Symbol(symbol) => self.take_symbol(now, source, symbol),
            Body::Query(ask) => self.handle_query(source, ask.message),
            Body::Ping(ping) => self.take_ping(source, ping.nonce),
            Body::Token(token) => self.take_token(now, source, &token),
            _ => self.statistics.refused.unexpected += 1,
        }
    }
}
