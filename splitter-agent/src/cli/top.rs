//! Arguments of `splitter top`.

use std::time::Duration;

use clap::Args;
use splitter_agent::overview::SortBy;

/// Arguments of `top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Look every so many seconds, 0.1 to 3600; + and - change it.
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub(crate) interval: Duration,
    /// Order flows by this column; s and S change it.
    #[arg(short, long, value_name = "COLUMN", value_enum, default_value_t)]
    pub(crate) sort: SortBy,
    /// Order them the other way round; r changes it.
    #[arg(short, long)]
    pub(crate) reverse: bool,
    /// Show only flows in whose name all of these words occur, which is
    /// "SOURCE:PORT -> DESTINATION:PORT class=short tunnel=short"; / changes it.
    #[arg(
        short,
        long,
        value_name = "WORDS",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) filter: String,
    /// Keep so many flows at most, the first in the order chosen: 1 to 10000. 1000 if left out, and
    /// 50 with --once.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) limit: Option<u16>,
    /// Print one sample as text and end; --json prints it as JSON. Takes two looks, an interval
    /// apart.
    #[arg(long)]
    pub(crate) once: bool,
}

/// Reads an interval; shorter ones would load the machine, longer ones show nothing live.
fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "this is not a number of seconds".to_owned())?;
    if !(0.1..=3_600.0).contains(&seconds) {
        return Err("give 0.1 to 3600 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_bounded() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "nan", "inf", "1e9", "soon", ""] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
