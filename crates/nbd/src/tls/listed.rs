// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that are accepted by the fingerprint of their certificate, in addition to its authority.
//!
//! Purpose: one authority may certify clients of many servers; a list names those of this one. A client is removed
//! from it with a restart; a revocation list needs none.
//!
//! Invariant: the authority's signature, its dates and its purpose are verified first, as without a list.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use ring::digest::{SHA256, digest};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// The SHA-256 of a certificate, as `openssl x509 -fingerprint -sha256` prints it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// That of a certificate.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, certificate).as_ref());
        Self(bytes)
    }
}

impl FromStr for Fingerprint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("got '{text}', accepted 64 hexadecimal digits, with or without colons");
        let digits: Vec<char> = text.chars().filter(|c| *c != ':').collect();
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return Err(wrong());
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            for digit in pair {
                let digit = digit.to_digit(16).ok_or_else(wrong)?;
                *byte = *byte << 4 | digit as u8;
            }
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes: Vec<String> = self.0.iter().map(|byte| format!("{byte:02X}")).collect();
        f.write_str(&bytes.join(":"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Accepts what another verifier accepts and the list contains.
#[derive(Debug)]
pub(super) struct Listed {
    pub inner: Arc<dyn ClientCertVerifier>,
    pub accepted: Vec<Fingerprint>,
}

impl ClientCertVerifier for Listed {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.inner.verify_client_cert(certificate, others, now)?;
        let fingerprint = Fingerprint::of(certificate);
        if self.accepted.contains(&fingerprint) {
            return Ok(verified);
        }
        // The error reaches the log, which limits the lines of a peer.
        Err(Error::General(format!("the client's certificate {fingerprint} is not listed")))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test stops at the first failure

    use super::*;

    #[test]
    fn fingerprints_are_parsed_as_they_are_printed() {
        let fingerprint = Fingerprint::of(&CertificateDer::from(b"abc".as_slice()));
        let text = "BA:78:16:BF:8F:01:CF:EA:41:41:40:DE:5D:AE:22:23:B0:03:61:A3:96:17:7A:9C:B4:10:FF:61:F2:00:15:AD";
        assert_eq!(fingerprint.to_string(), text);
        for form in [text.to_owned(), text.to_lowercase(), text.replace(':', "")] {
            assert_eq!(form.parse(), Ok(fingerprint));
        }
        for bad in ["", "ab", &text[3..], &text.replace("BA", "XA"), &format!("{text}:00")] {
            assert!(bad.parse::<Fingerprint>().unwrap_err().contains("accepted"), "{bad}");
        }
    }
}
