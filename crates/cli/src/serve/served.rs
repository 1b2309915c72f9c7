// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache that is being served, with its volumes.

use std::sync::Arc;

use larder_front::control::Target;
use larder_volume::{Cache, Volume};

use super::config::Plan;
use super::open::Way;

/// The cache with its settings.
pub struct Served {
    /// Its settings.
    pub plan: Plan,
    /// The preset in use.
    pub preset: String,
    /// How its volumes are reached, in their order.
    pub ways: Vec<Way>,
    /// How the cache is reached, if volumes share it.
    pub own_way: Option<Way>,
    /// The cache.
    pub cache: Arc<Cache>,
    /// Its volumes.
    pub volumes: Vec<Arc<Volume>>,
}

/// A volume with its settings.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    pub plan: &'a Plan,
    pub way: &'a Way,
    pub volume: &'a Arc<Volume>,
}

impl Served {
    /// Its volumes with their settings.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let plans = self.plan.volumes().iter().zip(&self.ways).zip(&self.volumes);
        plans.map(|((plan, way), volume)| Entry { plan, way, volume })
    }

    /// What control sockets are for, and where each is.
    pub fn targets(&self) -> impl Iterator<Item = (Target, &Way, &Plan)> {
        let own = self
            .own_way
            .iter()
            .map(|way| (Target::Cache(Arc::clone(&self.cache)), way, &self.plan));
        let each = self
            .entries()
            .map(|Entry { plan, way, volume }| (Target::Volume(Arc::clone(volume)), way, plan));
        own.chain(each)
    }
}
