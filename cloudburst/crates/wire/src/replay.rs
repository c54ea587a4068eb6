//! Which datagrams of a session and path came already: a sliding window as in
//! RFC 4303 §3.4.3, kept in a ring of words as in RFC 6479 so that it never shifts.

/// How far a datagram may be behind the newest of its path and still be taken.
pub const REPLAY_WINDOW: u64 = 256;

const WORD_BITS: u64 = 64;
/// One more than the window has words: the newest is seldom full.
const WORDS: u64 = REPLAY_WINDOW / WORD_BITS + 1;

/// Replay protection: remembers the last [`REPLAY_WINDOW`] sequence numbers of one path of one session.
#[derive(Clone, Debug, Default)]
pub struct ReplayWindow {
    newest: u64,
    words: [u64; WORDS as usize],
}

/// Why a datagram is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Replayed {
    /// The datagram came before.
    #[error("a datagram with this sequence number came before")]
    Duplicate,
    /// It is so far behind that nobody knows.
    #[error(
        "the sequence number is {REPLAY_WINDOW} or more behind the newest; it may have come before"
    )]
    TooOld,
}

impl ReplayWindow {
    /// Tells whether a datagram is new, before the work of opening it. Nothing
    /// changes: anybody can write any number into a header.
    ///
    /// # Errors
    ///
    /// See [`Replayed`].
    pub fn check(&self, sequence: u64) -> Result<(), Replayed> {
        if sequence > self.newest {
            return Ok(());
        }
        if self.newest.saturating_sub(sequence) >= REPLAY_WINDOW {
            return Err(Replayed::TooOld);
        }
        if self.words[word(sequence)] & bit(sequence) != 0 {
            return Err(Replayed::Duplicate);
        }
        Ok(())
    }

    /// Takes note of a datagram that has been authenticated.
    ///
    /// # Errors
    ///
    /// As [`Self::check`]; nothing changes then.
    pub fn accept(&mut self, sequence: u64) -> Result<(), Replayed> {
        self.check(sequence)?;
        if sequence > self.newest {
            self.advance(sequence);
        }
        self.words[word(sequence)] |= bit(sequence);
        Ok(())
    }

    /// The highest number so far; 0 before the first too.
    pub const fn newest(&self) -> u64 {
        self.newest
    }

    /// Clears the words that come into use again.
    fn advance(&mut self, sequence: u64) {
        let first = self.newest / WORD_BITS;
        let fresh = (sequence / WORD_BITS).saturating_sub(first).min(WORDS);
        for step in 1..=fresh {
            self.words[(first.saturating_add(step) % WORDS) as usize] = 0;
        }
        self.newest = sequence;
    }
}

const fn word(sequence: u64) -> usize {
    (sequence / WORD_BITS % WORDS) as usize
}

const fn bit(sequence: u64) -> u64 {
    1 << (sequence % WORD_BITS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    /// Every number that ever came.
    #[derive(Default)]
    struct Model(BTreeSet<u64>);

    impl Model {
        fn accept(&mut self, sequence: u64) -> Result<(), Replayed> {
            let newest = self.0.last().copied().unwrap_or(0);
            if newest.saturating_sub(sequence) >= REPLAY_WINDOW {
                return Err(Replayed::TooOld);
            }
            if self.0.insert(sequence) {
                Ok(())
            } else {
                Err(Replayed::Duplicate)
            }
        }
    }

    /// Steps of all lengths that matter, forwards and backwards.
    fn steps() -> impl Strategy<Value = i64> {
        prop_oneof![
            4 => -3i64..5,
            4 => -300i64..300,
            1 => -1_000i64..2_000,
            1 => any::<i64>(),
        ]
    }

    proptest! {
        #[test]
        fn the_window_agrees_with_a_set(
            start in prop_oneof![Just(0), any::<u64>()],
            steps in proptest::collection::vec(steps(), 1..300),
        ) {
            let (mut window, mut model) = (ReplayWindow::default(), Model::default());
            let mut sequence = start;
            for step in steps {
                let expected = model.accept(sequence);
                prop_assert_eq!(window.check(sequence), expected);
                prop_assert_eq!(window.accept(sequence), expected);
                sequence = sequence.saturating_add_signed(step);
            }
        }
    }

    #[test]
    fn checking_changes_nothing() {
        let mut window = ReplayWindow::default();
        assert_eq!(window.check(u64::MAX), Ok(()));
        assert_eq!(window.accept(0), Ok(()));
        assert_eq!(window.accept(0), Err(Replayed::Duplicate));
    }

    #[test]
    fn the_window_has_an_edge() {
        let mut window = ReplayWindow::default();
        window.accept(1_000).unwrap();
        assert_eq!(window.check(1_000 - 255), Ok(()));
        assert_eq!(window.check(1_000 - 256), Err(Replayed::TooOld));
        window.accept(u64::MAX).unwrap();
        assert_eq!(window.check(u64::MAX), Err(Replayed::Duplicate));
    }
}
