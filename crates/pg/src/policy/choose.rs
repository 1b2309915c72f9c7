// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps the name of a policy to its implementation.

use larder_core::pagelog::LogPolicy;

use super::Policy;
use super::bounded::Bounded;
use super::full::Full;
use super::through::Through;

/// See the module.
#[must_use]
pub fn choose(policy: LogPolicy) -> &'static dyn Policy {
    match policy {
        LogPolicy::Through => &Through,
        LogPolicy::Bounded => &Bounded,
        LogPolicy::Full => &Full,
    }
}
