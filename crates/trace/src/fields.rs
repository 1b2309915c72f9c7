// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fields of text formats: numbers, times and operations, with errors that state what is accepted.

use crate::record::Op;

/// A field as an error shows it: at most 40 characters.
pub(crate) fn shown(field: &str) -> String {
    match field.char_indices().nth(40) {
        Some((at, _)) => format!("'{}...'", &field[..at]),
        None => format!("'{field}'"),
    }
}

/// A whole number times `unit`.
pub(crate) fn number(name: &str, field: &str, unit: u64) -> Result<u64, String> {
    let value = field.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    value.ok_or_else(|| {
        format!(
            "{name} {} is not a number in range; accepted: a whole decimal number",
            shown(field)
        )
    })
}

/// A decimal number, with or without a fraction, in units of `unit_us` microseconds (1e-3 for ns).
pub(crate) fn time(name: &str, field: &str, unit_us: f64) -> Result<u64, String> {
    let wrong = || format!("{name} {} is not a time; accepted: a decimal number", shown(field));
    // Whole numbers are converted exactly, because a double has only 53 bits.
    if let Ok(whole) = field.parse::<u64>() {
        let scaled = u128::from(whole) * (unit_us * 1000.0) as u128 / 1000;
        return u64::try_from(scaled).map_err(|_| wrong());
    }
    let digits = field.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    match field.parse::<f64>() {
        Ok(n) if digits && n.is_finite() && n * unit_us < 9e18 => Ok((n * unit_us).round() as u64),
        _ => Err(wrong()),
    }
}

/// The name of an operation: `r`, `read`, `w`, `write`, `unknown` or `?`, in any case.
pub(crate) fn op(field: &str) -> Result<Op, String> {
    let is = |words: [&str; 2]| words.iter().any(|word| field.eq_ignore_ascii_case(word));
    if is(["read", "r"]) {
        Ok(Op::Read)
    } else if is(["write", "w"]) {
        Ok(Op::Write)
    } else if is(["unknown", "?"]) {
        Ok(Op::Unknown)
    } else {
        Err(format!("op {} is unknown; accepted: read, write, unknown, r, w, ?", shown(field)))
    }
}
