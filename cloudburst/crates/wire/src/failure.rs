//! Failures: what a request is answered with where there is no reply.

use core::fmt::{self, Write as _};

/// Bytes of text that a [`Failure`] carries at most.
pub const MAX_FAILURE_TEXT_BYTES: usize = 256;

/// Why a request has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
#[repr(u8)]
pub enum FailureReason {
    /// No reason was given, or one that a later version knows.
    #[error("no reason is given")]
    Unspecified = 0,
    /// Nobody takes requests there.
    #[error("nobody answers requests there")]
    NoHandler = 1,
    /// The handler has refused the request.
    #[error("the request was refused")]
    Refused = 2,
    /// The handler has ended with no reply.
    #[error("the handler gave no reply")]
    NoReply = 3,
    /// The handler has panicked.
    #[error("the handler has panicked")]
    Panicked = 4,
    /// The handler was stopped before it was done.
    #[error("the handler was stopped")]
    Stopped = 5,
    /// The reply is longer than what can be sent.
    #[error("the reply is too long to be sent")]
    ReplyTooLarge = 6,
}

impl FailureReason {
    const ALL: [Self; 7] = [
        Self::Unspecified,
        Self::NoHandler,
        Self::Refused,
        Self::NoReply,
        Self::Panicked,
        Self::Stopped,
        Self::ReplyTooLarge,
    ];

    /// Returns the number that stands for it on the wire.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the reason of a number; of one that is not known, [`Self::Unspecified`].
    pub fn from_code(code: u8) -> Self {
        let known = Self::ALL.get(usize::from(code));
        known.copied().unwrap_or(Self::Unspecified)
    }
}

/// Says why a request has no reply, in a number and perhaps a few words.
///
/// What a peer wrote is shown with everything escaped that is not plain text, so that it can be
/// logged and printed: no line of its own, nothing that a terminal obeys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Failure {
    reason: FailureReason,
    text: Box<str>,
}

impl Failure {
    /// Makes a failure with a text, of which [`MAX_FAILURE_TEXT_BYTES`] are kept.
    pub fn new(reason: FailureReason, text: &str) -> Self {
        let text = text[..longest(text)].into();
        Self { reason, text }
    }

    /// Makes the failure of a handler that refuses a request, with a text that says why.
    pub fn refused(text: &str) -> Self {
        Self::new(FailureReason::Refused, text)
    }

    /// Returns why there is no reply.
    pub const fn reason(&self) -> FailureReason {
        self.reason
    }

    /// Returns the text as the other end wrote it; to show it, show the failure.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the content of the message that it travels as: the reason's number and the text.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.text.len().saturating_add(1));
        bytes.push(self.reason.code());
        bytes.extend_from_slice(self.text.as_bytes());
        bytes
    }

    /// Reads the content of a message. Nothing is refused, so that who waits learns of it in any
    /// case: without a byte no reason is given, what is no text becomes U+FFFD, and what is beyond
    /// [`MAX_FAILURE_TEXT_BYTES`] is left out.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let (code, text) = bytes.split_first().unwrap_or((&0, &[]));
        let text = &text[..text.len().min(MAX_FAILURE_TEXT_BYTES)];
        Self::new(
            FailureReason::from_code(*code),
            &String::from_utf8_lossy(text),
        )
    }
}

impl From<FailureReason> for Failure {
    fn from(reason: FailureReason) -> Self {
        Self::new(reason, "")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.reason)?;
        if self.text.is_empty() {
            return Ok(());
        }
        formatter.write_str(": \"")?;
        for character in self.text.chars() {
            match character {
                '\'' => formatter.write_char(character)?,
                _ => write!(formatter, "{}", character.escape_debug())?,
            }
        }
        formatter.write_char('"')
    }
}

impl core::error::Error for Failure {}

/// Bytes of a text that are kept: as many as may be, cut between characters.
fn longest(text: &str) -> usize {
    // `str::floor_char_boundary` is newer than the oldest compiler that is promised.
    let mut places = (0..=MAX_FAILURE_TEXT_BYTES.min(text.len())).rev();
    let place = places.find(|at| text.is_char_boundary(*at));
    place.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn failures_come_back(code in 0u8..7, text in "\\PC{0,60}") {
            let failure = Failure::new(FailureReason::from_code(code), &text);
            prop_assert_eq!(failure.reason().code(), code);
            prop_assert_eq!(Failure::from_bytes(&failure.to_bytes()), failure);
        }

        #[test]
        fn whatever_comes_is_shown_in_one_short_line(bytes: Vec<u8>, repeat in 1usize..100) {
            let failure = Failure::from_bytes(&bytes.repeat(repeat));
            prop_assert!(failure.text().len() <= MAX_FAILURE_TEXT_BYTES);
            let shown = failure.to_string();
            prop_assert!(!shown.chars().any(char::is_control), "{shown:?}");
            // `\u{10ffff}` takes ten bytes where the character takes one at least.
            prop_assert!(shown.len() <= 64 + 10 * MAX_FAILURE_TEXT_BYTES);
        }
    }

    #[test]
    fn what_a_terminal_obeys_is_escaped() {
        let failure = Failure::refused("it's \u{1b}[2J\nall \"well\"\u{202e}");
        let shown = r#"the request was refused: "it's \u{1b}[2J\nall \"well\"\u{202e}""#;
        assert_eq!(failure.to_string(), shown);
    }

    #[test]
    fn a_reason_of_a_later_version_is_a_failure_still() {
        let failure = Failure::from_bytes(&[200, b'x']);
        assert_eq!(failure.reason(), FailureReason::Unspecified);
        assert_eq!(
            Failure::from_bytes(&[]),
            Failure::from(FailureReason::Unspecified)
        );
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let text = "ü".repeat(MAX_FAILURE_TEXT_BYTES) + "!";
        for start in 0..2 {
            let text = format!("{}{text}", "a".repeat(start));
            let kept = Failure::refused(&text);
            assert!(MAX_FAILURE_TEXT_BYTES - kept.text().len() <= 1);
            assert!(text.starts_with(kept.text()));
        }
    }
}
