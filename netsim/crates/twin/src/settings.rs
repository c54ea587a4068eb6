//! Settings of a twin: its uplinks, and what holds for all schemes.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// An uplink between the two borders, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Uplink {
    /// What it carries.
    pub bits_per_second: u64,
    /// Round-trip time between hosts over it, without queues.
    pub round_trip_ns: u64,
}

/// An uplink that cannot be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no uplink; give rate and round-trip time, such as 100mbit/10ms: from 1mbit to 10gbit, and 0.1ms to 2s"
)]
pub struct UplinkError {
    text: String,
}

impl FromStr for Uplink {
    type Err = UplinkError;

    fn from_str(text: &str) -> Result<Self, UplinkError> {
        let parse = || {
            let (rate, time) = text.split_once('/')?;
            let bits = with_unit(rate, &[("gbit", 1e9), ("mbit", 1e6)])?;
            let ns = with_unit(time, &[("ms", 1e6), ("s", 1e9)])?;
            let is_possible = (1e6..=1e10).contains(&bits) && (1e5..=2e9).contains(&ns);
            is_possible.then_some(Self {
                bits_per_second: bits as u64,
                round_trip_ns: ns as u64,
            })
        };
        parse().ok_or_else(|| UplinkError {
            text: text.to_owned(),
        })
    }
}

fn with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    units.iter().find_map(|(unit, factor)| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(number * factor)
    })
}

/// As it is read.
impl fmt::Display for Uplink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mbit, ms) = (
            self.bits_per_second as f64 / 1e6,
            self.round_trip_ns as f64 / 1e6,
        );
        write!(f, "{mbit}mbit/{ms}ms")
    }
}

/// Settings that hold for all schemes of a twin.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TwinSettings {
    /// The uplinks, 1 to 8; of two, the first is the splitter's short tunnel.
    pub uplinks: Vec<Uplink>,
    /// The threshold by which flows count as short or long in what is reported, and by which schemes go
    /// that state none, in the recording's unit; nothing is the recording's own.
    pub threshold: Option<u64>,
    /// How much traffic each queue in front of an uplink holds, in milliseconds of its rate; where classes
    /// have a queue each, both hold so much.
    pub buffer_ms: u64,
    /// Rate at which the hosts of a side send to their border, all together and without loss; nothing is
    /// without a bound, as the links of many hosts together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_bits_per_second: Option<u64>,
    /// Seconds at the beginning of the recording that are left out.
    pub skip_s: u64,
    /// How much is simulated after that, in seconds; nothing is all of it.
    pub for_s: Option<u64>,
    /// Seed of the hash that spreads flows.
    pub seed: u64,
}

impl TwinSettings {
    /// No twin has more uplinks.
    pub const MOST_UPLINKS: usize = 8;

    /// Over these uplinks, with a buffer of 50 ms, all of the recording.
    pub fn new(uplinks: Vec<Uplink>) -> Self {
        Self {
            uplinks,
            threshold: None,
            buffer_ms: 50,
            access_bits_per_second: None,
            skip_s: 0,
            for_s: None,
            seed: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uplinks_are_read_as_they_are_written() {
        for text in ["100mbit/10ms", "1.5mbit/0.2ms", "10000mbit/2000ms"] {
            assert_eq!(text.parse::<Uplink>().unwrap().to_string(), text);
        }
        let same = ["1gbit/1s", "1000mbit/1000ms"].map(|it| it.parse::<Uplink>().unwrap());
        assert_eq!(same[0], same[1]);
        for wrong in [
            "",
            "100mbit",
            "100/10ms",
            "0mbit/10ms",
            "100mbit/0ms",
            "nanmbit/1ms",
            "100mbit/3s",
            "11gbit/1ms",
            "-1mbit/1ms",
        ] {
            assert!(wrong.parse::<Uplink>().is_err(), "{wrong}");
        }
    }
}
