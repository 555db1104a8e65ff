//! A small HTTP server that keeps connections open, answers as a test defines, and records its requests.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A received request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    /// The first line.
    pub line: String,
    /// The headers, with lower-case names.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

impl Request {
    /// Returns the value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }
}

/// An answer: the status line after `HTTP/1.1`, additional headers, and the body. With `None`, the endpoint
/// never answers.
pub(crate) type Answer = Option<(&'static str, String, &'static str)>;

/// An endpoint on a free port.
pub(crate) struct Endpoint {
    /// URL of the endpoint.
    pub url: String,
    received: Arc<Mutex<Received>>,
}

#[derive(Default)]
struct Received {
    connections: usize,
    requests: Vec<Request>,
}

fn lock(received: &Mutex<Received>) -> MutexGuard<'_, Received> {
    received.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Endpoint {
    /// Starts an endpoint that answers each request with the result of `answer`.
    pub(crate) fn new(answer: impl Fn(&Request) -> Answer + Clone + Send + 'static) -> Endpoint {
        Endpoint::at(TcpListener::bind(("127.0.0.1", 0)).expect("bind a free port"), answer)
    }

    /// Starts an endpoint on this listener.
    pub(crate) fn at(
        listener: TcpListener,
        answer: impl Fn(&Request) -> Answer + Clone + Send + 'static,
    ) -> Endpoint {
        let url = format!("http://{}/hook", listener.local_addr().expect("the address"));
        let received = Arc::new(Mutex::new(Received::default()));
        let shared = Arc::clone(&received);
        // This thread runs until the test process ends.
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                lock(&shared).connections += 1;
                let (shared, answer) = (Arc::clone(&shared), answer.clone());
                std::thread::spawn(move || serve(&connection, &shared, answer));
            }
        });
        Endpoint { url, received }
    }

    /// All requests received so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        lock(&self.received).requests.clone()
    }

    /// Number of connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        lock(&self.received).connections
    }
}

fn serve(connection: &TcpStream, received: &Mutex<Received>, answer: impl Fn(&Request) -> Answer) {
    let mut reader = BufReader::new(connection);
    let mut writer = connection;
    while let Some(request) = read_request(&mut reader) {
        lock(received).requests.push(request.clone());
        let Some((status, headers, body)) = answer(&request) else {
            std::thread::park();
            return;
        };
        let reply = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len());
        if writer.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

/// Reads the next request. `None` if the connection is closed.
fn read_request(reader: &mut impl BufRead) -> Option<Request> {
    let mut line = || {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
        Some(line.trim_end().to_owned())
    };
    let mut request = Request { line: line()?, ..Request::default() };
    loop {
        match line()? {
            end if end.is_empty() => break,
            header => {
                let (name, value) = header.split_once(':')?;
                request.headers.push((name.to_lowercase(), value.trim().to_owned()));
            }
        }
    }
    let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    request.body = String::from_utf8(body).ok()?;
    Some(request)
}
