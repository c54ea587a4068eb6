//! What comes in: datagrams are parsed, checked for replays and opened before anything is done.

use std::collections::VecDeque;

use cloudburst_security::KeyMismatch;

use super::{
    control::SourceDatagram,
    event::{Ecn, Event, FourTuple, PeerId},
    handshake::{Candidate, Handshake, Judged, OpenedSealed, Restarted, Retried},
    outbound::Outbound,
    packet::{Body, Form, Header, PacketKind},
    path_manager::PathManager,
    receiver::Receiver,
    statistics::{TransportStatistics, tally},
    time::Time,
    timers::{TimerKey, Timers},
};

/// A datagram that is authentic, as far as the keys tell.
pub(super) struct Opened<'d> {
    pub(super) header: Header,
    pub(super) source: SourceDatagram,
    pub(super) body: Body<'d>,
}

/// What a datagram turns out to be.
pub(super) enum Arrival<'d> {
    /// This peer answers.
    Answer(PeerId, Opened<'d>),
    /// Somebody sends or asks.
    Question(Opened<'d>),
    /// Somebody begins a handshake, and sends or asks with that.
    Candidate(Box<Candidate>, Opened<'d>),
    /// An offer that has to be made again, with a token; or what goes by keys that nobody has here.
    NeedsToken(SourceDatagram),
    /// A peer of ours wants its offer again, with a token: it has been made.
    Retried(Retried),
}

/// The parts of the machine that have to do with a datagram that comes in.
pub(super) struct Intake<'r> {
    pub(super) now: Time,
    pub(super) handshake: &'r mut Handshake,
    pub(super) paths: &'r mut PathManager,
    pub(super) receiver: &'r mut Receiver,
    pub(super) outbound: &'r mut Outbound,
    pub(super) events: &'r mut VecDeque<Event>,
    pub(super) statistics: &'r mut TransportStatistics,
    pub(super) timers: &'r mut Timers<TimerKey>,
    /// Nobody is taken without a token.
    pub(super) needs_token: bool,
}

impl Intake<'_> {
    /// Opens a datagram in place. What is not opened is counted.
    pub(super) fn open<'d>(
        mut self,
        from: (FourTuple, Ecn),
        datagram: &'d mut [u8],
    ) -> Option<Arrival<'d>> {
        let bytes = datagram.len();
        let arrival = self.look(from, datagram)?;
        // Nothing is kept of an address, and nothing is owed to it, before that.
        if !matches!(arrival, Arrival::Retried(_)) {
            let ip = from.0.remote.ip();
            self.handshake.received(self.now, ip, bytes);
        }
        Some(arrival)
    }

    fn look<'d>(
        &mut self,
        (four_tuple, ecn): (FourTuple, Ecn),
        datagram: &'d mut [u8],
    ) -> Option<Arrival<'d>> {
        let bytes = datagram.len();
        let statistics = &mut *self.statistics;
        tally(&mut statistics.datagrams_received, 1);
        tally(&mut statistics.bytes_received, bytes as u64);
        let is_marked = ecn == Ecn::CongestionExperienced;
        tally(&mut statistics.congestion_marks, is_marked.into());
        let Ok(header) = Header::parse(datagram) else {
            tally(&mut statistics.refused.malformed, 1);
            return None;
        };
        let source = SourceDatagram {
            four_tuple,
            peer: None,
            asker: header.session,
            keys: 0,
            arrived: self.now,
            path: header.path,
            sent_us: header.sent_us,
            ecn,
            bytes,
        };
        let is_plain = header.form == Form::Plain;
        if is_plain != self.handshake.is_unprotected() {
            tally(&mut statistics.refused.unknown_key, 1);
            self.note_mismatch(source.four_tuple, KeyMismatch::Kind);
            return None;
        }
        match header.form {
            Form::Plain => self.plain(header, source, datagram),
            Form::Data => self.data(header, source, datagram),
            Form::Acceptance => self.acceptance(header, source, datagram),
            Form::Offer => self.offer(header, source, datagram),
            Form::Retry => {
                let refused = &mut self.statistics.refused;
                let from = (&header, four_tuple.remote);
                let sender = &self.outbound.sender;
                let retried = self
                    .handshake
                    .retried(self.now, from, datagram, sender, refused)?;
                Some(Arrival::Retried(retried))
            }
        }
    }

    fn plain<'d>(
        &mut self,
        header: Header,
        source: SourceDatagram,
        datagram: &'d mut [u8],
    ) -> Option<Arrival<'d>> {
        let peer = self.handshake.by_session(header.session);
        self.check_replay(peer, &header)?;
        let refused = &mut self.statistics.refused;
        let body = self.handshake.open_plain(&header, datagram, refused)?;
        let four_tuple = self.paths.return_address(peer, source.four_tuple);
        let source = SourceDatagram {
            peer,
            four_tuple,
            ..source
        };
        self.sort(header, source, body)
    }

    fn data<'d>(
        &mut self,
        header: Header,
        source: SourceDatagram,
        datagram: &'d mut [u8],
    ) -> Option<Arrival<'d>> {
        let Some(peer) = self.handshake.by_index(header.session) else {
            tally(&mut self.statistics.refused.unknown_association, 1);
            // Who was restarted is spoken to under keys that it had before: a token says so, and is
            // good for the offer that follows.
            let is_data = header.form == Form::Data;
            return is_data.then_some(Arrival::NeedsToken(source));
        };
        self.check_replay(Some(peer), &header)?;
        let opened = self.handshake.open_data(self.now, peer, &header, datagram);
        self.opened(peer, header, source, opened)
    }

    fn acceptance<'d>(
        &mut self,
        header: Header,
        source: SourceDatagram,
        datagram: &'d mut [u8],
    ) -> Option<Arrival<'d>> {
        if let Some(peer) = self.handshake.by_index(header.session) {
            let accepted = self
                .handshake
                .take_acceptance(self.now, peer, &header, datagram);
            if let Some(restarted) = accepted {
                self.restarted(peer, restarted);
            }
        }
        self.data(header, source, datagram)
    }

    fn restarted(&mut self, peer: PeerId, restarted: Restarted) {
        if restarted.was_known {
            self.paths.restarted(peer, restarted.has_discarded);
            self.receiver.restarted(peer, self.statistics);
        }
        let sender = &mut self.outbound.sender;
        let unknown = sender.restarted(peer, restarted.started, self.statistics);
        self.events.extend(unknown);
        if restarted.was_known {
            let discarded = (peer, restarted.has_discarded);
            self.outbound
                .restarted(self.now, discarded, self.paths, self.timers);
        }
    }

    fn offer<'d>(
        &mut self,
        header: Header,
        source: SourceDatagram,
        datagram: &'d mut [u8],
    ) -> Option<Arrival<'d>> {
        if let Some(peer) = self.handshake.by_offer(&header, datagram) {
            self.check_replay(Some(peer), &header)?;
            let opened = self.handshake.open_early(self.now, peer, &header, datagram);
            return self.opened(peer, header, source, opened);
        }
        let refused = &mut self.statistics.refused;
        let from = (&header, source.four_tuple);
        match self
            .handshake
            .judge(self.now, from, datagram, self.needs_token, refused)
        {
            Judged::Candidate(candidate, body) => match self.sort(header, source, body)? {
                Arrival::Question(opened) if self.begins(&candidate, header.kind) => {
                    Some(Arrival::Candidate(candidate, opened))
                }
                _ => None,
            },
            Judged::NeedsToken => Some(Arrival::NeedsToken(source)),
            Judged::Mismatch(mismatch) => {
                self.note_mismatch(source.four_tuple, mismatch);
                None
            }
            Judged::Refused => None,
        }
    }

    fn note_mismatch(&mut self, from: FourTuple, mismatch: KeyMismatch) {
        let mismatches = &mut self.handshake.mismatches;
        if let Some(due) = mismatches.note(self.now, from.remote, mismatch) {
            self.timers.add(due, TimerKey::KeyMismatches);
        }
    }

    fn opened<'d>(
        &mut self,
        peer: PeerId,
        header: Header,
        source: SourceDatagram,
        opened: Option<OpenedSealed<'d>>,
    ) -> Option<Arrival<'d>> {
        let Some(OpenedSealed { keys, body }) = opened else {
            tally(&mut self.statistics.refused.not_authentic, 1);
            return None;
        };
        let (_, session) = self.handshake.sessions_with(peer)?;
        let four_tuple = self.paths.return_address(Some(peer), source.four_tuple);
        let source = SourceDatagram {
            peer: Some(peer),
            four_tuple,
            asker: session?,
            keys,
            ..source
        };
        self.sort(header, source, body)
    }

    /// Reads the body of a datagram that is authentic, as a question or as the answer to one of ours.
    fn sort<'d>(
        &mut self,
        header: Header,
        source: SourceDatagram,
        body: &'d [u8],
    ) -> Option<Arrival<'d>> {
        let refused = &mut self.statistics.refused;
        let answered = if header.kind.is_answer() {
            let answered = self.handshake.answered_session(body, source.peer);
            tally(&mut refused.unexpected, u64::from(answered.is_none()));
            Some(answered?)
        } else {
            None
        };
        let own = answered.map_or(0, |(own, _)| own);
        let body = Body::parse(header.kind, body, own);
        tally(&mut refused.malformed, u64::from(body.is_err()));
        let opened = Opened {
            header,
            source,
            body: body.ok()?,
        };
        Some(match answered {
            Some((_, peer)) => Arrival::Answer(peer, opened),
            None => Arrival::Question(opened),
        })
    }

    /// Whether a question may be the first one of its handshake: of who is not known yet, none that is
    /// about what went before.
    fn begins(&mut self, candidate: &Candidate, kind: PacketKind) -> bool {
        let is_known = self.handshake.by_session(candidate.conversation).is_some();
        let begins = is_known || !matches!(kind, PacketKind::Cancel | PacketKind::Goodbye);
        tally(&mut self.statistics.refused.unexpected, u64::from(!begins));
        begins
    }

    /// Whether a peer's datagram may be new, before the work of opening it.
    fn check_replay(&mut self, peer: Option<PeerId>, header: &Header) -> Option<()> {
        if peer.is_some_and(|peer| !self.paths.may_be_new(peer, header)) {
            tally(&mut self.statistics.refused.replayed, 1);
            return None;
        }
        Some(())
    }
}
