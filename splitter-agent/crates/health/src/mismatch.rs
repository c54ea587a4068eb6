//! A peer whose key is another one than ours: told once, and not for what strangers send.

use std::time::Duration;

use super::wire::Refusal;

/// Datagrams with a wrong code that make it certain; one may have been damaged on its way.
const CERTAIN: u32 = 3;

/// A peer that proved itself within this time has our key, whatever else comes in its name.
const PROOF_LASTS: Duration = Duration::from_secs(10);

/// Notices that what comes from the peer bears another key's code, and that it does no more.
#[derive(Debug, Clone, Default)]
pub struct KeyMismatch {
    forged: u32,
    proved: Option<Duration>,
    is_reported: bool,
}

/// News about the key of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyNews {
    /// The peer has another key.
    Differs,
    /// The peer has one of ours again.
    Fits,
}

impl KeyMismatch {
    /// Takes what became of a datagram from the peer's address. Each piece of news comes once.
    pub fn note(&mut self, result: Result<(), Refusal>, now: Duration) -> Option<KeyNews> {
        match result {
            Err(Refusal::Forged) => {
                let is_proved = self
                    .proved
                    .is_some_and(|at| now.saturating_sub(at) < PROOF_LASTS);
                self.forged = self.forged.saturating_add(1);
                let is_news = self.forged >= CERTAIN && !is_proved && !self.is_reported;
                self.is_reported |= is_news;
                is_news.then_some(KeyNews::Differs)
            }
            Err(Refusal::Malformed) => None,
            // Whatever else was wrong with it, its code was right.
            Ok(()) | Err(_) => {
                self.forged = 0;
                self.proved = Some(now);
                std::mem::take(&mut self.is_reported).then_some(KeyNews::Fits)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const FORGED: Result<(), Refusal> = Err(Refusal::Forged);

    #[test]
    fn other_key_is_news_once_and_the_right_one_again_once() {
        let mut mismatch = KeyMismatch::default();
        assert_eq!(mismatch.note(FORGED, SECOND), None);
        assert_eq!(mismatch.note(FORGED, SECOND), None);
        assert_eq!(mismatch.note(FORGED, SECOND), Some(KeyNews::Differs));
        assert_eq!(mismatch.note(FORGED, 99 * SECOND), None);
        assert_eq!(mismatch.note(Ok(()), 100 * SECOND), Some(KeyNews::Fits));
        assert_eq!(mismatch.note(Ok(()), 100 * SECOND), None);
    }

    #[test]
    fn strangers_beside_a_peer_that_proves_itself_are_no_news() {
        let mut mismatch = KeyMismatch::default();
        for turn in 0..100 {
            let now = turn * SECOND;
            assert_eq!(mismatch.note(Ok(()), now), None);
            for _ in 0..20 {
                assert_eq!(mismatch.note(FORGED, now), None);
            }
        }
        // Once the peer is silent, they may be the peer.
        assert_eq!(mismatch.note(FORGED, 105 * SECOND), None);
        assert_eq!(mismatch.note(FORGED, 110 * SECOND), Some(KeyNews::Differs));
    }

    #[test]
    fn what_has_no_form_proves_nothing() {
        let mut mismatch = KeyMismatch::default();
        for _ in 0..9 {
            assert_eq!(mismatch.note(Err(Refusal::Malformed), SECOND), None);
        }
        assert_eq!(mismatch.proved, None);
    }
}
