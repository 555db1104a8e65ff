//! `millstream work`: the messages of a group, handled by a command, a long-lived program or an HTTP endpoint.
//!
//! ```text
//! worker -> Runner -> exec    a process for each message, or for several; its exit code decides
//!                  -> child   programs that stay; a line of JSON decides
//!                  -> http    a request for each message; the status of the answer decides
//! ```
//!
//! SIGTERM and SIGINT drain: what runs may finish, the rest is given back. A second one ends at once.

mod backlog;
mod child;
mod console;
mod exec;
mod guard;
mod http;
mod log;
mod options;
mod payload;
mod process;
mod retry_after;
mod signals;
mod status;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use millstream_worker::backend::{Consumer, ErrorKind, Release, StreamId};
use millstream_worker::worker::BuildError;
use millstream_worker::{Admin, Error, Message, Outcome, Report, Worker};
use tokio::signal::unix::SignalKind;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::backlog::Backlog;
use self::child::Children;
use self::console::Console;
use self::exec::Exec;
use self::guard::Guard;
use self::http::Endpoint;
use self::options::{Handling, Pool, parse_count};
use self::process::Shell;
use self::signals::Signals;
use crate::ops::Failure;
use crate::ops::connection::Common;
use crate::ops::known;
use crate::ops::output::{note, print_json_line};
use crate::ops::time::parse_duration;

/// How long a request may take if nothing else is said: one that is never answered must not hold a slot for ever.
const HTTP_TIME: Duration = Duration::from_secs(30);
/// The longest wait before another try that a handler can ask for: the message is held and its lease kept meanwhile.
const AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// How long giving back may take after the second signal.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How many rows are given back at once.
const PAGE: usize = 512;

const EXAMPLES: &str = "\
Examples:
  millstream work --stream orders --group billing --exec ./charge.sh
  millstream work -s orders -g billing --exec ./charge.sh --autoscale 2..32 --timeout 30s
  millstream work -s orders -g billing --exec ./charge.sh --max-deliveries 3 --backoff 5s..10m
  millstream work -s orders -g billing --exec ./charge.sh --consumer one --listen 127.0.0.1:9091
  millstream work -s orders -g audit --exec 'cat >> orders.jsonl' --concurrency 1 --until-empty
  millstream work -s orders -g audit --exec 'gzip >> orders.gz' --batch 500 --batch-wait 1s
  millstream work -s orders -g search --child 'python3 index.py' --dedupe 1d
  millstream work -s orders -g hooks --http http://127.0.0.1:8000/orders --header 'X-Token: T'

--exec: the message is {\"id\",\"stream\",\"group\",\"attempt\",\"fields\":{…}} on standard input, and in
  the environment MILLSTREAM_ID, _STREAM, _GROUP, _ATTEMPT and MILLSTREAM_FIELD_<NAME>. Exit code 0
  acknowledges, 65 and 100 reject to the dead letters, any other and a signal try again. The last
  line of standard error becomes the error. With --batch each message is a line, and the exit code
  is that of all; MILLSTREAM_COUNT says how many. What is tried again is tried alone.
--child: the same object on a line of standard input; a line of standard output answers:
  {\"outcome\":\"ack\"|\"retry\"|\"reject\"|\"skip\",\"after_ms\":N,\"error\":\"…\"}
--http: the same object is posted. 2xx acknowledges, 4xx but 408, 425 and 429 rejects, anything
  else tries again: when Retry-After says so, or after the back-off.
SIGTERM and Ctrl-C drain: what runs may finish, the rest is given back. A second one ends at once.";

/// Handle the messages of a group with a command, a program or an HTTP endpoint
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Work {
    /// The stream; may be repeated
    #[arg(short, long, value_name = "STREAM", required = true, value_parser = NonEmptyStringValueParser::new())]
    stream: Vec<String>,
    /// The group, which is made if it is not there
    #[arg(short, long, value_parser = NonEmptyStringValueParser::new())]
    group: String,
    #[command(flatten)]
    handling: Handling,
    /// A header for --http, as 'Name: value'; may be repeated
    #[arg(long, value_name = "HEADER", help_heading = "What to do with a message")]
    header: Vec<String>,
    /// Give --exec up to so many messages at once, each a line of JSON; its exit code decides for all
    #[arg(long, value_name = "N", value_parser = parse_count, help_heading = "What to do with a message")]
    batch: Option<usize>,
    /// How long messages wait for each other before a smaller batch goes
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = parse_duration, requires = "batch", help_heading = "What to do with a message")]
    batch_wait: Duration,
    #[command(flatten)]
    pool: Pool,
    /// End when the group has nothing unread and nothing pending; ending takes about a second, that of the last read
    #[arg(long, help_heading = "Running")]
    until_empty: bool,
    /// Tell nothing but warnings: no status, and no report but that of --json
    #[arg(short, long, help_heading = "Running")]
    quiet: bool,
    /// What to log: error, warn, info, debug or trace, or as in RUST_LOG [default: info, warn on a terminal]
    #[arg(long, value_name = "FILTER", help_heading = "Running")]
    log: Option<String>,
    #[command(flatten)]
    common: Common,
}

impl Work {
    pub(crate) async fn run(&self) -> Result<(), Failure> {
        let console = Console::new(!self.quiet);
        let fallback = if self.quiet || console.has_status() { "warn" } else { "info" };
        log::begin(&console, self.log.as_deref(), fallback)?;
        let ended = self.work(&console).await;
        console.end_status();
        let (consumer, report) = ended?;
        if self.common.json {
            print_json_line(&status::report_json(&consumer, &report))?;
        } else if !self.quiet {
            note(&format!("millstream: {report}"));
        }
        Ok(())
    }

    async fn work(&self, console: &Console) -> Result<(String, Report), Failure> {
        let cannot_listen = |error| Failure::Other(format!("cannot listen for signals: {error}"));
        let mut signals = Signals::listen().map_err(cannot_listen)?;
        self.check().map_err(|error| Failure::Usage(error.to_string()))?;
        let runner = Arc::new(self.runner(console).map_err(Failure::Usage)?);
        let backend = tokio::select! {
            backend = self.common.connect_or_create() => backend?,
            signal = signals.next() => return Err(Failure::Interrupted(signal.as_raw_value())),
        };
        let worker = self.worker(&backend, &runner)?;
        let consumer = worker.consumer().to_owned();
        let handle = worker.handle();
        let backlog = Backlog::new(&backend, &self.stream, &self.group);
        let stopping = CancellationToken::new();
        let end_when_empty = async {
            if self.until_empty {
                backlog.until_empty().await;
                stopping.cancel();
            }
            std::future::pending::<()>().await;
        };
        let two_signals = async {
            signals.next().await;
            console.set_status("draining; once more to end at once".to_owned());
            info!("a signal: draining; another one ends at once");
            stopping.cancel();
            signals.next().await
        };
        let ended = tokio::select! {
            report = worker.run_until(stopping.cancelled()) => match report {
                Ok(report) => Ok(report),
                Err(error) => return Err(self.explained(&*backend, error).await),
            },
            second = two_signals => Err(second),
            // These two never end.
            () = end_when_empty => Err(SignalKind::terminate()),
            () = status::tell(&handle, &backlog, console) => Err(SignalKind::terminate()),
        };
        match ended {
            Ok(report) => {
                runner.end().await;
                Ok((consumer, report))
            }
            Err(signal) => {
                warn!("a second signal: ending at once");
                let given_back = timeout(LAST_WORDS, self.give_back(&*backend, &consumer)).await;
                if !matches!(given_back, Ok(Ok(()))) {
                    warn!(
                        "what was at work could not be given back: others take it over when its lease has run out"
                    );
                }
                Err(Failure::Interrupted(signal.as_raw_value()))
            }
        }
    }

    /// What the worker would refuse, found before anybody is connected to.
    fn check(&self) -> Result<(), BuildError> {
        let mut named = HashSet::new();
        if let Some(twice) = self.stream.iter().find(|stream| !named.insert(*stream)) {
            return Err(BuildError::StreamTwice(twice.clone()));
        }
        match &self.pool.dlq {
            Some(stream) if named.contains(stream) => Err(BuildError::DeadLettersAreRead(stream.clone())),
            _ => Ok(()),
        }
    }

    fn runner(&self, console: &Console) -> Result<Runner, String> {
        // clap asks for nothing that something given rules out.
        if !self.header.is_empty() && self.handling.http.is_none() {
            return Err("--header is for requests: give --http as well".to_owned());
        }
        if self.batch.is_some() && self.handling.exec.is_none() {
            return Err("--batch is for commands: give --exec as well".to_owned());
        }
        let timeout = self.pool.timeout;
        let shell = |command: &String| Shell {
            command: command.clone(),
            timeout,
            console: console.clone(),
            guard: Arc::new(Guard::start()),
        };
        match &self.handling {
            Handling { exec: Some(command), .. } => Ok(Runner::Exec(Arc::new(Exec(shell(command))))),
            Handling { child: Some(command), .. } => Ok(Runner::Child(Children::new(shell(command)))),
            Handling { http: Some(url), .. } => {
                Endpoint::new(url, &self.header, timeout.unwrap_or(HTTP_TIME)).map(Box::new).map(Runner::Http)
            }
            _ => Err("nothing to do with a message: give --exec, --child or --http".to_owned()),
        }
    }

    fn worker(&self, backend: &Arc<dyn Admin>, runner: &Arc<Runner>) -> Result<Worker, Failure> {
        let worker = self.pool.worker(backend).group(&self.group);
        let worker = match (self.batch, &**runner) {
            (Some(size), Runner::Exec(exec)) => {
                let exec = Arc::clone(exec);
                let handler = move |messages: Vec<Message>| {
                    let exec = Arc::clone(&exec);
                    async move { exec.run_batch(messages).await }
                };
                worker.batch_handler(handler, size, self.batch_wait)
            }
            _ => {
                let runner = Arc::clone(runner);
                worker.handler(move |message: Message| {
                    let runner = Arc::clone(&runner);
                    async move { runner.run(&message).await }
                })
            }
        };
        let worker = worker.handler_name(runner.name());
        let worker = self.stream.iter().fold(worker, |worker, stream| worker.stream(stream));
        worker.build().map_err(|error| Failure::Usage(error.to_string()))
    }

    /// Why the worker has ended, with the name of the stream where the store does not tell it.
    async fn explained(&self, backend: &dyn Admin, error: Error) -> Failure {
        if error.kind() == ErrorKind::WrongType {
            for stream in &self.stream {
                if let Err(failure) = known::look(backend, stream).await {
                    return failure;
                }
            }
        }
        error.into()
    }

    /// Gives back what was at work. It was tried, and that counts.
    async fn give_back(&self, backend: &dyn Admin, consumer: &str) -> Result<(), Error> {
        for stream in &self.stream {
            let mut after = StreamId::MIN;
            loop {
                let left =
                    backend.own_pending(Consumer::new(stream, &self.group, consumer), after, PAGE).await?;
                let Some(last) = left.last() else { break };
                after = last.id;
                let rows: Vec<Release> =
                    left.iter().map(|row| Release::counted(row.id, row.deliveries)).collect();
                backend.release(Consumer::new(stream, &self.group, consumer), &rows).await?;
            }
        }
        Ok(())
    }
}

/// What a message is handed to.
enum Runner {
    Exec(Arc<Exec>),
    Child(Children),
    Http(Box<Endpoint>),
}

impl Runner {
    async fn run(&self, message: &Message) -> Outcome {
        match self {
            Runner::Exec(exec) => exec.run(message).await,
            Runner::Child(children) => children.run(message).await,
            Runner::Http(endpoint) => endpoint.run(message).await,
        }
    }

    /// How it is called in metrics.
    fn name(&self) -> &'static str {
        match self {
            Runner::Exec(_) => "exec",
            Runner::Child(_) => "child",
            Runner::Http(_) => "http",
        }
    }

    /// Ends what still waits for messages.
    async fn end(&self) {
        if let Runner::Child(children) = self {
            children.end().await;
        }
    }
}
