// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder presets`: the presets with their five choices.

use std::io::IsTerminal;

use anyhow::Result;
use comfy_table::{ContentArrangement, Table, presets};
use larder_core::config::presets as all_presets;
use serde_json::{Value, json};

use crate::out;

/// The width of the table: that of the terminal, or of a page.
fn table_width() -> u16 {
    let terminal = std::io::stdout().is_terminal().then(ratatui::crossterm::terminal::size);
    match terminal {
        Some(Ok((columns, _))) => columns.clamp(80, 160),
        _ => 100,
    }
}

/// Runs the command.
pub fn presets(json: bool) -> Result<()> {
    const HEAD: [&str; 5] = ["unit", "admission", "replacement", "write_policy", "metadata"];
    if json {
        let rows = all_presets().map(|p| {
            let mut row = json!({ "name": p.name, "source": p.source });
            for (key, words) in HEAD.iter().zip(p.words) {
                row[*key] = json!(words);
            }
            row
        });
        return out::line(Value::Array(rows.collect()));
    }
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(table_width());
    table.set_header(["preset"].into_iter().chain(HEAD.map(|h| match h {
        "write_policy" => "write policy",
        other => other,
    })));
    for preset in all_presets() {
        table.add_row([preset.name].into_iter().chain(preset.words));
    }
    out::line(table)
}
