//! From values to positions, and where the ticks go.

/// How an axis maps values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Linear,
    Log,
}

/// A range of values mapped to 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    kind: Kind,
    low: f64,
    high: f64,
}

/// A mark on an axis; small ones carry no number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    pub(crate) value: f64,
    pub(crate) label: Option<String>,
}

impl Scale {
    /// A scale that shows all of `values`; `fixed` overrides what follows from them. On a
    /// logarithmic scale values that are not positive do not count.
    pub(crate) fn fit(
        kind: Kind,
        values: impl Iterator<Item = f64>,
        fixed: Option<(f64, f64)>,
    ) -> Self {
        let shown = values.filter(|it| it.is_finite() && (kind == Kind::Linear || *it > 0.0));
        let (low, high) = fixed.unwrap_or_else(|| {
            let (low, high) = shown
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                    (low.min(value), high.max(value))
                });
            if low > high { (1.0, 10.0) } else { (low, high) }
        });
        match kind {
            Kind::Linear if fixed.is_some() => Self { kind, low, high },
            Kind::Linear => {
                // Quantities start at zero, for a cut axis exaggerates.
                let low = low.min(0.0);
                // Where all is zero, ticks would be the smallest numbers there are.
                let high = if high > low { high } else { low + 1.0 };
                let step = nice_step(high - low);
                let high = ((high / step).ceil() * step).max(low + step);
                Self { kind, low, high }
            }
            // A little room on both sides; a single value still gets a range.
            Kind::Log => Self {
                kind,
                low: low / 1.1,
                high: high * 1.1,
            },
        }
    }

    /// Maps a value to its position: 0 at the lower end, 1 at the upper. Nothing for a value that
    /// cannot be shown.
    pub(crate) fn position(&self, value: f64) -> Option<f64> {
        let position = match self.kind {
            Kind::Linear => (value - self.low) / (self.high - self.low),
            Kind::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        position.is_finite().then(|| position.clamp(0.0, 1.0))
    }

    pub(crate) fn ticks(&self) -> Vec<Tick> {
        match self.kind {
            Kind::Linear => self.linear_ticks(),
            Kind::Log => self.log_ticks(),
        }
    }

    fn linear_ticks(&self) -> Vec<Tick> {
        let step = nice_step(self.high - self.low);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last)
            .map(|number| number as f64 * step)
            .map(|value| Tick {
                value,
                label: Some(label(value, step)),
            })
            .collect()
    }

    /// 1 to 9 in every decade. All of 1, 2 and 5 are labelled while that is few enough.
    fn log_ticks(&self) -> Vec<Tick> {
        let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let labelled: &[u32] = if (self.high / self.low).log10() <= 3.0 {
            &[1, 2, 5]
        } else {
            &[1]
        };
        decades
            .flat_map(|decade| (1..=9).map(move |digit| (digit, 10f64.powi(decade))))
            .map(|(digit, power)| (digit, f64::from(digit) * power, power))
            .filter(|(_, value, _)| (self.low..=self.high).contains(value))
            .map(|(digit, value, power)| {
                let label = labelled.contains(&digit).then(|| label(value, power));
                Tick { value, label }
            })
            .collect()
    }
}

/// 1, 2 or 5 times a power of ten, so that about five steps cover the range.
fn nice_step(range: f64) -> f64 {
    let rough = (range / 5.0).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|factor| factor * power >= rough * 0.999);
    factor.unwrap_or(10.0) * power
}

/// Writes a value with as many decimals as a step of that size needs, and thousands as `10k`.
fn label(value: f64, step: f64) -> String {
    if value.abs() >= 10_000.0 {
        return format!("{}k", value / 1_000.0);
    }
    let decimals = (-(step.log10() + 1e-9).floor()).max(0.0) as usize;
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale) -> Vec<String> {
        scale
            .ticks()
            .into_iter()
            .filter_map(|tick| tick.label)
            .collect()
    }

    #[test]
    fn linear_starts_at_zero_and_ends_on_a_tick() {
        let scale = Scale::fit(Kind::Linear, [3.0, 47.0].into_iter(), None);
        assert_eq!(labels(scale), ["0", "10", "20", "30", "40", "50"]);
        assert_eq!(scale.position(25.0), Some(0.5));
        let shares = Scale::fit(Kind::Linear, std::iter::empty(), Some((0.0, 1.0)));
        assert_eq!(labels(shares), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
    }

    #[test]
    fn log_labels_one_two_five() {
        let scale = Scale::fit(Kind::Log, [0.0, 0.8, 120.0].into_iter(), None);
        assert_eq!(
            labels(scale),
            ["0.8", "1", "2", "5", "10", "20", "50", "100"][1..]
        );
        assert_eq!(scale.position(0.0), None);
        assert!(scale.position(0.8).is_some_and(|it| it > 0.0));
    }

    #[test]
    fn degenerate_ranges_have_ticks() {
        for kind in [Kind::Linear, Kind::Log] {
            assert!(
                !Scale::fit(kind, std::iter::empty(), None)
                    .ticks()
                    .is_empty()
            );
            assert!(
                Scale::fit(kind, [5.0].into_iter(), None)
                    .position(5.0)
                    .is_some()
            );
        }
        let nothing_but_zero = Scale::fit(Kind::Linear, [0.0, 0.0].into_iter(), None);
        assert_eq!(nothing_but_zero.position(0.0), Some(0.0));
        assert_eq!(
            labels(nothing_but_zero),
            ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]
        );
    }
}
