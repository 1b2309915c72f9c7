// SPDX-License-Identifier: MIT OR Apache-2.0
//! Choices that settings name, as the command line does.

use larder_core::config::{ReplacementChoice, WritePolicy};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A choice that has a name.
pub trait Named: Copy + 'static {
    /// Those that are accepted while a cache serves.
    const ACCEPTED: &'static [(&'static str, Self)];

    /// Its name, if it has one.
    fn name(self) -> Option<&'static str>;
}

impl Named for WritePolicy {
    const ACCEPTED: &'static [(&'static str, Self)] = Self::COPIES;

    fn name(self) -> Option<&'static str> {
        Some(Self::name(self))
    }
}

impl Named for ReplacementChoice {
    const ACCEPTED: &'static [(&'static str, Self)] = Self::NAMED;

    fn name(self) -> Option<&'static str> {
        Self::name(self)
    }
}

/// A choice that is read and written by its name.
#[derive(Clone, Copy, Debug)]
pub struct ByName<T>(pub T);

impl<T: Named> ByName<T> {
    /// That of an accepted name.
    ///
    /// # Errors
    /// With the names that are accepted.
    pub fn parse(name: &str) -> Result<Self, String> {
        let found = T::ACCEPTED.iter().find(|(of, _)| *of == name);
        found.map(|(_, choice)| Self(*choice)).ok_or_else(|| {
            let names: Vec<&str> = T::ACCEPTED.iter().map(|(name, _)| *name).collect();
            format!("got '{name}', accepted {}", names.join(", "))
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.name().unwrap_or_default()
    }
}

impl<T: Named> PartialEq for ByName<T> {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl<T: Named> Serialize for ByName<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl<'a, T: Named> Deserialize<'a> for ByName<T> {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}
