// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys of a configuration file: the flags of `larder serve`, and which of them stand where.

use std::ffi::OsString;

use clap::Args;
use larder_core::volumes::Share;

use crate::serve::args::ServeArgs;
use crate::setting::BadSetting;
use crate::units::ratio;

/// Keys of a volume that shares a cache with others. They have no command-line flag, since flags describe one volume.
#[derive(Args, Clone, Debug)]
pub struct MemberArgs {
    /// The cache that the volume shares, which a table [cache.NAME] describes
    #[arg(long, value_name = "NAME")]
    pub cache: Option<String>,
    /// Slots reserved for this volume, as a share of all
    #[arg(long, value_parser = ratio, default_value = "0%", value_name = "SHARE")]
    pub least: f64,
    /// Most slots that this volume may use, as a share of all
    #[arg(long, value_parser = ratio, default_value = "100%", value_name = "SHARE")]
    pub most: f64,
    /// Start without the volume if its origin is missing; flash keeps its cached data
    #[arg(long)]
    pub may_be_missing: bool,
}

impl MemberArgs {
    /// Its share of the slots.
    pub fn share(&self) -> Result<Share, BadSetting> {
        let Self { least, most, .. } = *self;
        if least > most {
            let why = format!("is above most; accepted: up to {:.0}%", most * 100.0);
            return Err(BadSetting::of("least", format!("{:.0}%", least * 100.0), &why));
        }
        Ok(Share { least, most })
    }
}

/// Keys of [`MemberArgs`].
pub(super) const MEMBER: &[&str] = &["cache", "least", "most", "may_be_missing"];
/// Further keys of a volume that shares a cache. All others are of its cache.
const OF_VOLUMES: &[&str] = &[
    "origin",
    "listen",
    "listen_mode",
    "tls_cert",
    "tls_key",
    "tls_client_ca",
    "tls_client_crl",
    "tls_client_fingerprint",
    "tls_require",
    "control",
    "control_group",
    "name",
    "generation",
    "pin",
    "exclude",
];
/// Whether a key is that of a volume that shares a cache.
pub(super) fn is_of_volume(key: &str) -> bool {
    MEMBER.contains(&key) || OF_VOLUMES.contains(&key)
}

/// Of those, keys of a cache too.
pub(super) const FOR_CACHES_TOO: &[&str] = &["control", "control_group", "name"];

/// Keys that belong to the process, not to a volume.
pub(super) const PROCESS: &[&str] =
    &["client_memory", "connections", "drain", "metrics", "unrestricted"];
/// Keys for one start, which flags give to a cache where it is the only one.
pub(super) const OF_START: &[&str] = &["adopt", "format"];
/// Arguments of the command line only.
pub(super) const COMMAND_LINE: &[&str] = &["config", "print_config"];

/// A key and its value, as words of the command line.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub key: String,
    /// `--key=value`, or `--key`.
    pub words: Vec<OsString>,
    /// The line in the file; none for a flag.
    pub line: Option<usize>,
}

/// `serve` by itself, with the keys of a file, as each volume is read.
pub(super) fn command() -> clap::Command {
    let serve = ServeArgs::augment_args(clap::Command::new("serve"));
    MemberArgs::augment_args(serve).no_binary_name(true)
}
