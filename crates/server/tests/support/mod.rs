//! A server with one I/O thread in memory, and a client that sends and receives raw bytes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use millstream_server::settings::Setting;
use millstream_server::{Server, Settings};

/// Starts a server without a log on a free port. It runs until the test process ends.
pub(crate) fn start() -> SocketAddr {
    let settings = Settings::new();
    for (name, value) in
        [("port", "0"), ("appendonly", "no"), ("io-threads", "1"), ("enable-debug-command", "local")]
    {
        settings.set(Setting::find(name).expect("the setting exists").id, value).unwrap();
    }
    let running = Server::start(settings).unwrap();
    let address = running.addresses()[0];
    std::thread::spawn(move || running.run());
    address
}

pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Client(stream)
    }

    pub(crate) fn send(&mut self, requests: &str) {
        self.0.write_all(requests.as_bytes()).unwrap();
    }

    pub(crate) fn read_more(&mut self, into: &mut Vec<u8>) -> usize {
        let mut buffer = [0; 8192];
        let count = self.0.read(&mut buffer).unwrap_or(0);
        into.extend_from_slice(&buffer[..count]);
        count
    }

    /// Reads up to the next PONG. Returns the bytes before it.
    pub(crate) fn until_pong(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"+PONG\r\n") {
            assert!(self.read_more(&mut bytes) > 0, "connection closed after {} bytes", bytes.len());
        }
        bytes.truncate(bytes.len() - 7);
        bytes
    }
}
