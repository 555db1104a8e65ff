//! Hostile clients: connections that send whatever bytes an attack needs, and read only if the attack does.
//!
//! An attack runs on one thread, so it takes at most one core.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::server::{PASSWORD, Server};
use crate::wire::encoded;

/// Pause of an attack that can neither send nor receive.
const NOTHING_TO_DO: Duration = Duration::from_micros(100);

/// Connections that send the same bytes again and again, as fast as one thread can.
pub(crate) struct Flood {
    pub(crate) connections: usize,
    /// Sent once, when a connection is opened.
    pub(crate) greeting: Vec<u8>,
    /// Sent again and again.
    pub(crate) payload: Vec<u8>,
}

impl Flood {
    /// Runs for this time. If the server closes a connection, the flood opens another.
    pub(crate) fn run(&self, server: &Server, time: Duration) -> Result<(), Failure> {
        let mut sources = Vec::new();
        for _ in 0..self.connections {
            sources.push(Source::open(server, self)?);
        }
        let mut inbox = vec![0; 64 * 1024];
        let begun = Instant::now();
        while begun.elapsed() < time {
            let mut has_progress = false;
            for source in &mut sources {
                match source.step(self, &mut inbox) {
                    Step::Progress => has_progress = true,
                    Step::Wait => {}
                    Step::Closed => {
                        *source = Source::open(server, self)?;
                        has_progress = true;
                    }
                }
            }
            if !has_progress {
                thread::sleep(NOTHING_TO_DO);
            }
        }
        Ok(())
    }
}

/// One connection of a flood.
struct Source {
    socket: TcpStream,
    /// Bytes of the greeting and of the current payload that are sent.
    sent: usize,
    is_greeted: bool,
}

enum Step {
    Progress,
    Wait,
    Closed,
}

impl Source {
    fn open(server: &Server, flood: &Flood) -> Result<Source, Failure> {
        let socket = connect(server)?;
        socket.set_nonblocking(true)?;
        Ok(Source { socket, sent: 0, is_greeted: flood.greeting.is_empty() })
    }

    /// Sends once and receives once.
    fn step(&mut self, flood: &Flood, inbox: &mut [u8]) -> Step {
        let bytes = if self.is_greeted { &flood.payload } else { &flood.greeting };
        let sent = self.socket.write(&bytes[self.sent..]);
        if let Ok(count) = sent {
            self.sent += count;
            if self.sent == bytes.len() {
                (self.sent, self.is_greeted) = (0, true);
            }
        }
        match (sent, self.socket.read(inbox)) {
            (_, Ok(0)) => Step::Closed,
            (Err(error), _) | (_, Err(error)) if error.kind() != ErrorKind::WouldBlock => Step::Closed,
            (Err(_), Err(_)) => Step::Wait,
            _ => Step::Progress,
        }
    }
}

/// Opens a connection without logging in.
pub(crate) fn connect(server: &Server) -> Result<TcpStream, Failure> {
    connect_to(&server.address)
}

/// Opens a connection to the port for TLS, without a handshake.
pub(crate) fn connect_to_tls(server: &Server) -> Result<TcpStream, Failure> {
    let tls = server.tls.as_ref().ok_or("the server has no port for TLS")?;
    connect_to(&format!("127.0.0.1:{}", tls.port))
}

fn connect_to(address: &str) -> Result<TcpStream, Failure> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match TcpStream::connect(address) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                return Ok(socket);
            }
            // An attack that reconnects can use up the local ports for a moment.
            Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(1)),
            Err(error) => return Err(format!("cannot connect to {address}: {error}").into()),
        }
    }
}

/// Opens a connection and logs in.
pub(crate) fn connect_and_log_in(server: &Server) -> Result<TcpStream, Failure> {
    let mut socket = connect(server)?;
    socket.write_all(&encoded(&["AUTH", PASSWORD]))?;
    let mut reply = [0; 5];
    socket.read_exact(&mut reply)?;
    match &reply {
        b"+OK\r\n" => Ok(socket),
        _ => Err("the server refused the password".into()),
    }
}

/// Reads until the server closes the connection or is silent for this time.
pub(crate) fn drain(socket: &mut TcpStream, silence: Duration) -> Result<(), Failure> {
    socket.set_read_timeout(Some(silence))?;
    let mut inbox = vec![0; 256 * 1024];
    loop {
        match socket.read(&mut inbox) {
            Ok(0) | Err(_) => return Ok(()),
            Ok(_) => {}
        }
    }
}
