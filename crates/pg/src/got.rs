// SPDX-License-Identifier: MIT OR Apache-2.0
//! Redirects the executable's imports: the entries of its global offset table, which hold the addresses of the C library's
//! functions.
//!
//! Only the executable's own: other libraries keep the C library's functions, and so does this one. Both ways of
//! loading (`shared_preload_libraries`, `LD_PRELOAD`) come here, so there is one way in which calls are caught.
//! Why not symbols of the same names: they would be found first only when preloaded, and by every library.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};

#[cfg(target_arch = "x86_64")]
const KINDS: [u32; 2] = [6, 7]; // R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT
#[cfg(target_arch = "aarch64")]
const KINDS: [u32; 2] = [1025, 1026]; // R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT

const PT_DYNAMIC: u32 = 2;
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

/// An entry of the table.
struct Entry {
    name: &'static str,
    at: *mut *const c_void,
}

/// The tables that the loader has for the executable.
#[derive(Default)]
struct Tables {
    base: usize,
    strings: usize,
    symbols: usize,
    relocations: Vec<(usize, usize)>,
}

unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, into: *mut c_void) -> c_int {
    // SAFETY: `into` is the `Tables` of `entries`; the loader describes the executable first, and its headers and
    // dynamic section are mapped as long as it runs.
    unsafe {
        let (info, tables) = (&*info, &mut *into.cast::<Tables>());
        tables.base = info.dlpi_addr as usize;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
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

/// The imports of the executable that lie in its table.
fn entries() -> Vec<Entry> {
    let mut tables = Tables::default();
    // SAFETY: the callback takes what it is given here, and it lives until the call ends.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut tables).cast()) };
    let mut found = Vec::new();
    for (at, bytes) in tables.relocations {
        let count = bytes / size_of::<Relocation>();
        for i in 0..count {
            // SAFETY: the loader has used these tables to bind the executable; they stay mapped.
            let (relocation, symbol) = unsafe {
                let relocation = &*(at as *const Relocation).add(i);
                let symbols = tables.symbols as *const Symbol;
                (relocation, &*symbols.add((relocation.info >> 32) as usize))
            };
            if !KINDS.contains(&(relocation.info as u32)) {
                continue;
            }
            let name = (tables.strings + symbol.name as usize) as *const c_char;
            // SAFETY: as above; names end with a zero byte.
            let Ok(name) = unsafe { CStr::from_ptr(name) }.to_str() else { continue };
            found.push(Entry { name, at: (tables.base + relocation.offset as usize) as *mut _ });
        }
    }
    found
}

/// The first of these functions that the executable imports.
#[must_use]
pub fn imports(names: &[&str]) -> Option<&'static str> {
    entries().into_iter().map(|entry| entry.name).find(|name| names.contains(name))
}

/// Redirects imports of these names to these functions; returns their number.
///
/// # Errors
/// If a page of the table cannot be made writable.
pub fn redirect(functions: &[(&str, *const c_void)]) -> std::io::Result<usize> {
    let mut redirected = 0;
    for Entry { name, at } in entries() {
        let Some((_, function)) = functions.iter().find(|(n, _)| *n == name) else { continue };
        let size = rustix::param::page_size();
        let page = at as usize / size * size;
        // SAFETY: the entry lies in this page, which is the executable's; it was made read-only after it was bound,
        // and is made so again. An aligned pointer is written at once, and the process has one thread.
        unsafe {
            let writable = libc::PROT_READ | libc::PROT_WRITE;
            if libc::mprotect(page as *mut c_void, size, writable) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            at.write(*function);
        }
        redirected += 1;
    }
    Ok(redirected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_imports_of_an_executable_are_found() {
        // The test's own executable is one.
        assert_eq!(imports(&["no_such_function"]), None);
        assert!(imports(&["write", "mmap", "mmap64"]).is_some());
    }
}
