//! What was measured, in words and as JSON.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Times with three digits, from a microsecond to two minutes.
#[derive(Debug)]
pub(crate) struct Times(Histogram<u64>);

/// Percentiles that are reported, and their names.
pub(crate) const PERCENTILES: [(f64, &str); 5] = [
    (50.0, "p50"),
    (90.0, "p90"),
    (99.0, "p99"),
    (99.9, "p99.9"),
    (100.0, "max"),
];

impl Times {
    pub(crate) fn new() -> Self {
        let longest_us = 120_000_000;
        Self(Histogram::new_with_bounds(1, longest_us, 3).expect("the bounds are right"))
    }

    pub(crate) fn record(&mut self, time: Duration) {
        self.0.saturating_record(time.as_micros().max(1) as u64);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// `percent` of the times are not longer.
    pub(crate) fn percentile(&self, percent: f64) -> Duration {
        Duration::from_micros(self.0.value_at_percentile(percent))
    }

    pub(crate) fn mean(&self) -> Duration {
        Duration::from_nanos((self.0.mean() * 1_000.0) as u64)
    }

    /// In milliseconds; none without a time.
    pub(crate) fn to_json(&self) -> Value {
        if self.count() == 0 {
            return Value::Null;
        }
        let mut object = json!({
            "min": millis(Duration::from_micros(self.0.min())),
            "mean": millis(self.mean()),
        });
        for (percent, name) in PERCENTILES {
            object[name] = millis(self.percentile(percent)).into();
        }
        object
    }

    /// `mean 1.20 ms, p50 1.10 ms, ...`
    pub(crate) fn to_text(&self) -> String {
        if self.count() == 0 {
            return "no times".to_owned();
        }
        let mut text = format!("mean {}", words(self.mean()));
        for (percent, name) in PERCENTILES {
            text += &format!(", {name} {}", words(self.percentile(percent)));
        }
        text
    }
}

/// Milliseconds with the microseconds behind the point.
pub(crate) fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1_000.0
}

/// `0.123 ms`, `12.3 ms`, `1,234 ms`.
pub(crate) fn words(time: Duration) -> String {
    let ms = millis(time);
    match ms {
        ..1.0 => format!("{ms:.3} ms"),
        ..10.0 => format!("{ms:.2} ms"),
        ..100.0 => format!("{ms:.1} ms"),
        _ => format!("{ms:.0} ms"),
    }
}

/// `part` of `whole`, 0 of nothing.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_all_times() {
        let mut times = Times::new();
        assert_eq!(times.to_json(), Value::Null);
        for ms in 1..=100 {
            times.record(Duration::from_millis(ms));
        }
        let reported = times.to_json();
        assert!(
            (49.9..50.1).contains(&reported["p50"].as_f64().unwrap()),
            "{reported}"
        );
        assert!(
            (98.9..99.1).contains(&reported["p99"].as_f64().unwrap()),
            "{reported}"
        );
        assert!(
            times.to_text().starts_with("mean 50."),
            "{}",
            times.to_text()
        );
    }
}
