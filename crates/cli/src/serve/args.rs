// SPDX-License-Identifier: MIT OR Apache-2.0
//! The flags of `larder serve`, which are the keys of a configuration file too: see `config`.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use larder_core::exec::Nanos;
use larder_front::listen::{ListenSpec, Secure};
use larder_io::DevSpec;
use larder_nbd::tls::ServerTls;

use super::limits::LimitArgs;
use crate::choices::ChoiceArgs;
use crate::units::{address, mode, size, span};

/// DEV is a file or block device, an NBD URI, `mem:SIZE`, `null:SIZE`, or
/// `slow+DEV?profile=NAME&seed=N`.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// Configuration in TOML: the long flags as keys, with underscores; several volumes by
    /// [volume.NAME]. Flags given beside it count instead of the file's keys
    #[arg(value_name = "CONFIG")]
    pub config: Option<PathBuf>,
    /// Print the effective configuration, which can be fed back, and do nothing else
    #[arg(long)]
    pub print_config: bool,
    /// The slow device: PATH of a file or block device, nbd://HOST/EXPORT,
    /// nbd+unix:///EXPORT?socket=PATH (nbds for TLS), mem:SIZE, null:SIZE, or
    /// slow+PATH?profile=NAME&seed=N (a real device behind modelled latency, to try things out)
    #[arg(long, value_name = "DEV", required_unless_present = "config")]
    pub origin: Option<DevSpec>,
    /// The flash device; without one the volume is served in pass-through
    #[arg(long, value_name = "DEV")]
    pub flash: Option<DevSpec>,
    /// Use at most so much of it; a file that does not exist is made this large
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub flash_size: Option<u64>,
    /// Overwrite foreign data on the flash device
    #[arg(long)]
    pub format: bool,
    /// The flash device belongs to this origin although its state file is lost, or the origin's time of
    /// change is another; nothing was written to the origin since: for a flash that alone has some of the
    /// data (presets prwc and face), and for one start
    #[arg(long, conflicts_with = "format")]
    pub adopt: bool,
    /// The five choices by name, see `larder presets`
    #[arg(long, default_value = "sce")]
    pub preset: String,
    /// Where clients come in: nbd+unix:PATH, nbd://HOST:PORT or fuse:PATH (a file that is the
    /// volume; a loop device can mount it); may be given several times
    #[arg(long, value_name = "LISTEN", required_unless_present = "config")]
    pub listen: Vec<ListenSpec>,
    /// Who may connect to its unix listeners, as file modes [default: what the umask leaves]
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub listen_mode: Option<u32>,
    /// Export name
    #[arg(long, default_value = "")]
    pub name: String,
    /// Directory of state files: whether what is on flash may be used. As for the journal's run,
    /// also when there is none this time
    /// [default: $STATE_DIRECTORY as systemd sets it, else /var/lib/larder for root, else
    /// ~/.local/state/larder]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Control socket [default: /run/larder/NAME.sock for root, else
    /// $XDG_RUNTIME_DIR/larder/NAME.sock; NAME is `default` for the empty name]
    #[arg(long, value_name = "SOCKET")]
    pub control: Option<PathBuf>,
    /// Worker threads, each with its share of the units [default: one for every two processors,
    /// at most 4]
    #[arg(long, value_name = "N")]
    pub workers: Option<u32>,
    /// How long a stop (SIGTERM) may take to answer what is under way
    #[arg(long, default_value = "30s", value_parser = span, value_name = "SPAN")]
    pub drain: Nanos,
    /// Where Prometheus may ask for metrics, at the path /metrics: HOST:PORT [default: nowhere]
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub metrics: Option<String>,
    #[command(flatten)]
    pub tls: TlsArgs,
    #[command(flatten)]
    pub choices: ChoiceArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
}

/// TLS for clients.
#[derive(Args, Debug)]
#[command(next_help_heading = "TLS")]
pub struct TlsArgs {
    /// The server's certificate (PEM, the chain included). Clients by TCP must use TLS then
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Let only clients in that have a certificate of this authority (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_client_ca: Option<PathBuf>,
    /// Clients of unix sockets must use TLS too
    #[arg(long, requires = "tls_cert")]
    pub tls_require: bool,
}

impl TlsArgs {
    /// What clients are asked for, if there is TLS.
    pub fn secure(&self) -> Result<Option<Secure>> {
        let (Some(cert), Some(key)) = (&self.tls_cert, &self.tls_key) else { return Ok(None) };
        let tls = ServerTls::load(cert, key, self.tls_client_ca.as_deref())?;
        Ok(Some(Secure { tls, everywhere: self.tls_require }))
    }
}
