// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a volume fits into memory: decided before it starts (design rule 11).

use super::error::VolumeError;

/// Refuses volumes that may need more memory than is available. `needed` is the sum of their largest sizes in bytes.
///
/// # Errors
/// When less memory is available. An unknown amount counts as enough.
pub fn check_memory(needed: u64) -> Result<(), VolumeError> {
    let available = larder_io::process::available_memory();
    match available {
        Some(available) if needed > available => Err(VolumeError::Refused(format!(
            "this needs {} of memory at worst and {} is available; use a larger --unit, a smaller --flash-size, or more memory",
            larder_io::rough_size(needed),
            larder_io::rough_size(available)
        ))),
        _ => Ok(()),
    }
}
