// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checkpointer: writes the state of a cache to the other half of its metadata, where the log continues.
//!
//! A checkpoint marks the other half as incomplete in its header; enqueues all records from the snapshot on to both logs;
//! writes the payload; flushes both devices; and lets the committer switch. It does not begin while an operation of an
//! earlier attempt is overdue, which could overwrite the new bytes.
//!
//! A checkpoint is due at the start, when half of the log is used, and on request. Between checkpoints a clean cache logs
//! changed units (`clean.rs`).

use std::rc::{Rc, Weak};

use super::base::{Base, Journal};
use super::log::{LogFailed, Switch};
use super::record::Record;
use crate::checksum::Digest;
use crate::mutant;

/// Bytes of a payload written at a time.
const CHUNK: usize = 1 << 20;

/// A journal that writes checkpoints.
pub(crate) trait Checkpointed: Journal {
    /// The state of the units before a snapshot, which a failed checkpoint restores.
    type Before;

    /// Whether a record that is pending at the snapshot belongs in the next log too.
    fn carries(record: &Record) -> bool;
    /// Takes the snapshot: the units in all slots count as logged.
    fn begin(&self) -> Self::Before;
    fn restore(&self, before: Self::Before);
    /// Appends a slot's entry of the payload.
    fn entry(&self, slot: u32, out: &mut Vec<u8>);
    /// Makes the data of a snapshot and its payload durable. Returns false if the payload may be lost: it must be written
    /// again.
    async fn flush_devices(&self, before: &mut Self::Before) -> Result<bool, LogFailed>;
    /// Logs some changed units; returns whether there are more.
    async fn log_batch(&self) -> Result<bool, LogFailed>;
    /// A checkpoint is durable.
    fn completed(&self) {}
}

/// The task of the checkpointer.
pub(super) async fn run<J: Checkpointed>(journal: Weak<J>) {
    while let Some(journal) = journal.upgrade() {
        let Base { cx, progress, .. } = journal.base();
        let (log, period) = (journal.base().log(), cx.limits.get().checkpoint);
        if log.has_failed() || log.flash.closed() {
            return;
        }
        if log.is_new() || log.is_filling() || progress.save.get() {
            progress.save.set(false);
            progress.logging.set(true);
            let done = checkpoint(&*journal).await;
            progress.logging.set(false);
            if done.is_err() {
                // Every write would wait for the next attempt, which might fail too.
                if log.room() == 0 && !mutant::is_active("full-log-retries") {
                    log.fail();
                    log.flash.fail("its log is full, and its checkpoint failed".to_owned());
                }
                log.exec.sleep(period).await;
            }
            continue;
        }
        progress.logging.set(true);
        while journal.log_batch().await == Ok(true) {}
        progress.logging.set(false);
        if log.is_filling() {
            continue;
        }
        // A log that fills wakes it early. The task holds no reference to the journal while it waits.
        let (due, exec) = (Rc::clone(&log.checkpoint_due), log.exec.clone());
        drop(journal);
        due.wait_for(period, &exec).await;
    }
}

/// Writes the whole state to the other half, where the log continues.
async fn checkpoint<J: Checkpointed>(journal: &J) -> Result<(), LogFailed> {
    let log = journal.base().log();
    let (half, generation) = log.begin_half().await?;
    log.note_snapshot(J::carries);
    let mut before = journal.begin();
    match durable_payload(journal, half, &mut before).await {
        Ok(payload_crc) => {
            log.switch_to(Switch { half, generation, payload_crc }).await?;
            journal.completed();
            Ok(())
        }
        Err(failed) => {
            log.forget_snapshot();
            journal.restore(before);
            Err(failed)
        }
    }
}

/// Writes a payload until it is durable; returns its checksum.
async fn durable_payload<J: Checkpointed>(
    journal: &J,
    half: u8,
    before: &mut J::Before,
) -> Result<u32, LogFailed> {
    loop {
        let payload_crc = write_payload(journal, half).await?;
        if journal.flush_devices(before).await? {
            return Ok(payload_crc);
        }
    }
}

/// Writes a payload; returns its checksum.
async fn write_payload<J: Checkpointed>(journal: &J, half: u8) -> Result<u32, LogFailed> {
    let log = journal.base().log();
    let (layout, start) = (&log.layout, log.layout.payload(half));
    let entry = layout.entry_bytes();
    let mut digest = Digest::default();
    let (mut slot, mut at, mut pending) = (0, 0, Vec::with_capacity(CHUNK + entry));
    while at < layout.payload_bytes {
        while pending.len() < CHUNK && slot < layout.slots {
            journal.entry(slot, &mut pending);
            slot += 1;
        }
        if slot == layout.slots {
            slot += 1;
            journal.base().factors(&mut pending);
            pending.resize((layout.payload_bytes - at) as usize, 0);
        }
        let len = pending.len().min(CHUNK);
        let rest = pending.split_off(len);
        digest.update(&pending);
        log.write_payload(start + at, &pending).await?;
        at += len as u64;
        pending = rest;
    }
    Ok(digest.finish())
}
