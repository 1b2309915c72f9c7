// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command that changes how much of the flash device is in use.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use larder_volume::{Cache, VolumeError};
use serde_json::{Value, json};

use super::follow::Follow;

/// Uses `flash_bytes` of the device, or all that it has.
pub(super) fn serve(
    cache: &Arc<Cache>,
    (flash_bytes, bound): (Option<u64>, Duration),
    stream: &UnixStream,
    tell: impl FnMut(String),
) -> Result<Value, VolumeError> {
    let unit_bytes = cache.config().choices.cached_bytes();
    let (mut follow, mut all) = (Follow::new("resize", stream, tell), 0);
    let mut progress = |left: u64| {
        all = left.max(all);
        follow.goes_on((all - left) * unit_bytes, all * unit_bytes)
    };
    cache.resize_flash(flash_bytes, bound, &mut progress).map(|resized| json!(resized))
}
