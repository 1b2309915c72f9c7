// SPDX-License-Identifier: MIT OR Apache-2.0
//! The effective configuration as TOML.
//!
//! Invariants: the output is a configuration file with the same meaning. Values that a preset or this machine decides
//! (choices, workers, the control socket) are written out.

use anyhow::{Context, Result};
use clap::{Arg, ArgAction};
use toml::Value;

use super::super::open::{Preset, state_file};
use super::keys::{COMMAND_LINE, MEMBER, PROCESS, command, is_of_volume};
use super::plan::Plan;
use crate::choices::{self, choices};
use crate::control::default_control;
use crate::workers::workers;

/// The plans as one file.
pub fn print(plans: &[Plan]) -> Result<String> {
    let Some(first) = plans.first() else { return Ok(String::new()) };
    let process = |key: &str| PROCESS.contains(&key);
    let mut text = lines(first, process)?;
    let member = |key: &str| MEMBER.contains(&key);
    for plan in plans {
        let own = |key: &str| !process(key) && !member(key);
        if !plan.is_shared() && !plan.several {
            text += &lines(plan, own)?;
            continue;
        }
        let name = Value::from(plan.args.name.clone());
        if !plan.is_shared() {
            text += &format!("\n[volume.{name}]\n");
            text += &lines(plan, |key| own(key) && key != "name")?;
            continue;
        }
        text += &format!("\n[cache.{name}]\n");
        let of_volumes = |key: &str| is_of_volume(key) && key != "control_group";
        text += &lines(plan, |key| own(key) && !of_volumes(key) || key == "control")?;
        for volume in plan.volumes() {
            text += &format!("\n[volume.{}]\n", Value::from(volume.args.name.clone()));
            text += &lines(volume, |key| is_of_volume(key) && key != "name")?;
        }
    }
    Ok(text.trim_end().to_owned())
}

/// The keys whose effective values differ, of a cache and its volumes.
pub fn differences(old: &Plan, new: &Plan) -> Result<Vec<String>> {
    let mut keys = Vec::new();
    let volumes = |plan: &Plan| {
        let shared = plan.is_shared();
        let volumes = plan.volumes().iter().filter(|_| shared);
        volumes.map(|v| (v.args.name.clone(), lines(v, |_| true))).collect::<Vec<_>>()
    };
    let (before, after) = (lines(old, |_| true)?, lines(new, |_| true)?);
    keys.extend(differing(&before, &after));
    let (before, after) = (volumes(old), volumes(new));
    if before.len() != after.len() {
        keys.push("volumes".to_owned());
    }
    for ((name, old), (other, new)) in before.into_iter().zip(after) {
        match name == other {
            true => keys.extend(differing(&old?, &new?)),
            false => keys.push("volumes".to_owned()),
        }
    }
    keys.sort();
    keys.dedup();
    Ok(keys)
}

/// The keys of lines that only one of two texts has.
fn differing(old: &str, new: &str) -> Vec<String> {
    let only = |of: &str, other: &str| -> Vec<String> {
        let other: Vec<&str> = other.lines().collect();
        let lines = of.lines().filter(|line| !other.contains(line));
        lines.filter_map(|line| Some(line.split_once(" = ")?.0.to_owned())).collect()
    };
    [only(old, new), only(new, old)].concat()
}

/// `key = value` of every key that is wanted and has a value.
fn lines(plan: &Plan, wanted: impl Fn(&str) -> bool) -> Result<String> {
    let decided = decided(plan).map_err(|e| plan.locate(e))?;
    let mut text = String::new();
    for arg in command().get_arguments() {
        let key = arg.get_id().as_str();
        if COMMAND_LINE.contains(&key) || !wanted(key) {
            continue;
        }
        let mut values = said(plan, arg)?;
        if values.is_empty() {
            let of_key = decided.iter().find(|(k, _)| *k == key);
            values = of_key.map(|(_, values)| values.clone()).unwrap_or_default();
        }
        let values: Vec<Value> = values.into_iter().map(|v| value(arg, v)).collect();
        match (arg.get_action(), values.as_slice()) {
            (_, []) => {}
            (ArgAction::SetTrue, _) => text += &format!("{key} = true\n"),
            (ArgAction::Append, _) => text += &format!("{key} = {}\n", Value::Array(values)),
            (_, [value, ..]) => text += &format!("{key} = {value}\n"),
        }
    }
    Ok(text)
}

/// The values of a flag, given or by default; none of a switch that is off.
fn said(plan: &Plan, arg: &Arg) -> Result<Vec<String>> {
    let id = arg.get_id().as_str();
    if !arg.get_action().takes_values() {
        let on = plan.matches.get_flag(id);
        return Ok(if on { vec![String::new()] } else { vec![] });
    }
    let text = |value: &std::ffi::OsStr| {
        let text = value.to_str().with_context(|| format!("--{id}: is no UTF-8, as TOML must be"));
        text.map(|text| present_name(arg, text))
    };
    plan.matches.get_raw(id).into_iter().flatten().map(text).collect()
}

/// A value by its present name, where it was given by an earlier one.
fn present_name(arg: &Arg, text: &str) -> String {
    let values = arg.get_possible_values();
    let known = values.iter().find(|value| value.matches(text, false));
    known.map_or(text, |value| value.get_name()).to_owned()
}

/// A count is a number; all else is text.
fn value(arg: &Arg, text: String) -> Value {
    let name = arg.get_value_names().and_then(|names| names.first());
    let counts = name.is_some_and(|name| name == "N" || name == "N,..");
    match text.parse::<i64>() {
        Ok(number) if counts => Value::Integer(number),
        _ => Value::String(text),
    }
}

/// The values that the preset or the machine decides.
fn decided(plan: &Plan) -> Result<Vec<(&'static str, Vec<String>)>> {
    let args = &plan.args;
    let preset = Preset::of(args, state_file(plan).as_ref().ok())?.name;
    let mut decided = choices::decided(&choices(&preset, &args.choices)?);
    decided.push(("preset", vec![preset]));
    args.limits.limits()?;
    args.limits.remote()?;
    decided.push(("workers", vec![workers(args.workers)?.to_string()]));
    // Without a directory for sockets there is no default; a start reports this.
    if let Ok(control) = default_control(&args.name) {
        decided.push(("control", vec![control.display().to_string()]));
    }
    Ok(decided)
}
