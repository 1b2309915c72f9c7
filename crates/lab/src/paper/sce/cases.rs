// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configurations of SCE's ablation (Figure 11), and what their runs gave.

use std::rc::Rc;

use anyhow::Result;

use super::super::Asked;
use super::super::runs::{HIT_RATIO, Runs, TOOK};

/// The four configurations.
pub(super) struct Ablation {
    fragments: Rc<Runs>,
    around: Rc<Runs>,
}

/// One of them.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Case {
    Base,
    NoAwt,
    Small,
    Large,
}

impl Case {
    pub(super) const ALL: [Self; 4] = [Self::Base, Self::NoAwt, Self::Small, Self::Large];

    /// As in Figure 11.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::NoAwt => "no AWT",
            Self::Small => "128 KiB",
            Self::Large => "8 MiB",
        }
    }

    /// Read hits of the last hour, in per cent (Figure 11b).
    pub(super) fn paper_hits(self) -> f64 {
        match self {
            Self::Base | Self::Small => 91.1,
            Self::NoAwt => 73.6,
            Self::Large => 89.8,
        }
    }

    /// Response time in ms (Figure 11c).
    pub(super) fn paper_ms(self) -> f64 {
        match self {
            Self::Base | Self::Small => 6.3,
            Self::NoAwt => 10.5,
            Self::Large => 17.0,
        }
    }
}

impl Ablation {
    /// Runs what is missing of their points.
    pub(super) fn of(asked: &Asked) -> Result<Self> {
        Ok(Self {
            fragments: Runs::of(asked, crate::scenario_file!("sce-fragments"))?,
            around: Runs::of(asked, crate::scenario_file!("sce-write-around"))?,
        })
    }

    fn at(&self, case: Case) -> (&Runs, &'static str, &'static str) {
        match case {
            Case::Base => (&self.fragments, "unit_kib", "1024"),
            Case::Small => (&self.fragments, "unit_kib", "128"),
            Case::Large => (&self.fragments, "unit_kib", "8192"),
            Case::NoAwt => (&self.around, "", ""),
        }
    }

    /// A figure of a configuration, of each seed.
    pub(super) fn figure(&self, case: Case, figure: &str) -> Result<Vec<f64>> {
        let (runs, path, value) = self.at(case);
        runs.numbers(path, value, &format!("/{figure}"))
    }

    /// Read hits of the last hour, in per cent.
    pub(super) fn hits(&self, case: Case) -> Result<Vec<f64>> {
        Ok(self.figure(case, HIT_RATIO)?.iter().map(|ratio| ratio * 100.0).collect())
    }

    /// The mean of a transaction in the last hour, in ms.
    pub(super) fn ms(&self, case: Case) -> Result<Vec<f64>> {
        Ok(self.figure(case, TOOK)?.iter().map(|us| us / 1e3).collect())
    }

    /// A figure of each of the paper's minutes.
    pub(super) fn samples(&self, case: Case, figure: &str) -> Result<Vec<Vec<f64>>> {
        let (runs, path, value) = self.at(case);
        runs.lists(path, value, &format!("/samples/{figure}"))
    }

    /// The scale of the runs.
    pub(super) fn scale(&self) -> String {
        self.fragments.scale()
    }
}
