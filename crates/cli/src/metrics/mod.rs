// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--metrics ADDR`: the counters of the volumes, for Prometheus.
//!
//! Purpose: each scrape takes one plain snapshot of every volume and renders it; [`table`] defines
//! the metrics, [`process`] those of the process, [`http`] serves the text in one of the formats of [`format`](mod@format).
//!
//! Invariants: a scrape asks the workers. Scrapes within [`FRESH`] share an answer, so that the number of clients does not
//! matter to the workers. A volume that does not answer is `larder_up 0`
//! and hides no other. Metrics and docs/metrics.md are the same list; a test holds them together.

mod format;
mod http;
mod process;
mod table;

use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use larder_front::listen::bind_tcp;
use larder_volume::{Cache, Stats, Status, VolumeError};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use self::format::Format;
use self::table::{Named, Of, Sample, Snapshot};

pub use self::http::Server;

/// How long a snapshot may be shared.
const FRESH: Duration = Duration::from_millis(200);

/// Binds the address, before the first device is opened.
pub fn bind(address: &str) -> Result<TcpListener, VolumeError> {
    bind_tcp(format_args!("--metrics {address}"), address)
}

/// Serves the volumes' metrics until dropped.
pub fn serve(listener: TcpListener, caches: Vec<Arc<Cache>>) -> Result<Server, VolumeError> {
    let last: Mutex<Option<(Instant, String)>> = Mutex::new(None);
    let body = move |format: Format| {
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((at, text)) if at.elapsed() < FRESH => format.of(text),
            _ => {
                let text = text(&caches);
                let answer = format.of(&text);
                *last = Some((Instant::now(), text));
                answer
            }
        }
    };
    Server::start(listener, body).map_err(VolumeError::Thread)
}

/// All metrics of all caches and volumes.
fn text(caches: &[Arc<Cache>]) -> String {
    let mut registry = Registry::default();
    let samples = caches.iter().flat_map(samples).collect();
    registry.register_collector(Box::new(Snapshot(samples)));
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = encode(&mut text, &registry);
    text
}

/// A volume with its own cache; or a cache, and the volumes that share it.
fn samples(cache: &Arc<Cache>) -> Vec<Named> {
    let sample = |status: Result<Status, VolumeError>, stats: Result<Stats, VolumeError>| {
        Some(Sample { status: status.ok()?, stats: stats.ok()? })
    };
    let volumes = cache.volumes();
    let shared = volumes.len() > 1;
    let whole = shared.then(|| {
        let name = cache.config().name.clone();
        Named { name, of: Of::Cache, sample: sample(cache.status(), cache.stats()) }
    });
    let each = volumes.iter().map(|volume| Named {
        name: volume.name().to_owned(),
        of: if shared { Of::Volume } else { Of::Both },
        sample: sample(volume.status(), volume.stats()),
    });
    whole.into_iter().chain(each).collect()
}
