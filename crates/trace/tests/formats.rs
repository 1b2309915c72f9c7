// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every format: handwritten samples, round trips through the writers, and damaged input.
#![allow(clippy::unwrap_used)]

use std::io::Write;

use larder_trace::{DEVICE_BYTES, Format, Op, Options, Record, Records, Trace, Writer};
use proptest::prelude::*;

fn records(format: Option<Format>, bytes: &[u8]) -> Vec<Result<Record, String>> {
    let options = Options { format, ..Options::default() };
    match Records::from_reader(std::io::Cursor::new(bytes.to_vec()), "t", &options) {
        Ok(records) => records.map(|r| r.map_err(|e| e.to_string())).collect(),
        Err(error) => vec![Err(error.to_string())],
    }
}

fn record(ts_us: u64, dev: u8, op: Op, offset: u64, len: u64) -> Record {
    Record::new(ts_us, dev, op, offset, len).unwrap()
}

/// The records of a text whose format must be recognised.
fn text(bytes: &str) -> Vec<Result<Record, String>> {
    records(None, bytes.as_bytes())
}

fn vscsi1(cmd: u16, len: u32, sector: u64, ts: u64) -> Vec<u8> {
    let mut bytes = 7_u32.to_le_bytes().to_vec();
    bytes.extend(len.to_le_bytes());
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(cmd.to_le_bytes());
    bytes.extend(0x0100_u16.to_le_bytes());
    bytes.extend(sector.to_le_bytes());
    bytes.extend(ts.to_le_bytes());
    bytes
}

fn vscsi2(cmd: u16, len: u32, sector: u64, ts: u64) -> Vec<u8> {
    let mut bytes = cmd.to_le_bytes().to_vec();
    bytes.extend(0x0200_u16.to_le_bytes());
    bytes.extend(7_u32.to_le_bytes());
    bytes.extend(len.to_le_bytes());
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(sector.to_le_bytes());
    bytes.extend(ts.to_le_bytes());
    bytes.extend(99_u64.to_le_bytes());
    bytes
}

const FIO2: &str = "fio version 2 iolog\n/dev/b add\n/dev/a add\n/dev/a open\n/dev/a write 8192 512\n\
                    /dev/b wait 250\n/dev/b read 0 4096\n/dev/b sync 0 0\n/dev/a close\n";
const FIO3: &str = "fio version 3 iolog\n0 /x add\n1 /x open\n17 /x read 57344 8192\n\
                    20 /x trim 0 4096\n31 /x write 0 4096\n40 /x close\n";
const BLKPARSE: &str = "  8,16   1        1     0.000001500  1234  Q  WS 2048 + 8 [a b]\n\
  8,16   1        2     0.000002000  1234  G  WS 2048 + 8 [a b]\n\
  8,16   1        3     0.000002000  1234  P   N [a b]\n\
  8,0    0        4     1.500000000  1234  Q FWFSM 16 + 1 [x]\n\
  8,16   1        5     1.600000000     0  C  WS 2048 + 8 [0]\n\
  8,0    0        6     1.700000000  1234  Q  RA 0 + 256 [x]\n\
  8,0    0        7     1.700000000  1234  Q   D 0 + 256 [x]\n\
  8,0    0        8     1.800000000     0  m   N cfq idle=0\n\
CPU0 (8,0):\n Reads Queued:  1, 128KiB\n";
const MSR: &str = "128166372003061629,hm,0,Read,383496192,32768,413\r\n\
                   128166372003061659,hm,1,Write,512,4096,9\n";
const CSV: &str = "time_ms;Device;Type;LBA;Size\n1.5;sda;R;8;4096\n2;\"sdb\";Write;0;512\n";

#[test]
fn handwritten_samples_decode() {
    let (r, w) = (Op::Read, Op::Write);
    let found: Vec<_> = text(FIO2).into_iter().map(Result::unwrap).collect();
    assert_eq!(found, [record(0, 1, w, 8192, 512), record(250, 0, r, 0, 4096)]);
    let found: Vec<_> = text(FIO3).into_iter().map(Result::unwrap).collect();
    assert_eq!(found, [record(17, 0, r, 57344, 8192), record(31, 0, w, 0, 4096)]);
    let found: Vec<_> = text(BLKPARSE).into_iter().map(Result::unwrap).collect();
    let first = record(2, 0, w, 1 << 20, 4096);
    let second = record(1_500_000, 1, w, 8192, 512);
    assert_eq!(found, [first, second, record(1_700_000, 1, r, 0, 128 << 10)]);
    let found: Vec<_> = text(MSR).into_iter().map(Result::unwrap).collect();
    assert_eq!(found, [record(0, 0, r, 383_496_192, 32768), record(3, 1, w, 512, 4096)]);
    let found: Vec<_> = text(CSV).into_iter().map(Result::unwrap).collect();
    assert_eq!(found, [record(1500, 0, r, 4096, 4096), record(2000, 1, w, 0, 512)]);
    // TEST UNIT READY transfers nothing.
    for version in [vscsi1, vscsi2] {
        let requests = [version(0x28, 512, 3, 9), version(0, 0, 0, 10), version(0x8a, 4096, 0, 11)];
        let found: Vec<_> = records(None, &requests.concat());
        assert_eq!(found, [Ok(record(9, 0, r, 1536, 512)), Ok(record(11, 0, w, 0, 4096))]);
    }
}

#[test]
fn another_event_and_named_columns_can_be_chosen() {
    let options = Options { event: 'C', ..Options::default() };
    let found = Records::from_reader(BLKPARSE.as_bytes(), "t", &options).unwrap();
    let found: Vec<_> = found.map(Result::unwrap).collect();
    assert_eq!(found, [record(1_600_000, 0, Op::Write, 1 << 20, 4096)]);

    let columns = "time=when:s,offset=block:8192,op=what".parse().unwrap();
    let options = Options { format: Some(Format::Csv), columns, ..Options::default() };
    let csv = "what,when,block\nread,0.25,3\n";
    let found = Records::from_reader(csv.as_bytes(), "t", &options).unwrap();
    let found: Vec<_> = found.map(Result::unwrap).collect();
    assert_eq!(found, [record(250_000, 0, Op::Read, 24576, 4096)]);
    for bad in ["", "time=x", "time=x:h", "offset=x:0", "size=x:1"] {
        let error = bad.parse::<larder_trace::Columns>().unwrap_err();
        assert!(error.contains("accepted"), "{bad}: {error}");
    }
}

#[test]
fn one_device_can_be_selected() {
    let options = Options { dev: Some(1), ..Options::default() };
    let found = Records::from_reader(FIO2.as_bytes(), "t", &options).unwrap();
    assert_eq!(found.map(|r| r.unwrap().dev).collect::<Vec<_>>(), [1]);
}

#[test]
fn malformed_input_ends_the_iteration_with_its_position() {
    let fio = "fio version 3 iolog\n0 /x add\n";
    let blk = "8,0 0 1 0.5 1 Q R 0 + 8 [x]\n";
    let csv = "offset,length,op,time_us,dev\n0,1,r,1,0\n";
    for (name, good, bad, why) in [
        ("fio", fio, "0 /y read 0 1", "not added"),
        ("fio", fio, "0 /x read 0", "length ''"),
        ("fio", fio, "0 /x read -1 5", "offset '-1'"),
        ("fio", fio, "0 /x wait 5", "'wait'"),
        ("fio", "", "fio version 1 iolog", "version 2"),
        ("blkparse", blk, "8,0 0 1 0.5 1 Q R 0 - 8", "SECTOR + SECTORS"),
        ("blkparse", blk, "8,0 0 1 x 1 Q R 0 + 8", "time 'x'"),
        ("blkparse", blk, "8,0 0 1 0.5 1 Q X 0 + 8", "RWBS 'X'"),
        ("blkparse", blk, "sda 0 1 0.5 1 Q R 0 + 8", "MAJOR,MINOR"),
        ("blkparse", blk, "8,0 0 1", "no time"),
        ("msr", MSR, "1,hm,0,Read,1", "5 fields"),
        ("msr", MSR, "1,hm,0,Erase,1,1,1", "'Erase'"),
        ("csv", csv, "0,1,1,1,0", "op '1'"),
        ("csv", csv, "0,1,r,1e400,0", "time '1e400'"),
        ("csv", csv, "0,1,r,1,sda", "device 'sda'"),
        ("csv", csv, "0,1,r", "3 fields"),
        ("csv", csv, "18446744073709551615,1,r,1,0", "16 TiB"),
        ("csv", "", "a,b", "no column for the offset"),
    ] {
        let format = Some(Format::by_name(name).unwrap());
        let input = format!("{good}{bad}\n{bad}\n");
        let found = records(format, input.as_bytes());
        let line = found.last().unwrap().as_ref().unwrap_err();
        let place = format!("t: line {}: ", good.lines().count() + 1);
        let whole = line.starts_with(&place) && line.contains("accepted") && line.contains(why);
        assert!(whole && !line.contains('\n'), "{name} {bad}: {line}");
        assert!(found[..found.len() - 1].iter().all(Result::is_ok));
    }
}

#[test]
fn binary_records_are_checked_and_errors_state_their_position() {
    let btr = |offset: u64, len: u32, op: u8, reserved: u16| {
        let mut bytes = 7_u64.to_le_bytes().to_vec();
        bytes.extend(offset.to_le_bytes());
        bytes.extend(len.to_le_bytes());
        bytes.extend([op, 3]);
        bytes.extend(reserved.to_le_bytes());
        bytes
    };
    let oracle = |object: u64| {
        let mut bytes = 7_u32.to_le_bytes().to_vec();
        bytes.extend(object.to_le_bytes());
        bytes.extend([0; 12]);
        bytes
    };
    let sum = Format::OracleGeneral;
    for (format, good, bad, why) in [
        (Format::Btr, btr(0, 1, 0, 0), btr(0, 0, 0, 0), "at least one byte"),
        (Format::Btr, btr(0, 1, 0, 0), btr(u64::MAX, 1, 0, 0), "16 TiB"),
        (Format::Btr, btr(0, 1, 0, 0), btr(DEVICE_BYTES, 1, 0, 0), "16 TiB"),
        (Format::Btr, btr(0, 1, 0, 0), btr(0, 1, 3, 0), "op 3"),
        (Format::Btr, btr(0, 1, 0, 0), btr(0, 1, 0, 5), "0x0005"),
        (Format::Btr, btr(0, 1, 0, 0), btr(0, 1, 0, 0)[..23].to_vec(), "after 23 bytes"),
        (sum, oracle(1), oracle(1 << 40), "2^40"),
        (sum, oracle(1), oracle(1)[..5].to_vec(), "after 5 bytes"),
        (Format::Vscsi, vscsi1(8, 1, 0, 0), vscsi2(8, 1, 0, 0), "upper byte"),
        (Format::Vscsi, vscsi1(8, 1, 0, 0), vscsi1(8, 1, u64::MAX, 0), "sector"),
        (Format::Vscsi, vscsi2(8, 1, 0, 0), vscsi2(256, 1, 0, 0), "0x0100"),
    ] {
        // The first two records are valid, because they determine the version.
        let place = format!("t: byte {}: ", 2 * good.len());
        let found = records(Some(format), &[good.clone(), good, bad].concat());
        let line = found.last().unwrap().as_ref().unwrap_err();
        let whole = line.starts_with(&place) && line.contains("accepted") && line.contains(why);
        assert!(found.len() == 3 && whole, "{why}: {line}");
    }
}

#[test]
fn compression_is_recognised_and_damage_in_it_reported() {
    let plain: Vec<u8> = MSR.repeat(500).into_bytes();
    let zstd = zstd::encode_all(&plain[..], 1).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain).unwrap();
    let gzip = gzip.finish().unwrap();
    let expected = records(None, &plain);
    assert_eq!(expected.len(), 1000);
    for packed in [zstd, gzip] {
        assert_eq!(records(None, &packed), expected);
        let cut = records(None, &packed[..packed.len() - 9]);
        let line = cut.last().unwrap().as_ref().unwrap_err();
        assert!(line.contains("whole file") && !line.contains('\n'), "{line}");
    }
    let noise = records(None, b"\x00\x01\x02 not a trace");
    assert!(noise[0].as_ref().unwrap_err().contains("accepted: --format btr, fio"), "{noise:?}");
    let long = records(Some(Format::Csv), &vec![b'a'; 1 << 20]);
    assert!(long[0].as_ref().unwrap_err().contains("longer than 16384"), "{long:?}");
}

fn any_record() -> impl Strategy<Value = Record> {
    let op = prop_oneof![Just(Op::Read), Just(Op::Write), Just(Op::Unknown)];
    (0..1_u64 << 50, 0..4_u8, op, 0..DEVICE_BYTES - (1 << 20), 1..1_u64 << 20)
        .prop_map(|(ts, dev, op, offset, len)| record(ts, dev, op, offset, len))
}

fn written(name: &str, records: &[Record]) -> Vec<Record> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    let mut writer = Writer::create(&path, None).unwrap();
    records.iter().for_each(|record| writer.write(record).unwrap());
    writer.finish().unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
    let trace = Trace::new(&path, Options::default());
    trace.records().unwrap().collect::<Result<_, _>>().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn written_records_read_back(records in prop::collection::vec(any_record(), 0..200)) {
        for name in ["t.btr", "t.btr.zst", "t.csv", "t.csv.zst"] {
            prop_assert_eq!(&written(name, &records), &records);
        }
        let known = |op| if op == Op::Write { Op::Write } else { Op::Read };
        let fio: Vec<Record> = records.iter().map(|r| Record { op: known(r.op), ..*r }).collect();
        prop_assert_eq!(written("t.iolog.zst", &fio), fio);
    }

    #[test]
    fn pages_read_back_as_objects(records in prop::collection::vec(any_record(), 0..20)) {
        let seconds = |r: &Record| Record { ts_us: r.ts_us % 1_000_000_000, ..*r };
        let records: Vec<Record> = records.iter().map(seconds).collect();
        let found = written("t.oracleGeneral", &records);
        let pages: Vec<u64> = records.iter().flat_map(Record::pages).collect();
        prop_assert_eq!(found.iter().flat_map(Record::pages).collect::<Vec<_>>(), pages);
    }

    /// Any damage gives valid records and then at most one line of error.
    #[test]
    fn damaged_input_never_panics(
        which in 0..9_usize,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 1..8),
        named in any::<bool>(),
    ) {
        let gzip = {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            out.write_all(MSR.repeat(20).as_bytes()).unwrap();
            out.finish().unwrap()
        };
        let (format, mut bytes) = match which {
            0 => (Format::Fio, FIO2.as_bytes().to_vec()),
            1 => (Format::Fio, FIO3.as_bytes().to_vec()),
            2 => (Format::Blkparse, BLKPARSE.as_bytes().to_vec()),
            3 => (Format::Msr, MSR.as_bytes().to_vec()),
            4 => (Format::Csv, CSV.as_bytes().to_vec()),
            5 => (Format::Vscsi, [vscsi1(8, 1, 0, 0), vscsi1(8, 1, 0, 0)].concat()),
            6 => (Format::Vscsi, [vscsi2(8, 1, 0, 0), vscsi2(8, 1, 0, 0)].concat()),
            7 => (Format::OracleGeneral, vec![1; 96]),
            _ => (Format::Msr, gzip),
        };
        for (at, byte, kind) in damage {
            let at = at.index(bytes.len().max(1)).min(bytes.len());
            match kind {
                0 if at < bytes.len() => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 if at < bytes.len() => drop(bytes.remove(at)),
                3 => bytes.truncate(at.max(bytes.len() / 2)),
                _ => {}
            }
        }
        let found = records(named.then_some(format), &bytes);
        for (n, record) in found.iter().enumerate() {
            match record {
                Ok(record) => prop_assert!(record.end_bytes() <= DEVICE_BYTES && record.len_bytes > 0),
                Err(line) => prop_assert!(n + 1 == found.len() && !line.contains('\n'), "{line}"),
            }
        }
    }
}

#[test]
fn an_unfinished_trace_leaves_no_file_and_unwritable_ones_are_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(&dir.path().join("t.csv"), None).unwrap();
    writer.write(&record(0, 0, Op::Read, 0, 1)).unwrap();
    drop(writer);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    for (name, why) in [
        ("t.msr", "only read"),
        ("t.csv.gz", "gzip"),
        ("t", "by its flag"),
        ("no/t.csv", "written"),
    ] {
        let error = Writer::create(&dir.path().join(name), None).err().unwrap().to_string();
        assert!(error.contains(why), "{name}: {error}");
    }
}
