//! The field GF(256) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d).
//!
//! The kernels need its products in four layouts, two of which no crate has,
//! so all are computed here, by the compiler.

#![cfg_attr(
    not(test),
    expect(
        clippy::arithmetic_side_effects,
        reason = "a logarithm is below 255, and a product has fewer than 200 factors: no sum is near 2^32"
    )
)]

const POLYNOMIAL: u16 = 0x11d;

/// Powers of x, twice over so that sums of two logarithms need no reduction.
const EXP: [u8; 512] = {
    let mut powers = [0; 512];
    let mut value = 1u16;
    let mut exponent = 0;
    while exponent < 512 {
        powers[exponent] = value as u8;
        value <<= 1;
        if value & 0x100 != 0 {
            value ^= POLYNOMIAL;
        }
        exponent += 1;
    }
    powers
};

/// Logarithms to the base x; that of 0 is never asked for.
static LOG: [u8; 256] = {
    let mut logarithms = [0; 256];
    let mut exponent = 0;
    while exponent < 255 {
        logarithms[EXP[exponent] as usize] = exponent as u8;
        exponent += 1;
    }
    logarithms
};

/// A product of non-zero elements, as the sum of their logarithms.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Product(u32);

impl Product {
    /// Times `factor`, which is not zero.
    #[inline(always)]
    pub(super) fn times(self, factor: u8) -> Self {
        Self(self.0 + u32::from(LOG[usize::from(factor)]))
    }

    /// Divided by `divisor`, which is not zero.
    #[inline(always)]
    pub(super) fn over(self, divisor: u8) -> Self {
        Self(self.0 + 255 - u32::from(LOG[usize::from(divisor)]))
    }

    /// The same product, in the form that [`Self::with`] takes.
    #[inline(always)]
    pub(super) fn reduced(self) -> u8 {
        (self.0 % 255) as u8
    }

    /// Of two [reduced](Self::reduced) ones and of one over `divisor`.
    #[inline(always)]
    pub(super) fn quotient(one: u8, other: u8, divisor: u8) -> u8 {
        let inverse = 255 - u32::from(LOG[usize::from(divisor)]);
        let sum = u32::from(one) + u32::from(other) + inverse;
        EXP_THRICE[sum as usize]
    }

    #[cfg(test)]
    fn value(self) -> u8 {
        EXP[usize::from(self.reduced())]
    }
}

static EXP_THRICE: [u8; 768] = {
    let mut powers = [0; 768];
    let mut exponent = 0;
    while exponent < 768 {
        powers[exponent] = EXP[exponent % 255];
        exponent += 1;
    }
    powers
};

/// `a` times `b`.
pub(super) const fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    // Not by logarithms: a constant may not read a static.
    let (mut product, mut power, mut rest) = (0u16, a as u16, b);
    while rest != 0 {
        if rest & 1 != 0 {
            product ^= power;
        }
        power <<= 1;
        if power & 0x100 != 0 {
            power ^= POLYNOMIAL;
        }
        rest >>= 1;
    }
    product as u8
}

/// For each factor its products with 0..16, and with the same shifted by four:
/// the tables of a shuffle of 16 bytes.
#[repr(align(64))]
pub(super) struct Nibbles(pub(super) [[[u8; 16]; 2]; 256]);

pub(super) static NIBBLES: Nibbles = {
    let mut tables = [[[0; 16]; 2]; 256];
    let mut factor = 0;
    while factor < 256 {
        let mut nibble = 0;
        while nibble < 16 {
            tables[factor][0][nibble] = multiply(factor as u8, nibble as u8);
            tables[factor][1][nibble] = multiply(factor as u8, (nibble << 4) as u8);
            nibble += 1;
        }
        factor += 1;
    }
    Nibbles(tables)
};

/// For each factor the 8 x 8 bit matrix of its product, as `GF2P8AFFINEQB`
/// takes it: byte 7 - i holds the row of bit i.
pub(super) static MATRICES: [u64; 256] = {
    let mut matrices = [0; 256];
    let mut factor = 0;
    while factor < 256 {
        let mut column = 0;
        while column < 8 {
            let image = multiply(factor as u8, 1 << column);
            let mut bit = 0;
            while bit < 8 {
                if image >> bit & 1 != 0 {
                    matrices[factor] |= 1u64 << ((7 - bit) * 8 + column);
                }
                bit += 1;
            }
            column += 1;
        }
        factor += 1;
    }
    matrices
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_has_the_same_products() {
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                let product = multiply(a, b);
                let [low, high] = NIBBLES.0[usize::from(a)];
                let by_nibbles = low[usize::from(b & 15)] ^ high[usize::from(b >> 4)];
                assert_eq!(by_nibbles, product, "{a} x {b}");
                let rows = MATRICES[usize::from(a)].to_be_bytes();
                let by_matrix = (0..8).fold(0, |image, bit| {
                    let parity = (rows[bit] & b).count_ones() as u8 & 1;
                    image | parity << bit
                });
                assert_eq!(by_matrix, product, "{a} x {b}");
                if a != 0 && b != 0 {
                    assert_eq!(Product::default().times(a).times(b).value(), product);
                    assert_eq!(Product::default().times(product).over(b).value(), a);
                    let (one, other) = (Product::default().times(a), Product::default().times(b));
                    let quotient = Product::quotient(one.reduced(), other.reduced(), product);
                    assert_eq!(quotient, 1);
                }
            }
        }
    }

    #[test]
    fn every_element_but_zero_has_an_inverse() {
        for a in 1..=255u8 {
            let inverse = Product::default().over(a).value();
            assert_eq!(multiply(a, inverse), 1);
        }
    }
}
