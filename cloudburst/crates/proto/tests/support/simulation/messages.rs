//! What became of every message, and what must not become of one.

use std::collections::BTreeMap;

use cloudburst_proto::{MessageKind, Receipt, SendOptions, Undelivered};

use super::{random::mix, scenario::Scenario};

#[derive(Debug, Default)]
pub(crate) struct MessageRecords {
    pub(crate) messages: Vec<Message>,
    /// By sender, its incarnation and the message's number.
    sent: BTreeMap<(usize, u32, u64), usize>,
    /// By receiver and the message's number.
    expected: BTreeMap<(usize, u64), Vec<usize>>,
    pub(crate) unresolved: usize,
    /// A message may seem to be from somebody else, and so come again.
    allows_again: bool,
    /// It may not even be one.
    allows_anything: bool,
    /// It may come again to a receiver that was restarted, as nobody knows of it there.
    allows_after_restart: bool,
    /// What goes over the wire of a message's number.
    number_bits: u64,
}

/// An accepted one.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) from: usize,
    pub(crate) incarnation: u32,
    pub(crate) to: usize,
    pub(crate) id: u64,
    pub(crate) kind: MessageKind,
    pub(crate) bytes: usize,
    pub(crate) options: SendOptions,
    pub(crate) is_idempotent: bool,
    tag: u64,
    /// Of all, and by the sender's clock.
    pub(crate) accepted: u64,
    pub(crate) accepted_by_clock: u64,
    pub(crate) cancelled: bool,
    pub(crate) fate: Option<Fate>,
    /// When it was reported.
    pub(crate) ended: u64,
    pub(crate) handed_over: u32,
    /// To which incarnation of the receiver it was handed over last, and when at first.
    handed_to: Option<u32>,
    pub(crate) arrived: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fate {
    Delivered(Receipt),
    Undelivered(Undelivered),
    /// Its sender was restarted.
    Forgotten,
}

/// To be accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draft {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) kind: MessageKind,
    pub(crate) bytes: usize,
    pub(crate) options: SendOptions,
    pub(crate) tag: u64,
}

impl Draft {
    /// Any bytes, of which the first says who sends them: short messages would
    /// be mistaken for those of others.
    pub(crate) fn content(&self) -> Vec<u8> {
        let words = (0..self.bytes.div_ceil(8) as u64).map(|word| mix(self.tag ^ mix(word)));
        let mut content: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        content.truncate(self.bytes);
        content[0] = content[0] & 15 | (self.from as u8) << 4;
        content
    }
}

impl MessageRecords {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Self {
            allows_again: scenario.is_credulous(),
            allows_after_restart: !scenario.remembers_across_restarts(),
            allows_anything: scenario.is_spoilt(),
            number_bits: if scenario.is_paper() { 0xff } else { u64::MAX },
            ..Self::default()
        }
    }

    pub(crate) fn accept(
        &mut self,
        draft: Draft,
        incarnation: u32,
        id: u64,
        now: u64,
        clock: u64,
    ) -> usize {
        let index = self.messages.len();
        let former = self.sent.insert((draft.from, incarnation, id), index);
        assert_eq!(former, None, "the number {id} was given twice");
        let number = id & self.number_bits;
        let expected = self.expected.entry((draft.to, number));
        expected.or_default().push(index);
        self.unresolved += 1;
        self.messages.push(Message {
            from: draft.from,
            incarnation,
            to: draft.to,
            id,
            kind: draft.kind,
            bytes: draft.bytes,
            options: draft.options,
            is_idempotent: draft.options.idempotent,
            tag: draft.tag,
            accepted: now,
            accepted_by_clock: clock,
            cancelled: false,
            fate: None,
            ended: 0,
            handed_over: 0,
            handed_to: None,
            arrived: None,
        });
        index
    }

    /// Which one this is, of those not handed over yet to this incarnation; none
    /// if it was spoilt on the way.
    pub(crate) fn hand_over(
        &mut self,
        now: u64,
        to: usize,
        incarnation: u32,
        id: u64,
        kind: MessageKind,
        content: &[u8],
    ) -> Option<usize> {
        let all = (0..self.messages.len()).filter(|index| self.messages[*index].to == to);
        let all: Vec<_> = all.filter(|_| self.allows_again).collect();
        let candidates = match self.expected.get(&(to, id & self.number_bits)) {
            Some(candidates) if all.is_empty() => candidates,
            // The number may be another than it was sent with.
            _ => &all,
        };
        let same: Vec<_> = candidates
            .iter()
            .copied()
            .filter(|index| self.messages[*index].is(kind, content))
            .collect();
        if same.is_empty() && self.allows_anything {
            return None;
        }
        assert!(
            !same.is_empty(),
            "host {to} was handed {} bytes as {kind:?} {id} that nobody sent; {} others have this number",
            content.len(),
            candidates.len()
        );
        let same_first = same.first().copied();
        let first = same.into_iter().find(|index| {
            let message = &self.messages[*index];
            let may_again = message.is_idempotent || self.allows_after_restart;
            match message.handed_to {
                None => true,
                Some(before) => before != incarnation && may_again,
            }
        });
        let again = same_first.filter(|_| self.allows_again);
        let Some(index) = first.or(again) else {
            panic!("host {to} was handed {kind:?} {id} twice");
        };
        let message = &mut self.messages[index];
        message.handed_to = Some(incarnation);
        message.handed_over += 1;
        message.arrived.get_or_insert(now);
        Some(index)
    }

    /// Messages to a host that it may have a part of, and the bytes in them.
    pub(crate) fn on_the_way(&self, to: usize, incarnation: u32) -> (usize, usize) {
        let there = Some(incarnation);
        let all = self.messages.iter();
        let all = all.filter(|message| message.to == to && message.handed_to != there);
        all.fold((0, 0), |(count, bytes), message| {
            (count + 1, bytes + message.bytes)
        })
    }

    pub(crate) fn find(&self, from: usize, incarnation: u32, id: u64) -> usize {
        let index = self.sent.get(&(from, incarnation, id));
        *index.unwrap_or_else(|| panic!("host {from} never sent {id}, and says what became of it"))
    }

    pub(crate) fn resolve(&mut self, now: u64, index: usize, fate: Fate) {
        let message = &mut self.messages[index];
        assert_eq!(
            message.fate, None,
            "told twice of {message:?}, now {fate:?}"
        );
        message.fate = Some(fate);
        message.ended = now;
        self.unresolved -= 1;
    }

    pub(crate) fn forget(&mut self, now: u64, from: usize) {
        let under_way = |message: &Message| message.from == from && message.fate.is_none();
        let indices = 0..self.messages.len();
        let lost: Vec<_> = indices
            .filter(|index| under_way(&self.messages[*index]))
            .collect();
        for index in lost {
            self.resolve(now, index, Fate::Forgotten);
        }
    }
}

impl Message {
    fn is(&self, kind: MessageKind, content: &[u8]) -> bool {
        let draft = Draft {
            from: self.from,
            to: self.to,
            kind: self.kind,
            bytes: self.bytes,
            options: self.options,
            tag: self.tag,
        };
        self.kind == kind && self.bytes == content.len() && draft.content() == content
    }

    /// What was cancelled is reported as cancelled, or was delivered before that was known.
    pub(crate) fn has_one_end(&self) -> bool {
        let is_cancelled =
            |failure: Undelivered| failure.reason == cloudburst_proto::Reason::Cancelled;
        let is_reported = self.undelivered().is_none_or(is_cancelled);
        !self.cancelled || is_reported
    }

    pub(crate) fn receipt(&self) -> Option<Receipt> {
        match self.fate {
            Some(Fate::Delivered(receipt)) => Some(receipt),
            _ => None,
        }
    }

    pub(crate) fn undelivered(&self) -> Option<Undelivered> {
        match self.fate {
            Some(Fate::Undelivered(failure)) => Some(failure),
            _ => None,
        }
    }
}
