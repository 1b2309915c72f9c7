// SPDX-License-Identifier: MIT OR Apache-2.0
//! Named mutants: the bugs that the tests must catch, kept beside the code that avoids them.
//!
//! Each breaks one clause of a rule of docs/design.md. They exist only in builds with the feature
//! `mutants`, and even there none acts until a test names it; in every other build the question
//! is the constant `false`.

/// A mutant: its name, the design rule it breaks, and how.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// Its name.
    pub name: &'static str,
    /// The rule it breaks, by its id in docs/design.md.
    pub rule: &'static str,
    /// What it does wrong.
    pub what: &'static str,
}

const fn mutant(name: &'static str, rule: &'static str, what: &'static str) -> Mutant {
    Mutant { name, rule, what }
}

/// The rule whose mutants only the death of a process shows.
pub const DEATHS: &str = "L10";
/// The rule whose mutants only several processes show.
pub const SHARED: &str = "S5";

/// Every mutant.
pub const MUTANTS: &[Mutant] = &[
    mutant("write-keeps-valid", "3", "a write does not clear the validity of its pages"),
    mutant("valid-before-flash", "3", "pages become valid before their flash write completed"),
    mutant("valid-after-flash-error", "3", "pages become valid although their flash write failed"),
    mutant("valid-after-origin-error", "3", "pages become valid although the origin write failed"),
    mutant("overlap-unnoticed", "3", "overlapping writes do not see each other"),
    mutant("partial-page-valid", "3", "a page becomes valid by a write that covers part of it"),
    mutant("trim-unclaimed", "4", "a trim does not disqualify a population under way"),
    mutant("population-over-write", "4", "a population validates pages written meanwhile"),
    mutant(
        "fill-late-claim",
        "4",
        "a page that enters with its miss is claimed only after the read",
    ),
    mutant("population-late-claim", "4", "a population watches for writes only after its read"),
    mutant("timeout-forgets", "5", "a timed-out operation is forgotten, its slot and pages reused"),
    mutant("evict-pinned", "5", "a slot with an operation under way is reused"),
    mutant("miss-waits-for-unit", "6", "a miss waits until its unit is populated"),
    mutant("displace-anything", "6", "population displaces what is hotter than its candidate"),
    mutant("flush-skips-origin", "7", "FLUSH is answered without a flush of the origin"),
    mutant("fua-ignored", "7", "a FUA write is not durable when answered"),
    mutant("write-before-touched", "9", "a write does not wait for its touched record"),
    mutant("log-not-durable", "9", "a log record counts before it is durable"),
    mutant("checkpoint-no-origin-flush", "9", "a unit is logged without a flush of the origin"),
    mutant("checkpoint-no-flash-flush", "9", "a unit is logged without a flush of flash"),
    mutant("checkpoint-over-write", "9", "a unit is logged with pages written since its snapshot"),
    mutant("switch-forgets", "9", "what was logged during a checkpoint is not in its log"),
    mutant("drop-not-logged", "9", "a unit's eviction is not logged"),
    mutant("fill-before-drop", "9", "a slot is filled before its old mapping is durably gone"),
    mutant("write-before-drop", "9", "a unit is written before its old mapping is durably gone"),
    mutant("flush-skips-flash", "7", "FLUSH is answered without a flush of the flash that owns"),
    mutant("dirty-not-logged", "9", "what flash alone has is not logged as dirty"),
    mutant("checkpoint-forgets-dirty", "9", "a new region does not say what is dirty"),
    mutant("leave-without-write-back", "9", "a dirty unit leaves without a copy to the origin"),
    mutant("leave-without-origin-flush", "9", "a unit leaves before the origin was flushed"),
    mutant("own-before-flush", "9", "a unit is logged as owned before flash was flushed"),
    mutant(
        "own-before-origin-flush",
        "9",
        "a unit is logged as clean before the origin was flushed",
    ),
    mutant("exchange-unlocked", "9", "clients reach a unit while it is exchanged"),
    mutant(
        "switch-forgets-pending",
        "8",
        "a new log lacks what the old one was still to take back",
    ),
    mutant("one-header", "8", "a region's header has no second copy"),
    mutant("header-anywhere", "8", "a header that lies in another's place is taken for that one's"),
    mutant("late-metadata-forgotten", "8", "a region is written over by what timed out before"),
    mutant(
        "full-log-retries",
        "11",
        "a full log waits for good for a checkpoint that keeps failing",
    ),
    mutant("full-log-waits", "11", "who makes room in a full log waits until there is some"),
    mutant(
        "clean-before-flush",
        "9",
        "what flash gave the origin counts as clean before flash was flushed",
    ),
    mutant("touched-survives", "9", "recovery takes touched regions for valid"),
    mutant(
        "last-record-undone",
        "9",
        "recovery undoes the last record of the log, as PRWC 2.8 does",
    ),
    mutant("clean-lines-dropped", "9", "recovery forgets all that is clean"),
    mutant("stale-log", "8", "blocks that an older generation left in the log are replayed"),
    mutant("block-unchecked", "8", "the checksum of a log block is not looked at"),
    mutant("payload-unchecked", "8", "the checksum of a payload is not looked at"),
    mutant("region-in-place", "8", "a checkpoint overwrites the region in force"),
    mutant("any-volume", "10", "metadata of an earlier format is taken for this one's"),
    mutant(
        "detach-not-durable",
        "10",
        "writes go on before it is durable that flash is out of use",
    ),
    mutant("state-file-ignored", "10", "a flash that the state file does not allow is used"),
    mutant("older-flash-accepted", "10", "an earlier copy of a flash is used"),
    mutant("dirty-flash-formatted", "10", "a flash that may hold dirty data is formatted"),
    mutant(
        "page-log-no-gap",
        "L1",
        "the page log writes over what it is dequeuing (paper-tables 4.5, 1)",
    ),
    mutant("page-log-front-volatile", "L1", "blocks are written over before the front is durable"),
    mutant(
        "page-log-any-lap",
        "L3",
        "a head of an older lap counts, as by page LSN alone (4.5, 2)",
    ),
    mutant("page-log-generation-volatile", "L3", "a start writes no header of its own"),
    mutant("page-log-rebuilt-clean", "L4", "what recovery finds counts as clean (4.5, 3)"),
    mutant("page-log-no-tombstone", "L5", "a trim leaves no tombstone (4.5, 4)"),
    mutant(
        "page-log-tombstone-late",
        "L5",
        "the origin is trimmed before the tombstone is durable",
    ),
    mutant("page-log-torn-batch", "L3", "pages of the last batches count without their checksums"),
    mutant("page-log-unchecked", "L8", "the checksum of a page is not looked at"),
    mutant("page-log-ack-before-flush", "7", "FLUSH is answered before the log is durable"),
    mutant("page-log-settled-unflushed", "7", "the log counts as durable without a flush of flash"),
    mutant("page-log-leave-unwritten", "L2", "a dirty page leaves without a copy to the origin"),
    mutant(
        "page-log-leave-unflushed",
        "L2",
        "the front passes what the origin has not made durable",
    ),
    mutant(
        "page-log-again-undurable",
        "L2",
        "the front passes what is not durable at the rear yet",
    ),
    mutant("page-log-again-clean", "L2", "what is entered once more counts as clean"),
    mutant("page-log-seal-forgets", "L9", "a sealed log takes all that it holds for valid"),
    mutant(
        "page-log-stale-fill",
        "4",
        "a page that was read enters although it was written meanwhile",
    ),
    mutant(
        "page-log-put-before-claim",
        "4",
        "a page that was read enters although it was put after it was looked for",
    ),
    mutant("page-log-one-header", "L6", "the header is written in place"),
    mutant(
        "page-log-front-in-one-header",
        "L1",
        "one header is enough to free what the front passed",
    ),
    mutant(
        "page-log-seal-unflushed",
        "L9",
        "a seal counts what came to the origin behind its flush",
    ),
    mutant("page-log-older-head", "L3", "of two copies of a head the first counts, however old"),
    mutant("page-log-failed-seal", "L9", "a seal whose header failed counts as not written"),
    mutant(
        "page-log-flush-misses-trims",
        "7",
        "FLUSH does not wait for the trims that ran beside it",
    ),
    mutant(
        "page-log-trim-refused",
        "3",
        "a trim that neither log nor origin took shows what the origin has",
    ),
    mutant(
        "page-log-left-with-writers",
        "3",
        "a log is left while a write that it showed is under way",
    ),
    mutant(
        "page-log-attach-over-writes",
        "3",
        "a log is opened while changes of the origin from before are under way",
    ),
    mutant(
        "page-log-no-repair",
        "L10",
        "what a dead holder of the log's lock left is taken as it is",
    ),
    mutant(
        "page-log-drops-first",
        "L10",
        "an older version is dropped before the newer one counts",
    ),
    mutant(
        "shared-counted-early",
        "S5",
        "a change past the log is counted before the origin has it",
    ),
];

#[cfg(feature = "mutants")]
mod active {
    use std::cell::Cell;

    thread_local! {
        static ACTIVE: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    /// Activates a mutant on this thread, or none.
    pub fn activate(name: Option<&'static str>) {
        ACTIVE.set(name);
    }

    /// Whether the mutant of this name is active.
    #[must_use]
    pub fn is_active(name: &str) -> bool {
        debug_assert!(super::MUTANTS.iter().any(|m| m.name == name), "unknown mutant {name}");
        ACTIVE.get() == Some(name)
    }
}

#[cfg(feature = "mutants")]
pub use active::{activate, is_active};

/// Whether the mutant of this name is active.
#[cfg(not(feature = "mutants"))]
#[must_use]
pub const fn is_active(_: &str) -> bool {
    false
}
