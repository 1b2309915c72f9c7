// SPDX-License-Identifier: MIT OR Apache-2.0
//! The symbols that a server looks up in this library, and the function that the loader runs.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

use crate::settings::Refused;
use crate::{arm, prewarm, server, settings, statistics, status};

/// The server's check that a library was made for it (`fmgr.h`). Of this library nothing depends on the version.
#[repr(C)]
struct Magic {
    len: c_int,
    version: c_int,
    arguments: c_int,
    keys: c_int,
    name_bytes: c_int,
    long_by_value: c_int,
    extra: [u8; 32],
    // From 18 on:
    name: *const c_char,
    release: *const c_char,
}

// SAFETY: the strings are static.
unsafe impl Sync for Magic {}
// SAFETY: as above.
unsafe impl Send for Magic {}

/// Bytes of it before 18.
const SHORT: usize = 56;

/// See [`Magic`].
#[unsafe(no_mangle)]
extern "C" fn Pg_magic_func() -> *const u8 {
    static MAGIC: OnceLock<Magic> = OnceLock::new();
    let magic = MAGIC.get_or_init(|| {
        let version = server::number("server_version_num").unwrap_or(0) as c_int / 100;
        let mut extra = [0; 32];
        extra[..10].copy_from_slice(b"PostgreSQL");
        let long = version >= 1800;
        Magic {
            len: if long { size_of::<Magic>() } else { SHORT } as c_int,
            version,
            arguments: server::number("max_function_args").unwrap_or(100) as c_int,
            keys: server::number("max_index_keys").unwrap_or(32) as c_int,
            name_bytes: 64,
            long_by_value: 1,
            extra,
            name: c"larder".as_ptr(),
            release: concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast(),
        }
    });
    std::ptr::from_ref(magic).cast()
}

/// The server has loaded the library.
#[unsafe(no_mangle)]
extern "C-unwind" fn _PG_init() {
    let loading = server::symbol(c"process_shared_preload_libraries_in_progress");
    // SAFETY: `bool process_shared_preload_libraries_in_progress`.
    if loading.is_some_and(|at| unsafe { at.cast::<bool>().read() }) {
        settings::define();
        install();
    }
}

/// The dynamic loader has loaded the library: before the server's `main`, if it is preloaded.
extern "C" fn loaded() {
    let ours = |list: std::ffi::OsString| list.to_string_lossy().contains("larder");
    if !std::env::var_os("LD_PRELOAD").is_some_and(ours) {
        return;
    }
    if server::symbol(c"shmem_startup_hook").is_some() {
        // Neither the server's children nor the programs of an archive command need the library preloaded.
        // SAFETY: before `main` there is one thread.
        unsafe { libc::unsetenv(c"LD_PRELOAD".as_ptr()) };
        install();
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

/// The hook that was there before.
static BEFORE: OnceLock<server::Hook> = OnceLock::new();

fn install() {
    if BEFORE.get().is_none()
        && let Some(before) = server::hook_startup(startup)
    {
        let _ = BEFORE.set(before);
    }
}

unsafe extern "C-unwind" fn startup() {
    if let Some(Some(before)) = BEFORE.get() {
        // SAFETY: it was where the server would have called it.
        unsafe { before() };
    }
    arm::startup();
}

/// The record that the server reads before it calls a function.
#[repr(C)]
struct Interface {
    version: c_int,
}

static INTERFACE: Interface = Interface { version: 1 };

/// Makes the functions that return the record, which the server looks up by their names.
macro_rules! callable {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name() -> *const u8 {
                std::ptr::from_ref(&INTERFACE).cast()
            }
        )*
    };
}

callable! {
    pg_finfo_larder_status
    pg_finfo_larder_flush
    pg_finfo_larder_disable
    pg_finfo_larder_enable
    pg_finfo_larder_stat_io
    pg_finfo_larder_stat_relations
    pg_finfo_larder_stats_reset
    pg_finfo_larder_prewarm
    pg_finfo_larder_pin
    pg_finfo_larder_unpin
}

/// Fails the statement.
fn refuse(Refused { what, hint }: Refused) {
    // The server jumps over this frame: nothing in it may need to be dropped.
    let (what, hint): (&str, &str) = (Box::leak(what.into()), Box::leak(hint.into()));
    server::report(server::Level::Error, what, hint);
}

/// SQL: `larder.disable() RETURNS void`, see [`status::disable`].
#[unsafe(no_mangle)]
extern "C-unwind" fn larder_disable(_: *mut u8) -> usize {
    match status::disable() {
        Ok(()) => {
            server::report(server::Level::Log, "the cache is disabled by larder.disable()", "");
        }
        Err(refused) => refuse(refused),
    }
    0
}

/// SQL: `larder.enable() RETURNS void`, see [`status::enable`].
#[unsafe(no_mangle)]
extern "C-unwind" fn larder_enable(_: *mut u8) -> usize {
    match status::enable() {
        Ok(()) => server::report(server::Level::Log, "the cache is enabled by larder.enable()", ""),
        Err(refused) => refuse(refused),
    }
    0
}

/// SQL: `larder.flush() RETURNS bigint`, see [`status::flush`].
#[unsafe(no_mangle)]
extern "C-unwind" fn larder_flush(_: *mut u8) -> usize {
    match status::flush() {
        Ok(pages) => pages as usize,
        Err(failure) => {
            refuse(Refused::new(failure.to_string(), ""));
            0
        }
    }
}

/// SQL: `larder.status() RETURNS text`, see [`status::json`].
#[unsafe(no_mangle)]
extern "C-unwind" fn larder_status(_: *mut u8) -> usize {
    let status = status::json();
    if let Some(why) = status::reason(&status) {
        server::report(server::Level::Notice, &format!("nothing is cached: {why}"), "");
    }
    server::text(&status.to_string())
}

/// SQL: `larder.stat_io() RETURNS text`, see [`statistics::io`].
#[unsafe(no_mangle)]
extern "C-unwind" fn larder_stat_io(_: *mut u8) -> usize {
    server::text(&statistics::io().to_string())
}

/// SQL: `larder.stat_relations() RETURNS text`, see [`statistics::relations`].
#[unsafe(no_mangle)]
extern "C-unwind" fn larder_stat_relations(_: *mut u8) -> usize {
    server::text(&statistics::relations(server::database()).to_string())
}

/// SQL: `larder.stats_reset() RETURNS void`, see [`statistics::reset`].
#[unsafe(no_mangle)]
extern "C-unwind" fn larder_stats_reset(_: *mut u8) -> usize {
    statistics::reset();
    0
}

/// The first argument of a call; the function is STRICT, so it is there.
///
/// # Safety
/// The record of a call with an argument (`FunctionCallInfoBaseData`, the same from 15 to 18).
unsafe fn argument(call: *mut u8) -> u32 {
    // SAFETY: behind three pointers, the collation, a flag and the number of arguments. The caller guarantees the rest.
    unsafe { call.add(32).cast::<u64>().read() as u32 }
}

fn or_refuse(done: Result<u64, Refused>) -> usize {
    match done {
        Ok(value) => value as usize,
        Err(refused) => {
            refuse(refused);
            0
        }
    }
}

/// SQL: `larder.prewarm(regclass) RETURNS bigint`, see [`prewarm::prewarm`].
#[unsafe(no_mangle)]
extern "C-unwind" fn larder_prewarm(call: *mut u8) -> usize {
    // SAFETY: the server calls it with the arguments of its definition.
    or_refuse(prewarm::prewarm(unsafe { argument(call) }))
}

/// SQL: `larder.pin(regclass) RETURNS bigint`, see [`prewarm::pin`].
#[unsafe(no_mangle)]
extern "C-unwind" fn larder_pin(call: *mut u8) -> usize {
    // SAFETY: as above.
    or_refuse(prewarm::pin(unsafe { argument(call) }))
}

/// SQL: `larder.unpin(regclass) RETURNS boolean`, see [`prewarm::unpin`].
#[unsafe(no_mangle)]
extern "C-unwind" fn larder_unpin(call: *mut u8) -> usize {
    // SAFETY: as above.
    or_refuse(prewarm::unpin(unsafe { argument(call) }).map(u64::from))
}
