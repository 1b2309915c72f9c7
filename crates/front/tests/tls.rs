// SPDX-License-Identifier: MIT OR Apache-2.0
//! TLS between Larder's server and client: which clients are accepted, that data arrives, and that connections end.
#![allow(clippy::unwrap_used)] // a test that cannot continue fails

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use larder_core::config::preset;
use larder_core::request::Kind;
use larder_front::listen::{ListenSpec, Listener, MOST_NEGOTIATING, Secure};
use larder_front::nbd::export::{Export, Exports};
use larder_front::socket::Rights;
use larder_io::Device;
use larder_nbd::client::{Client, ClientError, Options};
use larder_nbd::codec::opt;
use larder_nbd::deadline::Deadlined;
use larder_nbd::tls::{Fingerprint, ServerFiles, ServerTls};
use larder_nbd::uri::{Address, Names, Uri};
use larder_testkit::certs::Certs;
use larder_testkit::raw;
use larder_volume::{CacheConfig, ClientLimits, Volume};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

const BYTES: u64 = 16 << 20;

/// The certificate and the key of the server.
fn files(certs: &Certs) -> ServerFiles {
    let (cert, key) = (certs.path("server-cert.pem"), certs.path("server-key.pem"));
    ServerFiles { cert, key, ..ServerFiles::default() }
}

struct Server {
    volume: Arc<Volume>,
    listener: Listener,
}

impl Server {
    fn new(spec: &str, secure: Option<Secure>, seats: usize) -> Self {
        let config = CacheConfig {
            clients: ClientLimits { most_each: seats, ..ClientLimits::default() },
            ..CacheConfig::of(Device::mem(BYTES), preset("sce").unwrap().choices(), 1).named("x")
        };
        let volume = Volume::start(config).unwrap();
        let exports = Arc::new(Exports::new(vec![Export::of(&volume)]).unwrap());
        let volumes = Arc::new(vec![Arc::clone(&volume)]);
        let spec: ListenSpec = spec.parse().unwrap();
        let listener =
            Listener::start_secure(&spec, volumes, exports, secure, Rights::default()).unwrap();
        Self { volume, listener }
    }

    fn tcp(certs: &Certs, clients: bool) -> Self {
        let client_ca = clients.then(|| certs.path("ca-cert.pem"));
        let tls = ServerTls::load(ServerFiles { client_ca, ..files(certs) }).unwrap();
        Self::new("nbd://127.0.0.1:0", Some(Secure { tls, everywhere: false }), 2)
    }

    fn uri(&self, tls: Option<Names>) -> Uri {
        Uri { address: self.listener.address(), export: "x".to_owned(), tls }
    }

    fn connect(&self, tls: Option<Names>) -> Result<Client, ClientError> {
        let options = Options { io_timeout: Some(Duration::from_secs(20)), ..Options::default() };
        Client::connect(&self.uri(tls), &options)
    }

    fn end(self) {
        drop(self.listener);
        self.volume.cache().stop(Duration::from_secs(10), |_| {}, || false).unwrap();
    }
}

fn with(certificates: &Certs) -> Option<Names> {
    Some(Names { certificates: Some(certificates.dir().to_owned()), ..Names::default() })
}

fn only_ca(certs: &Certs) -> Option<Names> {
    Some(Names { ca: Some(certs.path("ca-cert.pem")), ..Names::default() })
}

#[test]
fn data_flows_both_ways_with_many_requests_in_flight() {
    let certs = Certs::new();
    let server = Server::tcp(&certs, true);
    let mut client = server.connect(with(&certs)).unwrap();
    let data: Vec<u8> = (0..BYTES).map(|i| ((i * 2_654_435_761) >> 9) as u8).collect();
    client.write_at(0, &data, true).unwrap();
    let mut back = vec![0; BYTES as usize];
    client.read_at(0, &mut back).unwrap();
    assert!(back == data);
    client.flush().unwrap();
    // Two threads, so that neither end blocks the other.
    let (mut sender, mut receiver) = client.split();
    let sends = std::thread::spawn(move || {
        for n in 0..512_u64 {
            let at = (n % 16) << 20;
            sender.submit(Kind::Read, at, 1 << 20, &[]).unwrap();
            sender
                .submit(Kind::Write { fua: false }, at, 4096, &data[at as usize..][..4096])
                .unwrap();
            // Stays within the server's bound.
            while sender.open() > 24 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        (sender, data)
    });
    for _ in 0..1024 {
        let completion = receiver.wait().unwrap();
        let bytes = completion.result.unwrap();
        if !bytes.is_empty() {
            let n = (completion.cookie - 1) / 2 % 16;
            assert!(bytes[..] == back[(n << 20) as usize..][..1 << 20], "read {n}");
        }
    }
    let (sender, _) = sends.join().unwrap();
    sender.disconnect().unwrap();
    assert!(matches!(receiver.wait(), Err(ClientError::Closed)));
    server.end();
}

/// A client takes a seat only with its certificate verified, so clients that stop before exclude no other.
#[test]
fn clients_that_stop_before_or_within_tls_keep_no_authenticated_client_out() {
    let certs = Certs::new();
    let server = Server::tcp(&certs, true);
    let Address::Tcp { host, port } = server.listener.address() else { panic!("not TCP") };
    let start_tls = [&raw::client_flags()[..], &raw::option(opt::STARTTLS, 0)].concat();
    let hold = |n: usize| {
        let mut stream = TcpStream::connect((host.as_str(), port)).unwrap();
        if n.is_multiple_of(2) {
            // The server may have disconnected it already.
            let _ = stream.read_exact(&mut [0; 18]).and_then(|()| stream.write_all(&start_tls));
        }
        stream
    };
    let held: Vec<TcpStream> = (0..2 * MOST_NEGOTIATING).map(hold).collect();
    for _ in 0..2 {
        let mut client = server.connect(with(&certs)).unwrap();
        client.read_at(0, &mut [0; 4096]).unwrap();
        client.disconnect().unwrap();
    }
    drop(held);
    server.end();
}

/// Connections return their seat, whichever way they end.
#[test]
fn ended_connections_return_their_seat() {
    let certs = Certs::new();
    let server = Server::tcp(&certs, false);
    for round in 0..8 {
        let mut client = (0..500)
            .find_map(|_| match server.connect(only_ca(&certs)) {
                Ok(client) => Some(client),
                Err(_) => {
                    std::thread::sleep(Duration::from_millis(10));
                    None
                }
            })
            .unwrap();
        let read = client.read_at(0, &mut [0; 4096]);
        assert!(read.is_ok(), "{round}: {read:?}");
        match round % 3 {
            0 => client.disconnect().unwrap(),
            1 => drop(client),
            _ => client.stream().unwrap().shutdown(std::net::Shutdown::Both).unwrap(),
        }
    }
    server.end();
}

#[test]
fn only_authenticated_clients_are_accepted() {
    let (certs, strangers) = (Certs::new(), Certs::new());
    let server = Server::tcp(&certs, true);
    let plain = server.connect(None).unwrap_err().to_string();
    assert!(plain.contains("TLS is required"), "{plain}");
    let refused = server.connect(Some(Names::default())).unwrap_err().to_string();
    assert!(refused.contains("tls-certificates=DIR"), "{refused}");
    // An authority that the client does not trust; a client certificate that the server does not trust, or none.
    assert!(matches!(server.connect(with(&strangers)), Err(ClientError::Tls(_))));
    let mut mixed = with(&strangers).unwrap();
    mixed.ca = Some(certs.path("ca-cert.pem"));
    // With TLS 1.3 a client learns only after the handshake that it is rejected.
    assert!(server.connect(Some(mixed)).is_err());
    assert!(server.connect(only_ca(&certs)).is_err());
    let other = Names { hostname: Some("example.com".to_owned()), ..with(&certs).unwrap() };
    let other = server.connect(Some(other)).unwrap_err().to_string();
    assert!(other.contains("handshake failed"), "{other}");
    let named = Names { hostname: Some("localhost".to_owned()), ..with(&certs).unwrap() };
    server.connect(Some(named)).unwrap().read_at(0, &mut [0; 512]).unwrap();
    server.end();
}

#[test]
fn tls_is_optional_on_unix_sockets_unless_required() {
    let certs = Certs::new();
    for everywhere in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let tls = ServerTls::load(files(&certs)).unwrap();
        let spec = format!("nbd+unix:{}", dir.path().join("s").display());
        let server = Server::new(&spec, Some(Secure { tls, everywhere }), 4);
        server.connect(only_ca(&certs)).unwrap().read_at(0, &mut [0; 512]).unwrap();
        assert_eq!(server.connect(None).is_ok(), !everywhere);
        server.end();
    }
    let server = Server::new("nbd://127.0.0.1:0", None, 4);
    let refused = server.connect(only_ca(&certs)).unwrap_err();
    assert!(matches!(refused, ClientError::NoTls(_)), "{refused}");
    server.end();
}

/// The error of a server's handshake with the client of these certificates.
fn refusal(tls: ServerTls, certs: &Certs) -> String {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let bound = Duration::from_secs(20);
    let server = std::thread::spawn(move || {
        tls.accept(Deadlined::new(ours, bound)).map(drop).unwrap_err().to_string()
    });
    let pem = |name: &str| CertificateDer::from_pem_file(certs.path(name)).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(pem("ca-cert.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(certs.path("client-key.pem")).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![pem("client-cert.pem")], key)
        .unwrap();
    let name = "localhost".try_into().unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    theirs.set_read_timeout(Some(bound)).unwrap();
    while client.is_handshaking() && client.complete_io(&mut &theirs).is_ok() {}
    server.join().unwrap()
}

/// A certificate of the right authority that is not on the list.
#[test]
fn only_listed_clients_are_accepted() {
    let certs = Certs::new();
    let fingerprint = |name: &str| {
        let certificate = CertificateDer::from_pem_file(certs.path(name)).unwrap();
        Fingerprint::of(&certificate)
    };
    let (client, other) = (fingerprint("client-cert.pem"), fingerprint("server-cert.pem"));
    let listing = |accepted: Vec<Fingerprint>| {
        let client_ca = Some(certs.path("ca-cert.pem"));
        ServerFiles { client_ca, accepted, ..files(&certs) }
    };
    for (listed, accepted) in [(vec![other], false), (vec![other, client], true)] {
        let tls = ServerTls::load(listing(listed.clone())).unwrap();
        let secure = Some(Secure { tls, everywhere: false });
        let server = Server::new("nbd://127.0.0.1:0", secure, 4);
        assert_eq!(is_served(&server, &certs), accepted, "{listed:?}");
        server.end();
    }
    let refused = ServerTls::load(ServerFiles { client_ca: None, ..listing(vec![client]) });
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("--tls-client-ca"), "{refused}");
    // The error of the server, which its log has, names the certificate that could be added.
    let tls = ServerTls::load(listing(vec![other])).unwrap();
    let refused = refusal(tls, &certs);
    assert!(refused.contains(&client.to_string()), "{refused}");
}

/// Whether a client with these certificates gets data.
fn is_served(server: &Server, certs: &Certs) -> bool {
    server.connect(with(certs)).and_then(|mut c| c.read_at(0, &mut [0; 512])).is_ok()
}

/// A client of an authority without a list is refused.
#[test]
fn revoked_clients_are_refused() {
    let (certs, strangers) = (Certs::new(), Certs::new());
    for (of, revoked, accepted) in [
        (&certs, &["server"][..], true),
        (&certs, &["server", "client"], false),
        (&strangers, &[], false),
    ] {
        of.revoke(revoked);
        let client_ca = Some(certs.path("ca-cert.pem"));
        let client_crl = Some(of.path("crl.pem"));
        let tls = ServerTls::load(ServerFiles { client_ca, client_crl, ..files(&certs) }).unwrap();
        let server = Server::new("nbd://127.0.0.1:0", Some(Secure { tls, everywhere: false }), 4);
        assert_eq!(is_served(&server, &certs), accepted, "{revoked:?}");
        server.end();
    }
    let client_crl = Some(certs.path("crl.pem"));
    let refused = ServerTls::load(ServerFiles { client_crl, ..files(&certs) }).unwrap_err();
    assert!(refused.to_string().contains("--tls-client-ca"), "{refused}");
}

/// A connection that was made before stays.
#[test]
fn files_are_read_again() {
    let (certs, others) = (Certs::new(), Certs::new());
    certs.revoke(&[]);
    let (client_ca, client_crl) = (Some(certs.path("ca-cert.pem")), Some(certs.path("crl.pem")));
    let tls = ServerTls::load(ServerFiles { client_ca, client_crl, ..files(&certs) }).unwrap();
    let secure = Secure { tls: tls.clone(), everywhere: false };
    let server = Server::new("nbd://127.0.0.1:0", Some(secure), 4);
    let mut earlier = server.connect(with(&certs)).unwrap();
    certs.revoke(&["client"]);
    assert!(is_served(&server, &certs), "not before the reload");
    tls.reload().unwrap();
    assert!(!is_served(&server, &certs));
    earlier.read_at(0, &mut [0; 512]).unwrap();
    std::fs::write(certs.path("crl.pem"), "").unwrap();
    let failed = tls.reload().unwrap_err().to_string();
    assert!(failed.contains("crl.pem") && failed.contains("revocation lists"), "{failed}");
    assert!(!is_served(&server, &certs), "the list of before stays in use");
    // Another authority, with other certificates.
    others.revoke(&[]);
    for name in ["ca-cert.pem", "server-cert.pem", "server-key.pem", "crl.pem"] {
        std::fs::copy(others.path(name), certs.path(name)).unwrap();
    }
    tls.reload().unwrap();
    assert!(is_served(&server, &others));
    drop(earlier);
    server.end();
}

#[test]
fn errors_name_files_that_are_not_certificates() {
    let certs = Certs::new();
    let (cert, key) = (certs.path("server-cert.pem"), certs.path("server-key.pem"));
    let mut file = std::fs::File::create(certs.path("junk")).unwrap();
    file.write_all(b"-----BEGIN JUNK-----\n").unwrap();
    let fails = |cert: PathBuf, key: PathBuf, client_ca: Option<PathBuf>| {
        let files = ServerFiles { cert, key, client_ca, ..ServerFiles::default() };
        let line = ServerTls::load(files).unwrap_err().to_string();
        assert!(!line.contains('\n'), "{line}");
        line
    };
    assert!(fails(certs.path("none"), key.clone(), None).contains("none"));
    assert!(fails(certs.path("junk"), key.clone(), None).contains("junk"));
    assert!(fails(cert.clone(), cert.clone(), None).contains("a private key"));
    assert!(fails(cert.clone(), certs.path("client-key.pem"), None).contains("TLS"));
    assert!(fails(cert, key, Some(certs.path("junk"))).contains("junk"));
}
