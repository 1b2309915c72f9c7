// SPDX-License-Identifier: MIT OR Apache-2.0
//! The imports of a server's executable that can reach a relation file: those that must be there, and those that may be.
//!
//! The lists are those of the executables of Debian (15) and of `postgres/suites/versions` (16 to 18). Other builds spell some
//! functions differently (`pread64` for `pread`), so a function that must be there has several names.
//!
//! # Invariants
//! Rule P10 of docs/design.md:
//! 1. The cache is armed only if each import of a [`FAMILIES`] function is redirected, or is listed as harmless for this major
//!    version ([`HARMLESS`]). So a call that was not examined changes no file of a server with a cache.
//! 2. The cache is armed only if the executable imports each function by which this major version is known to reach files
//!    ([`NEEDED`]). A missing one means that the server reaches them in another way.
//!
//! Why not all imports: builds differ in their libraries (TLS, ICU, XML), which do not touch relation files.

use std::ops::RangeInclusive;

use crate::error::UnknownServer;

/// Major versions whose imports are known.
pub const MAJORS: RangeInclusive<u64> = 15..=18;

/// An import of the executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Import {
    /// The function.
    pub name: &'static str,
    /// Whether it lies in the table that can be redirected. Otherwise its address is a part of the executable's data.
    pub is_in_table: bool,
}

type Row = (&'static [&'static str], RangeInclusive<u64>);

/// Functions that these major versions import, under one of the names.
const NEEDED: &[Row] = &[
    (&["open", "open64"], MAJORS),
    (&["fopen", "fopen64"], MAJORS),
    (&["close"], MAJORS),
    (&["dup"], MAJORS),
    (&["dup2"], MAJORS),
    (&["read", "__read_chk"], MAJORS),
    (&["write"], MAJORS),
    (&["pread", "pread64"], MAJORS),
    (&["preadv", "preadv64"], 17..=18),
    (&["pwrite", "pwrite64"], MAJORS),
    (&["pwritev", "pwritev64"], MAJORS),
    (&["ftruncate", "ftruncate64"], MAJORS),
    (&["truncate", "truncate64"], MAJORS),
    (&["unlink"], MAJORS),
    (&["rename"], MAJORS),
    (&["link"], 15..=15),
    (&["copy_file_range"], 18..=18),
    (&["fsync"], MAJORS),
    (&["fdatasync"], MAJORS),
    (&["syncfs"], MAJORS),
    (&["posix_fadvise", "posix_fadvise64"], MAJORS),
    (&["epoll_wait"], MAJORS),
    (&["shmdt"], MAJORS),
];

/// Functions that are not redirected, because these major versions do nothing with them that concerns the cache. A name that
/// ends with `*` is the beginning of names.
const HARMLESS: &[Row] = &[
    // Standard error of a process goes to the file that option -r names.
    (&["freopen", "freopen64"], MAJORS),
    // Flags of descriptors; none is duplicated.
    (&["fcntl", "fcntl64"], MAJORS),
    // Anonymous memory, and files of dynamic shared memory.
    (&["mmap", "mmap64"], MAJORS),
    // Allocates dynamic shared memory. From 16 on it also makes relation files longer: what was there keeps its bytes, and
    // flash has no page behind the end of a file (rule P3).
    (&["posix_fallocate", "posix_fallocate64"], MAJORS),
    // Asks the kernel to begin to write what its page cache has. It neither changes bytes nor makes them durable, so what flash
    // holds instead of the disk may stay there.
    (&["sync_file_range"], MAJORS),
    // Links of tablespaces; a tablespace has no files before.
    (&["symlink"], MAJORS),
    // Builds with liburing use it only if io_method is io_uring, which `arm.rs` refuses.
    (&["io_uring_*", "__io_uring_*"], 18..=18),
];

/// Functions that can reach a file: they open, read, write, copy, map, cut, rename or remove it, or change which file a
/// descriptor is of. Other spellings have the same [`stem`].
const FAMILIES: &[&str] = &[
    "close",
    "close_range",
    "closefrom",
    "copy_file_range",
    "creat",
    "dup",
    "fallocate",
    "fcntl",
    "fdatasync",
    "fdopen",
    "fopen",
    "freopen",
    "fsync",
    "ftruncate",
    "ioctl",
    "link",
    "linkat",
    "mmap",
    "msync",
    "open",
    "open_by_handle_at",
    "openat",
    "posix_fadvise",
    "posix_fallocate",
    "pread",
    "preadv",
    "preadv64v",
    "pwrite",
    "pwritev",
    "pwritev64v",
    "read",
    "readahead",
    "readv",
    "remap_file_pages",
    "remove",
    "rename",
    "renameat",
    "sendfile",
    "splice",
    "symlink",
    "symlinkat",
    "sync",
    "sync_file_range",
    "syncfs",
    "syscall",
    "tee",
    "truncate",
    "unlink",
    "unlinkat",
    "vmsplice",
    "write",
    "writev",
];

/// How the names of asynchronous functions begin.
const ASYNCHRONOUS: &[&str] = &["aio_", "io_", "lio_"];

/// A name without what the C library adds for sizes, checks and versions: `__open64_2` is `open`, `renameat2` is `renameat`.
fn stem(name: &str) -> &str {
    let name = name.trim_start_matches('_');
    let name = name.strip_prefix("libc_").unwrap_or(name);
    let name = ["_chk", "_nocancel"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    name.trim_end_matches(|c: char| c == '_' || c.is_ascii_digit())
}

/// Whether a function can reach a relation file.
fn reaches_files(name: &str) -> bool {
    let stem = stem(name);
    FAMILIES.contains(&stem) || ASYNCHRONOUS.iter().any(|begin| stem.starts_with(begin))
}

fn is_harmless(name: &str, major: u64) -> bool {
    let is = |listed: &&str| match listed.strip_suffix('*') {
        Some(begin) => name.starts_with(begin),
        None => name == *listed,
    };
    HARMLESS.iter().any(|(names, majors)| majors.contains(&major) && names.iter().any(is))
}

/// Accepts a server of this major version whose executable has these imports, of which those named in `redirected` are
/// redirected.
///
/// # Errors
/// If its calls are not known to reach the cache.
pub fn check(major: u64, imports: &[Import], redirected: &[&str]) -> Result<(), UnknownServer> {
    if !MAJORS.contains(&major) {
        let (first, last) = (*MAJORS.start(), *MAJORS.end());
        return Err(UnknownServer::Major { major, first, last });
    }
    for Import { name, is_in_table } in imports {
        let is_redirected = *is_in_table && redirected.contains(name);
        if reaches_files(name) && !is_redirected && !is_harmless(name, major) {
            return Err(UnknownServer::Unknown { major, name });
        }
    }
    let is_there = |name: &&str| imports.iter().any(|import| import.name == *name);
    for (names, majors) in NEEDED {
        if majors.contains(&major) && !names.iter().any(is_there) {
            return Err(UnknownServer::Missing { major, names: names.join(" or ") });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks;

    /// The imports of each version's executable that reach files, and some others.
    const COMMON: &str = "__read_chk close dup dup2 epoll_create1 epoll_ctl epoll_wait fcntl fdatasync fopen freopen fsync \
                          ftruncate mkdir mmap open popen posix_fadvise posix_fallocate pread pwrite pwritev read rename send \
                          shm_open shmdt symlink sync_file_range syncfs truncate unlink write dlopen ucnv_open_60 SSL_read \
                          xmlCopyNode BIO_write fread readlink";
    const MORE: [(u64, &str); 4] =
        [(15, " link"), (16, ""), (17, " preadv"), (18, " copy_file_range preadv")];

    fn imports(names: &str) -> Vec<Import> {
        let import = |name: &str| Import { name: String::from(name).leak(), is_in_table: true };
        names.split_whitespace().map(import).collect()
    }

    fn checked(major: u64, names: &str) -> Result<(), String> {
        let table = hooks::table();
        let redirected: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
        check(major, &imports(names), &redirected).map_err(|error| error.to_string())
    }

    #[test]
    fn the_executables_of_all_versions_are_accepted_and_no_other_versions() {
        for (major, more) in MORE {
            assert_eq!(checked(major, &format!("{COMMON}{more}")), Ok(()), "{major}");
        }
        // Other spellings: a build for large files, one without checks of buffers, one with liburing.
        let names = COMMON.replace(" open ", " open64 ").replace(" pread ", " pread64 ");
        assert_eq!(checked(16, &names.replace(" mmap ", " mmap64 fcntl64 ")), Ok(()));
        assert_eq!(checked(16, &COMMON.replace("__read_chk ", "")), Ok(()));
        let ring = format!("{COMMON} preadv copy_file_range io_uring_submit __io_uring_get_cqe");
        assert_eq!(checked(18, &ring), Ok(()));
        assert!(checked(17, &ring).is_err());
        for major in [14, 19] {
            let error = checked(major, &format!("{COMMON} link preadv copy_file_range"));
            let expected = format!("this server is PostgreSQL {major}; accepted: 15 to 18");
            assert_eq!(error, Err(expected));
        }
    }

    #[test]
    fn a_server_without_a_needed_import_is_refused() {
        let mut needed = 0;
        for (major, more) in MORE {
            for (names, majors) in NEEDED {
                let there = format!("{COMMON}{more}");
                let left = there.split_whitespace().filter(|name| !names.contains(name));
                let result = checked(major, &left.collect::<Vec<_>>().join(" "));
                assert_eq!(result.is_err(), majors.contains(&major), "{major} {names:?}");
                needed += usize::from(result.is_err());
            }
        }
        assert_eq!(needed, 21 + 20 + 21 + 22);
        let error = checked(15, &format!("{COMMON} link").replace(" pread ", " ")).unwrap_err();
        assert_eq!(
            error,
            "the executable of PostgreSQL 15 does not import pread or pread64, which larder must redirect"
        );
    }

    #[test]
    fn a_server_with_an_unexamined_import_is_refused() {
        for name in [
            "__open_2 __open64_2 __openat_2 openat openat64 openat2 creat64 __libc_open64 fdopen",
            "__pread_chk __pread64_chk preadv2 preadv64v2 pwritev2 pwritev64v2 readv writev",
            "renameat renameat2 linkat symlinkat unlinkat remove fallocate fallocate64 ioctl dup3",
            "sendfile sendfile64 splice tee vmsplice msync syscall closefrom close_range",
            "aio_read64 lio_listio io_submit open_by_handle_at readahead",
        ]
        .into_iter()
        .flat_map(str::split_whitespace)
        {
            for (major, more) in MORE {
                let error = checked(major, &format!("{COMMON}{more} {name}")).unwrap_err();
                assert!(error.contains(&format!("PostgreSQL {major} imports {name},")), "{error}");
            }
        }
        assert!(checked(16, &format!("{COMMON} io_uring_submit")).is_err(), "18 has it");
    }

    #[test]
    fn an_address_that_is_not_in_the_table_is_not_redirected() {
        let mut all = imports(COMMON);
        let table = hooks::table();
        let redirected: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
        all.push(Import { name: "stderr", is_in_table: false });
        assert_eq!(check(16, &all, &redirected), Ok(()));
        all.push(Import { name: "pread", is_in_table: false });
        let refused = Err(UnknownServer::Unknown { major: 16, name: "pread" });
        assert_eq!(check(16, &all, &redirected), refused);
    }

    #[test]
    fn each_needed_function_is_redirected_and_no_harmless_one() {
        let table = hooks::table();
        let is_redirected = |name: &str| table.iter().any(|(n, _)| *n == name);
        assert!(NEEDED.iter().all(|(names, _)| names.iter().all(|name| is_redirected(name))));
        assert!(HARMLESS.iter().all(|(names, _)| !names.iter().any(|name| is_redirected(name))));
        // A redirected function that no family has could come back under another spelling.
        let apart = ["epoll_wait", "shmdt"];
        assert!(table.iter().all(|(name, _)| reaches_files(name) || apart.contains(name)));
    }
}
