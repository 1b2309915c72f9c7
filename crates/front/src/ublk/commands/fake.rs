// SPDX-License-Identifier: MIT OR Apache-2.0
//! A driver of devices that have no requests.

use std::collections::BTreeMap;

use larder_io::ublk::uapi::{feature, state};

use super::*;

/// A device of the driver.
#[derive(Clone, Debug, Default)]
pub struct Device {
    pub info: DeviceInfo,
    pub params: Params,
    /// How often its state is reported before its server's end is noticed, and recovery is refused.
    pub ending: u32,
    /// How often its number stays taken after it was removed.
    pub leaving: u32,
}

/// The driver.
#[derive(Default)]
pub struct Fake {
    pub devices: BTreeMap<u32, Device>,
    pub log: Vec<String>,
}

impl Fake {
    fn get(&mut self, id: u32) -> Result<&mut Device, Errno> {
        self.devices.get_mut(&id).ok_or(Errno::ENODEV)
    }
}

impl Commands for Fake {
    fn numbers(&mut self) -> Vec<u32> {
        self.devices.keys().copied().collect()
    }

    fn add(&mut self, info: DeviceInfo) -> Result<DeviceInfo, Errno> {
        let free = (0..).find(|id| !self.devices.contains_key(id)).unwrap();
        let id = if info.id == u32::MAX { free } else { info.id };
        if let Some(device) = self.devices.get_mut(&id) {
            if device.leaving > 0 {
                device.leaving -= 1;
                return Err(Errno(17));
            }
            assert_eq!(device.info.server_word, 0, "an old device was not removed");
        }
        let info = DeviceInfo { id, ..info };
        self.log.push(format!("add {id}"));
        self.devices.insert(id, Device { info, ..Device::default() });
        Ok(info)
    }

    fn info(&mut self, id: u32) -> Result<DeviceInfo, Errno> {
        let device = self.get(id)?;
        if device.info.server_word == 0 {
            return Err(Errno::ENODEV);
        }
        if device.ending > 0 {
            device.ending -= 1;
            return Ok(DeviceInfo { state: state::LIVE, ..device.info });
        }
        Ok(device.info)
    }

    fn set_params(&mut self, id: u32, params: Params) -> Result<(), Errno> {
        self.get(id)?.params = params;
        Ok(())
    }

    fn params(&mut self, id: u32) -> Result<Params, Errno> {
        Ok(self.get(id)?.params)
    }

    fn start(&mut self, id: u32, server_pid: u32) -> Result<(), Errno> {
        let info = &mut self.get(id)?.info;
        (info.state, info.server_pid) = (state::LIVE, server_pid as i32);
        self.log.push(format!("start {id}"));
        Ok(())
    }

    fn stop(&mut self, id: u32) -> Result<(), Errno> {
        self.get(id)?.info.state = state::DEAD;
        self.log.push(format!("stop {id}"));
        Ok(())
    }

    fn delete(&mut self, id: u32) -> Result<(), Errno> {
        let device = self.get(id)?;
        match device.leaving {
            0 => drop(self.devices.remove(&id)),
            _ => device.info.server_word = 0,
        }
        self.log.push(format!("delete {id}"));
        Ok(())
    }

    fn start_recovery(&mut self, id: u32) -> Result<(), Errno> {
        let device = self.get(id)?;
        if device.ending > 0 {
            device.ending -= 1;
            return Err(Errno(16));
        }
        let may = device.info.flags & feature::RECOVERY != 0;
        self.log.push(format!("recover {id}"));
        if may { Ok(()) } else { Err(Errno::EINVAL) }
    }

    fn end_recovery(&mut self, id: u32, server_pid: u32) -> Result<(), Errno> {
        self.start(id, server_pid)
    }
}
