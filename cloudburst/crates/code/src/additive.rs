//! The additive Fourier transform (Lin, Chung, Han 2014) that the Cauchy sums go through.
//!
//! The points of a block's source symbols are 0, 1, ..., filled up with symbols that are zero to
//! a power of two: a subspace V of GF(256) over {0, 1}. With g the polynomial of lowest degree
//! through the source symbols s, and p their exclusive or, partial fractions give
//!
//! ```text
//! sum s(j) (x(0) + y(j)) / (x + y(j)) = (x(0) + x) K(x + V) g(x) + p
//! ```
//!
//! where K, the linear coefficient of V's vanishing polynomial over its value, is the same for
//! all points of a coset of V. So the repair symbols are values of g but for one factor each: the
//! inverse transform finds g's coefficients from the source symbols, the forward transform
//! its values at a coset. Both take log2 n / 2 products a symbol instead of n. The last of the
//! coefficients is p.

use super::gf256::multiply;

/// A transform has at most 2 to this power of points.
pub(super) const MAX_LOG: usize = 6;

/// The subspace polynomial of {0, ..., 2^i - 1}, scaled to be 1 at 2^i, for each element: the
/// factors of layer i's butterflies.
pub(super) static SCALED: [[u8; 256]; MAX_LOG] = {
    let mut scaled = [[0; 256]; MAX_LOG];
    let mut layer = 0;
    while layer < MAX_LOG {
        let inverse = inverse(SUBSPACE[layer][1 << layer]);
        let mut x = 0;
        while x < 256 {
            scaled[layer][x] = multiply(SUBSPACE[layer][x], inverse);
            x += 1;
        }
        layer += 1;
    }
    scaled
};

/// The subspace polynomial of {0, ..., 2^i - 1}, for each element.
const SUBSPACE: [[u8; 256]; MAX_LOG + 1] = {
    let mut values = [[0; 256]; MAX_LOG + 1];
    let mut x = 0;
    while x < 256 {
        values[0][x] = x as u8;
        x += 1;
    }
    let mut layer = 0;
    while layer < MAX_LOG {
        let of_next = values[layer][1 << layer];
        let mut x = 0;
        while x < 256 {
            let value = values[layer][x];
            values[layer + 1][x] = multiply(value, value ^ of_next);
            x += 1;
        }
        layer += 1;
    }
    values
};

/// K of the module's formula by the logarithm of V's size, for a point of each coset; 0 for
/// those of V itself, where it is not defined.
static COSET_FACTORS: [[u8; 256]; MAX_LOG + 1] = {
    let mut factors = [[0; 256]; MAX_LOG + 1];
    let mut linear = 1;
    let mut log = 0;
    while log <= MAX_LOG {
        let mut x = 1 << log;
        while x < 256 {
            factors[log][x] = multiply(linear, inverse(SUBSPACE[log][x]));
            x += 1;
        }
        linear = multiply(linear, SUBSPACE[log][1 << log]);
        log += 1;
    }
    factors
};

/// The factor of g(x), where `distance` is that of x to x(0); x is no point of V.
pub(super) fn factor(log: usize, x: u8, distance: u8) -> u8 {
    debug_assert!(x >> log != 0);
    multiply(COSET_FACTORS[log][usize::from(x)], distance)
}

const fn inverse(a: u8) -> u8 {
    // a^254: all elements but zero to the power of 255 are 1.
    let (mut power, mut product, mut bit) = (a, 1, 1u8);
    while bit < 8 {
        power = multiply(power, power);
        product = multiply(product, power);
        bit = bit.wrapping_add(1);
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subspace_polynomials_vanish_where_they_should() {
        for (layer, values) in SCALED.iter().enumerate() {
            for (x, &value) in values.iter().enumerate() {
                assert_eq!(value == 0, x < 1 << layer, "layer {layer}, {x}");
            }
            assert_eq!(values[1 << layer], 1);
        }
    }

    #[test]
    fn factors_are_one_for_a_coset() {
        for (log, factors) in COSET_FACTORS.iter().enumerate() {
            for (x, &factor) in factors.iter().enumerate().skip(1 << log) {
                assert_eq!(factor, factors[x >> log << log], "{log}, {x}");
                assert_ne!(factor, 0);
            }
        }
    }
}
