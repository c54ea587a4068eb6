//! Values on the command line, with their units.

use std::{fmt, net::SocketAddr, num::NonZeroU8, str::FromStr, time::Duration};

/// What is wrong with a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ValueError(String);

/// Bits per second: `200mbit`, `2.5gbit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BitRate(pub(crate) u64);

/// Slower than any link that is worth coding for, and faster than any there is: a unit
/// that was left out or is wrong.
const RATES: std::ops::RangeInclusive<u64> = 8_000..=1_000_000_000_000;

impl FromStr for BitRate {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || {
            ValueError(format!(
                "`{text}` is no rate; write it like 200mbit, 2.5gbit or 64kbit"
            ))
        };
        let (number, unit) = split(text);
        let scale = match unit {
            "bit" => 1.0,
            "kbit" => 1e3,
            "mbit" => 1e6,
            "gbit" => 1e9,
            _ => return Err(wrong()),
        };
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let bits = (number * scale).round() as u64;
        if !RATES.contains(&bits) {
            return Err(ValueError(format!(
                "{text} is {bits} bits per second; it must be 8kbit to 1000gbit"
            )));
        }
        Ok(Self(bits))
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0 as f64;
        match self.0 {
            1_000_000_000.. => write!(formatter, "{}gbit", bits / 1e9),
            1_000_000.. => write!(formatter, "{}mbit", bits / 1e6),
            _ => write!(formatter, "{}kbit", bits / 1e3),
        }
    }
}

/// The longest message that an endpoint takes unless another limit is stated.
pub(crate) const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// A message's length in bytes, 1 to 4 MiB: `64`, `16k`, `4M` (powers of 1,024).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bytes(pub(crate) usize);

impl FromStr for Bytes {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || {
            ValueError(format!(
                "`{text}` is no number of bytes above 0; write it like 64, 16k or 4M"
            ))
        };
        let (number, unit) = split(text);
        let shift = match unit {
            "" => 0,
            "k" | "K" => 10,
            "m" | "M" => 20,
            _ => return Err(wrong()),
        };
        let number: usize = number.parse().map_err(|_| wrong())?;
        match number.checked_mul(1 << shift) {
            Some(1..=MAX_MESSAGE_BYTES) => Ok(Self(number << shift)),
            Some(0) => Err(wrong()),
            _ => Err(ValueError(format!(
                "{text} bytes are too many; a message has at most 4M"
            ))),
        }
    }
}

/// A time above 0 in seconds, with decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seconds(pub(crate) Duration);

impl FromStr for Seconds {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let seconds = text
            .parse()
            .ok()
            .filter(|it| (1e-6..=31_536_000.0).contains(it));
        let seconds: f64 = seconds.ok_or_else(|| {
            ValueError(format!(
                "`{text}` is no time; write seconds, like 1 or 0.2, at least 0.000001 and at most a year"
            ))
        })?;
        Ok(Self(Duration::from_secs_f64(seconds)))
    }
}

/// A code point of differentiated services: a number or its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dscp(pub(crate) u8);

impl FromStr for Dscp {
    type Err = ValueError;

    /// Names as in RFC 4594: `ef`, `cs0` to `cs7`, `af11` to `af43`.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let name = text.to_ascii_lowercase();
        let digits = |prefix| {
            let digits = name.strip_prefix(prefix)?.bytes();
            digits
                .map(|it| it.is_ascii_digit().then(|| it - b'0'))
                .collect::<Option<Vec<u8>>>()
        };
        let point = match (
            name.as_str(),
            digits("cs").as_deref(),
            digits("af").as_deref(),
        ) {
            ("ef", ..) => Some(46),
            (_, Some(&[class @ 0..=7]), _) => Some(8 * class),
            (_, _, Some(&[class @ 1..=4, drop @ 1..=3])) => Some(8 * class + 2 * drop),
            _ => name.parse().ok().filter(|point| *point < 64),
        };
        point.map(Self).ok_or_else(|| {
            ValueError(format!(
                "`{text}` is no DSCP; write 0 to 63, ef, cs0 to cs7 or af11 to af43"
            ))
        })
    }
}

/// A share above 0 and at most 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Share(pub(crate) f64);

impl FromStr for Share {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let share = text
            .parse()
            .ok()
            .filter(|share| *share > 0.0 && *share <= 1.0);
        share.map(Self).ok_or_else(|| {
            ValueError(format!(
                "`{text}` is no share; write a number above 0 and at most 1"
            ))
        })
    }
}

/// Reads an address to serve at, with its port.
pub(crate) fn listening_address(text: &str) -> Result<SocketAddr, ValueError> {
    text.parse().map_err(|_| {
        ValueError(format!(
            "`{text}` is no address and port; write them like 127.0.0.1:9462, or [::]:9462 for all addresses"
        ))
    })
}

/// Reads the number of a shared key.
pub(crate) fn key_number(text: &str) -> Result<NonZeroU8, ValueError> {
    text.parse()
        .map_err(|_| ValueError(format!("`{text}` is no number of a key; write 1 to 255")))
}

/// Number and unit.
fn split(text: &str) -> (&str, &str) {
    let end = text.find(|it: char| it.is_ascii_alphabetic());
    text.split_at(end.unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_units() {
        assert_eq!("200mbit".parse(), Ok(BitRate(200_000_000)));
        assert_eq!("2.5gbit".parse::<BitRate>().unwrap().to_string(), "2.5gbit");
        assert_eq!("16k".parse(), Ok(Bytes(16_384)));
        assert_eq!("4M".parse(), Ok(Bytes(MAX_MESSAGE_BYTES)));
        assert_eq!("0.25".parse(), Ok(Seconds(Duration::from_millis(250))));
        let points = ["ef", "EF", "cs6", "af41", "0", "63"].map(|it| it.parse::<Dscp>().unwrap().0);
        assert_eq!(points, [46, 46, 48, 34, 0, 63]);
        assert_eq!("0.5".parse(), Ok(Share(0.5)));
        assert_eq!(key_number("255").unwrap().get(), 255);
        assert_eq!(listening_address("[::1]:9").unwrap().port(), 9);
    }

    #[test]
    fn what_is_not_sane_is_refused_with_its_value() {
        for text in [
            "", "200", "mbit", "-1mbit", "1bit", "7kbit", "2000gbit", "nanmbit", "1e9mbit",
        ] {
            let error = text.parse::<BitRate>().unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
        for text in [
            "",
            "0",
            "0k",
            "-1",
            "1.5k",
            "9g",
            "5M",
            "4097k",
            "17592186044416M",
            "99999999999999999999",
        ] {
            let error = text.parse::<Bytes>().unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
        for text in ["", "0", "-1", "nan", "inf", "1e300"] {
            assert!(text.parse::<Seconds>().is_err(), "{text}");
        }
        for text in ["", "64", "cs8", "af44", "af5", "cs", "xx"] {
            assert!(text.parse::<Dscp>().is_err(), "{text}");
        }
        for text in ["", "0", "1.1", "nan"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
        for text in ["", "0", "256", "-1", "x"] {
            let error = key_number(text).unwrap_err().to_string();
            assert!(error.contains("1 to 255"), "{error}");
        }
        for text in ["", "9462", "127.0.0.1", "localhost:9462", "127.0.0.1:70000"] {
            let error = listening_address(text).unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
    }
}
