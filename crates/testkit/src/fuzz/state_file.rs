// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arbitrary bytes as state files: two of them in one directory, the input split at its first `0xff`.
//!
//! Required: no panic. A rejected file gives a one-line error. A parsed file that is stored loads again as it was. A
//! flash that may hold the only copy of data is never put out of use.

use std::cell::OnceCell;
use std::fs;
use std::path::Path;

use larder_core::format::StateRecord;
use larder_volume::{StateFile, VolumeError};
use tempfile::TempDir;

thread_local! {
    static DIR: OnceCell<TempDir> = const { OnceCell::new() };
}

/// In memory where possible, because storing flushes.
fn scratch() -> TempDir {
    let made = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    made.expect("a directory for temporary files")
}

/// Checks one input.
pub fn check(data: &[u8]) {
    DIR.with(|dir| check_in(data, dir.get_or_init(scratch).path()));
}

fn check_in(data: &[u8], dir: &Path) {
    let mut texts = data.splitn(2, |b| *b == 0xff);
    let files = ["a", "b"].map(|name| StateFile::new(dir, name, "/san"));
    for file in &files {
        match texts.next() {
            Some(text) => fs::write(file.path(), text).expect("it can be written"),
            None => drop(fs::remove_file(file.path())),
        }
    }
    let loaded = files.each_ref().map(|file| match file.load() {
        Ok(state) => state,
        Err(error) => {
            one_line(&error);
            None
        }
    });
    let own = loaded[0].clone();
    // An id as this program writes it, or a text that names no flash.
    let keeps = own.as_ref().and_then(|state| u64::from_str_radix(&state.volume, 16).ok());
    let outcome = files[0].put_out_of_use(keeps);
    for (file, before) in files.iter().zip(&loaded) {
        let Some(before) = before else { continue };
        let after = file.load().expect("still a state file").expect("still there");
        let concerned = before.in_use && (of_san(before) || file.path() == files[0].path());
        if outcome.is_err() || before.dirty || !concerned {
            let is_other = file.path() != files[0].path();
            let stays = !(concerned && !before.dirty && outcome.is_ok());
            assert_eq!(after.in_use, before.in_use && (stays || is_other && has_others(&after)));
            assert_eq!(after.dirty, before.dirty);
        }
    }
    match outcome {
        Err(error) => one_line(&error),
        Ok(()) => {
            let other = files[1].load().ok().flatten();
            let stale = other.filter(|state| state.in_use && of_san(state));
            assert!(stale.is_none(), "another flash of this origin is in use: {stale:?}");
        }
    }
    if let Some(state) = own {
        files[0].store(&state).expect("it can be stored");
        assert_eq!(files[0].load().expect("it was just stored"), Some(state));
    }
}

/// Whether the flash may be used for the origin /san.
fn of_san(state: &StateRecord) -> bool {
    state.origins.iter().any(|of| of.in_use && of.origin == "/san")
}

/// Whether a flash that is out of use for /san may still be used for another origin.
fn has_others(state: &StateRecord) -> bool {
    !of_san(state) && state.origins.iter().any(|of| of.in_use)
}

fn one_line(error: &VolumeError) {
    let text = error.to_string();
    assert!(!text.chars().any(char::is_control), "{text:?}");
}
