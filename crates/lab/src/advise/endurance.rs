// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long flash lasts.
//!
//! Bytes written to flash a day, times the drive's write amplification if its model knows it, compared with the drive's
//! rating. A rating is of bytes that hosts write and includes some amplification, so the result is conservative if the
//! model knows the amplification.

use std::str::FromStr;

use larder_core::size::parse_size;
use serde::Serialize;

/// Days of a year.
const DAYS: f64 = 365.0;
/// Years over which drives are rated by the day.
pub const RATED_YEARS: f64 = 5.0;
/// The smallest drive that is worth buying; a smaller cache takes a part of one.
pub const LEAST_DRIVE_BYTES: u64 = 240_000_000_000;

/// What a drive may be written in its life.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Endurance {
    /// So many bytes (TBW on data sheets, there in units of 10^12).
    Written(u64),
    /// So many times its own size a day, for [`RATED_YEARS`] (DWPD).
    DriveWritesPerDay(f64),
}

impl Default for Endurance {
    /// The rating of read-intensive drives.
    fn default() -> Self {
        Self::DriveWritesPerDay(1.0)
    }
}

impl FromStr for Endurance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("got '{text}', accepted bytes, as 600TB, or as 0.3DWPD");
        let upper = text.to_ascii_uppercase();
        if let Some(times) = upper.strip_suffix("DWPD") {
            let times = times.trim().parse::<f64>().ok().filter(|n| (1e-3..=1e3).contains(n));
            return times.map(Self::DriveWritesPerDay).ok_or_else(wrong);
        }
        match parse_size(text) {
            Ok(bytes) if bytes > 0 => Ok(Self::Written(bytes)),
            _ => Err(wrong()),
        }
    }
}

impl Endurance {
    /// Bytes that a drive of this size may be written in its life.
    #[must_use]
    pub fn bytes(self, drive_bytes: u64) -> f64 {
        match self {
            Self::Written(bytes) => bytes as f64,
            Self::DriveWritesPerDay(times) => times * drive_bytes as f64 * DAYS * RATED_YEARS,
        }
    }

    /// In words.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Self::Written(bytes) => format!("a drive rated for {} TB written", bytes as f64 / 1e12),
            Self::DriveWritesPerDay(times) => format!(
                "a drive of the advised size, but of no less than {} GB, rated for {times} drive writes a day \
                 over {RATED_YEARS} years",
                LEAST_DRIVE_BYTES / 1_000_000_000
            ),
        }
    }
}

/// What is written to flash, and how long the flash lasts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Wear {
    /// Bytes that the cache writes to flash in a day.
    pub flash_write_bytes_per_day: f64,
    /// What the drive programs for each of them; null if its model does not know.
    pub write_amplification: Option<f64>,
    /// The size of the drive ...
    pub drive_bytes: u64,
    /// ... and how often a day that is.
    pub drive_writes_per_day: f64,
    /// Until the drive was written what it is rated for; null if nothing is written.
    pub years: Option<f64>,
}

impl Wear {
    /// Of so many bytes in so many seconds on a drive that has room for so many, see
    /// [`LEAST_DRIVE_BYTES`].
    #[must_use]
    pub fn of(
        bytes: f64,
        seconds: f64,
        write_amplification: Option<f64>,
        least_bytes: u64,
        endurance: Endurance,
    ) -> Self {
        let drive_bytes = least_bytes.max(LEAST_DRIVE_BYTES);
        let per_day = if seconds > 0.0 { bytes / seconds * 86_400.0 } else { 0.0 };
        let programmed = per_day * write_amplification.unwrap_or(1.0);
        Self {
            flash_write_bytes_per_day: per_day,
            write_amplification,
            drive_bytes,
            drive_writes_per_day: per_day / drive_bytes as f64,
            years: (programmed > 0.0).then(|| endurance.bytes(drive_bytes) / programmed / DAYS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1_000_000_000;

    #[test]
    fn arithmetic_by_hand() {
        // 100 GB in an hour are 2,400 GB a day, 2.4 times a drive of 1,000 GB.
        let wear = Wear::of(1e11, 3600.0, None, 1000 * GB, Endurance::default());
        assert!((wear.flash_write_bytes_per_day - 2.4e12).abs() < 1.0);
        assert!((wear.drive_writes_per_day - 2.4).abs() < 1e-9);
        // One a day for five years: 1,825 TB, of 2,400 GB a day for 760.4 days.
        assert!((wear.years.unwrap() - 5.0 / 2.4).abs() < 1e-9, "{wear:?}");
        // A cache of 10 GB is a part of a drive of 240 GB, and 1.2 TB a day are five times that.
        let wear = Wear::of(5e10, 3600.0, None, 10 * GB, Endurance::DriveWritesPerDay(0.5));
        assert!((wear.drive_writes_per_day - 5.0).abs() < 1e-9);
        assert!((wear.years.unwrap() - 0.5).abs() < 1e-9, "{wear:?}");
        // 600 TB, of which twice as much is programmed: 600,000 / 480 = 1,250 days.
        let endurance = Endurance::Written(600_000 * GB);
        let wear = Wear::of(1e10, 3600.0, Some(2.0), 100 * GB, endurance);
        assert!((wear.years.unwrap() - 1250.0 / 365.0).abs() < 1e-9, "{wear:?}");
    }

    #[test]
    fn nothing_written_lasts_for_ever() {
        let wear = Wear::of(0.0, 10.0, None, GB, Endurance::default());
        assert_eq!((wear.years, wear.drive_writes_per_day), (None, 0.0));
        assert_eq!(Wear::of(5.0, 0.0, None, GB, Endurance::default()).years, None);
    }

    #[test]
    fn endurance_is_bytes_or_drive_writes() {
        let of = |text: &str| text.parse::<Endurance>();
        assert_eq!(of("600TB"), Ok(Endurance::Written(600_000_000_000_000)));
        assert_eq!(of("0.3DWPD"), Ok(Endurance::DriveWritesPerDay(0.3)));
        assert_eq!(of("3 dwpd"), Ok(Endurance::DriveWritesPerDay(3.0)));
        for bad in ["", "0", "0DWPD", "-1DWPD", "DWPD", "five", "nanDWPD"] {
            assert!(of(bad).unwrap_err().contains("accepted"), "{bad}");
        }
    }
}
