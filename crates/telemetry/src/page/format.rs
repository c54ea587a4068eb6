//! How values are written, here and by the page's script, which must agree.

use serde_json::Value;

/// How a value is written. What is not known (`null`) is a dash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text as it is.
    Text,
    /// Text as it is, coloured where it is a state that the page knows as good or bad.
    State,
    /// A whole number: 1,234,567.
    Count,
    /// Something per second: 3.5 or 1,234.
    Rate,
    /// Bits per second: 12.3 Mbit/s.
    BitsPerSecond,
    /// Bytes with three digits: 12.3 MB.
    Bytes,
    /// Seconds: 3.24 ms, 4.21 s, 3 min 20 s.
    Seconds,
    /// A share of one: 42 %.
    Share,
}

impl Format {
    /// Writes the value for people.
    pub fn write(self, value: &Value) -> String {
        match (self, value) {
            (_, Value::Null) => NOT_KNOWN.to_owned(),
            (_, Value::Bool(yes)) => if *yes { "yes" } else { "no" }.to_owned(),
            (_, Value::String(text)) => text.clone(),
            (_, value) => match value.as_f64() {
                Some(number) => self.number(number),
                None => value.to_string(),
            },
        }
    }

    /// Writes the number for people; one below zero, or none at all, is not known.
    pub fn number(self, number: f64) -> String {
        if !number.is_finite() || number < 0.0 {
            return NOT_KNOWN.to_owned();
        }
        match self {
            Self::Text | Self::State => number.to_string(),
            Self::Count => grouped(number),
            Self::Rate if number == 0.0 || number >= 9.95 => grouped(number),
            Self::Rate => format!("{number:.1}"),
            Self::BitsPerSecond => scaled(number, "bit/s"),
            Self::Bytes => scaled(number, "B"),
            Self::Seconds => seconds(number),
            Self::Share if number == 0.0 || number >= 0.0995 => format!("{:.0} %", number * 100.0),
            Self::Share => format!("{:.1} %", number * 100.0),
        }
    }

    /// Returns whether it is aligned to the right, so that digits stand below each other.
    pub fn is_number(self) -> bool {
        !matches!(self, Self::Text | Self::State)
    }

    /// The name that the script knows it by.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::State => "state",
            Self::Count => "count",
            Self::Rate => "rate",
            Self::BitsPerSecond => "bits",
            Self::Bytes => "bytes",
            Self::Seconds => "seconds",
            Self::Share => "share",
        }
    }
}

fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn scaled(mut number: f64, unit: &str) -> String {
    let mut prefixes = ["", "k", "M", "G", "T"].into_iter();
    let mut prefix = prefixes.next().unwrap_or_default();
    while number >= 999.5
        && let Some(larger) = prefixes.next()
    {
        number /= 1000.0;
        prefix = larger;
    }
    match prefix {
        "" => format!("{number:.0} {unit}"),
        _ => format!("{} {prefix}{unit}", three_digits(number)),
    }
}

fn seconds(number: f64) -> String {
    if number == 0.0 {
        return "0 s".to_owned();
    }
    if number < 999.5e-6 {
        return format!("{} µs", three_digits(number * 1e6));
    }
    if number < 0.9995 {
        return format!("{} ms", three_digits(number * 1e3));
    }
    if number < 59.95 {
        return format!("{} s", three_digits(number));
    }
    let whole = number.round() as u64;
    match whole {
        0..3_600 => format!("{} min {} s", whole / 60, whole % 60),
        3_600..86_400 => format!("{} h {} min", whole / 3_600, whole % 3_600 / 60),
        _ => format!("{} d {} h", whole / 86_400, whole % 86_400 / 3_600),
    }
}

fn three_digits(number: f64) -> String {
    let decimals = match number {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{number:.decimals$}")
}

const NOT_KNOWN: &str = "–";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_written_with_three_digits_and_their_unit() {
        let cases = [
            (Format::Count, json!(1_234_567), "1,234,567"),
            (Format::Count, json!(999), "999"),
            (Format::Rate, json!(0.0), "0"),
            (Format::Rate, json!(3.54), "3.5"),
            (Format::Rate, json!(9.96), "10"),
            (Format::Rate, json!(1234.4), "1,234"),
            (Format::BitsPerSecond, json!(0), "0 bit/s"),
            (Format::BitsPerSecond, json!(999.6), "1.00 kbit/s"),
            (Format::BitsPerSecond, json!(12_345_678), "12.3 Mbit/s"),
            (Format::Bytes, json!(5e15), "5000 TB"),
            (Format::Seconds, json!(0), "0 s"),
            (Format::Seconds, json!(0.000_012_3), "12.3 µs"),
            (Format::Seconds, json!(0.003_244), "3.24 ms"),
            (Format::Seconds, json!(59.9), "59.9 s"),
            (Format::Seconds, json!(200), "3 min 20 s"),
            (Format::Seconds, json!(18_130), "5 h 2 min"),
            (Format::Seconds, json!(93_600), "1 d 2 h"),
            (Format::Share, json!(0.421), "42 %"),
            (Format::Share, json!(0.0123), "1.2 %"),
            (Format::Text, json!("wan0"), "wan0"),
            (Format::Text, json!(true), "yes"),
            (Format::Count, json!(null), "–"),
            (Format::Rate, json!(-1.0), "–"),
        ];
        for (format, value, expected) in cases {
            assert_eq!(format.write(&value), expected, "{format:?} {value}");
        }
        assert_eq!(Format::Seconds.number(f64::NAN), "–");
    }
}
