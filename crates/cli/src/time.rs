//! Times on a command line.

use std::time::Duration;

/// The longest time that is taken: a day.
const MAX_SECONDS: u64 = 86_400;

/// Reads a time of whole seconds, minutes or hours: `60s`, `5m`, `1h`; a number alone is of seconds.
///
/// # Errors
/// Says in words what to give, for anything else, none, and more than a day.
///
/// # Examples
/// ```
/// assert_eq!(flow_cli::seconds("5m"), Ok(300));
/// ```
pub fn seconds(text: &str) -> Result<u32, String> {
    let (number, unit) = match text.char_indices().last() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3_600),
        _ => (text, 1),
    };
    let number: Option<u64> = number.parse().ok();
    let seconds = number.and_then(|number| number.checked_mul(unit));
    seconds
        .filter(|seconds| (1..=MAX_SECONDS).contains(seconds))
        .and_then(|seconds| u32::try_from(seconds).ok())
        .ok_or_else(|| "give a time from 1s to 24h, such as 60s, 5m or 1h".to_owned())
}

/// Says a time as a person does, rounded down: `8 s`, `12 min`, `3 h`, `4 days`.
///
/// # Examples
/// ```
/// let age = std::time::Duration::from_secs(750);
/// assert_eq!(flow_cli::age_in_words(age), "12 min");
/// ```
#[must_use]
pub fn age_in_words(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_rounded_to_what_a_person_says() {
        let words = [0, 119, 120, 7_199, 7_200, 172_800]
            .map(Duration::from_secs)
            .map(age_in_words);
        assert_eq!(words, ["0 s", "119 s", "2 min", "119 min", "2 h", "2 days"]);
    }

    #[test]
    fn times_have_units_and_bounds() {
        let right = [("60s", 60), ("90", 90), ("5m", 300), ("24h", 86_400)];
        for (text, expected) in right {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        let wrong = [
            "",
            "s",
            "0s",
            "25h",
            "1.5m",
            "-5s",
            "5 m",
            "5d",
            "5mm",
            "é",
            "99999999999999999999s",
        ];
        for text in wrong {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
