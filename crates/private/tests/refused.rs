// SPDX-License-Identifier: MIT OR Apache-2.0
//! What other users made, can write or can exchange is refused, and what is refused is not changed.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use larder_private::{Directory, Refuse, Refused, is_refusal, open};
use rustix::fs::{FileType, Mode, OFlags};

const STRANGER: u32 = 54_321;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn directory(&self, name: &str, mode: u32) -> PathBuf {
        fs::create_dir(self.path(name)).unwrap();
        self.mode(name, mode)
    }

    fn file(&self, name: &str, mode: u32) -> PathBuf {
        fs::write(self.path(name), "kept").unwrap();
        self.mode(name, mode)
    }

    fn mode(&self, name: &str, mode: u32) -> PathBuf {
        fs::set_permissions(self.path(name), Permissions::from_mode(mode)).unwrap();
        self.path(name)
    }
}

fn opened(path: &Path, refuse: Refuse) -> io::Result<OwnedFd> {
    open(path, OFlags::RDWR | OFlags::CREATE, 0o600, refuse)
}

fn refused<T>(result: io::Result<T>) -> Refused {
    let error = result.err().expect("it is refused");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(is_refusal(&error));
    error.get_ref().unwrap().downcast_ref::<Refused>().unwrap().clone()
}

#[test]
fn access_of_others_to_a_file_is_refused() {
    let place = Place::new();
    for (mode, any, write, others) in [
        (0o600, true, true, true),
        (0o640, false, true, true),
        (0o660, false, false, true),
        (0o644, false, true, false),
        (0o602, false, false, false),
        (0o711, true, true, true),
    ] {
        let path = place.file("flash", mode);
        for (refuse, is_accepted) in
            [(Refuse::ANY, any), (Refuse::WRITE, write), (Refuse::OTHERS, others)]
        {
            match is_accepted {
                true => drop(opened(&path, refuse).unwrap()),
                false => assert!(matches!(
                    refused(opened(&path, refuse)),
                    Refused::Mode { mode: is, .. } if is == mode
                )),
            }
        }
    }
    let path = place.mode("flash", 0o646);
    let said = refused(opened(&path, Refuse::ANY)).to_string();
    let at = path.display();
    assert_eq!(said, format!("{at} has mode 0646; accepted: 0600 (chmod 600 {at})"));
}

#[test]
fn a_directory_that_others_can_write_is_refused_unless_they_cannot_exchange_its_files() {
    let place = Place::new();
    place.directory("d", 0o700);
    place.file("d/flash", 0o600);
    let file = || opened(&place.path("d/flash"), Refuse::ANY);
    let directory = || Directory::open(&place.path("d"), Refuse::WRITE);
    for (mode, of_file, of_directory) in
        [(0o755, true, true), (0o777, false, false), (0o1777, true, false), (0o770, true, false)]
    {
        place.mode("d", mode);
        match of_file {
            true => drop(file().unwrap()),
            false => drop(refused(file())),
        }
        match of_directory {
            true => drop(directory().unwrap()),
            false => drop(refused(directory())),
        }
    }
    // Above it, too.
    place.mode("d", 0o777);
    place.directory("d/e", 0o700);
    refused(Directory::open(&place.path("d/e"), Refuse::WRITE));
    refused(Directory::create(&place.path("d/f"), Refuse::WRITE, 0o700));
    assert!(!place.path("d/f").exists());
}

#[test]
fn links_are_followed_in_a_path_and_never_in_a_directory() {
    let place = Place::new();
    place.directory("d", 0o700);
    place.file("d/flash", 0o600);
    symlink("flash", place.path("d/link")).unwrap();
    symlink(place.path("d"), place.path("e")).unwrap();
    symlink("../e/link", place.path("d/again")).unwrap();
    symlink("loop", place.path("loop")).unwrap();
    for path in ["d/link", "e/link", "e/again", "d/../e/flash"] {
        opened(&place.path(path), Refuse::ANY).unwrap();
    }
    let error = opened(&place.path("loop"), Refuse::ANY).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::LOOP.raw_os_error()));
    let directory = Directory::open(&place.path("e"), Refuse::WRITE).unwrap();
    directory.file("flash", OFlags::RDWR, 0, Refuse::ANY).unwrap();
    assert!(directory.file("link", OFlags::RDWR, 0, Refuse::ANY).is_err());
    let missing = directory.file("none", OFlags::RDWR, 0, Refuse::ANY).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(!is_refusal(&missing));
    // An error of the library, which has no number either.
    let empty = opened(Path::new(""), Refuse::ANY).unwrap_err();
    assert!(empty.raw_os_error().is_none() && !is_refusal(&empty), "{empty}");
}

#[test]
fn a_directory_is_made_with_its_parents_and_its_files_are_read_renamed_and_removed() {
    let place = Place::new();
    let error = Directory::open(&place.path("a/b"), Refuse::WRITE).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let directory = Directory::create(&place.path("a/b"), Refuse::WRITE, 0o700).unwrap();
    for made in ["a", "a/b"] {
        assert_eq!(fs::metadata(place.path(made)).unwrap().permissions().mode() & 0o777, 0o700);
    }
    assert_eq!(directory.read("kept").unwrap(), None);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
    for text in ["longer", "text"] {
        let file = directory.file("new", flags, 0o600, Refuse::ANY).unwrap();
        fs::File::from(file).write_all(text.as_bytes()).unwrap();
    }
    directory.rename("new", "kept").unwrap();
    directory.sync().unwrap();
    assert_eq!(directory.read("kept").unwrap().unwrap(), b"text");
    assert_eq!(directory.names().unwrap(), ["kept"]);
    directory.remove("kept").unwrap();
    directory.remove("kept").unwrap();
    assert_eq!(directory.read("kept").unwrap(), None);
}

#[test]
fn what_is_refused_keeps_its_content_and_a_fifo_blocks_nobody() {
    let place = Place::new();
    let path = place.file("flash", 0o666);
    refused(open(&path, OFlags::RDWR | OFlags::TRUNC, 0o600, Refuse::ANY));
    assert_eq!(fs::read(&path).unwrap(), b"kept");
    let fifo = place.path("fifo");
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, mode, 0).unwrap();
    assert_eq!(refused(open(&fifo, OFlags::RDONLY, 0, Refuse::ANY)), Refused::Kind(fifo.clone()));
    assert_eq!(refused(opened(&fifo, Refuse::ANY)), Refused::Kind(fifo));
}

#[test]
fn what_another_user_owns_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can give files to another user");
    }
    let place = Place::new();
    let give = |name: &str| chown(place.path(name), Some(STRANGER), None).unwrap();
    let is_owner =
        |refused: Refused| matches!(refused, Refused::Owner { owner: STRANGER, user: 0, .. });
    place.file("flash", 0o600);
    give("flash");
    assert!(is_owner(refused(opened(&place.path("flash"), Refuse::ANY))));
    place.directory("d", 0o700);
    place.directory("d/e", 0o700);
    place.file("d/e/flash", 0o600);
    give("d");
    assert!(is_owner(refused(Directory::open(&place.path("d"), Refuse::WRITE))));
    assert!(is_owner(refused(Directory::create(&place.path("d/e"), Refuse::WRITE, 0o700))));
    assert!(is_owner(refused(opened(&place.path("d/e/flash"), Refuse::ANY))));
    place.directory("own", 0o700);
    symlink("own", place.path("link")).unwrap();
    lchown(place.path("link"), Some(STRANGER), None).unwrap();
    assert!(is_owner(refused(Directory::open(&place.path("link"), Refuse::WRITE))));
    assert!(is_owner(refused(opened(&place.path("link/flash"), Refuse::ANY))));
    let directory = Directory::open(&place.path("own"), Refuse::WRITE).unwrap();
    place.file("own/kept", 0o600);
    give("own/kept");
    assert!(is_owner(refused(directory.read("kept"))));
}
