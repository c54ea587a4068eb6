//! Which of a peer's messages are done, so that none is handed over twice.

use std::collections::VecDeque;

/// Most numbers between the oldest message under way and the newest: a
/// sender keeps to it.
pub const MAX_SPAN: u64 = 16_384;
/// Numbers that a receiver knows of: capacity for those under way, and as many
/// again for stragglers of what came before.
const SLOTS: u64 = 2 * MAX_SPAN;

/// State of a message, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageStatus {
    /// It is not done.
    Open,
    /// It was handed over, or refused for good.
    Done,
    /// Nothing: it is too old.
    Stale,
}

/// The messages of a peer: done or not, a bit for each.
///
/// Numbers below all bits are stale. So a message is never handed over twice,
/// however late its symbols come.
#[derive(Debug, Default)]
pub struct MessageWindow {
    /// The number of the lowest bit, a multiple of 64.
    floor: u64,
    words: VecDeque<u64>,
}

impl MessageWindow {
    /// Returns what is known of a message.
    pub fn get(&self, id: u64) -> MessageStatus {
        if self.words.is_empty() {
            return MessageStatus::Open;
        }
        let Some(offset) = id.checked_sub(self.floor) else {
            return MessageStatus::Stale;
        };
        match self.words.get((offset / 64) as usize) {
            Some(word) if word.wrapping_shr(offset as u32) & 1 == 1 => MessageStatus::Done,
            _ => MessageStatus::Open,
        }
    }

    /// A symbol of this message has come, which is not stale. Returns the lowest
    /// number that is not, if it is another than before.
    pub fn open(&mut self, id: u64) -> Option<u64> {
        if self.words.is_empty() {
            // It may be that older ones are still under way.
            self.floor = first_of_word(id.saturating_sub(MAX_SPAN));
            self.words.push_back(0);
        }
        let offset = id.saturating_sub(self.floor);
        let excess = offset.saturating_sub(SLOTS - 1).div_ceil(64);
        if excess == 0 {
            return None;
        }
        if excess >= self.words.len() as u64 {
            self.words.clear();
            self.words.push_back(0);
        } else {
            self.words.drain(..excess as usize);
        }
        self.floor = self.floor.saturating_add(excess.saturating_mul(64));
        Some(self.floor)
    }

    /// It is done. It was opened before.
    pub fn finish(&mut self, id: u64) {
        let Some(offset) = id.checked_sub(self.floor) else {
            return;
        };
        let index = (offset / 64) as usize;
        if index >= self.words.len() {
            self.words.resize(index.saturating_add(1), 0);
        }
        self.words[index] |= 1_u64.wrapping_shl(offset as u32);
    }

    /// Nothing below `oldest` is under way: all of it is stale from now on.
    pub fn raise(&mut self, oldest: u64) {
        if self.words.is_empty() {
            self.floor = first_of_word(oldest);
            // Those of the first word that are older count as done.
            self.words.push_back(!u64::MAX.wrapping_shl(oldest as u32));
        }
    }
}

/// The number of the lowest bit of the word that a number is in.
const fn first_of_word(number: u64) -> u64 {
    number & !63
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_set(
            start in 0u64..1 << 40,
            steps in prop::collection::vec((0u64..40_000, any::<bool>()), 1..200),
        ) {
            let mut window = MessageWindow::default();
            let mut done = BTreeSet::new();
            let mut highest = 0;
            for (step, finishes) in steps {
                let id = start + step;
                let known = window.get(id);
                match known {
                    MessageStatus::Done => prop_assert!(done.contains(&id)),
                    MessageStatus::Stale => prop_assert!(highest - id >= MAX_SPAN),
                    MessageStatus::Open => {
                        prop_assert!(!done.contains(&id), "{id} is done");
                        window.open(id);
                        prop_assert!(window.floor <= id && id - window.floor < SLOTS);
                        highest = highest.max(id);
                        if finishes {
                            window.finish(id);
                            done.insert(id);
                        }
                    }
                }
                if known != MessageStatus::Stale {
                    prop_assert_ne!(window.get(id), MessageStatus::Stale);
                }
            }
            prop_assert!(window.words.len() as u64 <= SLOTS / 64 + 1);
        }
    }

    #[test]
    fn far_jump_forgets_all() {
        let mut window = MessageWindow::default();
        window.open(100);
        window.finish(100);
        window.open(1 << 50);
        assert_eq!(window.get(100), MessageStatus::Stale);
        assert_eq!(window.get(1 << 50), MessageStatus::Open);
        window.open(u64::MAX);
        window.finish(u64::MAX);
        assert_eq!(window.get(u64::MAX), MessageStatus::Done);
    }
}
