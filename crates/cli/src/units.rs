// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values with units as in flags: `64GiB`, `500ms`, `35%`.

use larder_core::exec::Nanos;
use larder_volume::DailyWrites;

const MINUTE: Nanos = 60_000_000_000;

/// A size in bytes.
pub fn size(text: &str) -> Result<u64, String> {
    larder_io::parse_size(text).map_err(|e| e.to_string())
}

/// What may be written to flash in a day: `any`, a size with `/day`, or a number with `DWPD`.
pub fn daily_writes(text: &str) -> Result<DailyWrites, String> {
    let accepted =
        || format!("got '{text}', accepted any, 1MB/day to 1EiB/day, or 0.001DWPD to 1000DWPD");
    let parsed = if text == "any" {
        DailyWrites::Any
    } else if let Some(bytes) = text.strip_suffix("/day") {
        DailyWrites::Bytes(size(bytes).map_err(|_| accepted())?)
    } else {
        let drives = text.strip_suffix("DWPD").ok_or_else(accepted)?;
        DailyWrites::Drives(drives.trim().parse().map_err(|_| accepted())?)
    };
    if parsed.is_accepted() { Ok(parsed) } else { Err(accepted()) }
}

/// The same as text.
pub fn format_daily_writes(writes: DailyWrites) -> String {
    match writes {
        DailyWrites::Any => "any".to_owned(),
        DailyWrites::Bytes(bytes) => format!("{}/day", larder_io::format_size(bytes)),
        DailyWrites::Drives(drives) => format!("{drives}DWPD"),
    }
}

/// A span of time.
pub fn span(text: &str) -> Result<Nanos, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        _ if text == "0" => 0.0,
        _ => return Err(span_error(text)),
    };
    match number.parse::<f64>() {
        Ok(n) if n.is_finite() && n * scale < 1e18 => Ok((n * scale) as Nanos),
        _ => Err(span_error(text)),
    }
}

/// A time of day, as nanoseconds after midnight.
pub fn time_of_day(text: &str) -> Result<Nanos, String> {
    let digits = |text: &str| text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
    let parts = text.split_once(':').filter(|(hours, minutes)| digits(hours) && digits(minutes));
    let number = |text: &str| text.parse::<Nanos>().unwrap_or(Nanos::MAX);
    match parts.map(|(hours, minutes)| (number(hours), number(minutes))) {
        Some((hours @ 0..24, minutes @ 0..60)) => Ok((hours * 60 + minutes) * MINUTE),
        _ => Err(format!("got '{text}', accepted 00:00 to 23:59, as 03:30")),
    }
}

/// Writes a time of day.
pub fn format_time_of_day(at: Nanos) -> String {
    let minutes = at / MINUTE;
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

fn span_error(text: &str) -> String {
    format!("got '{text}', accepted a number and a unit, as 500ms, 2s, 5m")
}

/// A share of a whole.
pub fn ratio(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    match number.trim().parse::<f64>() {
        Ok(n) if (0.0..=1.0).contains(&(n / scale)) => Ok(n / scale),
        _ => Err(format!("got '{text}', accepted 0% to 100%, or 0 to 1")),
    }
}

/// A file mode. The leading zero is required, since it distinguishes octal from decimal.
pub fn mode(text: &str) -> Result<u32, String> {
    match text.strip_prefix('0').map(|digits| u32::from_str_radix(digits, 8)) {
        Some(Ok(mode)) if mode <= 0o777 && mode & 0o200 != 0 => Ok(mode),
        _ => Err(format!("got '{text}', accepted octal that lets the owner write, as 0660")),
    }
}

/// A number of threads.
#[cfg(feature = "lab")]
pub fn jobs(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(jobs @ 1..=1024) => Ok(jobs),
        _ => Err(format!("got '{text}', accepted 1 to 1024")),
    }
}

/// A host and a port.
pub fn address(text: &str) -> Result<String, String> {
    match text.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>())) {
        Some((host, Ok(_))) if !host.is_empty() => Ok(text.to_owned()),
        _ => Err(format!("got '{text}', accepted HOST:PORT, as 127.0.0.1:9470")),
    }
}

/// A switch.
pub fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("got '{text}', accepted on or off")),
    }
}

#[cfg(test)]
mod tests {
    use larder_io::format_span;

    use super::*;

    #[test]
    fn values_with_units() {
        assert_eq!(span("500ms"), Ok(500_000_000));
        assert_eq!(span("1.5s"), Ok(1_500_000_000));
        assert_eq!(span("0"), Ok(0));
        for ns in [0, 1, 1500, 500_000_000, 90_000_000_000, 7_200_000_000_000] {
            assert_eq!(span(&format_span(ns)), Ok(ns));
        }
        assert_eq!((mode("0660"), mode("0777")), (Ok(0o660), Ok(0o777)));
        for bad in ["", "0", "660", "432", "0o660", "01777", "0440", "0668", "-0660"] {
            assert!(mode(bad).is_err(), "{bad}");
        }
        for text in ["00:00", "03:30", "23:59"] {
            assert_eq!(time_of_day(text).map(format_time_of_day), Ok(text.to_owned()));
        }
        for bad in ["", "3:30", "24:00", "12:60", "12", "-1:00", "12:00:00", "+1:00"] {
            assert!(time_of_day(bad).is_err(), "{bad}");
        }
        assert_eq!(ratio("35%"), Ok(0.35));
        assert_eq!(ratio("0.1"), Ok(0.1));
        for bad in ["", "5", "s", "-1s", "1e99s", "5 parsecs"] {
            assert!(span(bad).is_err(), "{bad}");
        }
        for bad in ["", "101%", "-1%", "2", "x%"] {
            assert!(ratio(bad).is_err(), "{bad}");
        }
    }
}
