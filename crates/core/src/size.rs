// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sizes in messages.

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
