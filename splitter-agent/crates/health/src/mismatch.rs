//! A peer whose key or version of probes is another one than ours: reported once, and not for what strangers send.

use std::time::Duration;

use super::wire::Refusal;

/// Datagrams with a wrong code that make it certain; one may have been damaged on its way.
const CERTAIN: u32 = 3;

/// A peer that proved itself within this time has our key, whatever else comes in its name.
const PROOF_LASTS: Duration = Duration::from_secs(10);

/// Notices that what comes from the peer bears another key's code or is of another version, and that it is no more.
#[derive(Debug, Clone, Default)]
pub struct KeyMismatch {
    /// Datagrams with another key's code, and of another version.
    unusable: [u32; 2],
    proved: Option<Duration>,
    /// Which of both was reported.
    is_reported: [bool; 2],
}

/// News about the key of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyNews {
    /// The peer has another key.
    Differs,
    /// The peer's probes are of another version, so that nobody can tell its key.
    OtherVersion,
    /// The peer has one of ours again.
    Fits,
}

impl KeyMismatch {
    /// Takes what became of a datagram from the peer's address. Each piece of news comes once.
    pub fn note(&mut self, result: Result<(), Refusal>, now: Duration) -> Option<KeyNews> {
        match result {
            Err(Refusal::Forged) => self.note_unusable(KeyNews::Differs, now),
            Err(Refusal::Version) => self.note_unusable(KeyNews::OtherVersion, now),
            Err(Refusal::Malformed) => None,
            // Whatever else was wrong with it, its code was right.
            Ok(()) | Err(_) => {
                self.unusable = [0; 2];
                self.proved = Some(now);
                let was_reported = std::mem::take(&mut self.is_reported);
                was_reported.contains(&true).then_some(KeyNews::Fits)
            }
        }
    }

    /// Takes a datagram of which that is so. A peer whose version is ours again may turn out to have another key.
    fn note_unusable(&mut self, news: KeyNews, now: Duration) -> Option<KeyNews> {
        let kind = usize::from(news == KeyNews::OtherVersion);
        let is_proved = self
            .proved
            .is_some_and(|at| now.saturating_sub(at) < PROOF_LASTS);
        self.unusable[kind] = self.unusable[kind].saturating_add(1);
        let is_certain = self.unusable[kind] >= CERTAIN && !is_proved;
        let is_news = is_certain && !self.is_reported[kind];
        self.is_reported[kind] |= is_news;
        is_news.then_some(news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const FORGED: Result<(), Refusal> = Err(Refusal::Forged);

    #[test]
    fn other_key_behind_another_version_is_news_too() {
        let mut mismatch = KeyMismatch::default();
        let mut last = |refusal: Refusal| {
            let news = (0..5).filter_map(|_| mismatch.note(Err(refusal), SECOND));
            news.collect::<Vec<_>>()
        };
        assert_eq!(last(Refusal::Version), [KeyNews::OtherVersion]);
        assert_eq!(last(Refusal::Forged), [KeyNews::Differs]);
        // Who sends both by turns makes no more of it.
        assert_eq!(last(Refusal::Version), []);
        assert_eq!(last(Refusal::Forged), []);
    }

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
    fn other_version_is_news_once_until_the_peer_proves_itself() {
        let mut mismatch = KeyMismatch::default();
        let news: Vec<_> = (0..9)
            .filter_map(|_| mismatch.note(Err(Refusal::Version), SECOND))
            .collect();
        assert_eq!(news, [KeyNews::OtherVersion]);
        assert_eq!(mismatch.note(Ok(()), SECOND), Some(KeyNews::Fits));
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
