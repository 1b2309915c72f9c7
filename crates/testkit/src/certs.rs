// SPDX-License-Identifier: MIT OR Apache-2.0
//! A certificate authority and its certificates, in a directory with the file names that NBD tools expect.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SerialNumber, date_time_ymd,
};

/// A directory of certificates.
pub struct Certs {
    dir: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

/// The certificates of an authority, by the serial number less one.
const NAMES: [&str; 2] = ["server", "client"];

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
        let hosts = [&["localhost", "127.0.0.1"][..], &["a client"]];
        let purposes = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        for (at, (names, purpose)) in hosts.into_iter().zip(purposes).enumerate() {
            let name = NAMES[at];
            let mut leaf = params(name, names);
            leaf.serial_number = Some(SerialNumber::from(at as u64 + 1));
            leaf.extended_key_usages = vec![purpose];
            leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            let key = KeyPair::generate().unwrap();
            put(&format!("{name}-cert.pem"), leaf.signed_by(&key, &issuer).unwrap().pem());
            put(&format!("{name}-key.pem"), key.serialize_pem());
        }
        Self { dir, issuer }
    }

    /// Writes `crl.pem`, a list that revokes these certificates.
    pub fn revoke(&self, names: &[&str]) {
        let of = |name: &&str| {
            let at = NAMES.iter().position(|known| known == name).unwrap();
            RevokedCertParams {
                serial_number: SerialNumber::from(at as u64 + 1),
                revocation_time: date_time_ymd(2025, 1, 1),
                reason_code: None,
                invalidity_date: None,
            }
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2025, 1, 1),
            // It stays in use.
            next_update: date_time_ymd(2025, 2, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: names.iter().map(of).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let text = list.signed_by(&self.issuer).unwrap().pem().unwrap();
        std::fs::write(self.path("crl.pem"), text).unwrap();
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
