// SPDX-License-Identifier: MIT OR Apache-2.0
//! S21: what the introduction states of devices of its time.

use anyhow::{Context, Result};
use larder_model::profiles;

use super::super::{Asked, At, Row};

/// The row.
pub(super) fn rows(_: &Asked) -> Result<Vec<Row>> {
    let read_us = |name: &str| {
        let found = profiles().iter().find(|p| p.name == name);
        found
            .map(|p| 1e6 / p.rated.read_iops_qd1 as f64)
            .with_context(|| format!("no profile {name}"))
    };
    let (disk, flash) = (read_us("hdd-15k")?, read_us("ssd-s3500")?);
    let why = "It is a statement of devices and prices of 2014, without a source or a way of measuring, of which \
               no program can compute anything.";
    let mut row = Row::not_reproducible("S21", why)?;
    let ours = Some((disk / flash).round());
    row.points =
        vec![At { at: "disk over flash, one random read".into(), paper: Some(20.0), ours }];
    Ok(vec![row])
}
