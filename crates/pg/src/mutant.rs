// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bugs that the tests must catch: the environment names one, in a build with the feature `mutants` alone.

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// The page in a frame is admitted without a check of its hash (rule P2).
    NoHash,
    /// The page in a frame is admitted although the disk was written after the read (rule P2).
    NoEpoch,
    /// The log of an earlier start is used although the server ran without the library (rule P7).
    TrustsDirectory,
    /// Flash takes writes at the end of a file too (rule P4).
    AbsorbsEnd,
    /// Recovery ends with dirty pages on flash (rule P8).
    NoDrain,
    /// Recovery ends before the disk has the dirty pages of flash durably (rule P8).
    RecoversUnflushed,
    /// A server that is set to `through` recovers as if flash had no dirty page (rule P8).
    RecoversThrough,
    /// Flash takes a change under a number that was displaced (rule P15).
    AbsorbsDisplaced,
    /// The policy becomes `through` while flash has dirty pages (rule P15).
    FollowsEarly,
    /// A standby takes changes into flash when it is promoted (rule P15).
    PromotesEarly,
    /// Under `full` a flush of a file does not make its pages on flash durable (rule P9).
    CommitsNothing,
    /// Under `full` names of forks are not recorded (rule P9).
    ForgetsNames,
    /// Under `full` truncated pages come back after a crash of the machine (rule P6).
    NoTombstone,
    /// A page that is dirty on flash is read from the page cache, where it is older (rule P1).
    NearDirty,
    /// Pages that are read through a ring are admitted (rule P2).
    ScanEnters,
    /// A retired number is used again (rule P11).
    ReusesLife,
    /// A write to the disk leaves the log's older version while the cache is disabled (rule P12).
    EnableServesOld,
    /// Flash takes a change although the cache was disabled meanwhile (rule P12).
    DisabledAbsorbs,
    /// Flash drops a dirty page before the disk has its new version (rule P4).
    DropsEarly,
    /// Flash keeps a clean page until the disk has its new version (rule P4).
    KeepsClean,
    /// A flush of a file relies on what naps of the checkpointer wrote back (rule P14).
    AheadDrains,
}

/// The variable that names it.
pub const VARIABLE: &str = "LARDER_PG_MUTANT";

/// Whether the bug is active.
#[cfg(feature = "mutants")]
#[must_use]
pub fn is_active(mutant: Mutant) -> bool {
    static ACTIVE: std::sync::OnceLock<Option<Mutant>> = std::sync::OnceLock::new();
    let named = || match std::env::var(VARIABLE).ok()?.as_str() {
        "no-hash" => Some(Mutant::NoHash),
        "no-epoch" => Some(Mutant::NoEpoch),
        "trusts-directory" => Some(Mutant::TrustsDirectory),
        "absorbs-end" => Some(Mutant::AbsorbsEnd),
        "no-drain" => Some(Mutant::NoDrain),
        "recovers-unflushed" => Some(Mutant::RecoversUnflushed),
        "recovers-through" => Some(Mutant::RecoversThrough),
        "absorbs-displaced" => Some(Mutant::AbsorbsDisplaced),
        "follows-early" => Some(Mutant::FollowsEarly),
        "promotes-early" => Some(Mutant::PromotesEarly),
        "commits-nothing" => Some(Mutant::CommitsNothing),
        "forgets-names" => Some(Mutant::ForgetsNames),
        "no-tombstone" => Some(Mutant::NoTombstone),
        "near-dirty" => Some(Mutant::NearDirty),
        "scan-enters" => Some(Mutant::ScanEnters),
        "reuses-life" => Some(Mutant::ReusesLife),
        "enable-serves-old" => Some(Mutant::EnableServesOld),
        "disabled-absorbs" => Some(Mutant::DisabledAbsorbs),
        "drops-early" => Some(Mutant::DropsEarly),
        "keeps-clean" => Some(Mutant::KeepsClean),
        "ahead-drains" => Some(Mutant::AheadDrains),
        other => {
            eprintln!("larder: {VARIABLE} names no bug: {other}");
            std::process::abort()
        }
    };
    *ACTIVE.get_or_init(named) == Some(mutant)
}

/// Whether the bug is active: never in this build.
#[cfg(not(feature = "mutants"))]
#[must_use]
pub fn is_active(_: Mutant) -> bool {
    false
}

#[cfg(all(test, feature = "mutants"))]
mod tests {
    use std::process::{Command, Stdio};

    use super::VARIABLE;

    /// Those that these tests catch. `postgres/kills` has a server for the others.
    const HERE: [&str; 20] = [
        "keeps-clean",
        "no-drain",
        "recovers-unflushed",
        "recovers-through",
        "absorbs-displaced",
        "follows-early",
        "promotes-early",
        "no-hash",
        "no-epoch",
        "trusts-directory",
        "commits-nothing",
        "forgets-names",
        "no-tombstone",
        "near-dirty",
        "scan-enters",
        "reuses-life",
        "enable-serves-old",
        "disabled-absorbs",
        "drops-early",
        "ahead-drains",
    ];

    #[test]
    fn each_is_caught_by_these_tests() {
        if std::env::var_os(VARIABLE).is_some() {
            return; // this is one of them
        }
        for name in HERE {
            let tests = std::env::current_exe().unwrap();
            let mut command = Command::new(tests);
            command.env(VARIABLE, name).stdout(Stdio::null()).stderr(Stdio::null());
            assert_eq!(command.status().unwrap().code(), Some(101), "{name}");
        }
    }
}
