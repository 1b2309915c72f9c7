// SPDX-License-Identifier: MIT OR Apache-2.0
//! Redirects the executable's imports: the entries of its global offset table, which hold the addresses of the C library's
//! functions.
//!
//! Only the executable's own: other libraries keep the C library's functions, and so does this one. Both ways of
//! loading (`shared_preload_libraries`, `LD_PRELOAD`) come here, so there is one way in which calls are caught.
//! Why not symbols of the same names: they would be found first only when preloaded, and by every library.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::ops::Range;

use crate::imports::Import;

#[cfg(target_arch = "x86_64")]
const KINDS: [u32; 2] = [6, 7]; // R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT
#[cfg(target_arch = "aarch64")]
const KINDS: [u32; 2] = [1025, 1026]; // R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT

const PT_DYNAMIC: u32 = 2;
const PT_GNU_RELRO: u32 = 0x6474_e552;
const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;

#[repr(C)]
struct Dynamic {
    tag: i64,
    value: u64,
}

#[repr(C)]
struct Symbol {
    name: u32,
    rest: [u8; 20],
}

#[repr(C)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

/// An address that the loader has put into the executable.
struct Entry {
    name: &'static str,
    at: *mut *const c_void,
    /// It lies in the table. Another one is in the executable's data, which may be in use.
    is_in_table: bool,
}

/// The tables that the loader has for the executable.
#[derive(Default)]
struct Tables {
    base: usize,
    strings: usize,
    symbols: usize,
    relocations: Vec<(usize, usize)>,
    /// What the loader made read-only after it had bound the executable; empty if nothing.
    relro: Range<usize>,
}

unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, into: *mut c_void) -> c_int {
    // SAFETY: `into` is the `Tables` of `tables`; the loader describes the executable first, and its headers and
    // dynamic section are mapped as long as it runs.
    unsafe {
        let (info, tables) = (&*info, &mut *into.cast::<Tables>());
        tables.base = info.dlpi_addr as usize;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        if let Some(relro) = headers.iter().find(|h| h.p_type == PT_GNU_RELRO) {
            // The loader protects whole pages.
            let page = |at: u64| page_of(tables.base + at as usize);
            tables.relro = page(relro.p_vaddr)..page(relro.p_vaddr + relro.p_memsz);
        }
        let Some(dynamic) = headers.iter().find(|h| h.p_type == PT_DYNAMIC) else { return 1 };
        let mut at = (tables.base + dynamic.p_vaddr as usize) as *const Dynamic;
        let (mut rela, mut plt) = ((0, 0), (0, 0));
        while (*at).tag != 0 {
            let value = (*at).value as usize;
            match (*at).tag {
                DT_STRTAB => tables.strings = value,
                DT_SYMTAB => tables.symbols = value,
                DT_RELA => rela.0 = value,
                DT_RELASZ => rela.1 = value,
                DT_JMPREL => plt.0 = value,
                DT_PLTRELSZ => plt.1 = value,
                _ => {}
            }
            at = at.add(1);
        }
        tables.relocations = vec![rela, plt];
        1 // the others are not asked for
    }
}

/// The first byte of the page of memory that an address lies in.
fn page_of(at: usize) -> usize {
    at / rustix::param::page_size() * rustix::param::page_size()
}

fn tables() -> Tables {
    let mut tables = Tables::default();
    // SAFETY: the callback takes what it is given here, and it lives until the call ends.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut tables).cast()) };
    tables
}

/// The imports of the executable.
fn entries(tables: &Tables) -> Vec<Entry> {
    let mut found = Vec::new();
    for &(at, bytes) in &tables.relocations {
        let count = bytes / size_of::<Relocation>();
        for i in 0..count {
            // SAFETY: the loader has used these tables to bind the executable; they stay mapped.
            let (relocation, symbol) = unsafe {
                let relocation = &*(at as *const Relocation).add(i);
                let symbols = tables.symbols as *const Symbol;
                (relocation, &*symbols.add((relocation.info >> 32) as usize))
            };
            if relocation.info >> 32 == 0 {
                continue; // an address of the executable itself
            }
            let name = (tables.strings + symbol.name as usize) as *const c_char;
            // SAFETY: as above; names end with a zero byte.
            let Ok(name) = unsafe { CStr::from_ptr(name) }.to_str() else { continue };
            let at = (tables.base + relocation.offset as usize) as *mut _;
            let is_in_table = KINDS.contains(&(relocation.info as u32));
            found.push(Entry { name, at, is_in_table });
        }
    }
    found
}

/// The imports of the executable, see [`crate::imports`].
#[must_use]
pub fn imports() -> Vec<Import> {
    let import = |entry: Entry| Import { name: entry.name, is_in_table: entry.is_in_table };
    entries(&tables()).into_iter().map(import).collect()
}

/// Redirects imports of these names to these functions; returns their number. The table is as read-only afterwards as it
/// was before.
///
/// # Errors
/// If the table cannot be made writable, or read-only again.
pub fn redirect(functions: &[(&str, *const c_void)]) -> io::Result<usize> {
    let tables = tables();
    let named = |name: &str| functions.iter().find(|(n, _)| *n == name).map(|(_, f)| *f);
    let changes: Vec<(Entry, *const c_void)> = entries(&tables)
        .into_iter()
        .filter(|entry| entry.is_in_table)
        .filter_map(|entry| named(entry.name).map(|function| (entry, function)))
        .collect();
    // Other parts of the table are writable.
    protect(&tables.relro, libc::PROT_READ | libc::PROT_WRITE)?;
    for (entry, function) in &changes {
        // SAFETY: the entry is the executable's, and writable now. An aligned pointer is written at once, and the process
        // has one thread.
        unsafe { entry.at.write(*function) };
    }
    protect(&tables.relro, libc::PROT_READ)?;
    Ok(changes.len())
}

/// Gives whole pages, which the loader made read-only, this protection.
fn protect(pages: &Range<usize>, protection: c_int) -> io::Result<()> {
    // SAFETY: the pages are mapped as long as the process runs, and have only data, which stays readable.
    match unsafe { libc::mprotect(pages.start as *mut c_void, pages.len(), protection) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_imports_of_an_executable_are_found() {
        // The test's own executable is one.
        let has = |name: &str| imports().iter().any(|i| i.name == name && i.is_in_table);
        assert!(!has("no_such_function"));
        assert!(has("write") && (has("mmap") || has("mmap64")));
    }

    /// Whether the page with this address is writable.
    fn is_writable(at: usize) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let number = |text: &str| usize::from_str_radix(text, 16).unwrap();
        let mapping = maps.lines().find_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (start, end) = range.split_once('-')?;
            (number(start)..number(end)).contains(&at).then(|| rest.to_owned())
        });
        mapping.unwrap().starts_with("rw")
    }

    #[test]
    fn what_the_loader_protected_is_protected_again() {
        let tables = tables();
        let all = entries(&tables);
        let protected: Vec<&Entry> = all
            .iter()
            .filter(|e| e.is_in_table && tables.relro.contains(&(e.at as usize)))
            .collect();
        // Rust links executables with full RELRO.
        assert!(!protected.is_empty());
        // Each import gets the function that it has.
        // SAFETY: an entry of the table of this executable.
        let same = |entry: &&Entry| (entry.name, unsafe { entry.at.read() });
        let functions: Vec<_> = protected.iter().map(same).collect();
        assert_eq!(redirect(&functions).unwrap(), protected.len());
        assert!(protected.iter().all(|entry| !is_writable(entry.at as usize)));
        assert_eq!(protected.iter().map(same).collect::<Vec<_>>(), functions);
    }
}
