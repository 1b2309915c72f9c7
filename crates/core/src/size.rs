// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sizes with units: `64GiB`, `10GB`, `1.5TiB`, `4096`; and how spans of time are written.
//!
//! Purpose: one parser of sizes for every flag, key, device name and message.
//!
//! Invariants: [`format_size`] is exact, so what it prints reads back as the same number. A lone
//! letter (`64M`) is binary, as for `qemu-img` and `fio`; `MB` is decimal and `MiB` binary.
//!
//! Why not floating point: 2^53 is less than the sizes that can be written.

use std::fmt;

/// Letters of the binary units in ascending order.
pub const LETTERS: [char; 6] = ['K', 'M', 'G', 'T', 'P', 'E'];

/// A number of bytes, written exactly: in the largest binary unit that needs at most two digits after the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = u128::from(self.0);
        for (at, letter) in LETTERS.iter().enumerate().rev() {
            let (unit, hundredths) = (1_u128 << (10 * (at + 1)), bytes * 100);
            if bytes >= unit && hundredths.is_multiple_of(unit) {
                let (whole, rest) = (hundredths / unit / 100, hundredths / unit % 100);
                return match (rest / 10, rest % 10) {
                    (0, 0) => write!(f, "{whole}{letter}iB"),
                    (tenth, 0) => write!(f, "{whole}.{tenth}{letter}iB"),
                    _ => write!(f, "{whole}.{rest:02}{letter}iB"),
                };
            }
        }
        write!(f, "{bytes}")
    }
}

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// It is not a number with a unit.
    #[error(
        "'{0}' is not a size; accepted: a number with an optional unit, such as 4096, 512MiB, \
         1.5TiB (binary) or 10GB (decimal)"
    )]
    Malformed(String),
    /// It is 2^64 bytes or more.
    #[error("'{0}' is too large a size; accepted: less than 16EiB")]
    TooLarge(String),
}

/// The most digits after the point.
const MAX_FRACTION_DIGITS: usize = 12;

/// The bytes of a unit: `""`, `B`, `K`, `KB`, `KiB` and so on, in any case.
fn unit_bytes(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_uppercase();
    if unit.is_empty() || unit == "B" {
        return Some(1);
    }
    let mut rest = unit.chars();
    let letter = rest.next()?;
    let power = LETTERS.iter().position(|l| *l == letter)? as u32 + 1;
    match rest.as_str() {
        "" | "IB" => Some(1 << (10 * power)),
        "B" => Some(1000_u64.pow(power)),
        _ => None,
    }
}

/// Parses a size in bytes.
///
/// # Errors
/// `text` is not a size, or one of 2^64 bytes or more.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let malformed = || SizeError::Malformed(text.to_owned());
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    let unit = u128::from(unit_bytes(unit.trim_start()).ok_or_else(malformed)?);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(fraction) || number.ends_with('.') {
        return Err(malformed());
    }
    if fraction.len() > MAX_FRACTION_DIGITS || (unit == 1 && !fraction.is_empty()) {
        return Err(malformed());
    }
    let too_large = || SizeError::TooLarge(text.to_owned());
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    let fraction_value: u128 = if fraction.is_empty() { 0 } else { fraction.parse().unwrap_or(0) };
    let bytes =
        u128::from(whole) * unit + fraction_value * unit / 10_u128.pow(fraction.len() as u32);
    u64::try_from(bytes).map_err(|_| too_large())
}

/// Formats a size exactly, see [`Size`].
#[must_use]
pub fn format_size(bytes: u64) -> String {
    Size(bytes).to_string()
}

/// Formats a size with about three digits and the unit.
#[must_use]
pub fn rough_size(bytes: u64) -> String {
    let at = LETTERS.iter().enumerate().rev().find(|(at, _)| bytes >> (10 * (at + 1)) > 0);
    let Some((at, letter)) = at else { return format!("{bytes} B") };
    let size = bytes as f64 / (1_u64 << (10 * (at + 1))) as f64;
    if size < 10.0 { format!("{size:.2} {letter}iB") } else { format!("{size:.1} {letter}iB") }
}

/// Writes a span of time exactly, in the largest unit that needs no point.
#[must_use]
pub fn format_span(ns: u64) -> String {
    if ns == 0 {
        return "0".to_owned();
    }
    let units = [("h", 3_600_000_000_000), ("m", 60_000_000_000), ("s", 1_000_000_000)];
    let units = units.into_iter().chain([("ms", 1_000_000), ("us", 1000), ("ns", 1)]);
    let whole = units.into_iter().find(|(_, scale)| ns.is_multiple_of(*scale));
    whole.map(|(unit, scale)| format!("{}{unit}", ns / scale)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rough_sizes() {
        for (bytes, text) in
            [(0, "0 B"), (1023, "1023 B"), (1536, "1.50 KiB"), (10_624_243, "10.1 MiB")]
        {
            assert_eq!(rough_size(bytes), text);
        }
    }

    #[test]
    fn sizes_with_units_are_parsed() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512B", 512),
            ("64GiB", 64 << 30),
            ("512MiB", 512 << 20),
            ("64M", 64 << 20),
            ("4k", 4096),
            ("1.5TiB", 3 << 39),
            ("10GB", 10_000_000_000),
            ("0.5 KiB", 512),
            ("16383PiB", 16383 << 50),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn other_texts_are_rejected() {
        for text in ["", "GiB", "-1", "1.GiB", ".5GiB", "1.2.3K", "1.5", "12XiB", "1 2", "0x10"] {
            let error = parse_size(text).unwrap_err();
            assert!(matches!(error, SizeError::Malformed(_)), "{text}: {error}");
            assert!(!error.to_string().contains('\n'));
        }
        for text in ["16EiB", "99999999999999999999", "17179869184GiB"] {
            assert!(matches!(parse_size(text), Err(SizeError::TooLarge(_))), "{text}");
        }
    }

    #[test]
    fn printed_sizes_parse_to_the_same_number() {
        for bytes in [0, 1, 512, 4096, 4097, 1 << 20, 3 << 39, 5 << 28, 10_000_000_000, u64::MAX] {
            assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
        }
        assert_eq!(format_size(3 << 39), "1.5TiB");
        assert_eq!(format_size(5 << 28), "1.25GiB");
        assert_eq!(format_size(64 << 30), "64GiB");
    }
}
