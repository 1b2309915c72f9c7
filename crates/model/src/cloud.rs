// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cloud volume: a fixed latency under two limits.
//!
//! Both limits are leaky buckets in their form as virtual scheduling (GCRA): each keeps the time
//! by which all it has let in is paid for, and a request waits while that lies further ahead than
//! the bucket is deep. Choices:
//! - One request is one I/O, whatever its size; a flush and a trim too. (Providers count large
//!   ones several times, but only from sizes at which the bandwidth binds first.)
//! - The buckets are shallow, 8 I/Os and 128 KiB: a lone request of up to 128 KiB sees the fixed
//!   latency alone, a stream below the rates is never delayed, and one above them is spaced evenly
//!   instead of being let in by the second.
//! - A request larger than the bandwidth bucket waits until all but the bucket's depth of it is
//!   paid, as its bytes cannot arrive earlier. The fixed latency follows the wait.
//! - A completed write is durable, so a flush waits for nothing and FUA costs nothing.
//!
//! Invariant: requests complete in the order of submission, as both schedules only move forward.
//! Why not credits for bursts of minutes: contract and papers have steady volumes; a third, deep
//! bucket of the same kind would model them.

use serde::Deserialize;

use crate::bounds;
use crate::foreseen::{EndsAt, Foreseen};
use crate::wire::transfer_ns;
use crate::{Kind, Nanos, Op};

/// What to model.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct CloudSpec {
    /// Time that each request takes beside any wait.
    #[serde(deserialize_with = "bounds::nanos")]
    pub latency_ns: Nanos,
    /// Limit of requests.
    #[serde(deserialize_with = "bounds::rate")]
    pub iops: u64,
    /// How many requests may come at once before the limit spaces them.
    #[serde(deserialize_with = "bounds::count")]
    pub burst_ios: u64,
    /// Limit of bytes read and written.
    #[serde(deserialize_with = "bounds::bandwidth")]
    pub bytes_per_second: u64,
    /// How many bytes may come at once before the limit spaces them.
    #[serde(deserialize_with = "bounds::bytes")]
    pub burst_bytes: u64,
}

/// One limit.
struct Bucket {
    paid_at: Nanos,
    depth_ns: Nanos,
}

impl Bucket {
    /// Charges a cost to a request that comes at `now`; returns when it may go on.
    fn admit(&mut self, now: Nanos, cost_ns: Nanos) -> Nanos {
        self.paid_at = self.paid_at.max(now).saturating_add(cost_ns);
        self.paid_at.saturating_sub(self.depth_ns).max(now)
    }
}

/// The volume.
pub type Cloud = Foreseen<Limited>;

/// The fixed latency under both limits.
pub struct Limited {
    spec: CloudSpec,
    io_ns: Nanos,
    ios: Bucket,
    bytes: Bucket,
}

impl Cloud {
    /// A volume that has been idle.
    #[must_use]
    pub fn new(spec: CloudSpec) -> Self {
        let io_ns = transfer_ns(1, spec.iops);
        let bytes_ns = transfer_ns(spec.burst_bytes, spec.bytes_per_second);
        Self::by(Limited {
            spec,
            io_ns,
            ios: Bucket { paid_at: 0, depth_ns: io_ns.saturating_mul(spec.burst_ios) },
            bytes: Bucket { paid_at: 0, depth_ns: bytes_ns },
        })
    }
}

impl EndsAt for Limited {
    fn ends_at(&mut self, now: Nanos, op: Op) -> Nanos {
        let mut start = self.ios.admit(now, self.io_ns);
        if matches!(op.kind, Kind::Read | Kind::Write) {
            let cost_ns = transfer_ns(op.len, self.spec.bytes_per_second);
            start = start.max(self.bytes.admit(now, cost_ns));
        }
        start.saturating_add(self.spec.latency_ns)
    }
}
