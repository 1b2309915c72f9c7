// SPDX-License-Identifier: MIT OR Apache-2.0
//! What lies on a flash device, and where: the label, and the places of slots, metadata and page logs.

pub mod label;
mod plan;

pub use self::plan::{FlashPlan, Keeps, MetadataPlan};
