//! What goes out: how datagrams are written.

use std::collections::VecDeque;

use super::{
    config::TransportConfig,
    control::{Answer, Control, Question, SourceDatagram},
    event::{Ecn, Event, FourTuple, PeerId, Reason, SendId, Transmit},
    handshake::Handshake,
    outbound::Outbound,
    packet::{BufferTooShort, BusyReason},
    path_manager::{ChosenPath, PathManager},
    statistics::{TransportStatistics, tally},
    time::Time,
    timers::{TimerKey, Timers},
};

/// Bytes to an address that is not validated that symbols leave to challenges and queries: three of
/// these, for any may be lost.
const RESERVE_BYTES: u64 = 700;

/// The parts of the machine that have to do with a datagram that goes out.
pub(super) struct Writer<'r> {
    pub(super) now: Time,
    pub(super) config: &'r TransportConfig,
    pub(super) handshake: &'r mut Handshake,
    pub(super) paths: &'r mut PathManager,
    pub(super) outbound: &'r mut Outbound,
    pub(super) timers: &'r mut Timers<TimerKey>,
    pub(super) statistics: &'r mut TransportStatistics,
}

impl Writer<'_> {
    /// Writes an answer or a question, if it may be sent.
    pub(super) fn control(&mut self, control: Control, out: &mut [u8]) -> Option<Transmit> {
        match control {
            Control::Answer(source, answer) => self.answer(&source, answer, out),
            Control::Sealed(four_tuple, datagram) => self.sealed(four_tuple, &datagram, out),
            Control::Question(peer, four_tuple, question) => {
                self.question(peer, four_tuple, question, out)
            }
        }
    }

    /// Writes symbols of the message whose turn it is, if the pacers allow any.
    pub(super) fn next_symbols(
        &mut self,
        out: &mut [u8],
        events: &mut VecDeque<Event>,
    ) -> Option<Transmit> {
        if !self.outbound.scheduler.may_send(self.now) {
            return None;
        }
        while let Some(id) = self.outbound.next_message(self.now) {
            let transmit = self.symbols(id, out).unwrap_or_else(|reason| {
                let sender = &mut self.outbound.sender;
                events.extend(sender.abandon(id, reason, self.statistics));
                None
            });
            // What cannot be sent goes on when something is heard, or the message's time comes.
            if transmit.is_some() || !self.outbound.sender.contains(id) {
                self.outbound.requeue(self.now, id.peer);
            }
            if transmit.is_some() {
                return transmit;
            }
        }
        None
    }

    /// Writes an answer, if it may be sent: it is never longer than what it answers.
    fn answer(
        &mut self,
        source: &SourceDatagram,
        answer: Answer,
        out: &mut [u8],
    ) -> Option<Transmit> {
        let now = self.now;
        let is_of_message = source.peer.is_some() && answer.is_of_message();
        if !self.outbound.scheduler.may_answer(now, is_of_message) {
            tally(&mut self.statistics.refused.answers_over_budget, 1);
            return None;
        }
        let four_tuple = self
            .paths
            .return_path(source.peer, source.four_tuple, source.path);
        let remote = four_tuple.remote;
        let most = out.len().min(source.bytes);
        let out = &mut out[..most];
        let token = (answer == Answer::Challenge).then(|| self.handshake.mint(now, source, remote));
        let Self {
            handshake, paths, ..
        } = self;
        let is_sealed = !handshake.is_unprotected();
        let bytes = match source.peer.and_then(|id| {
            let stamped = paths.stamp_answer(now, id, (four_tuple, is_sealed), source.path);
            stamped.zip(handshake.answer_sealer(now, id, source.keys))
        }) {
            Some(((stamp, reports), sealer)) => sealer.write(stamp, out, |body| {
                answer.write(&source.asked(now), token, reports, body)
            }),
            // The keys are worn out, or the peer is gone.
            None if is_sealed && answer != Answer::Challenge => return None,
            None => {
                let (sealer, stamp) = handshake.stateless(now, source.asker);
                sealer.write(stamp, out, |body| {
                    answer.write(&source.asked(now), token, core::iter::empty(), body)
                })
            }
        };
        // Every question is longer than the shortest answer to it: see the packet layer.
        let bytes = bytes.ok()?;
        let refused = &mut self.statistics.refused;
        if !self
            .handshake
            .may_answer(now, (source.peer, remote), bytes, refused)
        {
            return None;
        }
        match answer {
            Answer::Stop { .. } => tally(&mut self.statistics.stops_sent, 1),
            Answer::Busy { reason, .. } => self.statistics.busy_sent.count(reason),
            _ => {}
        }
        self.outbound.scheduler.answered(now, is_of_message, bytes);
        Some(self.sent(four_tuple, bytes, bytes))
    }

    /// Sends an answer that is sealed already, if it may be sent.
    fn sealed(
        &mut self,
        four_tuple: FourTuple,
        datagram: &[u8],
        out: &mut [u8],
    ) -> Option<Transmit> {
        let (now, bytes) = (self.now, datagram.len());
        let refused = &mut self.statistics.refused;
        if !self.outbound.scheduler.may_answer(now, false) {
            tally(&mut refused.answers_over_budget, 1);
            return None;
        }
        let to = (None, four_tuple.remote);
        if !self.handshake.may_answer(now, to, bytes, refused) {
            return None;
        }
        out.get_mut(..bytes)?.copy_from_slice(datagram);
        // Nothing else is sealed beforehand: see `Questions::turn_away`.
        self.statistics.busy_sent.count(BusyReason::Peers);
        self.outbound.scheduler.answered(now, false, bytes);
        Some(self.sent(four_tuple, bytes, bytes))
    }

    /// Writes a question, if it may be sent.
    fn question(
        &mut self,
        id: PeerId,
        four_tuple: FourTuple,
        question: Question,
        out: &mut [u8],
    ) -> Option<Transmit> {
        let now = self.now;
        if !self.paths.has_path(id, four_tuple) {
            return None;
        }
        self.handshake.prepare(now, id, &self.outbound.sender);
        let sealer = self.handshake.question_sealer(now, id, question)?;
        let bytes = question.datagram_bytes(sealer.framing()).min(out.len());
        let four_tuple = self.path_of_question(id, four_tuple, question, bytes)?;
        let remote = four_tuple.remote;
        let stamp = self.paths.stamp_by(now, id, four_tuple, bytes)?;
        let oldest = self.outbound.sender.update_oldest(id);
        let sealer = self.handshake.question_sealer(now, id, question)?;
        let written: Result<usize, BufferTooShort> =
            sealer.write(stamp, &mut out[..bytes], |body| {
                question.write(oldest, body)
            });
        self.outbound.sender.asked(now, id, 1);
        self.handshake.asked(now, id, 1);
        let is_query = matches!(question, Question::Query { .. });
        tally(&mut self.statistics.queries_sent, is_query.into());
        let bytes = written.ok()?;
        self.handshake.sent(now, id, remote, bytes);
        self.outbound.scheduler.sent_unpaced(now, bytes);
        Some(self.sent(four_tuple, bytes, bytes))
    }

    /// The path that a question takes: a query one to where it may be sent, if there is any.
    fn path_of_question(
        &mut self,
        id: PeerId,
        four_tuple: FourTuple,
        question: Question,
        bytes: usize,
    ) -> Option<FourTuple> {
        let now = self.now;
        let may_be_sent = |handshake: &Handshake, four_tuple: FourTuple| {
            handshake.credit(now, id, four_tuple.remote) >= bytes as u64
        };
        if may_be_sent(self.handshake, four_tuple) {
            return Some(four_tuple);
        }
        tally(&mut self.statistics.refused.amplification_capped, 1);
        self.paths.cap(id, four_tuple);
        if !matches!(question, Question::Query { .. }) {
            return None;
        }
        while let Some(other) = self.paths.choose_two(now, id).into_iter().flatten().next() {
            if may_be_sent(self.handshake, other) {
                return Some(other);
            }
            // Each turn there is one less.
            self.paths.cap(id, other);
        }
        None
    }

    /// Writes symbols of a message, as many as go by the path that is best for the next. Nothing
    /// if they have to wait until something is heard; the reason, if the message has to be given
    /// up.
    fn symbols(&mut self, id: SendId, out: &mut [u8]) -> Result<Option<Transmit>, Reason> {
        let (now, peer) = (self.now, id.peer);
        let Some(paths) = self.paths.statistics(peer) else {
            return Ok(None);
        };
        let Some(longest) = self.paths.widest(peer) else {
            return Err(Reason::Unreachable);
        };
        self.handshake.prepare(now, peer, &self.outbound.sender);
        if self.handshake.sealer(now, peer).is_none() {
            return Ok(None);
        }
        let framing = self.handshake.framing(now, peer);
        let burst = self
            .outbound
            .sender
            .burst((now, id), (longest, framing), &paths, self.config);
        let Some(burst) = burst.transpose()? else {
            return Ok(None);
        };
        let datagram_bytes = burst.datagram_bytes;
        if out.len() < datagram_bytes {
            return Ok(None);
        }
        let scheduler = &self.outbound.scheduler;
        let credit = scheduler.credit(now, peer).div_ceil(datagram_bytes).max(1) as u32;
        let train = scheduler.train_bytes(peer);
        let train = train.map(|bytes| bytes.div_ceil(datagram_bytes) as u32);
        // Every path has something to carry before any gets a longer train.
        let train = train.filter(|train| burst.sent >= train.saturating_mul(2));
        let wanted = burst.remaining.min(train.map_or(credit, |_| u32::MAX));
        let Some((path, leave)) = self.choose(id, datagram_bytes, wanted) else {
            return Ok(None);
        };
        let most = credit.min(train.unwrap_or(u32::MAX));
        let count = burst.train(path.share, out.len()).min(most);
        let count = count.min(leave.min(u64::from(u32::MAX)) as u32);
        let symbols = self
            .outbound
            .sender
            .symbols(id, count, self.config.schedule);
        let (symbols, sealer) = (
            symbols.ok_or(Reason::Refused)?,
            self.handshake.sealer(now, peer).ok_or(Reason::Refused)?,
        );
        let (mut at, mut expected, mut written) = (0, now, 0_u32);
        for sequence in symbols.sequences.clone() {
            let Some((stamp, arrival)) = self.paths.stamp(now, peer, &path, datagram_bytes) else {
                break;
            };
            expected = arrival;
            let symbol =
                sealer.write_symbol(stamp, &mut out[at..], |body| symbols.write(sequence, body));
            let Ok(bytes) = symbol else {
                break;
            };
            (at, written) = (at.saturating_add(bytes), written.saturating_add(1));
        }
        let sent = (count, &path, expected);
        let round_trip = &paths.round_trip;
        self.outbound
            .sender
            .sent(now, id, sent, round_trip, self.timers);
        self.outbound.scheduler.sent(now, peer, at);
        self.handshake.sent(now, peer, path.four_tuple.remote, at);
        self.handshake.asked(now, peer, count);
        let ecn = self.paths.mark(now, peer, &path, written);
        let transmit = self.sent(path.four_tuple, at, datagram_bytes);
        Ok(Some(Transmit { ecn, ..transmit }))
    }

    /// The path that is best for a message's next symbols, of those to addresses that may be sent
    /// any, and how many may be.
    fn choose(
        &mut self,
        id: SendId,
        datagram_bytes: usize,
        wanted: u32,
    ) -> Option<(ChosenPath, u64)> {
        let (now, peer) = (self.now, id.peer);
        loop {
            let message = (id.message, self.outbound.sender.spread(id));
            let path = self
                .paths
                .choose(now, peer, datagram_bytes, wanted, Some(message))?;
            // Some is left for asking for a token, or nothing may ever be sent again.
            let credit = self.handshake.credit(now, peer, path.four_tuple.remote);
            let leave = credit.saturating_sub(RESERVE_BYTES);
            let leave = leave.checked_div(datagram_bytes as u64).unwrap_or_default();
            if leave > 0 {
                return Some((path, leave));
            }
            // It gets none until something comes from there: each turn there is one less.
            self.paths.cap(peer, path.four_tuple);
        }
    }

    /// Counts what is sent. Where nobody reports on it, or it is a question or a probe, it is not to be marked: see
    /// `Path::mark`.
    fn sent(&mut self, four_tuple: FourTuple, bytes: usize, segment_bytes: usize) -> Transmit {
        let datagrams = bytes.div_ceil(segment_bytes.max(1)) as u64;
        tally(&mut self.statistics.datagrams_sent, datagrams);
        tally(&mut self.statistics.bytes_sent, bytes as u64);
        Transmit {
            four_tuple,
            bytes,
            segment_bytes,
            ecn: Ecn::NotCapable,
        }
    }
}
