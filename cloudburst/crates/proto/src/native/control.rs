//! Datagrams without symbols: answers and questions, and how they are written.

use super::{
    super::{
        address::Verdict,
        event::{Ecn, FourTuple, PeerId, Transmit},
        packet::{
            BufferTooShort, Busy, BusyReason, Challenge, Echo, Outcome, Ping, Pong, Progress,
            ProgressState, Query, STATELESS_PATH, Sealer, Stamp, Stop, TOKEN_BYTES, TokenBody,
            question_datagram_bytes,
        },
        path::Path,
        time::Time,
    },
    Native,
};

/// Answers and questions that wait to be sent, at most.
const MAX_WAITING: usize = 65_536;

/// For how long a token is good.
const TOKEN_LIFETIME: core::time::Duration = core::time::Duration::from_secs(60);

/// A datagram that waits to be written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Control {
    Answer(SourceDatagram, Answer),
    Question(PeerId, FourTuple, Question),
}

/// What an answer answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourceDatagram {
    pub(super) four_tuple: FourTuple,
    pub(super) peer: Option<PeerId>,
    /// The session that it came by.
    pub(super) asker: u64,
    pub(super) arrived: Time,
    pub(super) path: u16,
    pub(super) sent_us: u32,
    /// Its length, which the answer does not exceed.
    pub(super) bytes: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    Stop {
        message: u64,
        outcome: Outcome,
        needed: u32,
        spread_us: u32,
    },
    Progress {
        message: u64,
        state: ProgressState,
    },
    Busy {
        message: u64,
        retry_after_ms: u16,
        reason: BusyReason,
    },
    Pong {
        nonce: u64,
    },
    Challenge,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Question {
    Query { message: u64 },
    Ping { nonce: u64, datagram_bytes: usize },
    Token { token: [u8; TOKEN_BYTES] },
}

/// How those are answered of whom nothing is kept.
#[derive(Debug)]
pub(super) struct Stateless {
    sealer: Sealer,
    sequence: u64,
}

impl Stateless {
    pub(super) fn new(sealer: Sealer) -> Self {
        Self {
            sealer,
            sequence: 0,
        }
    }

    pub(super) fn session(&self) -> u64 {
        self.sealer.session()
    }

    pub(super) fn set_sealer(&mut self, sealer: Sealer) {
        self.sealer = sealer;
    }

    fn stamp(&mut self, now: Time) -> Stamp {
        self.sequence += 1;
        Stamp {
            path: STATELESS_PATH,
            sent_us: now.as_wire_micros(),
            sequence: self.sequence - 1,
        }
    }
}

impl Control {
    pub(super) fn four_tuple(&self) -> FourTuple {
        match self {
            Self::Answer(source, _) => source.four_tuple,
            Self::Question(_, four_tuple, _) => *four_tuple,
        }
    }
}

impl SourceDatagram {
    fn echo(&self, now: Time) -> Echo {
        Echo {
            path: self.path,
            sent_us: self.sent_us,
            hold_us: u32::try_from(now.since(self.arrived).as_micros()).unwrap_or(u32::MAX),
        }
    }
}

impl Native {
    /// Answers, unless too many answers wait.
    pub(super) fn answer(&mut self, source: SourceDatagram, answer: Answer) {
        if self.control.len() < MAX_WAITING {
            self.control.push_back(Control::Answer(source, answer));
        } else {
            self.statistics.refused.answers_capped += 1;
        }
    }

    pub(super) fn ask(&mut self, peer: PeerId, four_tuple: FourTuple, question: Question) {
        if self.control.len() < MAX_WAITING {
            self.control
                .push_back(Control::Question(peer, four_tuple, question));
        }
    }

    /// Asks by this way for an answer with the same nonce; of no length means as short as can be.
    pub(super) fn ping(
        &mut self,
        peer: PeerId,
        four_tuple: FourTuple,
        nonce: u64,
        datagram_bytes: usize,
    ) {
        let question = Question::Ping {
            nonce,
            datagram_bytes,
        };
        self.ask(peer, four_tuple, question);
    }

    /// Writes the next answer or question that may be sent.
    pub(super) fn transmit_control(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        while let Some(control) = self.control.pop_front() {
            let (four_tuple, bytes) = match control {
                Control::Answer(source, answer) => {
                    let four_tuple = self.return_path(&source);
                    let bytes = self.write_answer(now, &source, four_tuple, answer, out);
                    (four_tuple, bytes)
                }
                Control::Question(peer, four_tuple, question) => {
                    let bytes = self.write_question(now, peer, four_tuple, question, out);
                    (four_tuple, bytes)
                }
            };
            if let Some(bytes) = bytes {
                self.pacer.sent(now, bytes);
                return Some(self.sent(four_tuple, bytes, bytes));
            }
        }
        None
    }

    /// Counts what is sent.
    pub(super) fn sent(
        &mut self,
        four_tuple: FourTuple,
        bytes: usize,
        segment_bytes: usize,
    ) -> Transmit {
        self.statistics.datagrams_sent += bytes.div_ceil(segment_bytes.max(1)) as u64;
        self.statistics.bytes_sent += bytes as u64;
        Transmit {
            four_tuple,
            bytes,
            segment_bytes,
            ecn: Ecn::NotCapable,
        }
    }

    /// Where an answer goes: where the question came from, unless that way is dead for what we
    /// send. Networks choose by a hash another path for each direction, and one of them may be
    /// dead.
    fn return_path(&self, source: &SourceDatagram) -> FourTuple {
        let paths = source.peer.and_then(|peer| self.peers.get(peer));
        let Some(paths) = paths.map(|peer| &peer.paths) else {
            return source.four_tuple;
        };
        let is_dead = |index| paths.get(index).is_dead();
        if !paths.position(source.four_tuple).is_some_and(is_dead) {
            return source.four_tuple;
        }
        // To the same address: what it may be sent is counted by address.
        let ip = source.four_tuple.remote.ip();
        let good = |path: &&Path| path.is_good() && path.four_tuple.remote.ip() == ip;
        let count = paths.iter().filter(good).count();
        let chosen = usize::from(source.path) % count.max(1);
        let path = paths.iter().filter(good).nth(chosen);
        path.map_or(source.four_tuple, |path| path.four_tuple)
    }

    /// Its length, if it may be sent.
    fn write_answer(
        &mut self,
        now: Time,
        source: &SourceDatagram,
        four_tuple: FourTuple,
        answer: Answer,
        out: &mut [u8],
    ) -> Option<usize> {
        let ip = four_tuple.remote.ip();
        let credit = out.len().min(source.bytes);
        let out = &mut out[..credit];
        let token = matches!(answer, Answer::Challenge).then(|| {
            self.tokens
                .mint(now.as_nanos(), ip, source.asker, TOKEN_LIFETIME)
        });
        let echo = source.echo(now);
        let peer = source.peer.and_then(|peer| self.peers.get_mut(peer));
        let path = peer.and_then(|peer| {
            let index = peer.paths.position(four_tuple)?;
            Some((peer, index))
        });
        let (sealer, stamp, reports) = match path {
            Some((peer, index)) => {
                let path = peer.paths.get_mut(index);
                let stamp = Stamp {
                    path: path.id,
                    sent_us: now.as_wire_micros(),
                    sequence: path.take_answer_sequence(),
                };
                let reports = peer.inbound.reports(source.path);
                (&peer.sealer, stamp, Some(reports))
            }
            None => {
                let stamp = self.stateless.stamp(now);
                (&self.stateless.sealer, stamp, None)
            }
        };
        let (asker, bytes) = (source.asker, source.bytes);
        let reports = reports.into_iter().flatten();
        let written = sealer.write(stamp, out, |body| {
            write_body(answer, asker, echo, bytes, token, reports, body)
        });
        // Every question is longer than the shortest answer to it: see the packet layer.
        let bytes = written.ok()?;
        match self.addresses.answer(now, ip, bytes) {
            Verdict::Go => {}
            Verdict::Capped => {
                self.statistics.refused.answers_capped += 1;
                return None;
            }
            Verdict::Amplifies => {
                self.statistics.refused.amplification_capped += 1;
                return None;
            }
        }
        self.statistics.stops_sent += u64::from(matches!(answer, Answer::Stop { .. }));
        Some(bytes)
    }

    fn write_question(
        &mut self,
        now: Time,
        peer: PeerId,
        four_tuple: FourTuple,
        question: Question,
        out: &mut [u8],
    ) -> Option<usize> {
        let known = self.peers.get_mut(peer)?;
        let index = known.paths.position(four_tuple)?;
        let least = question_datagram_bytes(known.sealer.is_sealing());
        let bytes = match question {
            // The answer has room for what is to be told of some paths.
            Question::Query { .. } => least + 128,
            Question::Ping { datagram_bytes, .. } => datagram_bytes.max(least),
            Question::Token { .. } => least,
        };
        let credit = bytes.min(out.len());
        if !known.is_ours && self.addresses.credit(now, four_tuple.remote.ip()) < credit as u64 {
            self.statistics.refused.amplification_capped += 1;
            return None;
        }
        let ns_per_byte = known.default_ns_per_byte(self.config.bytes_per_s());
        known.paths.sending(now, index, credit, ns_per_byte);
        let path = known.paths.get_mut(index);
        let stamp = Stamp {
            path: path.id,
            sent_us: now.as_wire_micros(),
            sequence: path.take_sequence(now),
        };
        known.oldest_message = super::oldest(peer, known, &self.outgoing);
        let oldest = known.oldest_message;
        let written = known
            .sealer
            .write(stamp, &mut out[..credit], |body| match question {
                Question::Query { message } => Query { message }.write(body),
                Question::Ping { nonce, .. } => Ping { nonce }.write(body),
                Question::Token { token } => TokenBody { token, oldest }.write(body),
            });
        known.asked(now, 1);
        self.statistics.queries_sent += u64::from(matches!(question, Question::Query { .. }));
        let bytes = written.ok()?;
        if !known.is_ours {
            self.addresses.sent(four_tuple.remote.ip(), bytes);
        }
        Some(bytes)
    }
}

fn write_body(
    answer: Answer,
    asker: u64,
    echo: Echo,
    source_bytes: usize,
    token: Option<[u8; TOKEN_BYTES]>,
    reports: impl Iterator<Item = super::super::packet::Report>,
    out: &mut [u8],
) -> Result<super::super::packet::Written, BufferTooShort> {
    match answer {
        Answer::Stop {
            message,
            outcome,
            needed,
            spread_us,
        } => Stop {
            message,
            outcome,
            echo,
            needed: needed.min(u16::MAX.into()) as u16,
            spread_us,
        }
        .write(asker, reports, out),
        Answer::Progress { message, state } => Progress {
            message,
            echo,
            state,
        }
        .write(asker, reports, out),
        Answer::Busy {
            message,
            retry_after_ms,
            reason,
        } => Busy {
            message,
            echo,
            retry_after_ms,
            reason,
        }
        .write(asker, reports, out),
        Answer::Pong { nonce } => Pong {
            nonce,
            echo,
            datagram_bytes: source_bytes.min(u16::MAX.into()) as u16,
        }
        .write(asker, reports, out),
        Answer::Challenge => Challenge {
            token: token.unwrap_or([0; TOKEN_BYTES]),
        }
        .write(asker, out),
    }
}
