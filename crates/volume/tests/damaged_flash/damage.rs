// SPDX-License-Identifier: MIT OR Apache-2.0
//! What lies on flash and beside it, and what may happen to that.

use std::fs::{self, File, FileTimes};
use std::ops::Range;
use std::path::Path;
use std::time::SystemTime;

use larder_core::format::label::{
    Found, HEADER_BYTES as LABEL_AREA, LABEL_BYTES, Label, SECOND_COPY,
};
use larder_core::format::{DeviceSize, Plan};
use larder_core::journal::layout::{HEADER_BYTES, Layout};
use larder_core::pagelog::Geometry;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use crate::{FLASH_BYTES, Past};

/// The files of a volume.
#[derive(Clone)]
pub struct Image {
    pub origin: Vec<u8>,
    pub flash: Vec<u8>,
    pub state: Option<Vec<u8>>,
    /// When the origin was written to last.
    pub modified: SystemTime,
}

impl Image {
    pub fn of(dir: &Path) -> Self {
        let read = |name: &str| fs::read(dir.join(name)).unwrap();
        let modified = fs::metadata(dir.join("origin")).unwrap().modified().unwrap();
        let state = fs::read(dir.join("state/v.json")).ok();
        Self { origin: read("origin"), flash: read("flash"), state, modified }
    }

    pub fn lay_out(&self, dir: &Path) {
        fs::write(dir.join("origin"), &self.origin).unwrap();
        fs::write(dir.join("flash"), &self.flash).unwrap();
        let origin = File::options().write(true).open(dir.join("origin")).unwrap();
        origin.set_times(FileTimes::new().set_modified(self.modified)).unwrap();
        if let Some(state) = &self.state {
            fs::create_dir_all(dir.join("state")).unwrap();
            fs::write(dir.join("state/v.json"), state).unwrap();
        }
    }

    /// What is not the same there.
    pub fn differs(&self, other: &Self) -> Option<&'static str> {
        let parts = [
            ("origin", self.origin == other.origin),
            ("flash", self.flash == other.flash),
            ("state file", self.state == other.state),
            ("time of the origin", self.modified == other.modified),
        ];
        parts.into_iter().find(|(_, same)| !same).map(|(name, _)| name)
    }

    fn label(&self) -> Label {
        let Found::Label(label) = Label::find(&self.flash) else { panic!("no label") };
        label
    }
}

/// A structure by name, and where it lies on flash.
type Part = (&'static str, Range<u64>);

/// Of what is there twice, copy `copy`.
fn structures(label: &Label, copy: u8) -> Vec<Part> {
    let mut parts = match plan(label) {
        Plan::Units(units) => of_metadata(&units.layout(label.volume, 0).unwrap(), copy),
        Plan::Logs(logs) => of_log(&logs.geometry(label.volume, 0), copy),
    };
    let at = u64::from(copy) * SECOND_COPY;
    parts.push(("label", at..at + LABEL_BYTES as u64));
    parts
}

fn plan(label: &Label) -> Plan {
    Plan::of_label(label, DeviceSize { bytes: FLASH_BYTES, block_bytes: 512 }).unwrap()
}

fn of_metadata(layout: &Layout, copy: u8) -> Vec<Part> {
    let log = u64::from(layout.log_blocks) * layout.block_bytes;
    let of = |at: u64, len: u64| at..at + len;
    let header = |region| of(layout.header(region, copy), HEADER_BYTES);
    let payload = |region| of(layout.payload(region), layout.payload_bytes);
    let log = |region| of(layout.log_block(region, copy, 0), log);
    vec![
        ("header 0", header(0)),
        ("header 1", header(1)),
        ("payload 0", payload(0)),
        ("payload 1", payload(1)),
        ("log 0", log(0)),
        ("log 1", log(1)),
    ]
}

/// One place of headers, and the segments, which the batch headers repeat. What lies in the ring has
/// checksums: a read of a damaged dirty page fails, which is not judged here.
fn of_log(log: &Geometry, copy: u8) -> Vec<Part> {
    let header = log.base + u64::from(copy) * 4096;
    vec![("header", header..header + 4096), ("segments", log.base + 2 * 4096..log.block(0))]
}

/// The last image, damaged in one to four ways, and what was done.
pub fn harm(past: &Past, owns: bool, rng: &mut Pcg64Mcg) -> (Image, Vec<String>) {
    let (mut image, mut what) = (past.last.clone(), Vec::new());
    let label = image.label();
    let copy = rng.random_range(0..2);
    if rng.random_bool(0.3) {
        what.push(put_back(past, &mut image, owns, rng));
        // A state file that lies is one fault, and as many as are promised to be noticed.
        if what[0].starts_with("state") {
            return (image, what);
        }
    }
    for _ in 0..rng.random_range(1..=4) {
        let parts = structures(&label, copy);
        what.push(match rng.random_range(0..20) {
            0 => cut(&mut image.flash, "flash", rng),
            1 => both_labels(&mut image, rng),
            2..5 => of_state(&mut image.state, rng),
            5..8 => older(past, &mut image, parts, rng),
            _ => on_flash(&mut image.flash, parts, rng),
        });
    }
    (image, what)
}

/// A whole old thing in the place of the new.
fn put_back(past: &Past, image: &mut Image, owns: bool, rng: &mut Pcg64Mcg) -> String {
    let area = LABEL_AREA as usize;
    match rng.random_range(0..5) {
        0 => image.state.clone_from(&past.older.state),
        1 => image.state.clone_from(&past.early.state),
        2 => {
            image.flash.clone_from(&past.older.flash);
            return "the flash of an older formatting".to_owned();
        }
        // The dirty data is lost with the flash, which cannot be noticed.
        3 if !owns => {
            image.flash.clone_from(&past.early.flash);
            image.state.clone_from(&past.early.state);
            return "early flash and state".to_owned();
        }
        _ => {
            image.flash[..area].copy_from_slice(&past.older.flash[..area]);
            return "both labels of an older formatting".to_owned();
        }
    }
    "state file".to_owned()
}

fn cut(bytes: &mut Vec<u8>, name: &str, rng: &mut Pcg64Mcg) -> String {
    let len = rng.random_range(0..=bytes.len());
    bytes.truncate(len);
    format!("{name} cut to {len} bytes")
}

fn both_labels(image: &mut Image, rng: &mut Pcg64Mcg) -> String {
    let zero = rng.random_bool(0.5);
    for at in [0, SECOND_COPY as usize] {
        let Some(label) = image.flash.get_mut(at..at + LABEL_BYTES) else { continue };
        if zero { label.fill(0) } else { label[20] ^= 4 }
    }
    format!("both labels {}", if zero { "zeroed" } else { "flipped" })
}

fn of_state(state: &mut Option<Vec<u8>>, rng: &mut Pcg64Mcg) -> String {
    let Some(text) = state.as_mut().filter(|text| !text.is_empty()) else {
        return "no state".to_owned();
    };
    match rng.random_range(0..4) {
        0 => {
            *state = None;
            "the state file removed".to_owned()
        }
        1 => cut(text, "the state file", rng),
        _ => {
            let (at, bit) = (rng.random_range(0..text.len()), rng.random_range(0..8));
            text[at] ^= 1 << bit;
            format!("bit {bit} of byte {at} of the state file")
        }
    }
}

/// A structure as it was.
fn older(past: &Past, image: &mut Image, parts: Vec<Part>, rng: &mut Pcg64Mcg) -> String {
    let from = if rng.random_bool(0.5) { &past.older } else { &past.early };
    let (name, range) = &parts[rng.random_range(0..parts.len())];
    let range = range.start as usize..range.end as usize;
    if let Some(target) = image.flash.get_mut(range.clone()) {
        target.copy_from_slice(&from.flash[range]);
    }
    format!("an old {name}")
}

fn on_flash(flash: &mut [u8], parts: Vec<Part>, rng: &mut Pcg64Mcg) -> String {
    let (name, range) = &parts[rng.random_range(0..parts.len())];
    let at = rng.random_range(range.clone()) as usize;
    // Most of a log was never written.
    let at = if name.starts_with("log") { range.start as usize + at % 8192 } else { at };
    let sector = at / 512 * 512;
    let Some(bytes) = flash.get_mut(sector..sector + 512) else { return "nothing".to_owned() };
    match rng.random_range(0..3) {
        0 => bytes.fill(0),
        1 => bytes.fill_with(|| rng.random()),
        _ => bytes[at % 512] ^= 1 << rng.random_range(0..8),
    }
    format!("{name} at byte {at}")
}
