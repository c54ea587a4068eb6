//! Student's t distribution, of a whole number of degrees of freedom.

use std::f64::consts::FRAC_2_PI;

/// Returns the probability that a value of the distribution lies between `-t` and `t` (Abramowitz and Stegun 26.7.3 and
/// 26.7.4).
pub(crate) fn probability_within(t: f64, degrees: usize) -> f64 {
    let angle = (t / (degrees as f64).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let is_odd = degrees % 2 == 1;
    // Both are sums of powers of the cosine, each with a factor of the one before.
    let (mut sum, mut term) = (0.0, if is_odd { cosine } else { 1.0 });
    let mut power = if is_odd { 1 } else { 0 };
    while power + 2 <= degrees {
        sum += term;
        let below = (power + 1) as f64;
        term *= below / (below + 1.0) * cosine * cosine;
        power += 2;
    }
    let probability = if is_odd {
        FRAC_2_PI * (angle + sine * sum)
    } else {
        sine * sum
    };
    probability.clamp(0.0, 1.0)
}

/// Returns the `t` between which and `-t` a value lies with that probability, by bisection.
pub(crate) fn two_sided_quantile(probability: f64, degrees: usize) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while probability_within(high, degrees) < probability && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if probability_within(middle, degrees) < probability {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_printed_tables() {
        for (probability, degrees, t) in [
            (0.95, 1, 12.706),
            (0.95, 2, 4.303),
            (0.95, 3, 3.182),
            (0.95, 9, 2.262),
            (0.95, 30, 2.042),
            (0.95, 120, 1.980),
            (0.99, 4, 4.604),
            (0.99, 19, 2.861),
            (0.999, 3, 12.924),
        ] {
            let found = two_sided_quantile(probability, degrees);
            assert!(
                (found - t).abs() < 5.1e-4,
                "{probability} {degrees}: {found}"
            );
        }
    }

    #[test]
    fn nothing_lies_within_nothing() {
        for degrees in 1..9 {
            assert_eq!(probability_within(0.0, degrees), 0.0);
            assert!(probability_within(f64::INFINITY, degrees) > 1.0 - 1e-12);
        }
    }
}
