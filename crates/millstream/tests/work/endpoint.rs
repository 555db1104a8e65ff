//! A small HTTP server that keeps connections open, answers as a test says, and remembers what it was asked.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A request that came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    /// The first line.
    pub line: String,
    /// The headers, with names in small letters.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

impl Request {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }
}

/// What is answered: the status line after `HTTP/1.1`, further headers, and the body. `None` answers nothing, ever.
pub(crate) type Answer = Option<(&'static str, String, &'static str)>;

/// An endpoint on a port of its own.
pub(crate) struct Endpoint {
    /// Its URL.
    pub url: String,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    connections: usize,
    requests: Vec<Request>,
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Endpoint {
    /// Answers each request as the function says.
    pub(crate) fn new(answer: impl Fn(&Request) -> Answer + Clone + Send + 'static) -> Endpoint {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("bind a free port");
        let url = format!("http://{}/hook", listener.local_addr().expect("the address"));
        let seen = Arc::new(Mutex::new(Seen::default()));
        let shared = Arc::clone(&seen);
        // Ends with the process of the tests.
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                lock(&shared).connections += 1;
                let (shared, answer) = (Arc::clone(&shared), answer.clone());
                std::thread::spawn(move || converse(&connection, &shared, answer));
            }
        });
        Endpoint { url, seen }
    }

    /// What it was asked.
    pub(crate) fn requests(&self) -> Vec<Request> {
        lock(&self.seen).requests.clone()
    }

    /// How many connections there were.
    pub(crate) fn connections(&self) -> usize {
        lock(&self.seen).connections
    }
}

fn converse(connection: &TcpStream, seen: &Mutex<Seen>, answer: impl Fn(&Request) -> Answer) {
    let mut reader = BufReader::new(connection);
    let mut writer = connection;
    while let Some(request) = read_request(&mut reader) {
        lock(seen).requests.push(request.clone());
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

/// The next request; `None` when the connection is closed.
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
