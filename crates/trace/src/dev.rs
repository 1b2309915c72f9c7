// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices by name: formats with device names number them in the order of their first appearance.

/// The longest device name.
const NAME_BYTES: usize = 4096;

/// The names found so far; at most 256, because a record's device is a byte.
#[derive(Default)]
pub(crate) struct Devices(Vec<String>);

impl Devices {
    /// The number of a device that appeared before.
    pub(crate) fn known(&self, name: &str) -> Option<u8> {
        self.0.iter().position(|known| known == name).map(|n| n as u8)
    }

    /// The number of a device; assigns one at its first appearance.
    pub(crate) fn number(&mut self, name: &str) -> Result<u8, String> {
        if let Some(known) = self.known(name) {
            return Ok(known);
        }
        let number = u8::try_from(self.0.len())
            .map_err(|_| "names a 257th device; accepted: at most 256".to_owned())?;
        if name.len() > NAME_BYTES {
            return Err(format!(
                "has a device name of {} bytes; accepted: at most 4096",
                name.len()
            ));
        }
        self.0.push(name.to_owned());
        Ok(number)
    }
}
