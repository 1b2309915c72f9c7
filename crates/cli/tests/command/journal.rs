// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages in the journal of systemd: each line begins with its priority where standard error is the journal.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Stdio;

use larder_testkit::command::larder;
use larder_testkit::place::Place;

/// The standard error of a command that fails, where `JOURNAL_STREAM` names a file: standard error itself, or another.
fn messages(place: &Place, is_stderr: bool, words: &[&str]) -> String {
    let path = place.path("stderr");
    let file = File::create(&path).unwrap();
    let found = file.metadata().unwrap();
    let inode = if is_stderr { found.ino() } else { found.ino() + 1 };
    let mut command = larder(words);
    command.env("JOURNAL_STREAM", format!("{}:{inode}", found.dev()));
    command.stdout(Stdio::null()).stderr(file).status().unwrap();
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn errors_have_their_priority_in_the_journal_alone() {
    let place = Place::new();
    for words in [&["status", "--control", "/nowhere"][..], &["serve", "--orgin", "x"]] {
        let journal = messages(&place, true, words);
        assert!(journal.starts_with("<3>") && !journal.contains("larder: "), "{journal}");
        let plain = messages(&place, false, words);
        assert!(plain.starts_with("larder: ") && !plain.contains('<'), "{plain}");
    }
}

/// A start that is refused late has messages of normal operation first.
#[test]
fn each_line_of_a_server_has_its_priority() {
    let place = Place::new();
    let (nbd, control) = (format!("nbd+unix:{}", place.word("nbd")), place.word("control"));
    place.file("flash", 64 << 20);
    let file = File::options().write(true).open(place.path("flash")).unwrap();
    file.write_all_at(b"foreign data", 0).unwrap();
    let (flash, state) = (place.word("flash"), place.word("state"));
    place.file("origin", 8 << 20);
    let origin = place.word("origin");
    let words = ["serve", "--origin", &origin, "--flash", &flash, "--state", &state];
    let words = [&words[..], &["--flash-size", "1GiB"]].concat();
    let journal =
        messages(&place, true, &[&words[..], &["--listen", &nbd, "--control", &control]].concat());
    let priorities: Vec<_> = journal.lines().map(|line| line.get(..3).unwrap()).collect();
    assert!(priorities.contains(&"<6>") && priorities.last() == Some(&"<3>"), "{journal}");
    assert!(priorities.iter().all(|p| ["<3>", "<4>", "<6>"].contains(p)), "{journal}");
}
