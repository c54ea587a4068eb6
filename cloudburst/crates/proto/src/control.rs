//! Datagrams without symbols, answers and questions, that wait to be sent.

use std::collections::VecDeque;

pub(super) use super::packet::{Answer, Question};
use super::{
    event::{Ecn, FourTuple, PeerId, SocketId},
    packet::{Asked, Echo},
    statistics::{Refusals, tally},
    time::Time,
};

/// Answers and questions that wait to be sent, at most.
const MAX_WAITING: usize = 65_536;

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
    pub(super) ecn: Ecn,
    /// Its length, which the answer does not exceed.
    pub(super) bytes: usize,
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
    /// What an answer says back of it.
    pub(super) fn asked(&self, now: Time) -> Asked {
        let hold_us = u32::try_from(now.since(self.arrived).as_micros()).unwrap_or(u32::MAX);
        Asked {
            asker: self.asker,
            echo: Echo {
                path: self.path,
                sent_us: self.sent_us,
                hold_us,
            },
            bytes: self.bytes,
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
            ecn: Ecn::NotCapable,
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
