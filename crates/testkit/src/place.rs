// SPDX-License-Identifier: MIT OR Apache-2.0
//! A directory for one test with an origin and sockets, and the arguments of a server there.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use larder_nbd::client::Client;
use larder_nbd::uri::{Address, Uri};
use serde_json::Value;

use crate::command::{Ended, connect, larder_says, one_json};

/// A temporary directory.
pub struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    /// An empty directory.
    pub fn new() -> Self {
        Self { dir: tempfile::Builder::new().prefix("larder-test-").tempdir().unwrap() }
    }

    /// The path of a file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The path of a file in it, as a command's argument.
    pub fn word(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Creates a sparse file of zeroes, which may be flash: it gives no access to other users.
    pub fn file(&self, name: &str, bytes: u64) -> PathBuf {
        let mut options = std::fs::File::options();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(self.path(name)).unwrap();
        file.set_len(bytes).unwrap();
        self.path(name)
    }

    /// Arguments of `serve` with the sockets `nbd` and `control` of this place.
    pub fn serve(&self, more: &[&str]) -> Vec<String> {
        let mut words = vec!["serve".to_owned()];
        words.extend(["--listen".to_owned(), format!("nbd+unix:{}", self.word("nbd"))]);
        words.extend(["--control".to_owned(), self.word("control")]);
        words.extend(more.iter().map(|&w| w.to_owned()));
        words
    }

    /// The whole content of the volume, as a client reads it.
    pub fn read_all(&self, bytes: u64) -> Vec<u8> {
        let mut all = vec![0; bytes as usize];
        self.client().read_at(0, &mut all).unwrap();
        all
    }

    /// Arguments of `serve` for the file `origin` behind the file `flash` of `flash_mib`, with small units and eager
    /// population.
    pub fn serve_cached(&self, flash_mib: u64, more: &[&str]) -> Vec<String> {
        let (origin, flash) = (self.word("origin"), self.word("flash"));
        let mut words = self.serve(&["--origin", &origin, "--flash", &flash, "--unit", "64KiB"]);
        words.extend(["--flash-size".to_owned(), format!("{flash_mib}MiB")]);
        let eager = "--populate-workers 4 --populate-miss 0% --populate-free 0% \
            --populate-period 0 --displace-heat 1 --clock-ceiling 1 --populate-io 16KiB";
        words.extend(eager.split_whitespace().map(str::to_owned));
        words.extend(more.iter().map(|&w| w.to_owned()));
        words
    }

    /// Arguments of `serve` for the file `origin` behind a small file `flash`, with a preset: small units where those
    /// of the preset are large, and eager population.
    pub fn serve_preset(&self, preset: &str, more: &[&str]) -> Vec<String> {
        if preset == "sce" {
            return self.serve_cached(4, &[&["--preset", "sce"], more].concat());
        }
        let (origin, flash) = (self.word("origin"), self.word("flash"));
        let mut words = self.serve(&["--origin", &origin, "--flash", &flash, "--preset", preset]);
        // A header of 1 MiB, and room for a few buckets on each of three workers.
        words.extend(["--flash-size", "5MiB"].map(str::to_owned));
        if preset == "slru" {
            words.extend(["--unit", "64KiB"].map(str::to_owned));
        }
        if preset == "face" {
            words.extend(["--batch-pages", "8", "--unit", "64KiB"].map(str::to_owned));
            if !more.contains(&"--write-policy") {
                words.extend(["--write-policy", "through"].map(str::to_owned));
            }
        }
        words.extend(more.iter().map(|&w| w.to_owned()));
        words
    }

    /// The export on the socket `nbd`.
    pub fn uri(&self) -> Uri {
        Uri { address: Address::Unix(self.path("nbd")), export: String::new(), tls: None }
    }

    /// The same URI as text.
    pub fn uri_word(&self) -> String {
        self.uri().to_string()
    }

    /// A connection to the export.
    pub fn client(&self) -> Client {
        connect(&self.uri())
    }

    /// Sends a command to the server on the socket `control`.
    pub fn ask(&self, command: &[&str]) -> Ended {
        let control = self.word("control");
        let mut words = vec![command[0], "--control", &control];
        words.extend(&command[1..]);
        larder_says(&words)
    }

    /// `stats --json`.
    pub fn stats(&self) -> Value {
        one_json(&self.ask(&["stats", "--json"]).ok())
    }

    /// `status --json`.
    pub fn status(&self) -> Value {
        one_json(&self.ask(&["status", "--json"]).ok())
    }

    /// A numeric value of `stats`.
    pub fn stat(&self, key: &str) -> u64 {
        self.stats()[key].as_u64().unwrap()
    }
}
