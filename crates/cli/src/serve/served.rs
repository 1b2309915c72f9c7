// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume that is being served.

use std::path::PathBuf;
use std::sync::Arc;

use larder_front::listen::Secure;
use larder_volume::Volume;

use super::config::Plan;

/// The volume with its settings.
pub struct Served {
    /// Its settings.
    pub plan: Plan,
    /// Its control socket.
    pub control: PathBuf,
    /// The group whose members may read the state and the counters.
    pub readers: Option<u32>,
    /// The TLS that its clients need.
    pub secure: Option<Secure>,
    /// The volume.
    pub volume: Arc<Volume>,
}
