// SPDX-License-Identifier: MIT OR Apache-2.0
//! Named mutants: bugs that the tests must catch, kept beside the code that avoids them.
//!
//! Each breaks one clause of a rule of docs/design.md. They exist only in builds with the feature `mutants`, and a test must
//! activate one; in other builds [`is_active`] is the constant `false`.

/// A mutant.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// Its name.
    pub name: &'static str,
    /// The rule it breaks, by its id in docs/design.md.
    pub rule: &'static str,
    /// The wrong behaviour.
    pub what: &'static str,
}

const fn mutant(name: &'static str, rule: &'static str, what: &'static str) -> Mutant {
    Mutant { name, rule, what }
}

/// What only tests outside torture show: the death of a process (L10), several processes (S5), a process that serves flash
/// (S6), a guest that changes its memory (15).
pub const APART: [&str; 4] = ["L10", "S5", "S6", "15"];

/// Every mutant.
pub const MUTANTS: &[Mutant] = &[
    mutant("flush-of-first-volume", "14", "a FLUSH flushes the origin of the first volume"),
    mutant("flush-beside-failed-flush", "7", "a FLUSH succeeds beside one that failed meanwhile"),
    mutant(
        "failed-origin-ends-cache",
        "14",
        "a failed flush of one origin takes the cache from all volumes",
    ),
    mutant(
        "closed-volume-logged",
        "14",
        "units of a volume whose origin could not be flushed are logged",
    ),
    mutant(
        "left-before-durable",
        "14",
        "a volume has left a cache before it is durable on flash that its units are gone",
    ),
    mutant("left-volume-admitted", "14", "units of a volume that leaves are admitted"),
    mutant(
        "ram-survives-write",
        "3",
        "a page stays in the tier of RAM when its place on flash is written",
    ),
    mutant(
        "ram-keeps-older",
        "3",
        "a read of flash that a write overlapped brings its page into the tier of RAM",
    ),
    mutant("share-not-kept", "14", "a volume takes slots beyond its share"),
    mutant("guest-changes-write", "15", "a guest's request is read again after its check"),
    mutant(
        "refusing-origin-grows",
        "14",
        "dirty data of an origin that refuses it displaces what other volumes have",
    ),
    mutant("overdue-counts-as-durable", "14", "an overdue origin counts as flushed"),
    mutant("journal-waits-for-hung", "14", "the journal waits for an overdue origin"),
    mutant("checkpoint-waits-for-hung", "14", "a checkpoint waits for an overdue origin"),
    mutant("exchange-waits-for-hung", "14", "exchanges wait for an overdue origin"),
    mutant("population-waits-for-hung", "14", "population workers wait for an overdue origin"),
    mutant("clear-waits-for-hung", "14", "a clear waits for an overdue origin"),
    mutant("hung-volume-grows", "14", "a volume takes slots while its origin is overdue"),
    mutant("hung-counts-as-busy", "14", "requests to an overdue origin end idle write-back"),
    mutant("write-keeps-valid", "3", "a write leaves its pages valid"),
    mutant("old-after-read", "3", "old pages are returned after the origin was read meanwhile"),
    mutant("old-under-read", "3", "old pages are returned beside an older read of the origin"),
    mutant("old-after-attach", "3", "old pages are returned beside a read from before the attach"),
    mutant("old-beside-change", "3", "old pages are returned beside another change of them"),
    mutant("old-after-write", "3", "old pages are returned until flash was written"),
    mutant("join-drops-fua", "7", "a FUA write is answered with one that is not"),
    mutant("join-after-begin", "3", "a write is answered with one that had begun before it"),
    mutant("turn-over-attach", "4", "a write goes to the detached cache in which it waited"),
    mutant("valid-before-flash", "3", "pages become valid before their flash write completed"),
    mutant("valid-after-flash-error", "3", "pages become valid although their flash write failed"),
    mutant("valid-after-origin-error", "3", "pages become valid although the origin write failed"),
    mutant("overlap-unnoticed", "3", "overlapping writes are not detected"),
    mutant("partial-page-valid", "3", "a write that covers part of a page makes it valid"),
    mutant("trim-unclaimed", "4", "a trim does not disqualify a population in progress"),
    mutant(
        "population-over-write",
        "4",
        "a population validates pages that were written meanwhile",
    ),
    mutant(
        "fill-late-claim",
        "4",
        "a page that is admitted with its miss is claimed only after the read",
    ),
    mutant("population-late-claim", "4", "a population watches for writes only after its read"),
    mutant(
        "extended-late-claim",
        "4",
        "an extended read watches for writes only after its origin read",
    ),
    mutant(
        "join-ignores-writes",
        "3",
        "a read joins an extended read that began before a write to its pages",
    ),
    mutant(
        "merged-read-shifted",
        "3",
        "a merged read answers each part with the bytes of the first",
    ),
    mutant(
        "merged-error-unshared",
        "3",
        "only the first part of a merged operation gets its error",
    ),
    mutant("single-survives-write", "3", "a write leaves a single page in a mixed slot valid"),
    mutant(
        "single-beside-unit",
        "3",
        "single pages stay in their places after their unit got a slot of its own",
    ),
    mutant("evicted-not-logged", "9", "a unit that a command evicts stays in the journal"),
    mutant(
        "single-leaves-unlogged",
        "9",
        "no record states that a page left its place in a mixed slot",
    ),
    mutant(
        "single-written-untouched",
        "9",
        "a write touches no region of a mixed slot whose places are apart",
    ),
    mutant(
        "balance-reads-dirty",
        "3",
        "a read of dirty data that only flash has is served by the origin",
    ),
    mutant(
        "balance-trusts-origin",
        "3",
        "the origin serves data that flash has although it may have lost acknowledged writes",
    ),
    mutant("benefit-evicts-pinned", "5", "admission by benefit evicts a slot that is in use"),
    mutant("mixed-recycled-in-use", "5", "a mixed slot that is in use is recycled"),
    mutant(
        "timeout-forgets",
        "5",
        "after a timeout the operation is forgotten, its slot and pages are reused",
    ),
    mutant("evict-pinned", "5", "a slot with an operation in flight is reused"),
    mutant("miss-waits-for-unit", "6", "a miss waits until its unit is populated"),
    mutant(
        "displace-anything",
        "6",
        "population displaces units that are hotter than its candidate",
    ),
    mutant("flush-skips-origin", "7", "FLUSH is acknowledged without a flush of the origin"),
    mutant("fua-ignored", "7", "a FUA write is not durable when acknowledged"),
    mutant("write-before-touched", "9", "a write does not wait for its touched record"),
    mutant("log-not-durable", "9", "a log record is used before it is durable"),
    mutant("checkpoint-no-origin-flush", "9", "a unit is logged without a flush of the origin"),
    mutant("checkpoint-no-flash-flush", "9", "a unit is logged without a flush of flash"),
    mutant(
        "checkpoint-over-write",
        "9",
        "a unit is logged with pages that were written since its snapshot",
    ),
    mutant(
        "region-cleaned-early",
        "9",
        "a touched region is cleaned before its writes have ended and both devices were flushed",
    ),
    mutant(
        "record-of-unflushed",
        "9",
        "a unit is logged as valid without a flush, although a crash may undo a write to it",
    ),
    mutant(
        "logged-under-write",
        "9",
        "a unit is logged during a write to it, whose region does not count as touched",
    ),
    mutant("flush-covers-later", "9", "a flush covers writes that ended after it began"),
    mutant(
        "cleaning-not-cancelled",
        "9",
        "a write to a region that is being cleaned neither cancels that nor waits for a record",
    ),
    mutant("switch-forgets", "9", "records enqueued during a checkpoint are missing from its log"),
    mutant("drop-not-logged", "9", "the eviction of a unit is not logged"),
    mutant(
        "fill-before-drop",
        "9",
        "a slot is filled before the drop of its old mapping is durable",
    ),
    mutant(
        "write-before-drop",
        "9",
        "a unit is written before the drop of its old mapping is durable",
    ),
    mutant(
        "flush-skips-flash",
        "7",
        "FLUSH is acknowledged without a flush of the flash that holds dirty data",
    ),
    mutant("dirty-not-logged", "9", "dirty data is not logged as dirty"),
    mutant("checkpoint-forgets-dirty", "9", "a checkpoint does not record the dirty regions"),
    mutant(
        "admitted-as-clean",
        "9",
        "without a dirty log, a unit is logged as clean when it is cached",
    ),
    mutant(
        "all-dirty-early",
        "9",
        "without a dirty log, writes wait for no record before a checkpoint has all units as dirty",
    ),
    mutant(
        "synced-over-newer",
        "9",
        "a unit that was written again while it was copied to the origin counts as clean",
    ),
    mutant(
        "synced-under-write",
        "9",
        "a unit is copied to the origin while a client writes it, and counts as clean",
    ),
    mutant(
        "synced-before-durable",
        "9",
        "a unit that the syncer copied counts as clean before both devices are flushed",
    ),
    mutant("evicts-dirty", "9", "a miss takes the slot of a dirty unit"),
    mutant("flush-forgets-admitted", "7", "a FLUSH does not log the units that writes admitted"),
    mutant(
        "flush-waits-for-syncer",
        "7",
        "without a journal a FLUSH leaves dirty units to the syncer's period",
    ),
    mutant(
        "state-apart-from-dirty",
        "9",
        "a crash between two blocks of the log makes a dirty unit clean",
    ),
    mutant(
        "admitted-over-write",
        "4",
        "a read admits what it read of the origin although the page was written meanwhile",
    ),
    mutant(
        "admitted-while-leaving",
        "10",
        "a write admits its unit behind the eviction of all units, and a detach loses it",
    ),
    mutant(
        "admitted-beyond-the-log",
        "11",
        "a FLUSH logs all admitted units at once, also more than a log holds",
    ),
    mutant(
        "syncer-starves-eviction",
        "11",
        "what eviction waits for is not written back, so that a full cache admits nothing",
    ),
    mutant("leave-without-write-back", "9", "a dirty unit is evicted without write-back"),
    mutant("leave-without-origin-flush", "9", "a unit is evicted before the origin is flushed"),
    mutant("own-before-flush", "9", "a unit is logged as owned by flash before flash is flushed"),
    mutant(
        "own-before-origin-flush",
        "9",
        "a unit is logged as clean before the origin is flushed",
    ),
    mutant("exchange-unlocked", "9", "clients reach a unit during its exchange"),
    mutant(
        "switch-forgets-pending",
        "8",
        "a new log lacks invalidations that were pending in the old log",
    ),
    mutant("one-header", "8", "the header of a half of the metadata has no second copy"),
    mutant("header-anywhere", "8", "a misplaced header is accepted"),
    mutant(
        "late-metadata-forgotten",
        "8",
        "a half of the metadata is reused while a timed-out write to it is in flight",
    ),
    mutant(
        "full-log-retries",
        "11",
        "a full log waits forever for a checkpoint that keeps failing",
    ),
    mutant("full-log-waits", "11", "the task that makes room in a full log waits for room itself"),
    mutant("clean-before-flush", "9", "data written back counts as clean before flash is flushed"),
    mutant("touched-survives", "9", "recovery takes touched regions as valid"),
    mutant(
        "last-record-undone",
        "9",
        "recovery undoes the last record of the log, as PRWC 2.8 does",
    ),
    mutant("clean-lines-dropped", "9", "recovery drops everything that is clean"),
    mutant("stale-log", "8", "log blocks of an older generation are replayed"),
    mutant("block-unchecked", "8", "the checksum of a log block is not verified"),
    mutant("payload-unchecked", "8", "the checksum of a payload is not verified"),
    mutant(
        "region-in-place",
        "8",
        "a checkpoint overwrites the half of the metadata that is in use",
    ),
    mutant("any-volume", "10", "metadata of an earlier format of the device is accepted"),
    mutant(
        "detach-not-durable",
        "10",
        "writes continue before the state file durably marks flash as out of use",
    ),
    mutant("state-file-ignored", "10", "flash is used although the state file does not allow it"),
    mutant("older-flash-accepted", "10", "an earlier copy of the flash is used"),
    mutant("dirty-flash-formatted", "10", "flash that may hold dirty data is formatted"),
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
];

#[cfg(feature = "mutants")]
mod active;

#[cfg(feature = "mutants")]
pub use active::{activate, is_active};

/// Whether the mutant of this name is active.
#[cfg(not(feature = "mutants"))]
#[must_use]
pub const fn is_active(_: &str) -> bool {
    false
}
