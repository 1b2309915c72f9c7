// SPDX-License-Identifier: MIT OR Apache-2.0
//! The flags of `larder serve`, which are the keys of a configuration file too: see `config`.

use std::ops::Range;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use larder_core::exec::Nanos;
use larder_front::listen::{Listen, Secure};
use larder_io::DevSpec;
use larder_nbd::tls::{Fingerprint, ServerFiles, ServerTls, TlsError};
use larder_volume::peer::MOST_CONNECTIONS;
use larder_volume::{VolumeError, VolumeRanges};

use super::limits::{LimitArgs, client_memory};
use crate::choices::ChoiceArgs;
use crate::ranges::range;
use crate::setting::BadSetting;
use crate::units::{address, mode, size, span};

/// DEV is a file or block device, an NBD URI, `mem:SIZE`, `null:SIZE`, or
/// `slow+DEV?profile=NAME&seed=N`.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// Configuration in TOML: long flags as keys, with underscores; flags override the file
    ///
    /// A table [volume.NAME] describes each of several volumes.
    #[arg(value_name = "CONFIG")]
    pub config: Option<PathBuf>,
    /// Print the effective configuration as a configuration file
    #[arg(long)]
    pub print_config: bool,
    /// The slow device: a file, a block device or an NBD export
    ///
    /// PATH of a file or block device, nbd://HOST/EXPORT, nbd+unix:///EXPORT?socket=PATH (nbds for TLS), mem:SIZE,
    /// null:SIZE, or slow+PATH?profile=NAME&seed=N (a device behind modelled latency, for experiments).
    #[arg(long, value_name = "DEV", required_unless_present = "config")]
    pub origin: Option<DevSpec>,
    /// The flash device; without one every request goes to the origin
    #[arg(long, value_name = "DEV")]
    pub flash: Option<DevSpec>,
    /// Bytes to use at most; a missing flash file gets this size
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub flash_size: Option<u64>,
    /// Bytes that flash may grow to without formatting it again [default: up to 4 times its size]
    ///
    /// A flash that is formatted gets metadata for so many. Not for page logs and caches of sets, which keep their size.
    #[arg(long, value_parser = size, value_name = "SIZE", hide_short_help = true)]
    pub flash_most: Option<u64>,
    /// Overwrite foreign data on the flash device
    #[arg(long)]
    pub format: bool,
    /// Do not allocate the blocks of a new flash file: its writes fail while its file system is full
    #[arg(long, hide_short_help = true)]
    pub sparse: bool,
    /// Use the dirty data on flash although its state file is lost, or the origin's path or time changed
    ///
    /// The user asserts that the flash belongs to this origin, and that nothing was written to the origin since the
    /// cache stopped. For write-back caches (presets prwc and face), and for one start.
    #[arg(long, conflicts_with = "format", hide_short_help = true)]
    pub adopt: bool,
    /// The five choices by name, see `larder presets` [default: that of the flash in use, else larder]
    #[arg(long)]
    pub preset: Option<String>,
    /// Where clients connect, repeatable: nbd+unix:PATH, nbd://HOST:PORT, fuse:PATH, ublk[:NUMBER], vhost-user:PATH
    ///
    /// fuse:PATH is a file that is the volume; a loop device can mount it. ublk is the block device /dev/ublkbNUMBER, and
    /// needs Linux 6.5 or newer. vhost-user is a disk of a virtual machine (QEMU, cloud-hypervisor, libvirt). Clients of
    /// ro:LISTEN only read; clients of backup:LISTEN only read, and their reads leave the cache as it is.
    #[arg(long, value_name = "LISTEN", required_unless_present = "config")]
    pub listen: Vec<Listen>,
    /// Mode of unix listeners, which decides who may connect [default: as the umask allows]
    #[arg(long, value_name = "MODE", value_parser = mode, hide_short_help = true)]
    pub listen_mode: Option<u32>,
    /// Export name, also of the state file and the control socket
    ///
    /// The state file of a volume without a name is named after the origin.
    #[arg(long, default_value = "")]
    pub name: String,
    /// Count of the grants by which a cluster's manager lets machines serve the volume, the current one included [default: 0, no manager]
    ///
    /// It needs --name, which the manager gives to one volume alone. It concerns ublk devices: one that a server of an earlier
    /// grant left is removed, and its users get I/O errors, because their requests may be older than data that another machine
    /// wrote since. Flash is used as without it: give the server flash of the last grant, or format it.
    #[arg(
        long,
        default_value_t = 0,
        hide_default_value = true,
        value_name = "N",
        hide_short_help = true
    )]
    pub generation: u64,
    /// Directory of state files, which decide whether a cache starts warm
    ///
    /// The same directory in every run, also in runs without a flash device or a journal. [default: $STATE_DIRECTORY
    /// as systemd sets it, else /var/lib/larder for root, else ~/.local/state/larder]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Control socket [default: NAME.sock, or default.sock, in /run/larder or $XDG_RUNTIME_DIR/larder]
    #[arg(long, value_name = "SOCKET")]
    pub control: Option<PathBuf>,
    /// Group whose members may run status, stats and top [default: none, the user of the server and root]
    #[arg(long, value_name = "GROUP", hide_short_help = true)]
    pub control_group: Option<String>,
    /// Worker threads, each with a share of the units [default: half the processors, at most 4]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub workers: Option<u32>,
    /// A range of the volume that is cached and not evicted, as OFFSET+LENGTH, repeatable; see `larder pin`
    #[arg(long, value_name = "RANGE", value_parser = range, hide_short_help = true)]
    pub pin: Vec<Range<u64>>,
    /// A range of the volume that is never cached, as OFFSET+LENGTH, repeatable; see `larder exclude`
    #[arg(long, value_name = "RANGE", value_parser = range, hide_short_help = true)]
    pub exclude: Vec<Range<u64>>,
    /// How long a stop (SIGTERM) may take to finish the requests in flight
    #[arg(long, default_value = "30s", value_parser = span, value_name = "SPAN", hide_short_help = true)]
    pub drain: Nanos,
    /// Memory for the data of client requests in flight and for buffers, of all volumes; at least 96MiB
    ///
    /// A request that needs more than is left waits.
    #[arg(
        long,
        value_parser = client_memory,
        default_value = "256MiB",
        value_name = "SIZE",
        hide_short_help = true
    )]
    pub client_memory: u64,
    /// Connections that a volume serves for one user of this machine or one address; a quarter more, at least one, are for others
    #[arg(
        long,
        value_parser = clap::value_parser!(u32).range(2..=1024),
        default_value_t = MOST_CONNECTIONS as u32,
        value_name = "N",
        hide_short_help = true
    )]
    pub connections: u32,
    /// Address of the Prometheus metrics, at the path /metrics [default: none]
    #[arg(long, value_name = "HOST:PORT", value_parser = address, hide_short_help = true)]
    pub metrics: Option<String>,
    /// Let the process use all files and execute programs, as a debugger may need it
    ///
    /// Otherwise the kernel (Landlock, seccomp) restricts it: it can read and write only devices in /dev, the directory of
    /// its flash file, its state files and its sockets, read /etc, /proc, /sys and libraries, and execute nothing. It
    /// keeps no capability and no system call that it does not use.
    #[arg(long, hide_short_help = true)]
    pub unrestricted: bool,
    #[command(flatten)]
    pub tls: TlsArgs,
    #[command(flatten)]
    pub choices: ChoiceArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
}

impl ServeArgs {
    /// A grant is that of a name.
    pub fn check_generation(&self) -> Result<(), BadSetting> {
        match self.generation > 0 && self.name.is_empty() {
            true => Err(BadSetting::new("generation", "needs --name, which no other volume has")),
            false => Ok(()),
        }
    }

    /// The ranges that are pinned and excluded.
    pub fn ranges(&self) -> VolumeRanges {
        VolumeRanges { pinned: self.pin.clone(), excluded: self.exclude.clone() }
    }
}

/// TLS for clients.
#[derive(Args, Debug)]
#[command(next_help_heading = "TLS")]
pub struct TlsArgs {
    /// The server's certificate chain (PEM); TCP clients must then use TLS
    #[arg(long, value_name = "FILE", requires = "tls_key", hide_short_help = true)]
    pub tls_cert: Option<PathBuf>,
    /// The private key of the server's certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", hide_short_help = true)]
    pub tls_key: Option<PathBuf>,
    /// Accept only clients with a certificate of this authority (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", hide_short_help = true)]
    pub tls_client_ca: Option<PathBuf>,
    /// Of those, refuse clients whose certificate a list in this file revokes (PEM)
    ///
    /// Each authority in a client's chain needs a list. The date until which a list is valid is not checked. SIGHUP
    /// rereads this file, and those of the certificates and the private key.
    #[arg(long, value_name = "FILE", requires = "tls_client_ca", hide_short_help = true)]
    pub tls_client_crl: Option<PathBuf>,
    /// Of those, accept only clients whose certificate has this SHA-256 fingerprint, repeatable
    ///
    /// As `openssl x509 -fingerprint -sha256` prints it, with or without colons.
    #[arg(long, value_name = "SHA256", requires = "tls_client_ca", hide_short_help = true)]
    pub tls_client_fingerprint: Vec<Fingerprint>,
    /// Require TLS of clients on unix sockets too
    #[arg(long, requires = "tls_cert", hide_short_help = true)]
    pub tls_require: bool,
}

impl TlsArgs {
    /// The files, and which clients are accepted.
    pub fn files(&self) -> Option<ServerFiles> {
        let (cert, key) = self.tls_cert.clone().zip(self.tls_key.clone())?;
        let (client_ca, client_crl) = (self.tls_client_ca.clone(), self.tls_client_crl.clone());
        let accepted = self.tls_client_fingerprint.clone();
        Some(ServerFiles { cert, key, client_ca, client_crl, accepted })
    }

    /// What the server requires of clients, if there is TLS.
    pub fn secure(&self) -> Result<Option<Secure>> {
        let Some(files) = self.files() else { return Ok(None) };
        let tls = ServerTls::load(files).map_err(|e| match e {
            TlsError::OpenKey(_) => VolumeError::Refused(e.to_string()).into(),
            e => anyhow::Error::from(e),
        })?;
        Ok(Some(Secure { tls, everywhere: self.tls_require }))
    }
}
