//! One running program: sends messages to it, gives each message its answer, and watches how the program ends.
//!
//! A task owns the process. It writes what is queued for the program and reads the answers. It ends when the process
//! has ended, and then every message without an answer gets [`Reply::Ended`], or [`Reply::Unread`] if the program has
//! not even read it. The system knows how many bytes a pipe still holds, so any program shows this, without a further
//! line of the protocol.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::pending;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use millstream_worker::Outcome;
use parking_lot::Mutex;
use rustix::io::ioctl_fionread;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::process::ChildStdout;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::super::console::{HandlerLine, LineOrigin};
use super::super::exec::{STOP_GRACE, detail};
use super::super::handler_log::HandlerLog;
use super::super::process::{Process, Shell};
use super::answer::{Line, LogLine, parse_line};
use crate::ops::safe_text::printable;
use crate::ops::value::clipped;

/// Version of the protocol, as programs see it.
const PROTOCOL_VERSION: &str = "1";
/// Maximum size of an answer.
const ANSWER_BYTES_MAX: u64 = 1024 * 1024;
/// Time that a program has to exit after its standard input was closed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Beginning of the error for an invalid answer.
const INVALID: &str = "invalid answer";
/// Maximum length of an invalid answer in the error message.
const QUOTED_CHARS: usize = 80;

/// How a message left its program.
#[derive(Debug)]
pub(super) enum Reply {
    Answered(Outcome),
    Ended(Ending),
    /// The program ended, or was stopped, after it had read another message, but not this one: no handler has begun
    /// with it.
    Unread,
    /// The program ended before it had read any message.
    NotReady(Ending),
}

/// How a program ended that did not answer all of its messages.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    pub(super) error: String,
    /// The last line of its standard error, or the reason that the program gave.
    pub(super) stderr_line: Option<String>,
    /// Its exit status. `None` if it is unknown.
    pub(super) status: Option<ExitStatus>,
    /// Whether no other message can be the cause.
    pub(super) alone: bool,
}

impl Ending {
    /// Returns what went wrong, with the last line of standard error.
    pub(super) fn description(&self) -> String {
        format!("{}{}", self.error, detail(self.stderr_line.as_deref()))
    }
}

/// What the task of a program is asked to do. Later ones replace earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Request {
    Run,
    /// Close its standard input, and stop it if it does not exit in time.
    Close,
    /// Send SIGTERM, and SIGKILL after a grace period.
    Stop,
    /// Send SIGKILL.
    Kill,
}

pub(super) struct Program {
    /// Maximum number of messages that the program gets at a time.
    capacity: usize,
    /// Whether answers need an id, and the program is told which messages are cancelled.
    pipelined: bool,
    messages: Mutex<Messages>,
    input: mpsc::UnboundedSender<String>,
    /// Its standard input. `None` when the worker has closed it.
    stdin: Mutex<Option<Arc<pipe::Sender>>>,
    /// Number of bytes written to its standard input.
    written: AtomicU64,
    request: watch::Sender<Request>,
    ended: CancellationToken,
    log: Mutex<HandlerLog>,
}

#[derive(Debug)]
struct Messages {
    in_flight: HashMap<String, InFlight>,
    /// Number of bytes queued for its standard input so far.
    queued: u64,
    /// The message that was sent last.
    last_id: Option<String>,
    /// The reason that the program gave for its end.
    last_error: Option<String>,
    /// Set when the program gets no more messages.
    closed: bool,
    last_used: Instant,
}

/// A message that the program has not answered.
#[derive(Debug)]
struct InFlight {
    /// Where its line begins, in bytes of standard input.
    at: u64,
    /// `None` if the worker no longer waits for the answer.
    reply: Option<oneshot::Sender<Reply>>,
}

impl Messages {
    /// Whether there is room for a message with this id. Two messages with the same id, which can come from two
    /// streams, are never in the same program.
    fn have_room_for(&self, id: &str, capacity: usize) -> bool {
        !self.closed && self.in_flight.len() < capacity && !self.in_flight.contains_key(id)
    }

    /// Whether the worker waits for no answer.
    fn is_idle(&self) -> bool {
        self.in_flight.values().all(|message| message.reply.is_none())
    }
}

impl Program {
    /// Starts a program. `pipeline` is the number of messages that it must expect at a time; it gets only `capacity`.
    pub(super) fn start(shell: &Shell, capacity: usize, pipeline: usize) -> io::Result<Arc<Program>> {
        let program: Arc<OnceLock<Weak<Program>>> = Arc::default();
        let started = Arc::clone(&program);
        let origin =
            move || started.get().and_then(Weak::upgrade).map_or_else(LineOrigin::default, |p| p.origin());
        let mut process = shell.start(origin, |command| {
            command.stdout(Stdio::piped());
            command.env("MILLSTREAM_CHILD_PROTOCOL", PROTOCOL_VERSION);
            command.env("MILLSTREAM_PIPELINE", pipeline.to_string());
        })?;
        let pipes = process.take_stdin().zip(process.take_stdout());
        let (stdin, stdout) = pipes.ok_or(io::ErrorKind::BrokenPipe)?;
        let stdin = Arc::new(stdin);
        let (input, lines) = mpsc::unbounded_channel();
        let started = program;
        let program = Arc::new(Program {
            capacity,
            pipelined: pipeline > 1,
            messages: Mutex::new(Messages {
                in_flight: HashMap::new(),
                queued: 0,
                last_id: None,
                last_error: None,
                closed: false,
                last_used: Instant::now(),
            }),
            input,
            stdin: Mutex::new(Some(Arc::clone(&stdin))),
            written: AtomicU64::new(0),
            request: watch::Sender::new(Request::Run),
            ended: CancellationToken::new(),
            log: Mutex::new(HandlerLog::to(shell.console.clone())),
        });
        // Fails only the second time.
        let _ = started.set(Arc::downgrade(&program));
        tokio::spawn(Arc::clone(&program).supervise(process, stdin, lines, stdout));
        Ok(program)
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns a number that is smaller, the fewer messages the program has and the more recently it was used.
    pub(super) fn load(&self) -> (usize, Duration) {
        let messages = self.messages.lock();
        (messages.in_flight.len(), messages.last_used.elapsed())
    }

    /// Returns the time since which the program has no messages. Now if it has some, or gets no more.
    pub(super) fn idle_since(&self) -> Instant {
        let messages = self.messages.lock();
        if messages.in_flight.is_empty() && !messages.closed { messages.last_used } else { Instant::now() }
    }

    /// Returns the message that a line on its standard error is about: the only one in flight, or the last one if it
    /// was just answered.
    fn origin(&self) -> LineOrigin {
        let messages = self.messages.lock();
        let id = match messages.in_flight.len() {
            0 => messages.last_id.clone(),
            1 => messages.in_flight.keys().next().cloned(),
            _ => None,
        };
        LineOrigin { id, more: 0 }
    }

    /// Whether the program can get a message with this id now.
    pub(super) fn has_room_for(&self, id: &str) -> bool {
        self.messages.lock().have_room_for(id, self.capacity)
    }

    /// Sends a message. Returns `None` if the program has no room for it.
    pub(super) fn send(self: &Arc<Program>, id: &str, line: &str) -> Option<Place> {
        let mut messages = self.messages.lock();
        if !messages.have_room_for(id, self.capacity) {
            return None;
        }
        let (sender, reply) = oneshot::channel();
        let message = InFlight { at: messages.queued, reply: Some(sender) };
        messages.in_flight.insert(id.to_owned(), message);
        messages.last_id = Some(id.to_owned());
        self.queue(&mut messages, line.to_owned());
        Some(Place { program: Arc::clone(self), id: id.to_owned(), reply, cancelled: false })
    }

    /// Queues a line for its standard input.
    fn queue(&self, messages: &mut Messages, line: String) {
        messages.queued += line.len() as u64;
        // Fails only if the program has just ended. Then its messages get a reply.
        let _ = self.input.send(line);
    }

    /// Returns how many bytes of its standard input the program has read. If that is unknown, all of them.
    fn read_bytes(&self) -> u64 {
        let stdin = self.stdin.lock();
        let unread = stdin.as_ref().and_then(|stdin| ioctl_fionread(&**stdin).ok());
        unread.map_or(u64::MAX, |unread| self.written.load(Ordering::Relaxed).saturating_sub(unread))
    }

    /// Closes the standard input. The program should exit; it is stopped if it does not.
    pub(super) fn close(&self) {
        self.messages.lock().closed = true;
        self.ask(Request::Close);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    fn ask(&self, request: Request) {
        self.request.send_if_modified(|current| {
            let changed = request > *current;
            *current = request.max(*current);
            changed
        });
    }

    async fn asked(&self, at_least: Request) {
        // Fails only if the sender is dropped, and this program has it.
        let _ = self.request.subscribe().wait_for(|request| *request >= at_least).await;
    }

    /// Runs the program until its process has ended.
    async fn supervise(
        self: Arc<Self>,
        mut process: Process,
        stdin: Arc<pipe::Sender>,
        lines: mpsc::UnboundedReceiver<String>,
        stdout: ChildStdout,
    ) {
        let mut stdout = BufReader::new(stdout);
        let error = tokio::select! {
            // Answers that arrived before a request count.
            biased;
            error = self.read_answers(&mut stdout) => Some(error),
            () = self.feed(stdin, lines) => Some("the child closed its standard input and did not answer".to_owned()),
            () = self.asked(Request::Close) => None,
        };
        self.messages.lock().closed = true;
        if error.is_none() {
            self.stdin.lock().take();
        }
        let (status, stderr_line) = self.end(&mut process, error.is_some()).await;
        drop(process);
        let read = self.read_bytes();
        let left: Vec<_> = self.messages.lock().in_flight.drain().map(|(_, message)| message).collect();
        let (left, unread): (Vec<_>, Vec<_>) = left.into_iter().partition(|message| message.at < read);
        self.ended.cancel();
        let in_flight = left.len();
        let invalid = error.as_ref().is_some_and(|error| error.starts_with(INVALID));
        // An invalid answer can be about a message that was answered before.
        let alone = in_flight == 1 && (!invalid || self.capacity == 1);
        if let Some(error) = &error
            && (in_flight > 1 || invalid && !alone)
        {
            let stderr = stderr_line.as_deref().unwrap_or_default();
            warn!(in_flight, stderr, "{error}: stopped the child; other children get its messages");
        }
        let error = error.unwrap_or_else(|| "the child was stopped".to_owned());
        let stderr_line = self.messages.lock().last_error.take().or(stderr_line);
        let ending = Ending { error, stderr_line, status, alone };
        // Fails only if nobody waits for the message any more.
        for sender in left.into_iter().filter_map(|message| message.reply) {
            let _ = sender.send(Reply::Ended(ending.clone()));
        }
        for sender in unread.into_iter().filter_map(|message| message.reply) {
            let _ = sender.send(if read == 0 { Reply::NotReady(ending.clone()) } else { Reply::Unread });
        }
    }

    /// Writes lines to the program. Returns only if the program has closed its standard input, some time later: usually
    /// because it is exiting.
    async fn feed(&self, stdin: Arc<pipe::Sender>, mut lines: mpsc::UnboundedReceiver<String>) {
        while let Some(mut text) = lines.recv().await {
            // One write for all messages that are queued.
            while let Ok(line) = lines.try_recv() {
                text.push_str(&line);
            }
            let mut rest = text.as_bytes();
            while !rest.is_empty() {
                match stdin.try_write(rest) {
                    Ok(count) => {
                        rest = &rest[count..];
                        self.written.fetch_add(count as u64, Ordering::Relaxed);
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        // An error shows up in the next write.
                        let _ = stdin.writable().await;
                    }
                    Err(_) => return sleep(EXIT_TIMEOUT).await,
                }
            }
        }
    }

    /// Waits until the process has ended, as requested, or after an error. Returns its exit status and the last line of
    /// its standard error.
    async fn end(&self, process: &mut Process, failed: bool) -> (Option<ExitStatus>, Option<String>) {
        let stop = async {
            let exited = if failed { None } else { self.exit(process).await };
            let status = match exited {
                Some(status) => Some(status),
                None => process.stop(STOP_GRACE).await,
            };
            (status, process.last_stderr_line().await)
        };
        tokio::select! {
            ended = stop => ended,
            () = self.asked(Request::Kill) => (None, None),
        }
    }

    /// Waits until the process, whose standard input is closed, exits by itself. `None` if it must be stopped.
    async fn exit(&self, process: &mut Process) -> Option<ExitStatus> {
        tokio::select! {
            biased;
            () = self.asked(Request::Stop) => None,
            status = process.wait() => status.ok(),
            () = sleep(EXIT_TIMEOUT) => None,
        }
    }

    /// Gives each answer to its message. Returns what ended the answers.
    async fn read_answers(&self, stdout: &mut BufReader<impl AsyncRead + Unpin>) -> String {
        let mut line = Vec::new();
        loop {
            line.clear();
            match (&mut *stdout).take(ANSWER_BYTES_MAX).read_until(b'\n', &mut line).await {
                Ok(0) => return "the child exited without an answer".to_owned(),
                Ok(_) if line.trim_ascii().is_empty() => {}
                Ok(_) => {
                    if let Err(error) = self.take_answer(&line) {
                        let line = clipped(&printable(line.trim_ascii()), QUOTED_CHARS);
                        return format!("{INVALID} {line:?} of the child: {error}");
                    }
                }
                Err(error) => return format!("cannot read the answer of the child: {error}"),
            }
        }
    }

    /// Gives an answer to its message. The error describes what is wrong with it.
    fn take_answer(&self, line: &[u8]) -> Result<(), String> {
        if line.len() as u64 == ANSWER_BYTES_MAX && !line.ends_with(b"\n") {
            return Err("it is longer than 1 MiB".to_owned());
        }
        let answer = match parse_line(line)? {
            Line::Answer(answer) => answer,
            Line::Log(log) => {
                self.log(log);
                return Ok(());
            }
        };
        let mut messages = self.messages.lock();
        let id = match answer.id {
            Some(id) => id,
            None if self.pipelined => {
                return Err("it has no id, which --pipeline requires".to_owned());
            }
            None => {
                let only = messages.in_flight.keys().next();
                only.cloned().ok_or("the child has no message to answer")?
            }
        };
        let Entry::Occupied(message) = messages.in_flight.entry(id) else {
            return Err("the child has no message with this id, or has already answered it".to_owned());
        };
        if let Some(sender) = message.remove().reply {
            // Fails only if nobody waits for the message any more.
            let _ = sender.send(Reply::Answered(answer.outcome));
        }
        messages.last_used = Instant::now();
        self.stop_if_done(&messages);
        Ok(())
    }

    /// Writes lines of the program to the log.
    fn log(&self, LogLine { id, level, text, error }: LogLine) {
        if error.is_some() {
            self.messages.lock().last_error = error;
        }
        let origin = if id.is_some() { LineOrigin { id, more: 0 } } else { self.origin() };
        self.log.lock().line(origin, HandlerLine { level, source: "child", text: text.as_bytes() });
    }

    /// Stops a program that gets no more messages when the worker waits for no answer.
    fn stop_if_done(&self, messages: &Messages) {
        match messages.closed && messages.is_idle() {
            true if messages.in_flight.is_empty() => self.ask(Request::Close),
            true => self.ask(Request::Stop),
            false => {}
        }
    }
}

/// A message in a program. If it is dropped without a reply, the program gets no more messages. Then it is stopped as
/// soon as its other messages are answered.
pub(super) struct Place {
    program: Arc<Program>,
    id: String,
    reply: oneshot::Receiver<Reply>,
    cancelled: bool,
}

impl Place {
    pub(super) async fn reply(&mut self) -> Reply {
        match (&mut self.reply).await {
            Ok(reply) => reply,
            // The task of the program is dropped only at the end of this process.
            Err(_) => pending().await,
        }
    }

    /// Whether the program has begun to read the message, as far as is known.
    pub(super) fn is_read(&self) -> bool {
        let messages = self.program.messages.lock();
        messages.in_flight.get(&self.id).is_none_or(|message| message.at < self.program.read_bytes())
    }

    /// Tells the program that the worker no longer needs the message: with a line, or with SIGTERM if the program gets
    /// one message at a time.
    pub(super) fn cancel(&mut self) {
        self.cancelled = true;
        if self.program.pipelined {
            let line = format!("{}\n", json!({ "cancel": self.id }));
            self.program.queue(&mut self.program.messages.lock(), line);
        } else {
            self.program.messages.lock().closed = true;
            self.program.ask(Request::Stop);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut messages = self.program.messages.lock();
        if !matches!(self.reply.try_recv(), Err(oneshot::error::TryRecvError::Empty)) {
            return;
        }
        if let Some(message) = messages.in_flight.get_mut(&self.id) {
            message.reply = None;
        }
        messages.closed = true;
        if messages.is_idle() {
            // A cancelled message has had time. Otherwise the worker was told to end immediately.
            self.program.ask(if self.cancelled { Request::Stop } else { Request::Kill });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::console::Console;
    use super::super::super::watchdog::Watchdog;
    use super::*;

    /// Starts a program for two messages at a time. It answers all messages but 1-1 after the line `{}`.
    fn start() -> Arc<Program> {
        let command = r#"while read -r line; do case $line in
            '{"id":"1-1"}' | '{"cancel"'*) ;;
            '{}') echo "$answers"; answers= ;;
            *) answers="$answers${line%\}},\"outcome\":\"ack\"}" ;;
        esac; done"#;
        let shell = Shell {
            command: command.to_owned(),
            timeout: None,
            console: Console::new(false, crate::ops::log::LogFormat::Text),
            watchdog: Arc::new(Watchdog::start()),
            check: Arc::default(),
        };
        Program::start(&shell, 2, 2).unwrap()
    }

    fn send(program: &Arc<Program>, id: &str) -> Option<Place> {
        program.send(id, &format!("{{\"id\":\"{id}\"}}\n"))
    }

    #[tokio::test]
    async fn a_program_has_room_for_its_capacity_and_not_for_the_same_id() {
        let program = start();
        let _first = send(&program, "1-1").unwrap();
        assert!(send(&program, "1-1").is_none());
        let mut second = send(&program, "1-2").unwrap();
        assert!(send(&program, "1-3").is_none());
        program.queue(&mut program.messages.lock(), "{}\n".to_owned());
        assert!(matches!(second.reply().await, Reply::Answered(Outcome::Ack)));
        assert!(send(&program, "1-3").is_some());
    }

    #[tokio::test]
    async fn a_program_that_ignores_a_cancelled_message_finishes_the_others_and_is_stopped() {
        let program = start();
        let mut hung = send(&program, "1-1").unwrap();
        let mut other = send(&program, "1-2").unwrap();
        hung.cancel();
        drop(hung);
        assert!(!program.has_room_for("1-3"), "a program with a hung message gets no more");
        program.queue(&mut program.messages.lock(), "{}\n".to_owned());
        assert!(matches!(other.reply().await, Reply::Answered(Outcome::Ack)));
        program.ended().await;
    }

    #[tokio::test]
    async fn an_answer_has_a_maximum_size() {
        let program = start();
        let bytes_max = usize::try_from(ANSWER_BYTES_MAX).unwrap();
        for (padding, fits) in [(0, true), (1, false)] {
            let _place = send(&program, "1-2").unwrap();
            let mut line = b"{\"id\":\"1-2\",\"outcome\":\"ack\"}\n".to_vec();
            line.splice(0..0, vec![b' '; bytes_max - line.len() + padding]);
            let mut stdout = BufReader::new(&line[..]);
            let error = program.read_answers(&mut stdout).await;
            assert_eq!(error.contains("longer than 1 MiB"), !fits, "{error}");
        }
    }

    #[tokio::test]
    async fn a_program_is_killed_when_all_of_its_messages_are_dropped() {
        let program = start();
        drop((send(&program, "1-1").unwrap(), send(&program, "1-2").unwrap()));
        program.ended().await;
    }
}
