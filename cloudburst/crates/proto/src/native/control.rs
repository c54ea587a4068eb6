//! Datagrams without symbols: answers and questions, and how they are written.

use super::{
    super::{
        address::Verdict,
        event::{Ecn, PeerId, Route, Transmit},
        packet::{
            Ask, Busy, BusyReason, Challenge, Echo, Have, NoRoom, Outcome, Ping, Pong,
            STATELESS_PATH, Sealer, Stamp, State, Stop, TOKEN_BYTES, TokenBody,
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
    Answer(Trigger, Answer),
    Question(PeerId, Route, Question),
}

/// What an answer answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trigger {
    pub(super) route: Route,
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
    Have {
        message: u64,
        state: State,
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
    Ask { message: u64 },
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
    pub(super) fn route(&self) -> Route {
        match self {
            Self::Answer(trigger, _) => trigger.route,
            Self::Question(_, route, _) => *route,
        }
    }
}

impl Trigger {
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
    pub(super) fn answer(&mut self, trigger: Trigger, answer: Answer) {
        if self.control.len() < MAX_WAITING {
            self.control.push_back(Control::Answer(trigger, answer));
        } else {
            self.statistics.refused.answers_capped += 1;
        }
    }

    pub(super) fn ask(&mut self, peer: PeerId, route: Route, question: Question) {
        if self.control.len() < MAX_WAITING {
            self.control
                .push_back(Control::Question(peer, route, question));
        }
    }

    /// Asks by this way for an answer with the same nonce; of no length means as short as can be.
    pub(super) fn ping(&mut self, peer: PeerId, route: Route, nonce: u64, datagram_bytes: usize) {
        let question = Question::Ping {
            nonce,
            datagram_bytes,
        };
        self.ask(peer, route, question);
    }

    /// Writes the next answer or question that may be sent.
    pub(super) fn transmit_control(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        while let Some(control) = self.control.pop_front() {
            let (route, bytes) = match control {
                Control::Answer(trigger, answer) => {
                    let route = self.way_back(&trigger);
                    let bytes = self.write_answer(now, &trigger, route, answer, out);
                    (route, bytes)
                }
                Control::Question(peer, route, question) => {
                    let bytes = self.write_question(now, peer, route, question, out);
                    (route, bytes)
                }
            };
            if let Some(bytes) = bytes {
                self.pacer.sent(now, bytes);
                return Some(self.sent(route, bytes, bytes));
            }
        }
        None
    }

    /// Counts what is sent.
    pub(super) fn sent(&mut self, route: Route, bytes: usize, segment_bytes: usize) -> Transmit {
        self.statistics.datagrams_sent += bytes.div_ceil(segment_bytes.max(1)) as u64;
        self.statistics.bytes_sent += bytes as u64;
        Transmit {
            route,
            bytes,
            segment_bytes,
            ecn: Ecn::NotCapable,
        }
    }

    /// Where an answer goes: where the question came from, unless that way is dead for what we
    /// send. Networks choose by a hash another path for each direction, and one of them may be
    /// dead.
    fn way_back(&self, trigger: &Trigger) -> Route {
        let paths = trigger.peer.and_then(|peer| self.peers.get(peer));
        let Some(paths) = paths.map(|peer| &peer.paths) else {
            return trigger.route;
        };
        let is_dead = |index| paths.get(index).is_dead();
        if !paths.position(trigger.route).is_some_and(is_dead) {
            return trigger.route;
        }
        // To the same address: what it may be sent is counted by address.
        let ip = trigger.route.remote.ip();
        let good = |path: &&Path| path.is_good() && path.route.remote.ip() == ip;
        let count = paths.iter().filter(good).count();
        let chosen = usize::from(trigger.path) % count.max(1);
        let path = paths.iter().filter(good).nth(chosen);
        path.map_or(trigger.route, |path| path.route)
    }

    /// Its length, if it may be sent.
    fn write_answer(
        &mut self,
        now: Time,
        trigger: &Trigger,
        route: Route,
        answer: Answer,
        out: &mut [u8],
    ) -> Option<usize> {
        let ip = route.remote.ip();
        let room = out.len().min(trigger.bytes);
        let out = &mut out[..room];
        let token = matches!(answer, Answer::Challenge).then(|| {
            self.tokens
                .mint(now.as_nanos(), ip, trigger.asker, TOKEN_LIFETIME)
        });
        let echo = trigger.echo(now);
        let peer = trigger.peer.and_then(|peer| self.peers.get_mut(peer));
        let path = peer.and_then(|peer| {
            let index = peer.paths.position(route)?;
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
                let reports = peer.inbound.reports(trigger.path);
                (&peer.sealer, stamp, Some(reports))
            }
            None => {
                let stamp = self.stateless.stamp(now);
                (&self.stateless.sealer, stamp, None)
            }
        };
        let (asker, bytes) = (trigger.asker, trigger.bytes);
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
        route: Route,
        question: Question,
        out: &mut [u8],
    ) -> Option<usize> {
        let known = self.peers.get_mut(peer)?;
        let index = known.paths.position(route)?;
        let least = question_datagram_bytes(known.sealer.is_sealing());
        let bytes = match question {
            // The answer has room for what is to be told of some paths.
            Question::Ask { .. } => least + 128,
            Question::Ping { datagram_bytes, .. } => datagram_bytes.max(least),
            Question::Token { .. } => least,
        };
        let room = bytes.min(out.len());
        if !known.is_ours && self.addresses.room(now, route.remote.ip()) < room as u64 {
            self.statistics.refused.amplification_capped += 1;
            return None;
        }
        let ns_per_byte = known.default_ns_per_byte(self.config.bytes_per_s());
        known.paths.sending(now, index, room, ns_per_byte);
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
            .write(stamp, &mut out[..room], |body| match question {
                Question::Ask { message } => Ask { message }.write(body),
                Question::Ping { nonce, .. } => Ping { nonce }.write(body),
                Question::Token { token } => TokenBody { token, oldest }.write(body),
            });
        known.asked(now, 1);
        self.statistics.asks_sent += u64::from(matches!(question, Question::Ask { .. }));
        let bytes = written.ok()?;
        if !known.is_ours {
            self.addresses.sent(route.remote.ip(), bytes);
        }
        Some(bytes)
    }
}

fn write_body(
    answer: Answer,
    asker: u64,
    echo: Echo,
    trigger_bytes: usize,
    token: Option<[u8; TOKEN_BYTES]>,
    reports: impl Iterator<Item = super::super::packet::Report>,
    out: &mut [u8],
) -> Result<super::super::packet::Written, NoRoom> {
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
        Answer::Have { message, state } => Have {
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
            datagram_bytes: trigger_bytes.min(u16::MAX.into()) as u16,
        }
        .write(asker, reports, out),
        Answer::Challenge => Challenge {
            token: token.unwrap_or([0; TOKEN_BYTES]),
        }
        .write(asker, out),
    }
}
