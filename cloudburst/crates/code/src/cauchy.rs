//! A systematic code over GF(256) in which any `n` symbols of a block suffice.
//!
//! Repair row *i* of a block of *n* weighs source symbol *j* with
//!
//! ```text
//! c(i, j) = (x(0) + y(j)) / (x(i) + y(j)),   x(i) = 255 - i,   y(j) = j
//! ```
//!
//! a Cauchy matrix with its columns scaled so that row 0 is all ones: the first
//! repair symbol is the plain exclusive or. Every square part of such a matrix
//! can be inverted, as long as all x and y differ: `n` and the repair rows
//! together are at most 256.
//!
//! With the scaling, the code is a generalised Reed-Solomon code, and so a lost
//! symbol is a sum of *any* n others with weights in closed form (Lagrange's
//! interpolation). With the lost symbols M and the repair symbols R that stand
//! in for them, the weight of p for the lost symbol at m is
//!
//! ```text
//! A(m) B(p) / (m + p)
//! A(m) = prod R (m + r) / ((x(0) + m) prod M\m (m + m'))
//! B(p) = prod M (p + m) / prod R\p (p + r),  times (x(0) + p) if p is a source
//! ```
//!
//! which costs 2 (n + |M|) |M| products and no elimination.

use super::gf256::Product;

/// Symbols of a block, source and repair, that can be distinguished.
pub(super) const MAX_ROWS: u16 = 256;

/// The weight of source symbol `source` in repair row `repair`.
#[inline(always)]
pub(super) fn weight(repair: u8, source: u8) -> u8 {
    if repair == 0 {
        return 1;
    }
    let numerator = Product::default().times(x(0) ^ source).reduced();
    Product::quotient(numerator, 0, x(repair) ^ source)
}

/// The point of a repair row: 255 less its number.
#[inline(always)]
pub(super) const fn x(repair: u8) -> u8 {
    !repair
}

/// The weights of what the repair rows lack, for each lost source symbol.
///
/// Where the source symbols at hand have been taken out of the repair symbols, the lost ones
/// follow from these alone, with the weights that [`interpolate`] has for them. `weights` has a
/// row for each lost symbol.
pub(super) fn invert(lost: &[u8], repairs: &[u8], weights: &mut [u8]) {
    debug_assert_eq!(lost.len(), repairs.len());
    debug_assert_eq!(weights.len(), lost.len().saturating_mul(lost.len()));
    let mut b = [0; 64];
    for (&repair, b) in repairs.iter().zip(&mut b) {
        *b = of_point(x(repair), lost, repairs).reduced();
    }
    for (&lost_one, weights) in lost.iter().zip(weights.chunks_exact_mut(lost.len())) {
        let a = of_lost(lost_one, lost, repairs);
        for ((weight, &repair), &b) in weights.iter_mut().zip(repairs).zip(&b) {
            *weight = Product::quotient(a, b, lost_one ^ x(repair));
        }
    }
}

/// The weights of the symbols at hand for each lost source symbol.
///
/// `lost` has the lost source symbols, and `repairs` as many repair rows that
/// stand in for them, one each: repair `k` takes the place of `lost[k]` in a
/// row of `weights`, which has `n` for each lost symbol.
pub(super) fn interpolate(n: usize, lost: &[u8], repairs: &[u8], weights: &mut [u8]) {
    debug_assert_eq!(lost.len(), repairs.len());
    debug_assert_eq!(weights.len(), n.saturating_mul(lost.len()));
    // The points at hand, by the place that they take, and B of each.
    let mut points = [0; 64];
    let mut b = [0; 64];
    for (source, point) in points[..n].iter_mut().enumerate() {
        *point = source as u8;
    }
    for (&lost, &repair) in lost.iter().zip(repairs) {
        points[usize::from(lost)] = x(repair);
    }
    for (&point, b) in points[..n].iter().zip(&mut b) {
        // A repair's point lies above every source's.
        let is_source = usize::from(point) < n;
        let scale = if is_source { x(0) ^ point } else { 1 };
        *b = of_point(point, lost, repairs).times(scale).reduced();
    }
    for (&lost_one, weights) in lost.iter().zip(weights.chunks_exact_mut(n)) {
        let a = of_lost(lost_one, lost, repairs);
        for ((weight, &point), &b) in weights.iter_mut().zip(&points).zip(&b) {
            *weight = Product::quotient(a, b, lost_one ^ point);
        }
    }
}

/// A of the module's formula, reduced.
#[inline(always)]
fn of_lost(lost_one: u8, lost: &[u8], repairs: &[u8]) -> u8 {
    let product = repairs.iter().fold(Product::default(), |product, &repair| {
        product.times(lost_one ^ x(repair))
    });
    let product = product.over(x(0) ^ lost_one);
    over_others(product, lost_one, lost.iter().copied()).reduced()
}

/// B of the module's formula for a repair symbol's point; for a source symbol's it lacks a factor.
#[inline(always)]
fn of_point(point: u8, lost: &[u8], repairs: &[u8]) -> Product {
    let product = lost.iter().fold(Product::default(), |product, &lost| {
        product.times(point ^ lost)
    });
    over_others(product, point, repairs.iter().map(|&repair| x(repair)))
}

/// Divided by the distance of `point` to all of `others` but itself.
#[inline(always)]
fn over_others(product: Product, point: u8, others: impl Iterator<Item = u8>) -> Product {
    others
        .filter(|&other| other != point)
        .fold(product, |product, other| product.over(point ^ other))
}

#[cfg(test)]
mod tests {
    use super::super::gf256::multiply;
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::subsequence;

    #[test]
    fn first_repair_is_the_plain_sum() {
        assert!((0..64).all(|source| weight(0, source) == 1));
    }

    #[test]
    fn weights_are_those_of_the_formula() {
        for repair in 0..192 {
            for source in 0..64 {
                let product = multiply(weight(repair, source), x(repair) ^ source);
                assert_eq!(product, x(0) ^ source);
            }
        }
    }

    fn losses() -> impl Strategy<Value = (usize, Vec<u8>, Vec<u8>)> {
        (1usize..=64).prop_flat_map(|n| {
            (1..=n).prop_flat_map(move |count| {
                let lost = subsequence((0..n as u8).collect::<Vec<_>>(), count);
                let repairs = subsequence((0..(256 - n) as u8).collect::<Vec<_>>(), count);
                (Just(n), lost, repairs)
            })
        })
    }

    proptest! {
        #[test]
        fn interpolation_finds_what_was_lost(
            (n, lost, repairs) in losses(),
            message: [[u8; 32]; 2],
        ) {
            let message = message.concat();
            let mut at_hand = message[..n].to_vec();
            for (&lost, &repair) in lost.iter().zip(&repairs) {
                at_hand[usize::from(lost)] = (0..n).fold(0, |sum, source| {
                    sum ^ multiply(weight(repair, source as u8), message[source])
                });
            }
            let mut weights = vec![0; n * lost.len()];
            interpolate(n, &lost, &repairs, &mut weights);
            for (&lost, weights) in lost.iter().zip(weights.chunks(n)) {
                let found = weights.iter().zip(&at_hand)
                    .fold(0, |sum, (&weight, &symbol)| sum ^ multiply(weight, symbol));
                prop_assert_eq!(found, message[usize::from(lost)]);
            }
            let mut of_syndromes = vec![0; lost.len() * lost.len()];
            invert(&lost, &repairs, &mut of_syndromes);
            for (inverse, weights) in of_syndromes.chunks(lost.len()).zip(weights.chunks(n)) {
                for (&weight, &place) in inverse.iter().zip(&lost) {
                    prop_assert_eq!(weight, weights[usize::from(place)]);
                }
            }
        }
    }
}
