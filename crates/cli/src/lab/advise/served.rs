// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder advise` for a served volume: what more or less flash would do, by its miss-ratio curve; and with device models what other
//! presets, sizes and devices would have done with the last requests, which the flight recorder has.

use anyhow::{Context, Result, bail};
use larder_front::control::client;
use larder_front::control::wire::Command;
use larder_io::rough_size;
use serde_json::json;

use super::args::{AdviseArgs, Replayed};
use super::words::words;
use crate::curve::{Curve, Point};
use crate::exit::Coded;
use crate::out;
use crate::setting::BadSetting;
use crate::trace::recent::Recent;

/// A gain of the hit ratio that is worth another device, and a loss that is not worth a larger one.
const GAIN: f64 = 0.02;
const LOSS: f64 = 0.01;
/// References below which a curve is rough.
const FEW: u64 = 100_000;
/// References below which it is no advice.
const LEAST: u64 = 1000;

/// What a volume's server knows.
struct Served {
    name: String,
    curve: Option<Curve>,
}

/// Runs the command.
pub(super) fn advise(args: &AdviseArgs) -> Result<()> {
    let socket = args.control.socket()?;
    let status = client::ask(&socket, &Command::Status, |_| ()).map_err(Coded::from)?;
    if let Some(volumes) = status["volumes"].as_array() {
        let names: Vec<&str> = volumes.iter().filter_map(|of| of["name"].as_str()).collect();
        bail!(Coded {
            code: 2,
            message: format!(
                "several volumes share this cache; accepted: --name with one of them: {}",
                names.join(", ")
            ),
        });
    }
    let served = Served {
        name: status["name"].as_str().unwrap_or_default().to_owned(),
        curve: Curve::of(&status),
    };
    let verdict = verdict(&served);
    let Some((origin, flash)) = args.profiles() else {
        if args.report.is_some() {
            bail!(BadSetting::new("report", "needs --origin-profile and --flash-profile"));
        }
        if args.control.json {
            return out::line(
                json!({ "curve": status["curve"], "verdict": verdict, "replayed": null }),
            );
        }
        return out::line(curve_words(&served, &verdict).join("\n"));
    };
    let recent = Recent::of(&socket, args.alarm, args.last)?;
    if recent.requests.is_empty() {
        bail!(
            "volume '{}': the recorder has no requests yet; accepted: a volume that clients use",
            served.name
        );
    }
    let file = tempfile::Builder::new().prefix("larder-recent-").suffix(".btr").tempfile();
    let file = file.context("a temporary file for the requests")?;
    recent.write(file.path(), None)?;
    let replayed = args.replay(Replayed {
        name: format!("the last {:.1} s of volume '{}'", recent.seconds(), served.name),
        path: file.path(),
        origin,
        flash,
    })?;
    if args.control.json {
        let found = serde_json::to_value(&replayed)?;
        return out::line(
            json!({ "curve": status["curve"], "verdict": verdict, "replayed": found }),
        );
    }
    let mut lines = curve_words(&served, &verdict);
    lines.push(format!(
        "\nThe last {} requests, of {:.1} s, over a cold cache of each kind:",
        recent.requests.len(),
        recent.seconds()
    ));
    lines.push(words(&replayed));
    out::line(lines.join("\n"))
}

fn curve_words(served: &Served, verdict: &str) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(curve) = &served.curve {
        lines.push(format!(
            "volume '{}': hit ratio of LRU by the size of flash, of {} recent references to pages of 4 KiB",
            served.name, curve.references
        ));
        lines.extend(curve.rows());
        lines.push(String::new());
    }
    lines.push(verdict.to_owned());
    lines
}

/// What follows from the curve.
fn verdict(served: &Served) -> String {
    let Some(curve) = &served.curve else {
        return "the curve has no references yet, or --recorder is 0".to_owned();
    };
    let (points, references) =
        (|ratio: f64| format!("{:.1} points", ratio * 100.0), curve.references);
    if references < LEAST {
        return format!("too few references for advice: {references}");
    }
    let few = if references < FEW { " (few references yet)" } else { "" };
    let Some(now) = curve.attached() else {
        let most = curve.points.last().map_or(0.0, |point| point.hit_ratio);
        return format!(
            "no flash is attached; with as much as in the last line {:.1} % of the references would hit{few}",
            most * 100.0
        );
    };
    let gain = |point: &Point| point.hit_ratio - now.hit_ratio;
    let mut larger = curve.points.iter().filter(|point| point.flash_bytes > now.flash_bytes);
    let enough = larger.clone().find(|point| gain(point) >= GAIN);
    let most = larger.next_back();
    if let (Some(first), Some(most)) = (enough, most) {
        let further = match gain(most) - gain(first) >= GAIN {
            true => format!(", {} {}", rough_size(most.flash_bytes), points(gain(most))),
            false => String::new(),
        };
        let size = rough_size(first.flash_bytes);
        return format!("more flash helps: {size} would add {}{further}{few}", points(gain(first)));
    }
    let mut smaller = curve.points.iter().filter(|point| point.flash_bytes < now.flash_bytes);
    if let Some(point) = smaller.find(|point| -gain(point) <= LOSS) {
        let size = rough_size(point.flash_bytes);
        // A smaller size may have a higher hit ratio, by the error of the samples.
        let loss = points(gain(point).min(0.0).abs());
        return format!("less flash would do: {size} would lose {loss}{few}");
    }
    match most {
        Some(point) => format!(
            "the size suits the load: even {} would add only {}{few}",
            rough_size(point.flash_bytes),
            points(gain(point))
        ),
        None => format!("the size suits the load: flash is as large as the volume{few}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_follows_from_the_curve() {
        let of = |attached: u64, ratios: &[f64]| {
            let point =
                |(n, ratio): (u32, &f64)| Point { flash_bytes: 1 << 30 << n, hit_ratio: *ratio };
            let points = (0..).zip(ratios).map(point).collect();
            let curve = Some(Curve { references: FEW, points, flash_bytes: attached << 30 });
            verdict(&Served { name: String::new(), curve })
        };
        assert_eq!(
            of(2, &[0.1, 0.5, 0.51, 0.75]),
            "more flash helps: 8.00 GiB would add 25.0 points"
        );
        assert_eq!(
            of(2, &[0.495, 0.5, 0.51]),
            "less flash would do: 1.00 GiB would lose 0.5 points"
        );
        assert_eq!(
            of(2, &[0.1, 0.5, 0.51]),
            "the size suits the load: even 4.00 GiB would add only 1.0 points"
        );
        assert_eq!(of(2, &[0.1, 0.5]), "the size suits the load: flash is as large as the volume");
        let none = "no flash is attached; with as much as in the last line 50.0 % of the references would hit";
        assert_eq!(of(0, &[0.1, 0.5]), none);
        assert!(verdict(&Served { name: String::new(), curve: None }).contains("--recorder is 0"));
    }
}
