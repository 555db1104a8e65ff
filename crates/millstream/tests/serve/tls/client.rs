//! A server with a port for TLS, and a client that speaks TLS with rustls.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned, SupportedProtocolVersion,
};

use crate::certificates::Certificates;
use crate::process::{Client, Server, TIMEOUT, TempDir, millstream};

/// A server with a port for TLS and one without.
pub(crate) struct TlsServer {
    pub(crate) server: Server,
    pub(crate) tls_port: u16,
    pub(crate) certificates: Certificates,
    _folder: TempDir,
}

impl TlsServer {
    /// Starts a server that asks clients for no certificate.
    pub(crate) fn start(flags: &[&str]) -> TlsServer {
        TlsServer::start_with(&[&["--tls-auth-clients", "no"], flags].concat())
    }

    /// Starts a server. It knows the authority `ca`.
    pub(crate) fn start_with(flags: &[&str]) -> TlsServer {
        let folder = TempDir::new();
        let certificates = Certificates::new(&folder.path);
        let authority = ["--tls-ca-cert-file".to_owned(), certificates.path("ca.pem")];
        // Another process can take a free port before the server binds it.
        for _ in 0..5 {
            let (port, tls_port) = (free_port(), free_port());
            let dir = TempDir::new();
            let mut command = millstream(&dir);
            command.args(["serve", "--appendonly", "no", "--port", &port.to_string()]);
            command.args(["--tls-port", &tls_port.to_string()]);
            command.args(certificates.flags("server")).args(&authority).args(flags);
            match Server::try_spawn(command, Some(dir)) {
                Ok(server) => return TlsServer { server, tls_port, certificates, _folder: folder },
                Err(printed) => assert!(printed.contains("in use"), "{printed}"),
            }
        }
        panic!("no free ports");
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.tls_port))
    }

    /// Connects without TLS to the port for TLS.
    pub(crate) fn connect_raw(&self) -> Client {
        Client::connect(self.address())
    }

    /// Connects without a client certificate.
    pub(crate) fn connect(&self) -> TlsClient {
        TlsClient::connect(self.address(), self.config(None)).expect("the handshake succeeds")
    }

    /// Tries to get a reply to PING with the client certificate of this name.
    pub(crate) fn ping_with(&self, certificate: Option<&str>) -> Result<String, String> {
        let mut client = TlsClient::connect(self.address(), self.config(certificate))?;
        client.ask("PING")
    }

    /// Returns the configuration of a client that trusts `ca` and presents the certificate of this name.
    pub(crate) fn config(&self, certificate: Option<&str>) -> ClientConfig {
        self.config_for(certificate, rustls::ALL_VERSIONS)
    }

    pub(crate) fn config_for(
        &self,
        certificate: Option<&str>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate("ca")).expect("an authority");
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(versions)
            .expect("versions of TLS")
            .with_root_certificates(roots);
        match certificate {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let key = PrivateKeyDer::from_pem_file(self.certificates.path(&format!("{name}.key")))
                    .expect("a key");
                builder
                    .with_client_auth_cert(vec![self.certificate(name)], key)
                    .expect("a client certificate")
            }
        }
    }

    /// Reads a certificate from its file.
    pub(crate) fn certificate(&self, name: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(self.certificates.path(&format!("{name}.pem"))).expect("a certificate")
    }

    /// Overwrites one file with another.
    pub(crate) fn copy(&self, from: &str, to: &str) {
        fs::copy(self.certificates.path(from), self.certificates.path(to)).expect("writable");
    }
}

/// A client that speaks TLS.
pub(crate) struct TlsClient {
    stream: StreamOwned<ClientConnection, TcpStream>,
}

impl TlsClient {
    pub(crate) fn connect(address: SocketAddr, config: ClientConfig) -> Result<TlsClient, String> {
        let socket = Client::connect(address).stream;
        socket.set_read_timeout(Some(TIMEOUT)).expect("settable");
        let name = "127.0.0.1".try_into().expect("a name");
        let session = ClientConnection::new(Arc::new(config), name).map_err(|error| error.to_string())?;
        let mut stream = StreamOwned::new(session, socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).map_err(|error| error.to_string())?;
        }
        Ok(TlsClient { stream })
    }

    /// Returns the first message of a client.
    pub(crate) fn hello(config: ClientConfig) -> Vec<u8> {
        let name = "127.0.0.1".try_into().expect("a name");
        let mut session = ClientConnection::new(Arc::new(config), name).expect("a session");
        let mut hello = Vec::new();
        session.write_tls(&mut hello).expect("a message");
        hello
    }

    /// Encrypts text into records, and does not send them.
    pub(crate) fn encrypted(&mut self, text: &str) -> Vec<u8> {
        let mut records = Vec::new();
        self.stream.conn.writer().write_all(text.as_bytes()).expect("a buffer");
        self.stream.conn.write_tls(&mut records).expect("records");
        records
    }

    /// Sends bytes as they are. The server may have closed the connection.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        let _ = self.stream.sock.write_all(bytes);
    }

    /// Changes the keys, and asks the server to change its keys.
    pub(crate) fn change_keys(&mut self) {
        self.stream.conn.refresh_traffic_keys().expect("TLS 1.3");
    }

    /// Sends no more, and reads to the end. Fails if the server reports an error.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.stream.sock.shutdown(Shutdown::Write)?;
        self.stream.read_to_end(&mut Vec::new()).map(drop)
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the server reads");
    }

    /// Reads exactly this many bytes.
    pub(crate) fn read(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).expect("the server replies");
        bytes
    }

    #[track_caller]
    pub(crate) fn expect(&mut self, reply: &str) {
        assert_eq!(String::from_utf8_lossy(&self.read(reply.len())), reply);
    }

    /// Sends an inline command and asserts its exact reply.
    #[track_caller]
    pub(crate) fn call(&mut self, command: &str, reply: &str) {
        self.send(format!("{command}\r\n"));
        self.expect(reply);
    }

    /// Sends an inline command and returns what arrives first.
    pub(crate) fn ask(&mut self, command: &str) -> Result<String, String> {
        let mut reply = [0; 16 * 1024];
        let count = self
            .stream
            .write_all(format!("{command}\r\n").as_bytes())
            .and_then(|()| self.stream.read(&mut reply))
            .map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(&reply[..count]).into_owned())
    }

    /// Asserts that the server announces the end of the connection, and sends nothing before.
    #[track_caller]
    pub(crate) fn expect_closed(&mut self) {
        let mut rest = Vec::new();
        // rustls returns an error if the connection ends without an announcement.
        self.stream.read_to_end(&mut rest).expect("an announced end");
        assert_eq!(String::from_utf8_lossy(&rest), "");
    }

    /// Reads until the connection ends, in whichever way. Returns the number of bytes.
    pub(crate) fn drain(&mut self) -> usize {
        let (mut total, mut piece) = (0, vec![0; 64 * 1024]);
        while let Ok(count @ 1..) = self.stream.read(&mut piece) {
            total += count;
        }
        total
    }

    /// Whether it has resumed an earlier session.
    pub(crate) fn is_resumed(&self) -> bool {
        self.stream.conn.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Returns the certificate that the server has presented.
    pub(crate) fn server_certificate(&self) -> CertificateDer<'static> {
        self.stream.conn.peer_certificates().expect("a server certificate")[0].clone().into_owned()
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("an address").port()
}
