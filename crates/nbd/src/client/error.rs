// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a client gets no answer.

use larder_core::request::Errno;

use crate::tls::TlsError;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection.
    #[error("cannot connect to {uri}: {error}")]
    Connect {
        /// Where to.
        uri: String,
        /// Why.
        error: std::io::Error,
    },
    /// The stream failed.
    #[error("the NBD connection failed: {0}")]
    Io(std::io::Error),
    /// The server closed the connection.
    #[error("the NBD server closed the connection")]
    Closed,
    /// The server did not answer in time.
    #[error("the NBD server did not answer in time")]
    TimedOut,
    /// The server refused the export.
    #[error("the NBD server refused export {export:?}: {why}")]
    Refused {
        /// Which.
        export: String,
        /// The server's words, or ours for its number.
        why: String,
    },
    /// The server does not keep to the protocol.
    #[error("the NBD server broke the protocol: {0}")]
    Protocol(&'static str),
    /// The server has no TLS.
    #[error("the NBD server refused TLS: {0}")]
    NoTls(String),
    /// There is no TLS with this server.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The request cannot be sent.
    #[error("this cannot be asked of the NBD server: {0}")]
    Usage(&'static str),
    /// The server answered with an error.
    #[error("the NBD server answered: {0}")]
    Remote(#[from] Errno),
}

impl From<std::io::Error> for ClientError {
    fn from(e: std::io::Error) -> Self {
        use std::io::ErrorKind as K;
        match e.kind() {
            K::UnexpectedEof | K::ConnectionReset | K::BrokenPipe => Self::Closed,
            K::TimedOut | K::WouldBlock => Self::TimedOut,
            _ => Self::Io(e),
        }
    }
}
