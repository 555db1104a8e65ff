//! A connection that reads replies of any size without looking into them, and measures what a command costs the server.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
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
    io_thread: PathBuf,
}

impl Connection {
    pub(crate) fn new(server: &Server) -> Connection {
        let stream = TcpStream::connect(("127.0.0.1", server.port)).expect("connect");
        stream.set_nodelay(true).expect("send at once");
        stream.set_read_timeout(Some(Duration::from_secs(300))).expect("set a timeout");
        Connection { stream, io_thread: io_thread(server) }
    }

    /// Sends a command without waiting for its reply.
    pub(crate) fn send<A: AsRef<[u8]>>(&mut self, argv: &[A]) {
        self.stream.write_all(&encode(argv)).expect("send");
    }

    /// Runs commands and returns all their replies.
    pub(crate) fn run(&mut self, requests: &[u8]) -> Vec<u8> {
        self.stream.write_all(requests).expect("send");
        self.send(&["ECHO", "end-of-test"]);
        let (mut replies, mut part) = (Vec::new(), vec![0; 1 << 20]);
        while !replies.ends_with(END) {
            let count = self.stream.read(&mut part).expect("a reply in time");
            assert!(count > 0, "the server closed the connection");
            replies.extend_from_slice(&part[..count]);
        }
        replies.truncate(replies.len() - END.len());
        replies
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

/// Returns the folder of the server's only I/O thread.
fn io_thread(server: &Server) -> PathBuf {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).expect("the threads of the server");
    let mut tasks = tasks.map(|task| task.expect("a thread").path());
    let is_io =
        |task: &PathBuf| fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("io-"));
    tasks.find(is_io).expect("an I/O thread")
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
