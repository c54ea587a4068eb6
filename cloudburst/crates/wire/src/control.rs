//! Control: answers and questions as they wait to be written, by what they say.

use super::{
    answer::{Busy, BusyReason, Challenge, Outcome, Pong, Progress, ProgressState, Stop},
    body::{Cancel, Goodbye, Ping, Query, TokenBody},
    field::{BufferTooShort, Written},
    report::{Echo, Report},
    size::{Framing, question_datagram_bytes},
    token::TOKEN_BYTES,
};

/// After so long somebody for whom there is no capacity may try again.
const RETRY_AFTER_MS: u16 = 20;
/// Bytes that a query leaves in its answer, to report on some paths.
const REPORTS_BYTES: usize = 128;

/// Datagram that is answered, as far as its answer says it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The session of who sent it.
    pub asker: u64,
    /// The time and the path that it came by.
    pub echo: Echo,
    /// How long it is, in bytes.
    pub bytes: usize,
}

/// Answer that waits to be written, without the datagram that it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No more of a message, please: see [`Stop`].
    Stop {
        /// The number of the message.
        message: u64,
        /// The outcome: why no more is wanted.
        outcome: Outcome,
        /// Symbols that were taken until the message was complete.
        needed: u32,
        /// From the first arrival of the message to its completion, µs.
        spread_us: u32,
    },
    /// How much there is of a message: see [`Progress`].
    Progress {
        /// The number of the message.
        message: u64,
        /// How much has arrived.
        state: ProgressState,
    },
    /// There is no capacity for a message now: see [`Busy`].
    Busy {
        /// The number of the message.
        message: u64,
        /// Time after which to try again, in ms from arrival.
        retry_after_ms: u16,
        /// The quota that is used up.
        reason: BusyReason,
    },
    /// The nonce of a ping comes back: see [`Pong`].
    Pong {
        /// That of the ping.
        nonce: u64,
    },
    /// The asker is to show that it receives at its address: see [`Challenge`].
    Challenge,
}

/// Question, or what else is sent without being asked, that waits to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Asks what has arrived of a message: see [`Query`].
    Query {
        /// The number of the message.
        message: u64,
    },
    /// Asks to forget a message: see [`Cancel`].
    Cancel {
        /// The number of the message.
        message: u64,
    },
    /// This end closes, which has no answer: see [`Goodbye`].
    Goodbye,
    /// Asks for an answer with the same nonce: see [`Ping`].
    Ping {
        /// A number that comes back in the answer.
        nonce: u64,
        /// Length of the datagram that is tried out; 0 for as short as can be.
        datagram_bytes: usize,
    },
    /// A ping that goes with an offer, to replace keys.
    Offer {
        /// A number that comes back in the answer.
        nonce: u64,
    },
    /// Brings back the token of a challenge: see [`TokenBody`].
    Token {
        /// The token that the challenge brought.
        token: [u8; TOKEN_BYTES],
    },
}

impl Answer {
    /// Tells a sender to stop, for a message of which nothing more is known.
    pub const fn stop(message: u64, outcome: Outcome) -> Self {
        Self::Stop {
            message,
            outcome,
            needed: 0,
            spread_us: 0,
        }
    }

    /// Tells a sender to try again after 20 ms.
    pub const fn busy(message: u64, reason: BusyReason) -> Self {
        Self::Busy {
            message,
            retry_after_ms: RETRY_AFTER_MS,
            reason,
        }
    }

    /// Returns true if it says what becomes of a message.
    pub const fn is_of_message(self) -> bool {
        matches!(
            self,
            Self::Stop { .. } | Self::Progress { .. } | Self::Busy { .. }
        )
    }

    /// Writes the body, with as many of the reports as there is capacity for. A challenge has a token.
    ///
    /// # Errors
    ///
    /// If `out` is shorter than the answer without any report.
    pub fn write(
        self,
        asked: &Asked,
        token: Option<[u8; TOKEN_BYTES]>,
        reports: impl Iterator<Item = Report>,
        out: &mut [u8],
    ) -> Result<Written, BufferTooShort> {
        let Asked { asker, echo, bytes } = *asked;
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
                datagram_bytes: bytes.min(u16::MAX.into()) as u16,
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
    pub const fn ping(nonce: u64, datagram_bytes: usize) -> Self {
        Self::Ping {
            nonce,
            datagram_bytes,
        }
    }

    /// Returns the length of its datagram in bytes: the longest answer must not be longer.
    pub fn datagram_bytes(self, framing: Framing) -> usize {
        let least = question_datagram_bytes(framing);
        match self {
            Self::Query { .. } => least.saturating_add(REPORTS_BYTES),
            Self::Ping { datagram_bytes, .. } => datagram_bytes.max(least),
            Self::Token { .. } | Self::Offer { .. } | Self::Cancel { .. } | Self::Goodbye => least,
        }
    }

    /// Writes the body; `oldest` is the oldest of the sender's messages under way.
    ///
    /// # Errors
    ///
    /// If `out` is shorter than the question.
    pub fn write(self, oldest: u64, out: &mut [u8]) -> Result<Written, BufferTooShort> {
        match self {
            Self::Query { message } => Query { message }.write(out),
            Self::Cancel { message } => Cancel { message }.write(out),
            Self::Goodbye => Goodbye.write(out),
            Self::Ping { nonce, .. } | Self::Offer { nonce } => Ping { nonce }.write(out),
            Self::Token { token } => TokenBody { token, oldest }.write(out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Body, MIN_QUESTION_BYTES};

    const ASKED: Asked = Asked {
        asker: 5,
        echo: Echo {
            path: 1,
            sent_us: 2,
            hold_us: 3,
        },
        bytes: 100_000,
    };

    #[test]
    fn an_answer_reads_as_what_it_says_and_numbers_end_at_their_fields() {
        let mut out = [0; 300];
        let mut read = |answer: Answer, token| {
            let written = answer.write(&ASKED, token, core::iter::empty(), &mut out);
            let written = written.unwrap();
            let body = Body::parse(written.kind(), &out[..written.bytes()], ASKED.asker).unwrap();
            format!("{body:?}")
        };
        let stop = Answer::Stop {
            message: 7,
            outcome: Outcome::Delivered,
            needed: 70_000,
            spread_us: 9,
        };
        let stop = read(stop, None);
        assert!(stop.contains("needed: 65535, spread_us: 9"), "{stop}");
        assert!(stop.contains("hold_us: 3"), "{stop}");
        let busy = read(Answer::busy(7, BusyReason::Peers), None);
        assert!(busy.contains("retry_after_ms: 20, reason: Peers"), "{busy}");
        let pong = read(Answer::Pong { nonce: 8 }, None);
        assert!(pong.contains("nonce: 8") && pong.contains("datagram_bytes: 65535"));
        let challenge = read(Answer::Challenge, Some([6; TOKEN_BYTES]));
        assert!(challenge.contains("[6, 6"), "{challenge}");
    }

    #[test]
    fn a_question_is_as_long_as_any_answer_to_it_without_reports() {
        let all = [
            Question::Query { message: 1 },
            Question::Cancel { message: 1 },
            Question::ping(1, 0),
            Question::Offer { nonce: 1 },
        ];
        let answers = [
            Answer::stop(1, Outcome::Stale),
            Answer::busy(1, BusyReason::Memory),
            Answer::Pong { nonce: 1 },
            Answer::Challenge,
        ];
        for question in all {
            let mut out = [0; MIN_QUESTION_BYTES];
            let asked = question.write(0, &mut out).unwrap().bytes();
            for answer in answers {
                let answer = answer.write(&ASKED, None, core::iter::empty(), &mut [0; 300]);
                assert!(answer.unwrap().bytes() <= asked, "{question:?}");
            }
        }
        let least = question_datagram_bytes(Framing::SEALED);
        let bytes = |question: Question| question.datagram_bytes(Framing::SEALED);
        assert_eq!(bytes(Question::Goodbye), least);
        assert_eq!(bytes(Question::ping(1, 0)), least);
        assert_eq!(bytes(Question::ping(1, 1_400)), 1_400);
        let query = bytes(Question::Query { message: 1 });
        assert_eq!(query, least + REPORTS_BYTES);
    }
}
