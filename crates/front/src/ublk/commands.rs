// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands of the ublk driver, so that what uses them can be tested without it.

use larder_core::request::Errno;
use larder_io::ublk::{Control, DeviceInfo, Params};

/// The driver's commands, as [`Control`] documents them.
#[allow(missing_docs, clippy::missing_errors_doc)]
pub trait Commands {
    /// The numbers of all devices.
    fn numbers(&mut self) -> Vec<u32>;
    fn add(&mut self, info: DeviceInfo) -> Result<DeviceInfo, Errno>;
    fn info(&mut self, id: u32) -> Result<DeviceInfo, Errno>;
    fn set_params(&mut self, id: u32, params: Params) -> Result<(), Errno>;
    fn params(&mut self, id: u32) -> Result<Params, Errno>;
    fn start(&mut self, id: u32, server_pid: u32) -> Result<(), Errno>;
    fn stop(&mut self, id: u32) -> Result<(), Errno>;
    fn delete(&mut self, id: u32) -> Result<(), Errno>;
    fn start_recovery(&mut self, id: u32) -> Result<(), Errno>;
    fn end_recovery(&mut self, id: u32, server_pid: u32) -> Result<(), Errno>;
}

impl Commands for Control {
    fn numbers(&mut self) -> Vec<u32> {
        let names = std::fs::read_dir("/sys/class/ublk-char").into_iter().flatten().flatten();
        let number = |name: std::ffi::OsString| name.to_str()?.strip_prefix("ublkc")?.parse().ok();
        names.filter_map(|entry| number(entry.file_name())).collect()
    }

    fn add(&mut self, info: DeviceInfo) -> Result<DeviceInfo, Errno> {
        self.add(info)
    }

    fn info(&mut self, id: u32) -> Result<DeviceInfo, Errno> {
        self.info(id)
    }

    fn set_params(&mut self, id: u32, params: Params) -> Result<(), Errno> {
        self.set_params(id, params)
    }

    fn params(&mut self, id: u32) -> Result<Params, Errno> {
        self.params(id)
    }

    fn start(&mut self, id: u32, server_pid: u32) -> Result<(), Errno> {
        self.start(id, server_pid)
    }

    fn stop(&mut self, id: u32) -> Result<(), Errno> {
        self.stop(id)
    }

    fn delete(&mut self, id: u32) -> Result<(), Errno> {
        self.delete(id)
    }

    fn start_recovery(&mut self, id: u32) -> Result<(), Errno> {
        self.start_recovery(id)
    }

    fn end_recovery(&mut self, id: u32, server_pid: u32) -> Result<(), Errno> {
        self.end_recovery(id, server_pid)
    }
}

#[cfg(test)]
pub(super) mod fake;
