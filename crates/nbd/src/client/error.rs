// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of the client.

use larder_core::request::Errno;

use crate::tls::TlsError;

/// Why a request or a negotiation failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection could not be made.
    #[error("cannot connect to {uri}: {error}")]
    Connect {
        /// The server's URI.
        uri: String,
        /// The cause.
        error: std::io::Error,
    },
    /// The stream failed.
    #[error("the NBD connection failed: {0}")]
    Io(std::io::Error),
    /// The server closed the connection.
    #[error("the NBD server closed the connection")]
    Closed,
    /// The server did not reply within the time limit.
    #[error("the NBD server did not reply within the time limit")]
    TimedOut,
    /// The server rejected the export.
    #[error("the NBD server rejected export {export:?}: {why}")]
    Refused {
        /// The export's name.
        export: String,
        /// The server's text, or Larder's for its error number.
        why: String,
    },
    /// The server broke the protocol.
    #[error("the NBD server broke the protocol: {0}")]
    Protocol(&'static str),
    /// The server does not support TLS.
    #[error("the NBD server rejected TLS: {0}")]
    NoTls(String),
    /// TLS could not be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The request is invalid and was not sent.
    #[error("invalid request to the NBD server: {0}")]
    Usage(&'static str),
    /// The server replied with an error.
    #[error("the NBD server replied with an error: {0}")]
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
