// SPDX-License-Identifier: MIT OR Apache-2.0
//! The place of a server's shared memory: a file in `/dev/shm`, which survives the server and not the boot.
//!
//! All users may create files there. So the name of a new memory is `larder-SYSTEM-PLACE-RANDOM`, and a start looks for
//! files of this server's user whose names begin with `larder-SYSTEM-PLACE`. It neither opens nor removes what others
//! made under such names, and takes another random name if one is taken. SYSTEM identifies the cluster, PLACE the path of
//! the data directory.
//!
//! Why not the flash directory: the kernel would write the memory back to its file, as long as the server runs. Why not
//! memory without a name: after a crash of the postmaster nothing would have it, and each such crash would cost the
//! whole cache. Why not a directory under a fixed name: another user could make it first.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::Path;

use larder_private::{Directory, Refuse, is_refusal};
use rustix::fs::{AtFlags, FileType, OFlags};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::control;

const DIRECTORY: &str = "/dev/shm";
/// New names that are tried.
const TRIES: u32 = 16;

/// The memories of a server: at most one, except after a change of the library.
pub struct Memories {
    directory: Directory,
    prefix: String,
}

impl Memories {
    /// Those of the server with this data directory.
    ///
    /// # Errors
    /// If `/dev/shm` cannot be used, for instance because others may exchange files there.
    pub fn of(data: &Path, system: u64) -> io::Result<Self> {
        Self::within(Path::new(DIRECTORY), data, system)
    }

    fn within(directory: &Path, data: &Path, system: u64) -> io::Result<Self> {
        let data = fs::canonicalize(data).unwrap_or_else(|_| data.to_owned());
        let hash = control::hash(data.as_os_str().as_encoded_bytes());
        let prefix = format!("larder-{system:016x}-{hash:016x}");
        Ok(Self { directory: Directory::open(directory, Refuse::NOTHING)?, prefix })
    }

    /// The files of this user.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn files(&self) -> io::Result<Vec<OwnedFd>> {
        Ok(self.named()?.into_iter().map(|(_, file)| file).collect())
    }

    fn named(&self) -> io::Result<Vec<(OsString, OwnedFd)>> {
        let mut found = Vec::new();
        let ours = |name: &OsString| name.as_encoded_bytes().starts_with(self.prefix.as_bytes());
        for name in self.directory.names()?.into_iter().filter(ours) {
            if let Some(file) = self.own(&name)? {
                found.push((name, file));
            }
        }
        Ok(found)
    }

    /// A file of this user, which gives others no access; `None` if it is anything else. What another user made is not
    /// opened: that fails for a socket, a program that runs, or a lease, and an error ends the start.
    fn own(&self, name: &OsString) -> io::Result<Option<OwnedFd>> {
        match rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            // Removed meanwhile, or a file system that another user mounted there.
            Err(Errno::NOENT | Errno::ACCESS) => return Ok(None),
            stat => {
                let stat = stat?;
                let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
                if !is_file || stat.st_uid != rustix::process::geteuid().as_raw() {
                    return Ok(None);
                }
            }
        }
        match self.directory.file(name, OFlags::RDWR, 0, Refuse::ANY) {
            Err(error) if is_refusal(&error) || error.kind() == ErrorKind::NotFound => Ok(None),
            file => file.map(Some),
        }
    }

    /// A file for a new memory; those of earlier ones are removed.
    ///
    /// # Errors
    /// If an earlier one cannot be removed, or the file cannot be created.
    pub fn create(&self) -> io::Result<OwnedFd> {
        self.remove()?;
        for _ in 0..TRIES {
            let mut random = [0; 8];
            getrandom(&mut random, GetRandomFlags::empty())?;
            let name = format!("{}-{:016x}", self.prefix, u64::from_le_bytes(random));
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
            match self.directory.file(name, flags, 0o600, Refuse::ANY) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => return made,
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Removes the files of this user.
    ///
    /// # Errors
    /// If one cannot be removed.
    pub fn remove(&self) -> io::Result<()> {
        self.named()?.into_iter().try_for_each(|(name, _)| self.directory.remove(name))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn what_others_made_under_the_names_is_passed_by() {
        let (shared, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let sticky = fs::Permissions::from_mode(0o1777);
        fs::set_permissions(shared.path(), sticky).unwrap();
        let memories = Memories::within(shared.path(), data.path(), 5).unwrap();
        assert!(memories.files().unwrap().is_empty());
        let at = |suffix: &str| shared.path().join(format!("{}{suffix}", memories.prefix));
        // The name that earlier versions used, and everything that another user can put under one.
        fs::write(shared.path().join("target"), "kept").unwrap();
        fs::set_permissions(shared.path().join("target"), fs::Permissions::from_mode(0o600))
            .unwrap();
        symlink("target", at("")).unwrap();
        let socket = UnixListener::bind(at("-0")).unwrap();
        fs::create_dir(at("-1")).unwrap();
        fs::write(at("-2"), "all may write").unwrap();
        fs::set_permissions(at("-2"), fs::Permissions::from_mode(0o666)).unwrap();
        if rustix::process::geteuid().is_root() {
            fs::write(at("-3"), "another user's").unwrap();
            fs::set_permissions(at("-3"), fs::Permissions::from_mode(0o600)).unwrap();
            chown(at("-3"), Some(54_321), None).unwrap();
        }
        let before = memories.directory.names().unwrap().len();
        assert!(memories.files().unwrap().is_empty());
        for _ in 0..3 {
            memories.create().unwrap();
            assert_eq!(memories.files().unwrap().len(), 1);
        }
        let other = Memories::within(shared.path(), shared.path(), 5).unwrap();
        assert!(other.files().unwrap().is_empty(), "another data directory");
        memories.remove().unwrap();
        assert_eq!(memories.directory.names().unwrap().len(), before);
        drop(socket);
        assert_eq!(fs::read(shared.path().join("target")).unwrap(), b"kept");
    }

    #[test]
    fn a_memory_that_cannot_be_opened_is_an_error_and_not_passed_by() {
        let name = "place::tests::a_memory_that_cannot_be_opened_is_an_error_and_not_passed_by";
        if !crate::spare::tests::has_few_descriptors(name) {
            return;
        }
        let shared = tempfile::tempdir().unwrap();
        let memories = Memories::within(shared.path(), shared.path(), 5).unwrap();
        memories.create().unwrap();
        let other = shared.path().join(format!("{}-other", memories.prefix));
        fs::File::options().write(true).create_new(true).mode(0o600).open(other).unwrap();
        assert_eq!(memories.files().unwrap().len(), 2);
        let mut all: Vec<_> = std::iter::from_fn(|| fs::File::open("/dev/null").ok()).collect();
        // One is enough for the names, and then for one of the files.
        all.pop();
        let lack = |error: io::Error| error.raw_os_error() == Some(libc::EMFILE);
        assert!(memories.files().is_err_and(lack));
        assert!(memories.create().is_err_and(lack));
        drop(all);
        assert_eq!(memories.files().unwrap().len(), 2, "none was removed");
    }

    #[test]
    fn a_directory_in_which_others_can_exchange_files_is_refused() {
        let shared = tempfile::tempdir().unwrap();
        fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Memories::within(shared.path(), shared.path(), 5).is_err());
    }
}
