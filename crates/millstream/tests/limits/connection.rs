//! A connection that reads replies of any size without looking into them, and measures what a command costs the server.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::commands::Line;
use crate::support::process::Server;
use crate::support::resp::encode;

/// The argument of the ECHO that follows each command: its reply is the end of the replies.
const END: &[u8] = b"$11\r\nend-of-test\r\n";

pub(crate) struct Connection {
    stream: TcpStream,
    /// The folder of the I/O thread that serves it, once that is known.
    io_thread: PathBuf,
}

impl Connection {
    pub(crate) fn new(server: &Server) -> Connection {
        let stream = TcpStream::connect(("127.0.0.1", server.port)).expect("connect");
        stream.set_nodelay(true).expect("send at once");
        stream.set_read_timeout(Some(Duration::from_secs(300))).expect("set a timeout");
        Connection { stream, io_thread: PathBuf::new() }
    }

    /// Finds the I/O thread that serves the connection: its CPU time grows with the requests.
    pub(crate) fn find_io_thread(&mut self, server: &Server) -> &Path {
        let before: Vec<_> = io_threads(server).map(|thread| (cpu_time(&thread), thread)).collect();
        self.run(&encode(&["PING"]).repeat(300));
        let grown = before.into_iter().map(|(before, thread)| (cpu_time(&thread) - before, thread));
        self.io_thread = grown.max().expect("an I/O thread").1;
        &self.io_thread
    }

    /// Sends a command without waiting for its reply.
    pub(crate) fn send<A: AsRef<[u8]>>(&mut self, argv: &[A]) {
        self.stream.write_all(&encode(argv)).expect("send");
    }

    /// Runs commands and returns all their replies.
    pub(crate) fn run(&mut self, requests: &[u8]) -> Vec<u8> {
        self.try_run(requests).expect("the server closed the connection")
    }

    /// Runs commands and returns all their replies; `None` if the server closes the connection.
    pub(crate) fn try_run(&mut self, requests: &[u8]) -> Option<Vec<u8>> {
        self.stream.write_all(&[requests, &encode(&["ECHO", "end-of-test"])].concat()).ok()?;
        let (mut replies, mut part) = (Vec::new(), vec![0; 1 << 20]);
        while !replies.ends_with(END) {
            match self.stream.read(&mut part) {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    panic!("no reply in time")
                }
                Ok(0) | Err(_) => return None,
                Ok(count) => replies.extend_from_slice(&part[..count]),
            }
        }
        replies.truncate(replies.len() - END.len());
        Some(replies)
    }

    /// Returns a number of INFO.
    pub(crate) fn info(&mut self, field: &str) -> u64 {
        let text = String::from_utf8(self.run(&encode(&["INFO", "everything"]))).expect("text");
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.and_then(|number| number.trim().parse().ok()).expect("a number")
    }

    /// Runs many commands, none of which may fail.
    pub(crate) fn all(&mut self, requests: impl IntoIterator<Item = Vec<String>>) {
        let mut batch = Vec::new();
        for request in requests {
            batch.extend(encode(&request));
            if batch.len() > 60_000 {
                self.run_batch(&mut batch);
            }
        }
        self.run_batch(&mut batch);
    }

    fn run_batch(&mut self, batch: &mut Vec<u8>) {
        let replies = self.run(batch);
        let error = replies.split(|byte| *byte == b'\n').find(|line| line.starts_with(b"-"));
        assert!(error.is_none(), "{}", error.unwrap_or_default().escape_ascii());
        batch.clear();
    }

    /// Runs a command that replies with a list of words.
    pub(crate) fn words(&mut self, argv: &[&str]) -> BTreeSet<String> {
        let replies = String::from_utf8(self.run(&encode(argv))).expect("text");
        let words = replies.lines().filter(|line| !line.starts_with(['*', '$']));
        words.map(|word| word.trim_start_matches('+').to_owned()).collect()
    }

    /// Runs a command and returns the CPU time that the server's I/O thread needs for it.
    pub(crate) fn measure(&mut self, line: &Line) -> Duration {
        let (before, batch) = (cpu_time(&self.io_thread), line.requests());
        let replies = self.run(&batch);
        let time = cpu_time(&self.io_thread) - before;
        let shown = replies[..replies.len().min(200)].escape_ascii();
        assert!(line.may_fail || !replies.starts_with(b"-"), "{}: {shown}", line.text);
        time
    }
}

/// Returns the folders of the server's I/O threads.
fn io_threads(server: &Server) -> impl Iterator<Item = PathBuf> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).expect("the threads of the server");
    let tasks = tasks.map(|task| task.expect("a thread").path());
    let is_io =
        |task: &PathBuf| fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("io-"));
    tasks.filter(is_io)
}

/// Returns the CPU time of a thread so far. The system counts it when the thread sleeps.
fn cpu_time(thread: &Path) -> Duration {
    let began = Instant::now();
    loop {
        let read = |name: &str| fs::read_to_string(thread.join(name)).expect("the state of a thread");
        if read("stat").rsplit(") ").next().is_some_and(|rest| rest.starts_with('S')) {
            let nanoseconds = read("schedstat").split(' ').next().and_then(|text| text.parse().ok());
            return Duration::from_nanos(nanoseconds.expect("the CPU time of a thread"));
        }
        assert!(began.elapsed() < Duration::from_secs(60), "the server's I/O thread does not sleep");
        std::thread::sleep(Duration::from_micros(20));
    }
}
