// SPDX-License-Identifier: MIT OR Apache-2.0
//! A certificate authority and its certificates, in a directory with the file names that NBD tools expect.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// A directory of certificates.
pub struct Certs {
    dir: tempfile::TempDir,
}

fn params(name: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

impl Certs {
    /// A new authority with certificates for the server `localhost` and `127.0.0.1`, and for a client.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // Private keys have the mode that servers require; the rest may have it too.
        let put = |name: &str, text: String| {
            let (path, mut options) = (dir.path().join(name), File::options());
            let mut file = options.write(true).create_new(true).mode(0o600).open(path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        let mut authority = params("an authority", &[]);
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        put("ca-cert.pem", authority.self_signed(&key).unwrap().pem());
        let issuer = Issuer::new(authority, key);
        for (name, names, purpose) in [
            ("server", &["localhost", "127.0.0.1"][..], ExtendedKeyUsagePurpose::ServerAuth),
            ("client", &["a client"][..], ExtendedKeyUsagePurpose::ClientAuth),
        ] {
            let mut leaf = params(name, names);
            leaf.extended_key_usages = vec![purpose];
            leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            let key = KeyPair::generate().unwrap();
            put(&format!("{name}-cert.pem"), leaf.signed_by(&key, &issuer).unwrap().pem());
            put(&format!("{name}-key.pem"), key.serialize_pem());
        }
        Self { dir }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}
