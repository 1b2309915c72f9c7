// SPDX-License-Identifier: MIT OR Apache-2.0
//! The yardsticks' load ([`super::super`]) as a trace: what its clients would ask of a device that
//! answers every read after [`Pace::service`].
//!
//! A transaction shows in the times: its reads follow each other by the service time, its writes
//! come together when the last read is answered (the cleaners of a database take them at once, and
//! no client waits for them), and then its client thinks.
//!
//! Invariant: with [`Pace`] by clients, at most one transaction of each is in progress.

use std::collections::VecDeque;

use hashbrown::HashMap;
use larder_trace::Record;

use super::super::{Oltp, PAGE_BYTES, Pattern};
use super::{Pace, Turns, record};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// Where requests go.
    pub pattern: Pattern,
    /// Bytes of data.
    pub data_bytes: u64,
    /// Walks of a transaction, of four reads each.
    pub walks: u32,
    /// Changes of a transaction.
    pub writes: f64,
    /// When.
    pub pace: Pace,
}

/// The generator, see the module.
pub struct OltpTrace {
    spec: Spec,
    load: Oltp,
    turns: Turns,
    under_way: HashMap<u64, Transaction>,
    ready: VecDeque<Record>,
}

struct Transaction {
    reads: VecDeque<u64>,
    writes: Vec<u64>,
}

impl OltpTrace {
    /// A trace without end.
    #[must_use]
    pub fn new(spec: Spec, seed: u64) -> Self {
        Self {
            load: Oltp::new(spec.pattern, spec.data_bytes, seed),
            turns: Turns::new(spec.pace, seed),
            under_way: HashMap::new(),
            ready: VecDeque::new(),
            spec,
        }
    }

    /// One client continues: a read, or the end of its transaction.
    fn turn(&mut self) {
        let (now, who) = self.turns.take();
        let transaction = self.under_way.entry(who).or_insert_with(|| {
            let drawn = self.load.transaction(self.spec.walks, self.spec.writes);
            Transaction { reads: drawn.reads.into(), writes: drawn.writes }
        });
        if let Some(at) = transaction.reads.pop_front() {
            self.ready.extend(record(now, false, at, PAGE_BYTES));
            return self.turns.asked(now, who);
        }
        let writes = std::mem::take(&mut transaction.writes);
        self.ready.extend(writes.into_iter().filter_map(|at| record(now, true, at, PAGE_BYTES)));
        self.under_way.remove(&who);
        self.turns.ended(now, who);
    }
}

impl Iterator for OltpTrace {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        while self.ready.is_empty() {
            self.turn();
        }
        self.ready.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use larder_core::exec::MILLISECOND;
    use larder_trace::Op;

    use super::super::Begin;
    use super::*;

    fn spec(begin: Begin) -> Spec {
        Spec {
            pattern: Pattern::Oltp,
            data_bytes: 64 << 20,
            walks: 1,
            writes: 0.6,
            pace: Pace { begin, service: MILLISECOND },
        }
    }

    #[test]
    fn of_one_client_transactions_can_be_told_by_their_times() {
        let think = 20 * MILLISECOND;
        let trace = OltpTrace::new(spec(Begin::Clients { count: 1, think }), 3);
        let records: Vec<Record> = trace.take(10_000).collect();
        let reads = records.iter().filter(|r| r.op == Op::Read).count();
        assert!((reads as f64 / 10_000.0 - 0.87).abs() < 0.01, "{reads}");
        // Half of the thinking time is longer than anything within a transaction.
        let groups: Vec<&[Record]> =
            records.chunk_by(|a, b| b.ts_us - a.ts_us < think / 2000).collect();
        for group in &groups[..groups.len() - 1] {
            let (reads, writes): (Vec<&Record>, Vec<&Record>) =
                group.iter().partition(|r| r.op == Op::Read);
            assert_eq!(reads.len(), 4);
            assert!(reads.windows(2).all(|w| w[1].ts_us - w[0].ts_us == 1_000));
            for write in writes {
                assert_eq!(write.ts_us, reads[3].ts_us + 1_000);
                assert!(reads.iter().any(|read| read.offset_bytes == write.offset_bytes));
            }
        }
    }

    #[test]
    fn transactions_overlap_at_a_rate_and_times_never_go_back() {
        let records: Vec<Record> =
            OltpTrace::new(spec(Begin::Rate(2_000.0)), 3).take(20_000).collect();
        assert!(records.is_sorted_by_key(|r| r.ts_us));
        let seconds = records[19_999].ts_us as f64 / 1e6;
        // 4.6 requests a transaction.
        assert!((20_000.0 / 4.6 / seconds / 2_000.0 - 1.0).abs() < 0.05, "{seconds}");
    }

    #[test]
    fn equal_seeds_give_equal_traces() {
        let trace = |seed| -> Vec<Record> {
            OltpTrace::new(spec(Begin::Rate(100.0)), seed).take(500).collect()
        };
        assert_eq!(trace(1), trace(1));
        assert_ne!(trace(1), trace(2));
    }
}
