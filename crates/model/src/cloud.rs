// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cloud volume: a fixed latency under two limits.
//!
//! Both limits are leaky buckets in the form of virtual scheduling (GCRA): each keeps the time at which all admitted
//! requests are paid for, and a request waits while that time is further ahead than the depth of the bucket. Choices:
//! - One request is one I/O, whatever its size; so are a flush and a trim. (Providers count large ones several times,
//!   but only from sizes at which the bandwidth limit applies first.)
//! - The buckets are shallow, 8 I/Os and 128 KiB. A lone request of up to 128 KiB has only the fixed latency, a stream
//!   below the limits is never delayed, and one above them is spaced evenly instead of being admitted in bursts a
//!   second apart.
//! - A request larger than the bandwidth bucket waits until all but the bucket's depth of it is paid, because its bytes
//!   cannot arrive earlier. The fixed latency follows the wait.
//! - A completed write is durable, so a flush waits for nothing and FUA costs nothing.
//!
//! Invariant: requests complete in the order of submission, because both schedules only advance.
//!
//! Why not credits for bursts of minutes: the modelled volumes are steady; a third, deep bucket of the same kind would
//! model them.

use serde::Deserialize;

use crate::bounds;
use crate::foreseen::{EndsAt, Foreseen};
use crate::wire::transfer_ns;
use crate::{Kind, Nanos, Op};

/// The parameters of a cloud volume.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct CloudSpec {
    /// Latency of each request, beside any wait.
    #[serde(deserialize_with = "bounds::nanos")]
    pub latency_ns: Nanos,
    /// Limit of requests per second.
    #[serde(deserialize_with = "bounds::rate")]
    pub iops: u64,
    /// Requests admitted at once before the limit spaces them.
    #[serde(deserialize_with = "bounds::count")]
    pub burst_ios: u64,
    /// Limit of bytes read and written per second.
    #[serde(deserialize_with = "bounds::bandwidth")]
    pub bytes_per_second: u64,
    /// Bytes admitted at once before the limit spaces them.
    #[serde(deserialize_with = "bounds::bytes")]
    pub burst_bytes: u64,
}

/// A limit.
struct Bucket {
    paid_at: Nanos,
    depth_ns: Nanos,
}

impl Bucket {
    /// Charges a request that arrives at `now`; returns when it may continue.
    fn admit(&mut self, now: Nanos, cost_ns: Nanos) -> Nanos {
        self.paid_at = self.paid_at.max(now).saturating_add(cost_ns);
        self.paid_at.saturating_sub(self.depth_ns).max(now)
    }
}

/// A cloud volume.
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
