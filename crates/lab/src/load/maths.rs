// SPDX-License-Identifier: MIT OR Apache-2.0
//! Logarithm, exponential and power for the distributions of loads.
//!
//! Invariant: equal to the last bit on every machine, as only `+ - * /` on `f64` and its bits are
//! used, which IEEE 754 defines exactly. About fifteen digits are right; a distribution needs four.
//!
//! Why not `f64::powf`: it is the platform's, and a load that results are published with must not
//! change with a C library.

use std::f64::consts::{LN_2, SQRT_2};

/// Terms of the series; beyond them lies less than the last bit.
const LN_TERMS: u32 = 12;
const EXP_TERMS: u32 = 22;

/// The natural logarithm of a positive normal number.
#[must_use]
pub fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut exponent = ((bits >> 52) & 0x7FF) as i32 - 1023;
    // In [1, 2), then in [1/sqrt 2, sqrt 2).
    let mut mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    if mantissa > SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    // ln m = 2 artanh s.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let (square, mut power, mut sum) = (s * s, s, 0.0);
    for term in 0..LN_TERMS {
        sum += power / f64::from(2 * term + 1);
        power *= square;
    }
    2.0 * sum + f64::from(exponent) * LN_2
}

/// The exponential function, for arguments whose result is a normal number.
#[must_use]
pub fn exp(x: f64) -> f64 {
    let halves = x / LN_2;
    let exponent = (if halves < 0.0 { halves - 0.5 } else { halves + 0.5 }) as i32;
    let rest = x - f64::from(exponent) * LN_2;
    let (mut term, mut sum) = (1.0, 1.0);
    for n in 1..EXP_TERMS {
        term *= rest / f64::from(n);
        sum += term;
    }
    let scale = f64::from_bits(((exponent.clamp(-1022, 1023) + 1023) as u64) << 52);
    sum * scale
}

/// `x` to the power of `y`, for positive `x`.
#[must_use]
pub fn pow(x: f64, y: f64) -> f64 {
    exp(y * ln(x))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(ours: f64, theirs: f64) {
        assert!((ours / theirs - 1.0).abs() < 1e-13, "{ours} {theirs}");
    }

    #[test]
    fn agrees_with_the_platform_to_thirteen_digits() {
        for i in 1..2_000 {
            let x = f64::from(i) * 0.37 + 1e-3;
            assert!((ln(x) - x.ln()).abs() < 1e-13, "{x}");
            near(exp(-x / 10.0), (-x / 10.0).exp());
            near(exp(x / 10.0), (x / 10.0).exp());
            near(pow(f64::from(i), -0.9), f64::from(i).powf(-0.9));
        }
    }
}
