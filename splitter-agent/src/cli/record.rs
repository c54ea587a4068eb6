//! Arguments of `splitter record`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};

/// Arguments of `record`.
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// Record for so long: 60s, 5m or 24h, up to 31d. Until Ctrl-C if left out, and no longer than that.
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    pub(crate) time: Option<Duration>,
    /// The file to write; it is there when the recording has ended.
    #[arg(short, long, value_name = "FILE", default_value = "recording.flows", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,
    /// Look at the flow table every so many seconds, 0.1 to 5: ended flows stay there for 5.
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub(crate) interval: Duration,
    /// Replace a file of that name.
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// The longest time that is recorded: 31 days.
pub(crate) const MAX_TIME: Duration = Duration::from_secs(31 * 86_400);

/// Reads a time of whole seconds, minutes, hours or days.
fn time(text: &str) -> Result<Duration, String> {
    // The library's stops at a day.
    let units = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400), ("", 1)];
    let seconds = units.iter().find_map(|(unit, factor)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(*factor)
    });
    seconds
        .map(Duration::from_secs)
        .filter(|it| !it.is_zero() && *it <= MAX_TIME)
        .ok_or_else(|| "give a time from 1s to 31d, such as 60s, 5m, 36h or 7d".to_owned())
}

/// Reads an interval; a longer one misses flows, a shorter one loads the machine.
fn interval(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=5.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("give 0.1 to 5 seconds".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_intervals_are_bounded() {
        let seconds = |text| time(text).map(|it| it.as_secs());
        let right = [
            ("1s", 1),
            ("90", 90),
            ("5m", 300),
            ("36h", 129_600),
            ("744h", 2_678_400),
            ("31d", 2_678_400),
        ];
        for (text, expected) in right {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        let most = format!("{}d", u64::MAX);
        for wrong in [
            "",
            "0s",
            "0d",
            "32d",
            "745h",
            "-1d",
            "1.5d",
            "d",
            "soon",
            most.as_str(),
        ] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "6", "nan", "inf", "-1", "soon", ""] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
