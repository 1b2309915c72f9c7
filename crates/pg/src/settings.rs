// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings: `larder.*` in `postgresql.conf`.
//!
//! As an extension the library defines them, with types and units. Preloaded it comes before the server has any, and
//! reads what the server keeps of unknown settings with a prefix; units are the same.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64};
use std::time::Duration;

use larder_core::pagelog::{BATCH_PAGES, BATCH_PAGES_MOST, LogPolicy};

use crate::admits::Admits;
use crate::server;

/// The settings of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Directory on flash; without one nothing is cached.
    pub flash_directory: String,
    /// Bytes of the flash file.
    pub flash_bytes: u64,
    /// Pages of a batch.
    pub batch_pages: u32,
    /// Whether pages that were asked for stay for another round.
    pub second_chance: bool,
    /// What becomes of changed pages.
    pub policy: LogPolicy,
    /// Which pages enter flash.
    pub admits: Admits,
    /// An operation of flash that takes longer is overdue.
    pub flash_timeout: Duration,
    /// Whether the page cache has pages of flash.
    pub flash_page_cache: bool,
}

/// The server may not run with this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What is wrong.
    pub what: String,
    /// What would be accepted.
    pub hint: String,
}

impl Refused {
    /// See its fields.
    pub fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { what: what.into(), hint: hint.into() }
    }
}

const AT_START: c_int = 1; // PGC_POSTMASTER
const ON_RELOAD: c_int = 2; // PGC_SIGHUP
const MIB: u64 = 1 << 20;

static DIRECTORY: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());
static SIZE: AtomicI32 = AtomicI32::new(0);
static BATCH: AtomicI32 = AtomicI32::new(0);
static CHANCE: AtomicBool = AtomicBool::new(false);
/// A number as the server has it, in MiB.
static ENDURANCE: AtomicU64 = AtomicU64::new(0);
static ADMIT: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());
static POLICY: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());
static TIMEOUT: AtomicI32 = AtomicI32::new(0);
static PAGE_CACHE: AtomicBool = AtomicBool::new(false);

/// Milliseconds of `larder.flash_timeout`: by default, and bounds.
const TIMEOUT_MS: i32 = 2_000;
const TIMEOUT_LEAST_MS: i32 = 10;
const TIMEOUT_MOST_MS: i32 = 3_600_000;

/// Whether the units of numbers are those of the versions before 16.
fn has_old_units() -> bool {
    server::version().is_some_and(|version| version < 16)
}

/// The flag of a number in MiB.
fn in_mib() -> c_int {
    if has_old_units() { 0x4000 } else { 0x0400_0000 }
}

/// The flag of a time in milliseconds.
fn in_ms() -> c_int {
    if has_old_units() { 0x1_0000 } else { 0x1000_0000 }
}

type Text = *const c_char;
type Check = *const c_void;
type DefineString = unsafe extern "C-unwind" fn(
    Text,
    Text,
    Text,
    *mut *mut c_char,
    Text,
    c_int,
    c_int,
    Check,
    Check,
    Check,
);
type DefineInt = unsafe extern "C-unwind" fn(
    Text,
    Text,
    Text,
    *mut c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    Check,
    Check,
    Check,
);
type DefineBool = unsafe extern "C-unwind" fn(
    Text,
    Text,
    Text,
    *mut bool,
    bool,
    c_int,
    c_int,
    Check,
    Check,
    Check,
);

type DefineReal = unsafe extern "C-unwind" fn(
    Text,
    Text,
    Text,
    *mut f64,
    f64,
    f64,
    f64,
    c_int,
    c_int,
    Check,
    Check,
    Check,
);

/// A setting: its name, what it is.
struct About {
    name: Text,
    what: Text,
    more: Text,
}

fn about(name: &'static CStr, what: &'static CStr, more: Option<&'static CStr>) -> About {
    let more = more.map_or(std::ptr::null(), CStr::as_ptr);
    About { name: name.as_ptr(), what: what.as_ptr(), more }
}

const NONE: Check = std::ptr::null();

fn define_string(
    about: &About,
    value: &'static AtomicPtr<c_char>,
    default: &'static CStr,
    when: c_int,
) {
    // SAFETY: a function of this type from 15 to 18; the variable is static.
    unsafe {
        if let Some(define) = server::function::<DefineString>(c"DefineCustomStringVariable") {
            let About { name, what, more } = *about;
            let at = value.as_ptr();
            define(name, what, more, at, default.as_ptr(), when, 0, NONE, NONE, NONE);
        }
    }
}

fn define_int(
    about: &About,
    value: &'static AtomicI32,
    default: i32,
    most: (i32, i32),
    flags: c_int,
) {
    // SAFETY: as above.
    unsafe {
        if let Some(define) = server::function::<DefineInt>(c"DefineCustomIntVariable") {
            let About { name, what, more } = *about;
            let at = value.as_ptr();
            define(
                name, what, more, at, default, most.0, most.1, AT_START, flags, NONE, NONE, NONE,
            );
        }
    }
}

fn define_bool(about: &About, value: &'static AtomicBool, default: bool) {
    // SAFETY: as above.
    unsafe {
        if let Some(define) = server::function::<DefineBool>(c"DefineCustomBoolVariable") {
            let About { name, what, more } = *about;
            define(name, what, more, value.as_ptr(), default, AT_START, 0, NONE, NONE, NONE);
        }
    }
}

/// Defines all of them, while the server reads its configuration.
pub fn define() {
    let what = c"Directory on flash for pages that leave shared buffers; empty: nothing is cached.";
    let more = c"Relative to the data directory. It belongs to this server alone.";
    define_string(&about(c"larder.flash_directory", what, Some(more)), &DIRECTORY, c"", AT_START);
    let size =
        about(c"larder.flash_size", c"Size of the flash file; 0: four times shared_buffers.", None);
    define_int(&size, &SIZE, 0, (0, c_int::MAX), in_mib());
    let batch = about(c"larder.batch_pages", c"Pages that are written to flash together.", None);
    define_int(&batch, &BATCH, BATCH_PAGES as i32, (1, BATCH_PAGES_MOST as i32), 0);
    let what = c"Time after which an operation of flash is overdue, and the disk is used instead if it has the same data.";
    let bounds = (TIMEOUT_LEAST_MS, TIMEOUT_MOST_MS);
    define_int(&about(c"larder.flash_timeout", what, None), &TIMEOUT, TIMEOUT_MS, bounds, in_ms());
    let chance = c"Keeps pages that were read from flash for another round.";
    define_bool(&about(c"larder.second_chance", chance, None), &CHANCE, true);
    let cached = c"Reads and writes flash through the kernel's page cache.";
    define_bool(&about(c"larder.flash_page_cache", cached, None), &PAGE_CACHE, false);
    // Not an enumeration: with a wrong name the server would continue with the default.
    let what = c"Write policy of changed pages: through (written to the disk at once), bounded (with the next checkpoint) or full (when flash evicts them).";
    define_string(&about(c"larder.policy", what, None), &POLICY, c"through", ON_RELOAD);
    let what = c"Pages that enter flash when they leave shared buffers: all, clean (those that were not changed) or dirty (those that are written).";
    define_string(&about(c"larder.admit", what, None), &ADMIT, c"all", AT_START);
    // SAFETY: a function of this type from 15 to 18.
    unsafe {
        if let Some(define) = server::function::<DefineReal>(c"DefineCustomRealVariable") {
            let what = c"Bytes that may be written to the SSD in its life, for larder_stat_wear; 0: not known.";
            let About { name, what, more } = about(c"larder.flash_endurance", what, None);
            let at = ENDURANCE.as_ptr().cast();
            let (most, unit) = (1e12, in_mib());
            define(name, what, more, at, 0.0, 0.0, most, ON_RELOAD, unit, NONE, NONE, NONE);
        }
        type Reserve = unsafe extern "C-unwind" fn(Text);
        if let Some(reserve) = server::function::<Reserve>(c"MarkGUCPrefixReserved") {
            reserve(c"larder".as_ptr());
        }
    }
}

/// A number in the unit of this flag, as the server reads one.
fn number_in(unit: c_int, text: &str) -> Option<u64> {
    type Parse = unsafe extern "C" fn(Text, *mut c_int, c_int, *mut Text) -> bool;
    let text = CString::new(text).ok()?;
    let (mut value, mut hint) = (0, std::ptr::null());
    // SAFETY: `bool parse_int(const char *, int *, int, const char **)`.
    let read = unsafe {
        let parse = server::function::<Parse>(c"parse_int")?;
        parse(text.as_ptr(), &mut value, unit, &mut hint)
    };
    u64::try_from(value).ok().filter(|_| read)
}

/// Bytes that may be written to the SSD in its life, if that is set.
#[must_use]
pub fn endurance_bytes() -> Option<f64> {
    type Parse = unsafe extern "C" fn(Text, *mut f64, c_int, *mut Text) -> bool;
    let defined = f64::from_bits(ENDURANCE.load(Relaxed));
    if defined > 0.0 {
        return Some(defined * MIB as f64);
    }
    let text = CString::new(server::setting("larder.flash_endurance")?).ok()?;
    let (mut value, mut hint) = (0.0, std::ptr::null());
    // SAFETY: `bool parse_real(const char *, double *, int, const char **)`.
    let read = unsafe {
        let parse = server::function::<Parse>(c"parse_real")?;
        parse(text.as_ptr(), &mut value, in_mib(), &mut hint)
    };
    (read && value > 0.0).then_some(value * MIB as f64)
}

fn bad(name: &str, text: &str, hint: &str) -> Refused {
    Refused::new(format!("larder.{name} is \"{text}\""), hint)
}

/// The policy, which may change while the server runs (`reload.rs`).
///
/// # Errors
/// If there is no such policy.
pub fn policy() -> Result<LogPolicy, Refused> {
    let Some(text) = server::setting("larder.policy") else { return Ok(LogPolicy::Through) };
    LogPolicy::ALL
        .into_iter()
        .find(|policy| policy.name() == text)
        .ok_or_else(|| bad("policy", &text, "Say through, bounded or full."))
}

/// Reads the settings of a server with this many bytes of shared buffers.
///
/// # Errors
/// If a setting is invalid.
pub fn read(shared_buffers: u64) -> Result<Settings, Refused> {
    let get = |name: &str| server::setting(&format!("larder.{name}"));
    let flash_bytes = match get("flash_size") {
        None => 0,
        Some(text) => number_in(in_mib(), &text)
            .ok_or_else(|| bad("flash_size", &text, "Say a size, such as 20GB."))?,
    };
    let batch_pages = match get("batch_pages") {
        None => BATCH_PAGES,
        Some(text) => text
            .parse()
            .ok()
            .filter(|pages| (1..=BATCH_PAGES_MOST).contains(pages))
            .ok_or_else(|| bad("batch_pages", &text, "Say a number from 1 to 256."))?,
    };
    let is_on = |name: &str, default| match get(name).as_deref() {
        None => Ok(default),
        Some("on" | "true" | "yes" | "1") => Ok(true),
        Some("off" | "false" | "no" | "0") => Ok(false),
        Some(text) => Err(bad(name, text, "Say on or off.")),
    };
    let bounds = TIMEOUT_LEAST_MS as u64..=TIMEOUT_MOST_MS as u64;
    let timeout_ms = match get("flash_timeout") {
        None => TIMEOUT_MS as u64,
        Some(text) => number_in(in_ms(), &text)
            .filter(|ms| bounds.contains(ms))
            .ok_or_else(|| bad("flash_timeout", &text, "Say a time from 10ms to 1h."))?,
    };
    let admits = match get("admit").as_deref() {
        None => Admits::All,
        Some(text) => Admits::EVERY
            .into_iter()
            .find(|admits| admits.name() == text)
            .ok_or_else(|| bad("admit", text, "Say all, clean or dirty."))?,
    };
    Ok(Settings {
        flash_directory: get("flash_directory").unwrap_or_default(),
        flash_bytes: if flash_bytes == 0 { 4 * shared_buffers } else { flash_bytes * MIB },
        batch_pages,
        second_chance: is_on("second_chance", true)?,
        policy: policy()?,
        admits,
        flash_timeout: Duration::from_millis(timeout_ms),
        flash_page_cache: is_on("flash_page_cache", false)?,
    })
}
