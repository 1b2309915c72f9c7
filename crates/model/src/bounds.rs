// SPDX-License-Identifier: MIT OR Apache-2.0
//! The accepted values of device descriptions, key by key.
//!
//! Invariant: within these bounds no model overflows, divides by zero or stops, whatever requests it gets
//! (`tests/descriptions.rs` tests both ends of every bound). They are wider than any real device.
//!
//! Why not checks in the models: their errors could name neither line nor key.

use std::fmt;

use serde::de::{Deserializer, Error, Unexpected, Visitor};

/// A span of time, in nanoseconds: up to a thousand seconds.
pub(crate) fn nanos<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    within(from, 0, 1_000_000_000_000)
}

/// Bytes a second.
pub(crate) fn bandwidth<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    within(from, 1_000, 1_000_000_000_000)
}

/// Requests a second.
pub(crate) fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    within(from, 1, 1_000_000_000_000)
}

/// Bytes a second that pass under a head.
pub(crate) fn media_rate<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    within(from, 1_000_000, 100_000_000_000)
}

/// Revolutions a minute.
pub(crate) fn rpm<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    within(from, 1_000, 100_000)
}

/// A number of something; may be zero.
pub(crate) fn count<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    within(from, 0, 100_000)
}

/// A number of something; at least one.
pub(crate) fn some<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    within(from, 1, 1_000)
}

/// Slots of a queue; at least one.
pub(crate) fn depth<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    within(from, 1, 1_000).map(|depth| depth as usize)
}

/// Bytes of memory, or of a stripe.
pub(crate) fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    within(from, 512, 1 << 40)
}

/// Thousandths of a quantity, up to the whole of it.
pub(crate) fn per_mille<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    within(from, 0, 1_000)
}

/// How often a drive in use was overwritten.
pub(crate) fn overwrites<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    within(from, 0, 100).map(Some)
}

/// Bytes of an erase block: a multiple of the page, at least two pages.
pub(crate) fn block_bytes<'de, D, const PAGE_BYTES: u64>(from: D) -> Result<u64, D::Error>
where
    D: Deserializer<'de>,
{
    let bytes = within(from, 2 * PAGE_BYTES, 1 << 30)?;
    if bytes.is_multiple_of(PAGE_BYTES) {
        return Ok(bytes);
    }
    let accepted = format!("a multiple of {PAGE_BYTES}");
    Err(Error::invalid_value(Unexpected::Unsigned(bytes), &accepted.as_str()))
}

/// A share from 0 to 1.
pub(crate) fn ratio<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    from.deserialize_any(Ratio)
}

fn within<'de, D: Deserializer<'de>>(from: D, least: u64, most: u64) -> Result<u64, D::Error> {
    from.deserialize_u64(Within { least, most })
}

struct Within {
    least: u64,
    most: u64,
}

impl Visitor<'_> for Within {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {} to {}", self.least, self.most)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<u64, E> {
        if (self.least..=self.most).contains(&value) {
            return Ok(value);
        }
        Err(E::invalid_value(Unexpected::Unsigned(value), &self))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<u64, E> {
        match u64::try_from(value) {
            Ok(value) => self.visit_u64(value),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(value), &self)),
        }
    }
}

struct Ratio;

impl Visitor<'_> for Ratio {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number from 0.0 to 1.0")
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<f64, E> {
        if (0.0..=1.0).contains(&value) {
            return Ok(value);
        }
        Err(E::invalid_value(Unexpected::Float(value), &self))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<f64, E> {
        self.visit_f64(value as f64)
    }
}
