// SPDX-License-Identifier: MIT OR Apache-2.0
//! The live view: one box a volume, with the hit ratio over time below its figures.
//!
//! Invariants: draws on any size of terminal, even of none; what does not fit can be scrolled to.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Paragraph, Sparkline};

use super::lines;
use super::sample::Watched;

/// Rows of a volume's box: borders, figures, the label of the curve, and the curve.
pub const BOX_ROWS: u16 = 2 + lines::LINES + 1 + 2;

/// Draws the volumes from `first` on.
pub fn draw(frame: &mut Frame<'_>, volumes: &[Watched], first: usize) {
    let [head, body] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(frame.area());
    let keys = if volumes.len() > 1 { "q quits, up and down scroll" } else { "q quits" };
    let title = format!("larder top: {} volume(s); {keys}", volumes.len());
    frame.render_widget(Line::from(title).bold(), head);
    let room = usize::from(body.height / BOX_ROWS).max(1);
    let shown = volumes.iter().skip(first).take(room);
    for (row, volume) in shown.enumerate() {
        let y = body.y.saturating_add(row as u16 * BOX_ROWS);
        let area = Rect { y, height: BOX_ROWS, ..body }.intersection(body);
        one(frame, area, volume);
    }
}

fn one(frame: &mut Frame<'_>, area: Rect, volume: &Watched) {
    let healthy = volume.error.is_none() && volume.text("alarm").is_empty();
    let colour = match volume.text("state").as_str() {
        _ if !healthy => Color::Red,
        "caching" => Color::Green,
        _ => Color::Yellow,
    };
    let state = Line::from(format!(" {} ", lines::state(volume))).style(Style::new().fg(colour));
    let block =
        Block::bordered().title(Line::from(format!(" {} ", volume.name())).bold()).title(state);
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let [figures, label, curve] = Layout::vertical([
        Constraint::Length(lines::LINES),
        Constraint::Length(1),
        Constraint::Min(0),
    ])
    .areas(inside);
    let text: Vec<Line<'_>> = lines::lines(volume).into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(Text::from(text)), figures);
    let now = lines::share(volume.hit_ratio());
    frame.render_widget(Line::from(format!("hit ratio, now {now}, full height is 100 %")), label);
    let room = usize::from(curve.width);
    let newest = volume.hits.len().saturating_sub(room);
    let points: Vec<u64> = volume.hits.iter().skip(newest).copied().collect();
    let curve_line = Sparkline::default().data(points).max(1000).style(Style::new().fg(colour));
    frame.render_widget(curve_line, curve);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test stops at the first failure

    use std::time::{Duration, Instant};

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    use super::*;
    use crate::top::sample::Sample;

    fn volume(name: &str, alarm: Option<&str>) -> Watched {
        let begin = Instant::now();
        let mut watched = Watched::new("/run/larder/x.sock".into());
        for second in 0..600_u64 {
            let status = json!({ "name": name, "state": "caching", "alarm": alarm,
                "units_used": 3, "units_total": 4, "connections": 2, "files": ["/x"],
                "memory_bytes": 1 << 20 });
            let stats = json!({ "reads": second * 1000, "read_hits": second * 750,
                "read_bytes": second * 4_096_000, "populations": second * 5 });
            let at = begin + Duration::from_secs(second);
            watched.update(Ok(Sample { at, status, stats }));
        }
        watched
    }

    fn shown(volumes: &[Watched], first: usize, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, volumes, first)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn figures_and_alarms_are_shown() {
        let mut volumes = vec![volume("db", None), volume("home", Some("flash /dev/x was lost"))];
        let text = shown(&volumes, 0, 120, 24);
        for has in
            ["db", "caching", "1000/s 4.1 MB/s", "hits 75.0 %", "units 3 of 4 (75.0 %)", "files 1"]
        {
            assert!(text.contains(has), "'{has}' is missing: {text}");
        }
        assert!(text.contains("ALARM: flash /dev/x was lost"), "{text}");
        let scrolled = shown(&volumes, 1, 120, 24);
        assert!(scrolled.contains("home") && !scrolled.contains(" db "), "{scrolled}");
        volumes[0].update(Err("gone".to_owned()));
        assert!(shown(&volumes, 0, 120, 24).contains("does not answer: gone"));
    }

    /// A fast volume with large counts: 9.9 GB/s, a million requests a second, 2^32 units.
    #[test]
    fn no_figure_is_cut_off_at_80_columns() {
        let begin = Instant::now();
        let wide = json!({ "flash_bytes": 999_000_000_000_u64, "hit_ratio": 1.0 });
        let mut watched = Watched::new("/run/larder/x.sock".into());
        for second in 0..3_u64 {
            let status = json!({ "name": "db", "state": "caching", "units_used": 4_294_967_295_u64,
                "units_total": 4_294_967_296_u64, "units_dirty": 4_294_967_295_u64,
                "connections": 1024, "requests_open": 65_536, "files": ["/x"],
                "memory_bytes": 1_099_511_627_776_u64,
                "curve": { "references": 1, "points": vec![wide.clone(); 7] } });
            let (requests, bytes) = (second * 999_900, second * 9_999_900_000);
            let stats = json!({ "reads": requests, "read_hits": requests, "writes": requests,
                "read_bytes": bytes, "write_bytes": bytes, "flash_read_bytes": bytes,
                "flash_write_bytes": bytes, "origin_read_bytes": bytes,
                "origin_write_bytes": bytes, "populations": requests, "evictions": requests });
            let at = begin + Duration::from_secs(second);
            watched.update(Ok(Sample { at, status, stats }));
        }
        let lines = lines::lines(&watched);
        for line in &lines {
            assert!(line.chars().count() <= 78, "{} columns: {line}", line.chars().count());
        }
        let screen = shown(&[watched], 0, 80, 24);
        assert!(lines.iter().all(|line| screen.contains(line.as_str())), "{screen}");
    }

    #[test]
    fn every_size_of_terminal_will_do() {
        let volumes = vec![volume("db", None), Watched::new("/x/new.sock".into())];
        for (width, height) in [(0, 0), (1, 1), (2, 3), (20, 5), (80, 10), (500, 200)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            for first in [0, 7] {
                terminal.draw(|frame| draw(frame, &volumes, first)).unwrap();
            }
        }
    }

    #[test]
    fn a_server_that_began_anew_has_no_rate() {
        let mut watched = volume("db", None);
        let status = json!({ "name": "db", "state": "caching" });
        let at = Instant::now() + Duration::from_secs(601);
        watched.update(Ok(Sample { at, status, stats: json!({ "reads": 5, "read_hits": 1 }) }));
        assert_eq!((watched.rate("reads"), watched.hit_ratio()), (0.0, None));
        assert_eq!(watched.json()["hit_ratio"], serde_json::Value::Null);
    }
}
