// SPDX-License-Identifier: MIT OR Apache-2.0
//! TLS for NBD servers and clients: certificates, the handshake after `STARTTLS`, and the encrypted connection.
//!
//! Purpose: to turn a stream on which both sides agreed on TLS into a plain socket. A thread (`pump`) copies between
//! the two, so the user of the plain socket (a worker's ring, a client's two halves) needs no knowledge of TLS.
//!
//! Invariants: only the authorities in the files that the user named are trusted, neither the system's nor built-in
//! ones. A client always verifies the server's name. Keys and certificates are read when a server starts or reloads them, and
//! whenever a client connects. A private key that other users can read or write is refused. TLS 1.2 and 1.3.
//!
//! Why rustls with `ring`: it is memory-safe, and it builds with only a C compiler.

mod listed;
mod pump;

pub use self::listed::Fingerprint;

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use larder_private::{Refuse, is_refusal};
use rustix::fs::OFlags;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, ConfigBuilder, ConfigSide, Connection, RootCertStore,
    ServerConfig, ServerConnection, WantsVerifier, WantsVersions,
};

use self::listed::Listed;
use crate::deadline::{Deadlined, Timeouts};
use crate::uri::Names;

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be used.
    #[error("TLS: {}: {what}; accepted: a PEM file with {accepted}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
        /// What the file must contain.
        accepted: &'static str,
    },
    /// Other users can read or write a private key.
    #[error("TLS: private key {0}; a private key gives no access to other users")]
    OpenKey(String),
    /// The URI names no trusted authority.
    #[error("TLS: no authority to trust; accepted: tls-certificates=DIR or tls-ca=FILE in the URI")]
    NoAuthority,
    /// Fingerprints or a revocation list are given without the authority of the certificates.
    #[error(
        "TLS: lists of clients need the authority of the clients; accepted: --tls-client-ca FILE"
    )]
    NoClientAuthority,
    /// A name for which no certificate can exist.
    #[error("TLS: {0:?} is not a server name; accepted: a DNS name or an IP address")]
    Name(String),
    /// The contents of the files do not match each other.
    #[error("TLS: {0}")]
    Setup(String),
    /// The handshake failed.
    #[error("TLS: the handshake failed: {0}")]
    Handshake(io::Error),
}

/// The longest file of a private key.
const MOST_KEY_BYTES: u64 = 1 << 20;

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn setup(error: impl std::fmt::Display) -> TlsError {
    TlsError::Setup(error.to_string())
}

fn versions<S: ConfigSide>(
    builder: ConfigBuilder<S, WantsVersions>,
) -> Result<ConfigBuilder<S, WantsVerifier>, TlsError> {
    builder.with_safe_default_protocol_versions().map_err(setup)
}

/// The objects of a PEM file, at least one.
fn all<T: PemObject>(path: &Path, one: &str, accepted: &'static str) -> Result<Vec<T>, TlsError> {
    let fail = |what: String| TlsError::File { path: path.to_owned(), what, accepted };
    let found = T::pem_file_iter(path).and_then(Iterator::collect);
    let found: Vec<T> = found.map_err(|e| fail(e.to_string()))?;
    if found.is_empty() { Err(fail(format!("has no {one}"))) } else { Ok(found) }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    all(path, "certificate", "certificates")
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let fail =
        |what: String| TlsError::File { path: path.to_owned(), what, accepted: "a private key" };
    let mut pem = Vec::new();
    let read = open_key(path).and_then(|file| file.take(MOST_KEY_BYTES).read_to_end(&mut pem));
    match read {
        Ok(_) => PrivateKeyDer::from_pem_slice(&pem).map_err(|e| fail(e.to_string())),
        Err(e) if is_refusal(&e) => Err(TlsError::OpenKey(e.to_string())),
        Err(e) => Err(fail(e.to_string())),
    }
}

/// Opens the file of a private key. A group may read it only if root owns it, as where a system shares a key between
/// services by a group.
fn open_key(path: &Path) -> io::Result<File> {
    let key = File::from(larder_private::open(path, OFlags::RDONLY, 0, Refuse::OTHERS)?);
    if key.metadata()?.uid() != 0 {
        larder_private::check(&key, path, Refuse::ANY)?;
    }
    Ok(key)
}

fn authorities(path: &Path) -> Result<Arc<RootCertStore>, TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        let fail = |e: rustls::Error| TlsError::File {
            path: path.to_owned(),
            what: e.to_string(),
            accepted: "certificates of authorities",
        };
        store.add(certificate).map_err(fail)?;
    }
    Ok(Arc::new(store))
}

fn revocations(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    all(path, "revocation list", "revocation lists")
}

/// The files of a server, and which clients it accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerFiles {
    /// The server's certificate chain.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// With it, only clients with a certificate of this authority are accepted.
    pub client_ca: Option<PathBuf>,
    /// Of those, clients whose certificate a list in this file revokes are not accepted. Each authority in a client's
    /// chain needs a list. The date until which a list is valid is not checked: an old list revokes what it names.
    pub client_crl: Option<PathBuf>,
    /// Of those, unless it is empty, only clients whose certificate has one of these fingerprints are accepted.
    pub accepted: Vec<Fingerprint>,
}

impl ServerFiles {
    /// Their paths.
    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        let required = [Some(&self.cert), Some(&self.key)];
        required.into_iter().chain([self.client_ca.as_ref(), self.client_crl.as_ref()]).flatten()
    }

    fn read(&self) -> Result<ServerConfig, TlsError> {
        let builder = versions(ServerConfig::builder_with_provider(provider()))?;
        let builder = match &self.client_ca {
            Some(path) => {
                let mut verifier =
                    WebPkiClientVerifier::builder_with_provider(authorities(path)?, provider());
                if let Some(path) = &self.client_crl {
                    verifier = verifier.with_crls(revocations(path)?);
                }
                let mut verifier = verifier.build().map_err(setup)?;
                if !self.accepted.is_empty() {
                    let accepted = self.accepted.clone();
                    verifier = Arc::new(Listed { inner: verifier, accepted });
                }
                builder.with_client_cert_verifier(verifier)
            }
            None if !self.accepted.is_empty() || self.client_crl.is_some() => {
                return Err(TlsError::NoClientAuthority);
            }
            None => builder.with_no_client_auth(),
        };
        builder.with_single_cert(certificates(&self.cert)?, key(&self.key)?).map_err(setup)
    }
}

#[derive(Debug)]
struct Shared {
    files: ServerFiles,
    config: Mutex<Arc<ServerConfig>>,
}

/// The server's side: its certificate, and which clients it accepts. A clone is the same one.
#[derive(Clone, Debug)]
pub struct ServerTls(Arc<Shared>);

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be used, or lists of clients are given without an authority.
    pub fn load(files: ServerFiles) -> Result<Self, TlsError> {
        let config = Mutex::new(Arc::new(files.read()?));
        Ok(Self(Arc::new(Shared { files, config })))
    }

    /// Reads the files again, for handshakes that begin from now on. A session of an earlier one cannot be resumed.
    ///
    /// # Errors
    /// As for [`load`](Self::load); what was read before stays in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        let read = Arc::new(self.0.files.read()?);
        *self.0.config.lock().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(())
    }

    /// Its files.
    #[must_use]
    pub fn files(&self) -> &ServerFiles {
        &self.0.files
    }

    /// Performs the handshake with a client and returns a plain socket to it. The stream's deadline applies to the
    /// handshake.
    ///
    /// # Errors
    /// The client is not accepted, breaks the protocol or is too slow.
    pub fn accept<S>(&self, stream: Deadlined<S>) -> Result<UnixStream, TlsError>
    where
        S: Timeouts + Read + Write + Into<OwnedFd>,
    {
        let config = Arc::clone(&self.0.config.lock().unwrap_or_else(PoisonError::into_inner));
        let connection = ServerConnection::new(config).map_err(setup)?;
        secure(connection.into(), stream)
    }
}

/// Performs the handshake with the server of a URI and returns a plain socket to it.
pub(crate) fn connect<S>(
    names: &Names,
    host: Option<&str>,
    stream: Deadlined<S>,
) -> Result<UnixStream, TlsError>
where
    S: Timeouts + Read + Write + Into<OwnedFd>,
{
    let name = names.hostname.as_deref().or(host).unwrap_or("localhost").to_owned();
    let server = ServerName::try_from(name.clone()).map_err(|_| TlsError::Name(name))?;
    let config = client_config(names)?;
    let connection = ClientConnection::new(Arc::new(config), server).map_err(setup)?;
    secure(connection.into(), stream)
}

fn client_config(names: &Names) -> Result<ClientConfig, TlsError> {
    let within = |name: &str| names.certificates.as_ref().map(|dir| dir.join(name));
    let ca = names.ca.clone().or_else(|| within("ca-cert.pem")).ok_or(TlsError::NoAuthority)?;
    let verifier = WebPkiServerVerifier::builder_with_provider(authorities(&ca)?, provider());
    let builder = versions(ClientConfig::builder_with_provider(provider()))?
        .with_webpki_verifier(verifier.build().map_err(setup)?);
    match (within("client-cert.pem"), within("client-key.pem")) {
        (Some(cert), Some(key_file)) if cert.exists() => {
            builder.with_client_auth_cert(certificates(&cert)?, key(&key_file)?).map_err(setup)
        }
        _ => Ok(builder.with_no_client_auth()),
    }
}

/// Performs the handshake and starts a pump between the stream and the returned socket.
fn secure<S>(mut connection: Connection, mut stream: Deadlined<S>) -> Result<UnixStream, TlsError>
where
    S: Timeouts + Read + Write + Into<OwnedFd>,
{
    while connection.is_handshaking() {
        let moved = connection.complete_io(&mut stream);
        if moved.map_err(TlsError::Handshake)? == (0, 0) {
            return Err(TlsError::Handshake(io::ErrorKind::UnexpectedEof.into()));
        }
    }
    let outer: OwnedFd = stream.into_inner().map_err(TlsError::Handshake)?.into();
    pump::start(connection, outer).map_err(TlsError::Handshake)
}
