// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands to `/dev/ublk-control`.
//!
//! Invariants: a command runs until it ends, however long it takes, and memory that it names exists until then; the caller
//! runs commands on a thread of their own. After an error of the ring no further command is submitted, since the ring may
//! still have the last one.
//!
//! Why another ring: these commands need entries of 128 bytes, block for seconds, and wait for the workers.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};

use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use larder_core::request::Errno;
use rustix::fs::{Mode, OFlags};

use super::uapi::{ControlCommand, DeviceInfo, Params, command};
use crate::errno::{from_cqe, from_std, from_sys};

/// The device of the driver.
const PATH: &str = "/dev/ublk-control";
/// Not for a queue.
const NO_QUEUE: u16 = u16::MAX;

/// The driver's control device.
pub struct Control {
    ring: IoUring<Entry128, cqueue::Entry>,
    device: OwnedFd,
    failed: Option<Errno>,
}

impl Control {
    /// Opens the control device.
    ///
    /// # Errors
    /// ENOENT without the driver; EACCES without the right; others if a ring cannot be made.
    pub fn open() -> Result<Self, Errno> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let device = rustix::fs::open(PATH, flags, Mode::empty()).map_err(from_sys)?;
        let ring = IoUring::builder().dontfork().build(4).map_err(|e| from_std(&e))?;
        Ok(Self { ring, device, failed: None })
    }

    /// # Safety
    /// `address` and `len` are memory that the command may use until this returns.
    unsafe fn run(&mut self, number: u32, command: ControlCommand) -> Result<(), Errno> {
        if let Some(errno) = self.failed {
            return Err(errno);
        }
        let command = ControlCommand { queue: NO_QUEUE, ..command };
        let fd = types::Fd(self.device.as_raw_fd());
        let entry = opcode::UringCmd80::new(fd, number).cmd(command.bytes()).build();
        // SAFETY: this function's contract; it returns when the command has ended, or never submits again.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        if pushed.is_err() {
            return Err(*self.failed.insert(Errno::EIO));
        }
        loop {
            match self.ring.submit_and_wait(1).map_err(|e| from_std(&e)) {
                // EINTR, EAGAIN, EBUSY.
                Ok(_) | Err(Errno(4 | 11 | 16)) => {}
                Err(errno) => return Err(*self.failed.insert(errno)),
            }
            if let Some(done) = self.ring.completion().next() {
                return from_cqe(done.result()).map(drop);
            }
        }
    }

    /// A command without memory.
    fn plain(&mut self, number: u32, id: u32, data: u64) -> Result<(), Errno> {
        // SAFETY: there is no memory.
        unsafe { self.run(number, ControlCommand { id, data, ..ControlCommand::default() }) }
    }

    /// A command with a value that it reads or writes.
    fn with<T>(&mut self, number: u32, id: u32, value: &mut T, len: usize) -> Result<(), Errno> {
        debug_assert!(len <= size_of::<T>());
        let address = std::ptr::from_mut(value).expose_provenance() as u64;
        let len = len as u16;
        // SAFETY: the value is borrowed until this returns, has `len` bytes, and any bytes are a valid value of the types
        // that are given: words, and structures of words.
        unsafe {
            self.run(number, ControlCommand { id, len, address, ..ControlCommand::default() })
        }
    }

    /// The features of the driver.
    ///
    /// # Errors
    /// The kernel is older than 6.5.
    pub fn features(&mut self) -> Result<u64, Errno> {
        let mut features = 0_u64;
        self.with(command::FEATURES, 0, &mut features, size_of::<u64>())?;
        Ok(features)
    }

    /// Adds a device with the number in `info`; `u32::MAX` leaves the choice to the driver. Returns what it added.
    ///
    /// # Errors
    /// EEXIST if the number is taken; others.
    pub fn add(&mut self, mut info: DeviceInfo) -> Result<DeviceInfo, Errno> {
        self.with(command::ADD, info.id, &mut info, size_of::<DeviceInfo>())?;
        Ok(info)
    }

    /// A device.
    ///
    /// # Errors
    /// ENODEV if there is none of this number; others.
    pub fn info(&mut self, id: u32) -> Result<DeviceInfo, Errno> {
        let mut info = DeviceInfo::default();
        self.with(command::INFO, id, &mut info, size_of::<DeviceInfo>())?;
        Ok(info)
    }

    /// Sets the parameters of a device that was not started.
    ///
    /// # Errors
    /// The driver rejects them.
    pub fn set_params(&mut self, id: u32, mut params: Params) -> Result<(), Errno> {
        self.with(command::SET_PARAMS, id, &mut params, Params::BYTES)
    }

    /// The parameters of a device.
    ///
    /// # Errors
    /// There is no such device.
    pub fn params(&mut self, id: u32) -> Result<Params, Errno> {
        let mut params = Params::new(Default::default(), Default::default());
        self.with(command::GET_PARAMS, id, &mut params, Params::BYTES)?;
        Ok(params)
    }

    /// Makes the block device; waits until all queues fetch.
    ///
    /// # Errors
    /// The driver's.
    pub fn start(&mut self, id: u32, server_pid: u32) -> Result<(), Errno> {
        self.plain(command::START, id, server_pid.into())
    }

    /// Removes the block device; waits until its requests have ended.
    ///
    /// # Errors
    /// The driver's.
    pub fn stop(&mut self, id: u32) -> Result<(), Errno> {
        self.plain(command::STOP, id, 0)
    }

    /// Removes a device. Its number is free when the last user of the character device and the block device has closed it.
    ///
    /// # Errors
    /// The driver's.
    pub fn delete(&mut self, id: u32) -> Result<(), Errno> {
        match self.plain(command::DELETE_LATER, id, 0) {
            // Linux before 6.9.
            Err(Errno::EOPNOTSUPP | Errno::EINVAL) => self.plain(command::DELETE, id, 0),
            done => done,
        }
    }

    /// Prepares a device whose server ended for another one.
    ///
    /// # Errors
    /// EBUSY while the kernel ends the earlier server; others.
    pub fn start_recovery(&mut self, id: u32) -> Result<(), Errno> {
        self.plain(command::START_RECOVERY, id, 0)
    }

    /// Continues with requests; waits until all queues fetch.
    ///
    /// # Errors
    /// The driver's.
    pub fn end_recovery(&mut self, id: u32, server_pid: u32) -> Result<(), Errno> {
        self.plain(command::END_RECOVERY, id, server_pid.into())
    }
}
