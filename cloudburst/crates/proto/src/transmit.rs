//! What goes out: how datagrams are written.

use std::collections::VecDeque;

use super::{
    config::TransportConfig,
    control::{Answer, Control, Question, SourceDatagram},
    event::{Ecn, Event, FourTuple, PeerId, Reason, SendId, Transmit},
    handshake::Handshake,
    outbound::Outbound,
    packet::BufferTooShort,
    path_manager::PathManager,
    statistics::TransportStatistics,
    time::Time,
    timers::{TimerKey, Timers},
};

/// Bytes to an address without token that symbols leave to challenges.
const RESERVE_BYTES: u64 = 200;

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
            self.statistics.refused.answers_over_budget += 1;
            return None;
        }
        let four_tuple = self
            .paths
            .return_path(source.peer, source.four_tuple, source.path);
        let ip = four_tuple.remote.ip();
        let most = out.len().min(source.bytes);
        let out = &mut out[..most];
        let token =
            (answer == Answer::Challenge).then(|| self.handshake.mint(now, ip, source.asker));
        let Self {
            handshake, paths, ..
        } = self;
        let bytes = match source.peer.and_then(|id| {
            let stamped = paths.stamp_answer(now, id, four_tuple, source.path);
            stamped.zip(handshake.sealer(id))
        }) {
            Some(((stamp, reports), sealer)) => sealer.write(stamp, out, |body| {
                answer.write(now, source, token, reports, body)
            }),
            None => {
                let (sealer, stamp) = handshake.stateless(now);
                sealer.write(stamp, out, |body| {
                    answer.write(now, source, token, core::iter::empty(), body)
                })
            }
        };
        // Every question is longer than the shortest answer to it: see the packet layer.
        let bytes = bytes.ok()?;
        let refused = &mut self.statistics.refused;
        if !self.handshake.may_answer(now, ip, bytes, refused) {
            return None;
        }
        self.statistics.stops_sent += u64::from(matches!(answer, Answer::Stop { .. }));
        self.outbound.scheduler.answered(now, is_of_message, bytes);
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
        let ip = four_tuple.remote.ip();
        let bytes = question.datagram_bytes(self.handshake.is_sealing(id));
        let bytes = bytes.min(out.len());
        if self.handshake.credit(now, id, ip) < bytes as u64 {
            self.statistics.refused.amplification_capped += 1;
            return None;
        }
        let stamp = self.paths.stamp_by(now, id, four_tuple, bytes)?;
        let oldest = self.outbound.sender.update_oldest(id);
        let sealer = self.handshake.sealer(id)?;
        let written: Result<usize, BufferTooShort> =
            sealer.write(stamp, &mut out[..bytes], |body| {
                question.write(oldest, body)
            });
        self.outbound.sender.asked(now, id, 1);
        self.statistics.queries_sent += u64::from(matches!(question, Question::Query { .. }));
        let bytes = written.ok()?;
        self.handshake.sent(id, ip, bytes);
        self.outbound.scheduler.sent_unpaced(now, bytes);
        Some(self.sent(four_tuple, bytes, bytes))
    }

    /// Writes symbols of a message, as many as go by the path that is best for the next. Nothing
    /// if they have to wait until something is heard; the reason, if the message has to be given
    /// up.
    fn symbols(&mut self, id: SendId, out: &mut [u8]) -> Result<Option<Transmit>, Reason> {
        let (now, peer) = (self.now, id.peer);
        let Some(paths) = self.paths.statistics(peer) else {
            return Ok(None);
        };
        let Some((longest, first_ip)) = self.paths.widest(peer) else {
            return Err(Reason::Unreachable);
        };
        let is_sealing = self.handshake.is_sealing(peer);
        let burst = self
            .outbound
            .sender
            .burst(id, (longest, is_sealing), &paths, self.config);
        let Some(burst) = burst.transpose()? else {
            return Ok(None);
        };
        let datagram_bytes = burst.datagram_bytes;
        if out.len() < datagram_bytes {
            return Ok(None);
        }
        let credit = self
            .outbound
            .scheduler
            .credit(now, peer)
            .div_ceil(datagram_bytes);
        let wanted = burst.remaining.min(credit.max(1) as u32);
        let spread = self.outbound.sender.spread(id);
        let Some(path) = self.paths.choose(now, peer, datagram_bytes, wanted, spread) else {
            return Ok(None);
        };
        let count = burst.train(path.share, out.len());
        // Some is left for asking for a token, or nothing may ever be sent again.
        let credit = self.handshake.credit(now, peer, first_ip);
        let leave = credit.saturating_sub(RESERVE_BYTES) / datagram_bytes as u64;
        if leave == 0 {
            return Ok(None);
        }
        let count = count.min(leave.min(u64::from(u32::MAX)) as u32);
        let symbols = self
            .outbound
            .sender
            .symbols(id, count, self.config.schedule);
        let (symbols, sealer) = (
            symbols.ok_or(Reason::Refused)?,
            self.handshake.sealer(peer).ok_or(Reason::Refused)?,
        );
        let (mut at, mut expected) = (0, now);
        for sequence in symbols.sequences.clone() {
            let Some((stamp, arrival)) = self.paths.stamp(now, peer, &path, datagram_bytes) else {
                break;
            };
            expected = arrival;
            let written =
                sealer.write_symbol(stamp, &mut out[at..], |body| symbols.write(sequence, body));
            let Ok(bytes) = written else {
                break;
            };
            at += bytes;
        }
        let sent = (count, &path, expected);
        let round_trip = &paths.round_trip;
        self.outbound
            .sender
            .sent(now, id, sent, round_trip, self.timers);
        self.outbound.scheduler.sent(now, peer, at);
        self.handshake.sent(peer, path.four_tuple.remote.ip(), at);
        Ok(Some(self.sent(path.four_tuple, at, datagram_bytes)))
    }

    /// Counts what is sent.
    fn sent(&mut self, four_tuple: FourTuple, bytes: usize, segment_bytes: usize) -> Transmit {
        self.statistics.datagrams_sent += bytes.div_ceil(segment_bytes.max(1)) as u64;
        self.statistics.bytes_sent += bytes as u64;
        Transmit {
            four_tuple,
            bytes,
            segment_bytes,
            ecn: Ecn::NotCapable,
        }
    }
}
