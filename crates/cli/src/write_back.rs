// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings of units that flash owns until they are written back.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use larder_core::config::Choices;
use larder_core::exec::Nanos;
use larder_core::policy::syncer::SyncOrder;
use larder_io::format_span;

use crate::setting::BadSetting;
use crate::units::{ratio, span};

/// What never happens, where a span is accepted.
const NEVER: &str = "never";

/// Which dirty unit is written back first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OrderArg {
    /// The one that has been dirty for longest
    Age,
    /// The next one on the origin, from the last on
    Place,
}

/// A span, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After(Option<Nanos>);

fn after(text: &str) -> Result<After, String> {
    match text {
        NEVER => Ok(After(None)),
        text => span(text).map(|span| After(Some(span))).map_err(|e| format!("{e}, or {NEVER}")),
    }
}

fn format_after(span: Option<Nanos>) -> String {
    span.map_or_else(|| NEVER.to_owned(), format_span)
}

/// Settings of write-back of units, of those with --write-policy write-back.
#[derive(Args, Debug)]
pub struct WriteBackArgs {
    /// Write a unit back when it has been dirty for so long; 0: at once; never: age is no reason
    /// [flashcache, enhanceio, bcache: 30s; prwc: never]
    #[arg(long, value_parser = after, value_name = "SPAN", hide_short_help = true)]
    pub write_back_after: Option<After>,
    /// Share of the cache that may be dirty; what is beyond it is written back at once
    /// [flashcache, enhanceio, bcache: 20%; prwc: 100%]
    #[arg(long, value_parser = ratio, value_name = "SHARE", hide_short_help = true)]
    pub write_back_above: Option<f64>,
    /// Write everything back when no client has sent a request for so long [never]
    #[arg(long, value_parser = after, value_name = "SPAN", hide_short_help = true)]
    pub write_back_idle: Option<After>,
    /// Which units are written back first beyond --write-back-above, and when idle [age]
    #[arg(long, value_name = "ORDER", hide_short_help = true)]
    pub write_back_order: Option<OrderArg>,
    /// Do not log which regions are dirty: writes to cached units wait for no record, and all units count as dirty after a
    /// restart [accepted with write-back of units]
    #[arg(long, hide_short_help = true)]
    pub assume_dirty: bool,
}

impl WriteBackArgs {
    fn given(&self) -> Option<&'static str> {
        let all = [
            ("write_back_after", self.write_back_after.is_some()),
            ("write_back_above", self.write_back_above.is_some()),
            ("write_back_idle", self.write_back_idle.is_some()),
            ("write_back_order", self.write_back_order.is_some()),
            ("assume_dirty", self.assume_dirty),
        ];
        all.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }
}

/// The choices with the user's changes.
pub fn apply(choices: &mut Choices, args: &WriteBackArgs) -> Result<()> {
    if !choices.write.owns_units() {
        let only =
            "accepted with write-back of units only (--preset prwc, or --write-policy write-back)";
        return match args.given() {
            Some(setting) => bail!(BadSetting::new(setting, only)),
            None => Ok(()),
        };
    }
    let sync = &mut choices.sync;
    if let Some(After(after)) = args.write_back_after {
        sync.period_ns = after;
    }
    if let Some(After(idle)) = args.write_back_idle {
        sync.idle_ns = idle;
    }
    sync.most_dirty = args.write_back_above.unwrap_or(sync.most_dirty);
    sync.order = match args.write_back_order {
        None => sync.order,
        Some(OrderArg::Age) => SyncOrder::Age,
        Some(OrderArg::Place) => SyncOrder::Place,
    };
    choices.dirty_log = !args.assume_dirty;
    Ok(())
}

/// The choices as keys and values.
pub fn decided(choices: &Choices) -> Vec<(&'static str, Vec<String>)> {
    if !choices.write.owns_units() {
        return Vec::new();
    }
    let sync = &choices.sync;
    let order = match sync.order {
        SyncOrder::Age => "age",
        SyncOrder::Place => "place",
    };
    vec![
        ("write_back_after", vec![format_after(sync.period_ns)]),
        ("write_back_above", vec![sync.most_dirty.to_string()]),
        ("write_back_idle", vec![format_after(sync.idle_ns)]),
        ("write_back_order", vec![order.to_owned()]),
        ("assume_dirty", vec![(!choices.dirty_log).to_string()]),
    ]
}
