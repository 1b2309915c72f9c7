// SPDX-License-Identifier: MIT OR Apache-2.0
//! The miss-ratio curve of a served volume, as `status`, `top` and `advise` show it.

use larder_io::rough_size;
use serde_json::Value;

/// A size of flash, and the hit ratio with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub flash_bytes: u64,
    pub hit_ratio: f64,
}

/// What a server answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Pages of 4 KiB in the requests that it is made of.
    pub references: u64,
    /// By size.
    pub points: Vec<Point>,
    /// The attached flash, for cached data; 0 without a device.
    pub flash_bytes: u64,
}

impl Curve {
    /// The curve in a status, if there is one.
    pub fn of(status: &Value) -> Option<Self> {
        let curve = status.get("curve")?;
        let point = |point: &Value| {
            let hit_ratio = point["hit_ratio"].as_f64()?;
            Some(Point { flash_bytes: point["flash_bytes"].as_u64()?, hit_ratio })
        };
        let points: Vec<Point> = curve["points"].as_array()?.iter().filter_map(point).collect();
        let figure = |key: &str| status[key].as_u64().unwrap_or(0);
        let flash_bytes = figure("unit_bytes") * figure("units_total");
        Some(Self { references: curve["references"].as_u64()?, points, flash_bytes })
    }

    /// The point of the attached flash, of which only what the volume can fill counts.
    pub fn attached(&self) -> Option<Point> {
        let bytes = self.flash_bytes.min(self.points.last()?.flash_bytes);
        self.points.iter().find(|point| point.flash_bytes == bytes).copied()
    }

    /// A line a point, with a bar.
    pub fn rows(&self) -> Vec<String> {
        let here = self.attached();
        let row = |point: &Point| {
            let bar = "#".repeat((point.hit_ratio * 40.0).round() as usize);
            let here = if Some(*point) == here { "  <- attached" } else { "" };
            let size = rough_size(point.flash_bytes);
            format!("{size:>10} {:>6.1} %  {bar:40}{here}", point.hit_ratio * 100.0)
                .trim_end()
                .to_owned()
        };
        self.points.iter().map(row).collect()
    }

    /// In one line of 72 columns at most, for a narrow terminal.
    pub fn short(&self) -> String {
        const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let point = |point: &Point| {
            let bar = BARS[((point.hit_ratio * 8.0) as usize).min(7)];
            format!("{}{bar}{:.0}%", short_size(point.flash_bytes), point.hit_ratio * 100.0)
        };
        self.points.iter().map(point).collect::<Vec<_>>().join(" ")
    }
}

/// A size of at most four characters: `931G`, `9.1T`.
fn short_size(bytes: u64) -> String {
    let (mut value, mut units) = (bytes as f64, "KMGTPE".chars());
    let mut unit = 'B';
    while value >= 999.5 {
        value /= 1024.0;
        unit = units.next().unwrap_or('E');
    }
    if value < 9.95 && unit != 'B' {
        let text = format!("{value:.1}");
        return format!("{}{unit}", text.trim_end_matches(".0"));
    }
    format!("{value:.0}{unit}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test stops at the first failure

    use serde_json::json;

    use super::*;

    #[test]
    fn sizes_have_four_characters_at_most() {
        let of = |bytes| short_size(bytes);
        assert_eq!(
            [of(0), of(999), of(1000), of(4096), of(10_200)],
            ["0B", "999B", "1K", "4K", "10K"]
        );
        assert_eq!([of(999_999_999_999), of(10_000_000_000_000)], ["931G", "9.1T"]);
        assert!((0..64).all(|bit| short_size((1 << bit) + (1 << bit) / 3).len() <= 4));
    }

    #[test]
    fn a_curve_is_read_from_a_status() {
        let point = |bytes: u64, ratio: f64| json!({ "flash_bytes": bytes, "hit_ratio": ratio });
        let of = |units: u64| {
            let points = [point(1 << 30, 0.5), point(1 << 31, 1.0)];
            let curve = json!({ "references": 7, "points": points });
            let status = json!({ "unit_bytes": 1 << 20, "units_total": units, "curve": curve });
            Curve::of(&status).unwrap()
        };
        let at = |units| of(units).attached().map(|point| point.hit_ratio);
        assert_eq!(
            [at(0), at(1), at(1024), at(2048), at(1 << 20)],
            [None, None, Some(0.5), Some(1.0), Some(1.0)]
        );
        let curve = of(1024);
        assert_eq!(curve.references, 7);
        assert_eq!(curve.short(), "1G▅50% 2G█100%");
        let rows = curve.rows();
        assert!(rows[0].starts_with("  1.00 GiB   50.0 %  ####"), "{}", rows[0]);
        assert!(rows[0].ends_with("<- attached") && rows[1].ends_with('#'), "{rows:?}");
        assert_eq!(Curve::of(&json!({})), None);
    }
}
