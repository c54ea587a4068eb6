//! Datagrams without symbols, answers and questions, that wait to be sent.

use std::collections::VecDeque;

use super::{
    event::{FourTuple, PeerId, SocketId},
    packet::{
        BufferTooShort, Busy, BusyReason, Cancel, Challenge, Echo, Framing, Goodbye, Outcome, Ping,
        Pong, Progress, ProgressState, Query, Report, Stop, TOKEN_BYTES, TokenBody, Written,
        question_datagram_bytes,
    },
    statistics::{Refusals, tally},
    time::Time,
};

/// Answers and questions that wait to be sent, at most.
const MAX_WAITING: usize = 65_536;
/// When somebody for whom there is no capacity may try again.
const RETRY_AFTER_MS: u16 = 20;
/// Bytes that a query leaves in its answer, to report on some paths.
const REPORTS_BYTES: usize = 128;

/// Datagrams that wait to be written.
#[derive(Debug, Default)]
pub(super) struct ControlQueue(VecDeque<Control>);

/// A datagram that waits to be written.
#[derive(Clone, Debug)]
pub(super) enum Control {
    Answer(SourceDatagram, Answer),
    /// An answer to somebody of whom nothing is kept, not even keys.
    Sealed(FourTuple, Box<[u8]>),
    Question(PeerId, FourTuple, Question),
}

/// Datagram that an answer answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourceDatagram {
    pub(super) four_tuple: FourTuple,
    pub(super) peer: Option<PeerId>,
    /// The session that it came by; of an offer that is not accepted, its index.
    pub(super) asker: u64,
    /// The index of the keys that the answer is sealed with.
    pub(super) keys: u64,
    pub(super) arrived: Time,
    pub(super) path: u16,
    pub(super) sent_us: u32,
    /// Its length, which the answer does not exceed.
    pub(super) bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    Query {
        message: u64,
    },
    /// Forget a message.
    Cancel {
        message: u64,
    },
    /// This end closes. It has no answer.
    Goodbye,
    Ping {
        nonce: u64,
        datagram_bytes: usize,
    },
    /// A ping with an offer, to replace keys.
    Offer {
        nonce: u64,
    },
    Token {
        token: [u8; TOKEN_BYTES],
    },
}

impl ControlQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Answers, unless too many answers wait.
    pub(super) fn answer(
        &mut self,
        source: SourceDatagram,
        answer: Answer,
        refused: &mut Refusals,
    ) {
        if self.0.len() < MAX_WAITING {
            self.0.push_back(Control::Answer(source, answer));
        } else {
            tally(&mut refused.answers_capped, 1);
        }
    }

    /// Sends an answer that is sealed already.
    pub(super) fn answer_sealed(&mut self, four_tuple: FourTuple, datagram: Box<[u8]>) {
        if self.0.len() < MAX_WAITING {
            self.0.push_back(Control::Sealed(four_tuple, datagram));
        }
    }

    pub(super) fn ask(&mut self, peer: PeerId, four_tuple: FourTuple, question: Question) {
        if self.0.len() < MAX_WAITING {
            self.0
                .push_back(Control::Question(peer, four_tuple, question));
        }
    }

    pub(super) fn pop(&mut self) -> Option<Control> {
        self.0.pop_front()
    }

    pub(super) fn remove_socket(&mut self, socket: SocketId) {
        self.0
            .retain(|control| control.four_tuple().socket != socket);
    }
}

impl Control {
    fn four_tuple(&self) -> FourTuple {
        match self {
            Self::Answer(source, _) => source.four_tuple,
            Self::Sealed(four_tuple, _) | Self::Question(_, four_tuple, _) => *four_tuple,
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

impl Answer {
    /// Tells a sender to stop, for a message of which nothing more is known.
    pub(super) const fn stop(message: u64, outcome: Outcome) -> Self {
        Self::Stop {
            message,
            outcome,
            needed: 0,
            spread_us: 0,
        }
    }

    /// Whether it says what becomes of a message.
    pub(super) const fn is_of_message(self) -> bool {
        matches!(
            self,
            Self::Stop { .. } | Self::Progress { .. } | Self::Busy { .. }
        )
    }

    /// Tells a sender to try again later.
    pub(super) const fn busy(message: u64, reason: BusyReason) -> Self {
        Self::Busy {
            message,
            retry_after_ms: RETRY_AFTER_MS,
            reason,
        }
    }

    /// Writes the answer to a datagram, with as many reports as fit. A challenge has a token.
    pub(super) fn write(
        self,
        now: Time,
        source: &SourceDatagram,
        token: Option<[u8; TOKEN_BYTES]>,
        reports: impl Iterator<Item = Report>,
        out: &mut [u8],
    ) -> Result<Written, BufferTooShort> {
        let (asker, echo) = (source.asker, source.echo(now));
        match self {
            Self::Stop {
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
            Self::Progress { message, state } => Progress {
                message,
                echo,
                state,
            }
            .write(asker, reports, out),
            Self::Busy {
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
            Self::Pong { nonce } => Pong {
                nonce,
                echo,
                datagram_bytes: source.bytes.min(u16::MAX.into()) as u16,
            }
            .write(asker, reports, out),
            Self::Challenge => Challenge {
                token: token.unwrap_or([0; TOKEN_BYTES]),
            }
            .write(asker, out),
        }
    }
}

impl Question {
    /// Asks for an answer with the same nonce; of no length means as short as can be.
    pub(super) const fn ping(nonce: u64, datagram_bytes: usize) -> Self {
        Self::Ping {
            nonce,
            datagram_bytes,
        }
    }

    /// Bytes of its datagram: the longest answer must not be longer.
    pub(super) fn datagram_bytes(self, framing: Framing) -> usize {
        let least = question_datagram_bytes(framing);
        match self {
            Self::Query { .. } => least.saturating_add(REPORTS_BYTES),
            Self::Ping { datagram_bytes, .. } => datagram_bytes.max(least),
            Self::Token { .. } | Self::Offer { .. } | Self::Cancel { .. } | Self::Goodbye => least,
        }
    }

    /// Writes it; `oldest` is the oldest of our messages under way.
    pub(super) fn write(self, oldest: u64, body: &mut [u8]) -> Result<Written, BufferTooShort> {
        match self {
            Self::Query { message } => Query { message }.write(body),
            Self::Cancel { message } => Cancel { message }.write(body),
            Self::Goodbye => Goodbye.write(body),
            Self::Ping { nonce, .. } | Self::Offer { nonce } => Ping { nonce }.write(body),
            Self::Token { token } => TokenBody { token, oldest }.write(body),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_beyond_the_cap_are_counted_and_datagrams_of_a_closed_socket_dropped() {
        let mut queue = ControlQueue::default();
        let mut refused = Refusals::default();
        let four_tuple = |socket| FourTuple::new(SocketId(socket), ([192, 0, 2, 1], 7).into());
        let source = SourceDatagram {
            four_tuple: four_tuple(0),
            peer: None,
            asker: 5,
            keys: 0,
            arrived: Time::ZERO,
            path: 1,
            sent_us: 0,
            bytes: 100,
        };
        for _ in 0..=MAX_WAITING {
            queue.answer(source, Answer::Challenge, &mut refused);
        }
        assert_eq!(refused.answers_capped, 1);
        queue.pop();
        queue.ask(
            PeerId::new(0, 0),
            four_tuple(1),
            Question::Query { message: 3 },
        );
        queue.remove_socket(SocketId(0));
        assert!(matches!(
            queue.pop(),
            Some(Control::Question(_, _, Question::Query { message: 3 }))
        ));
        assert!(queue.is_empty());
    }
}
