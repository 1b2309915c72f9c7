// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mutants of page logs.

use super::kind::{Mutant, mutant};

/// See the module.
pub(super) const MUTANTS: &[Mutant] = &[
    mutant("page-log-no-gap", "L1", "the log overwrites the pages that it is evicting (hole 1)"),
    mutant("page-log-tail-volatile", "L1", "blocks are overwritten before the tail is durable"),
    mutant(
        "page-log-any-lap",
        "L3",
        "a batch header of an older lap is accepted, as a page LSN alone would allow (hole 2)",
    ),
    mutant("page-log-generation-volatile", "L3", "a start writes no log header of its own"),
    mutant("page-log-rebuilt-clean", "L4", "recovered pages count as clean (hole 3)"),
    mutant("page-log-no-tombstone", "L5", "a trim appends no tombstone (hole 4)"),
    mutant(
        "page-log-tombstone-late",
        "L5",
        "the origin is trimmed before the tombstone is durable",
    ),
    mutant(
        "page-log-torn-batch",
        "L3",
        "pages of the last batches are accepted without verifying their checksums",
    ),
    mutant(
        "write-back-trusts-next-flush",
        "7",
        "under write-back, after a failed flush of flash the next one that succeeds counts for what was written before",
    ),
    mutant(
        "write-back-reads-unverified",
        "3",
        "under write-back, a read returns what flash has, although a failed flush lost a newer write",
    ),
    mutant(
        "flush-before-drop",
        "7",
        "under write-back, FLUSH is acknowledged while recovery would find a unit in the slot that it left",
    ),
    mutant(
        "flush-before-replacement",
        "7",
        "under write-back, FLUSH is acknowledged when a lost sector was written again, before that is durable",
    ),
    mutant(
        "exchange-trusts-lost-copy",
        "9",
        "a unit counts as cached although a failed flush may have lost its copy",
    ),
    mutant(
        "checkpoint-trusts-lost-payload",
        "8",
        "a checkpoint is used although a failed flush may have lost its payload",
    ),
    mutant("page-log-unchecked", "L8", "the checksum of a page is not verified"),
    mutant("page-log-ack-before-flush", "7", "FLUSH is acknowledged before the log is durable"),
    mutant(
        "page-log-trusts-next-flush",
        "L11",
        "after a failed flush of flash, the next one that succeeds counts for what was written before",
    ),
    mutant(
        "page-log-flush-before-replacement",
        "L11",
        "FLUSH is acknowledged when a lost page has a newer version, before that is durable",
    ),
    mutant(
        "page-log-fua-ignores-losses",
        "L11",
        "a write with FUA is acknowledged although flash lost it before it was durable",
    ),
    mutant(
        "page-log-fails-for-good",
        "12",
        "an outage of flash fails the log until a restart, although flash works again",
    ),
    mutant(
        "page-log-bypass-unrecorded",
        "L12",
        "a write past a failed log is answered before recovery ignores the log's older version",
    ),
    mutant("page-log-settled-unflushed", "7", "the log counts as durable without a flush of flash"),
    mutant(
        "page-log-leave-unwritten",
        "L2",
        "a dirty page is evicted without a copy to the origin",
    ),
    mutant(
        "page-log-leave-unflushed",
        "L2",
        "the tail passes pages that the origin has not made durable",
    ),
    mutant(
        "page-log-again-undurable",
        "L2",
        "the tail passes pages whose second copy at the head is not durable",
    ),
    mutant("page-log-again-clean", "L2", "a dirty page that is appended again counts as clean"),
    mutant("page-log-seal-forgets", "L9", "a sealed log records every page that it holds as valid"),
    mutant(
        "page-log-stale-fill",
        "4",
        "a page that was read is appended although it was written meanwhile",
    ),
    mutant(
        "page-log-put-before-claim",
        "4",
        "a page that was read is appended although another version was appended after the lookup",
    ),
    mutant("page-log-one-header", "L6", "the log header is written in place"),
    mutant(
        "page-log-tail-in-one-header",
        "L1",
        "one log header is enough to free the blocks behind the tail",
    ),
    mutant(
        "page-log-seal-unflushed",
        "L9",
        "a seal records pages that reached the origin after its flush",
    ),
    mutant(
        "page-log-older-batch-header",
        "L3",
        "of two copies of a batch header the first is used, even if it is older",
    ),
    mutant("page-log-failed-seal", "L9", "a seal whose header write failed counts as not written"),
    mutant(
        "page-log-trims-sealed",
        "L9",
        "a trim of pages that the log dropped changes the origin although the seal is not removed",
    ),
    mutant(
        "page-log-flush-misses-trims",
        "7",
        "FLUSH does not wait for trims that run concurrently",
    ),
    mutant(
        "page-log-trim-refused",
        "3",
        "after a trim that log and origin both failed, reads return the origin's data",
    ),
    mutant(
        "page-log-left-with-writers",
        "3",
        "a log is detached while a write that it returned to readers is in flight",
    ),
    mutant(
        "page-log-serves-alone",
        "7",
        "a log serves requests before the logs of all shards are open",
    ),
    mutant(
        "page-log-attach-over-writes",
        "3",
        "a log opens while writes to the origin from before its attachment are in flight",
    ),
    mutant(
        "page-log-no-repair",
        "L10",
        "the next holder of the log's lock does not repair the state that a dead holder left",
    ),
    mutant(
        "page-log-drops-first",
        "L10",
        "an older version becomes invalid before the newer one is current",
    ),
    mutant(
        "shared-counted-early",
        "S5",
        "a change that bypasses the log is counted before the origin has it",
    ),
    mutant(
        "shared-hurries-dirty",
        "S6",
        "the read of a dirty page is abandoned when flash is slow",
    ),
    mutant("ordered-alone", "21", "a log replays an epoch before other logs have earlier ones"),
    mutant("ordered-newest", "21", "the newest versions are replayed, not those of the epoch"),
    mutant("ordered-unflushed", "21", "the origin is not flushed between two epochs"),
    mutant("ordered-unrecorded", "21", "the next epoch begins before the last one is recorded"),
    mutant("ordered-fua-joins", "21", "a write with FUA is in one epoch with later writes"),
    mutant("ordered-flush-joins", "21", "a FLUSH does not end the epoch"),
    mutant(
        "ordered-evicts-newest",
        "21",
        "an eviction writes the newest version of its page to the origin",
    ),
    mutant("ordered-evicts", "21", "pages are evicted before they are replayed"),
];
