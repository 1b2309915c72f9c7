// SPDX-License-Identifier: MIT OR Apache-2.0
//! TLS for NBD servers and clients: certificates, the handshake after `STARTTLS`, and the encrypted connection.
//!
//! Purpose: to turn a stream on which both sides agreed on TLS into a plain socket. A thread (`pump`) copies between
//! the two, so the user of the plain socket (a worker's ring, a client's two halves) needs no knowledge of TLS.
//!
//! Invariants: only the authorities in the files that the user named are trusted, neither the system's nor built-in
//! ones. A client always verifies the server's name. Keys and certificates are read when a server starts and whenever a
//! client connects. A private key that other users can read or write is refused. TLS 1.2 and 1.3.
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
use std::sync::Arc;

use larder_private::Refuse;
use rustix::fs::OFlags;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
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
    /// Fingerprints are listed without the authority of the certificates.
    #[error(
        "TLS: a list of fingerprints needs the authority of the clients; accepted: --tls-client-ca FILE"
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

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let accepted = "certificates";
    let fail = |what: String| TlsError::File { path: path.to_owned(), what, accepted };
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let found: Vec<_> = found.map_err(|e| fail(e.to_string()))?;
    if found.is_empty() { Err(fail("has no certificate".to_owned())) } else { Ok(found) }
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let fail =
        |what: String| TlsError::File { path: path.to_owned(), what, accepted: "a private key" };
    let mut pem = Vec::new();
    let read = open_key(path).and_then(|file| file.take(MOST_KEY_BYTES).read_to_end(&mut pem));
    match read {
        Ok(_) => PrivateKeyDer::from_pem_slice(&pem).map_err(|e| fail(e.to_string())),
        // It is refused: see `larder_private::Refused`.
        Err(e) if e.raw_os_error().is_none() => Err(TlsError::OpenKey(e.to_string())),
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

/// The server's side: its certificate, and which clients it accepts.
#[derive(Clone, Debug)]
pub struct ServerTls(Arc<ServerConfig>);

impl ServerTls {
    /// Reads the files. With `client_ca`, only clients with a certificate of that authority are accepted, and of those,
    /// unless `accepted` is empty, only those whose certificate has one of these fingerprints.
    ///
    /// # Errors
    /// A file cannot be used, or fingerprints are given without an authority.
    pub fn load(
        cert: &Path,
        key_file: &Path,
        client_ca: Option<&Path>,
        accepted: Vec<Fingerprint>,
    ) -> Result<Self, TlsError> {
        let builder = versions(ServerConfig::builder_with_provider(provider()))?;
        let builder = match client_ca {
            Some(path) => {
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(authorities(path)?, provider());
                let mut verifier = verifier.build().map_err(setup)?;
                if !accepted.is_empty() {
                    verifier = Arc::new(Listed { inner: verifier, accepted });
                }
                builder.with_client_cert_verifier(verifier)
            }
            None if !accepted.is_empty() => return Err(TlsError::NoClientAuthority),
            None => builder.with_no_client_auth(),
        };
        let config = builder.with_single_cert(certificates(cert)?, key(key_file)?);
        Ok(Self(Arc::new(config.map_err(setup)?)))
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
        let connection = ServerConnection::new(Arc::clone(&self.0)).map_err(setup)?;
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
