// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server that loaded this library: its exported variables and functions, found by name when it runs.
//!
//! One library serves several major versions, so it is not linked against a server. It uses only what is the same from 15 to 18:
//! the functions below, and the first words of a call's arguments.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// The severity of a message (`elog.h`; the same from 14 on).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Level {
    /// For the server's log.
    Log = 15,
    /// For the client of a statement that works.
    Notice = 18,
    /// An administrator should act.
    Warning = 19,
    /// The statement fails.
    Error = 21,
    /// The server does not start.
    Fatal = 22,
}

/// Address of a symbol of the executable.
#[must_use]
pub fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a name that ends with a zero byte; the handle is that of everything loaded.
    let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!at.is_null()).then_some(at)
}

/// A function of the server.
///
/// # Safety
/// `F` is a function pointer of that function's type.
pub unsafe fn function<F: Copy>(name: &CStr) -> Option<F> {
    assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
    // SAFETY: of the size of a pointer, and of the right type, as the caller guarantees.
    symbol(name).map(|at| unsafe { std::mem::transmute_copy(&at) })
}

/// A variable of the server.
///
/// # Safety
/// `T` is the variable's type.
pub unsafe fn variable<T: Copy>(name: &CStr) -> Option<T> {
    // SAFETY: the caller guarantees the type; the server has one thread, which is here.
    symbol(name).map(|at| unsafe { at.cast::<T>().read() })
}

/// A setting as text, if the server knows it.
#[must_use]
pub fn setting(name: &str) -> Option<String> {
    type Get = unsafe extern "C" fn(*const c_char, bool, bool) -> *const c_char;
    let name = CString::new(name).ok()?;
    // SAFETY: of this type from 15 to 18; what it returns stays until the setting changes.
    unsafe {
        let get: Get = function(c"GetConfigOption")?;
        let text = get(name.as_ptr(), true, false);
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    }
}

/// A setting that is a number.
#[must_use]
pub fn number(name: &str) -> Option<u64> {
    setting(name)?.parse().ok()
}

/// The major version.
#[must_use]
pub fn version() -> Option<u64> {
    number("server_version_num").map(|number| number / 10_000)
}

/// Where shared buffers begin, and how many frames they have.
#[must_use]
pub fn buffers() -> Option<(usize, usize)> {
    // SAFETY: `char *BufferBlocks; int NBuffers`.
    let (start, frames): (*mut c_char, c_int) =
        unsafe { (variable(c"BufferBlocks")?, variable(c"NBuffers")?) };
    (!start.is_null()).then_some((start as usize, usize::try_from(frames).ok()?))
}

/// The data directory.
#[must_use]
pub fn data() -> Option<String> {
    // SAFETY: `char *DataDir`, a string.
    unsafe {
        let data: *const c_char = variable(c"DataDir")?;
        (!data.is_null()).then(|| CStr::from_ptr(data).to_string_lossy().into_owned())
    }
}

/// When the checkpoint of this process began, in microseconds, and how many seconds it plans to write.
#[must_use]
pub fn checkpoint() -> Option<(i64, f64)> {
    // SAFETY: `CheckpointStatsData CheckpointStats`, which begins with a `TimestampTz` of 64 bits, `int CheckPointTimeout`
    // and `double CheckPointCompletionTarget`.
    unsafe {
        let timeout: c_int = variable(c"CheckPointTimeout")?;
        let target: f64 = variable(c"CheckPointCompletionTarget")?;
        Some((variable(c"CheckpointStats")?, f64::from(timeout) * target))
    }
}

/// The database of this process; 0 if it has none.
#[must_use]
pub fn database() -> u32 {
    // SAFETY: `Oid MyDatabaseId`.
    unsafe { variable(c"MyDatabaseId") }.unwrap_or(0)
}

/// Whether this is `initdb`'s server, which makes a data directory.
#[must_use]
pub fn is_bootstrapping() -> bool {
    // SAFETY: `enum ProcessingMode Mode`, 0 while bootstrapping.
    unsafe {
        variable::<c_int>(c"Mode") == Some(0) && variable(c"IsUnderPostmaster") == Some(false)
    }
}

/// Whether this process is one of a postmaster's children.
#[must_use]
pub fn is_child() -> bool {
    // SAFETY: `bool IsUnderPostmaster`.
    unsafe { variable(c"IsUnderPostmaster") == Some(true) }
}

/// Whether the server flushes what it writes, and logs whole pages (`fsync`, `full_page_writes`) at the moment.
#[must_use]
pub fn is_durable() -> bool {
    static AT: std::sync::OnceLock<[usize; 2]> = std::sync::OnceLock::new();
    let find =
        || [c"enableFsync", c"fullPageWrites"].map(|n| symbol(n).map_or(0, |at| at as usize));
    let at = AT.get_or_init(find);
    // SAFETY: `bool enableFsync, fullPageWrites`; an executable stays where it is.
    at.iter().all(|at| *at != 0 && unsafe { (*at as *const bool).read() })
}

/// Whether children of this server are started by exec instead of forked.
#[must_use]
pub fn is_exec_backend() -> bool {
    [c"SubPostmasterMain", c"read_nondefault_variables"].into_iter().any(|n| symbol(n).is_some())
}

/// Writes a message as the server does. [`Level::Error`] does not return, and jumps over the caller's frames;
/// [`Level::Fatal`] ends the process.
pub fn report(level: Level, message: &str, hint: &str) {
    // No destructor may be pending where the server jumps, so these are freed by hand.
    let text = |text: String| CString::new(text.replace('\0', "?")).unwrap_or_default().into_raw();
    let (message, hint) = (text(format!("larder: {message}")), text(hint.to_owned()));
    // SAFETY: both are strings; they are freed once.
    unsafe {
        write_report(level, message, hint);
        drop((CString::from_raw(message), CString::from_raw(hint)));
    }
}

/// # Safety
/// Both are strings that end with a zero byte.
unsafe fn write_report(level: Level, message: *const c_char, hint: *const c_char) {
    type Start = unsafe extern "C" fn(c_int, *const c_char) -> bool;
    type Say = unsafe extern "C" fn(*const c_char, ...) -> c_int;
    type Finish = unsafe extern "C-unwind" fn(*const c_char, c_int, *const c_char);
    // SAFETY: of these types from 15 to 18.
    unsafe {
        let (Some(start), Some(say), Some(say_hint), Some(finish)) = (
            function::<Start>(c"errstart"),
            function::<Say>(c"errmsg_internal"),
            function::<Say>(c"errhint"),
            function::<Finish>(c"errfinish"),
        ) else {
            return;
        };
        if start(level as c_int, std::ptr::null()) {
            say(c"%s".as_ptr(), message);
            if *hint != 0 {
                say_hint(c"%s".as_ptr(), hint);
            }
            finish(c"larder".as_ptr(), 0, c"larder".as_ptr());
        }
    }
}

/// Prints a message on standard error in the form of the server's log, where the functions of the server must not be
/// called.
pub fn say(level: &str, what: &str) {
    let mut text = [0_u8; 32];
    // SAFETY: `strftime` writes within the buffer, or returns 0; the time is this function's own.
    let length = unsafe {
        let (now, mut parts) = (libc::time(std::ptr::null_mut()), std::mem::zeroed());
        libc::gmtime_r(&now, &mut parts);
        libc::strftime(text.as_mut_ptr().cast(), text.len(), c"%F %T UTC".as_ptr(), &parts)
    };
    let time = String::from_utf8_lossy(&text[..length]);
    // In one write: other processes write there too.
    let line = format!("{time} [{}] {level}:  larder: {what}\n", std::process::id());
    let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
}

/// Runs a function when this process ends.
pub fn at_exit(run: extern "C" fn(c_int, usize)) {
    type OnExit = unsafe extern "C" fn(extern "C" fn(c_int, usize), usize);
    // SAFETY: `void on_proc_exit(pg_on_exit_callback, Datum)`.
    unsafe {
        if let Some(on_exit) = function::<OnExit>(c"on_proc_exit") {
            on_exit(run, 0);
        }
    }
}

/// A hook without arguments.
pub type Hook = Option<unsafe extern "C-unwind" fn()>;

/// Installs a hook that the server calls when its shared memory exists; returns the previous hook.
pub fn hook_startup(run: unsafe extern "C-unwind" fn()) -> Option<Hook> {
    let at = symbol(c"shmem_startup_hook")?.cast::<Hook>();
    // SAFETY: `void (*shmem_startup_hook)(void)`; the server has one thread, which is here.
    unsafe {
        let before = at.read();
        at.write(Some(run));
        Some(before)
    }
}

/// Bytes as a value of type `text`.
#[must_use]
pub fn text(bytes: &str) -> usize {
    type Make = unsafe extern "C-unwind" fn(*const c_char, c_int) -> *mut c_void;
    // SAFETY: `text *cstring_to_text_with_len(const char *, int)` copies them.
    unsafe {
        match function::<Make>(c"cstring_to_text_with_len") {
            Some(make) => make(bytes.as_ptr().cast(), bytes.len() as c_int) as usize,
            None => 0,
        }
    }
}
