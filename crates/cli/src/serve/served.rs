// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume that is being served.

use std::path::PathBuf;
use std::sync::Arc;

use larder_front::listen::Secure;
use larder_volume::Volume;

use super::config::Plan;

/// See the module.
pub struct Served {
    /// What it was asked to be.
    pub plan: Plan,
    /// Its control socket.
    pub control: PathBuf,
    /// What its clients are asked for, with TLS.
    pub secure: Option<Secure>,
    /// It.
    pub volume: Arc<Volume>,
}
