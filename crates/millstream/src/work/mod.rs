//! `millstream work`: handles the messages of a group with a command, a long-lived program or an HTTP endpoint.
//!
//! ```text
//! worker -> Runner -> exec    a process for each message or batch; its exit code decides the outcome
//!                  -> child   long-lived programs; a line of JSON decides the outcome
//!                  -> http    a request for each message; the status of the response decides the outcome
//! ```
//!
//! SIGTERM, SIGINT and SIGHUP drain the worker: running handlers finish, and prefetched messages are released. A second
//! signal stops the worker immediately, unless it follows within a second: some programs send each signal twice. With
//! `--until-stdin-ends`, the end of standard input drains the worker too.

mod backlog;
mod broken_command;
mod child;
mod console;
mod exec;
mod handler_log;
mod http;
mod options;
mod parent;
mod payload;
mod process;
mod retry_after;
mod status;
mod watchdog;

use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use millstream_worker::backend::{Consumer, ErrorKind, Release, StreamId};
use millstream_worker::shutdown::{ShutdownSignal, ShutdownSignals};
use millstream_worker::worker::{BuildError, OpenBreaker};
use millstream_worker::{Admin, Error, Message, Outcome, Report, Worker, WorkerHandle};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::backlog::Backlog;
use self::broken_command::CommandCheck;
use self::child::ChildPool;
use self::console::Console;
use self::exec::Exec;
use self::http::Endpoint;
use self::options::{HandlerOptions, WorkerOptions, parse_count};
use self::process::Shell;
use self::watchdog::Watchdog;
use crate::ops::Failure;
use crate::ops::connection::CommonOptions;
use crate::ops::log::{LogFormat, LogOptions};
use crate::ops::lookup;
use crate::ops::output::{note, print_json_line};
use crate::ops::shell::{option, suggest};
use crate::ops::time::parse_duration;
use crate::ops::value::counted;

/// Default timeout of `--http`. Without a timeout, an endpoint that never responds would occupy a slot forever.
const HTTP_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait that a handler can request before a retry.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Maximum time to release messages after the second signal.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of messages released per call.
const PAGE: usize = 512;

/// Interval at which `--until-empty` checks whether to give up.
const GIVE_UP_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Number of failed probes of an open circuit breaker after which `--until-empty` gives up: about half a minute.
const FAILED_PROBES_MAX: u32 = 5;
/// How long the store can refuse calls, without any message being settled, or leave a call without an answer, until
/// `--until-empty` gives up.
const REFUSAL_MAX: Duration = Duration::from_secs(30);
/// Time to drain, in addition to `--drain`, after `--until-empty` has given up: the store may not answer.
const GIVE_UP_GRACE: Duration = Duration::from_secs(10);

const HANDLER_HEADING: &str = "Handler";

const EXAMPLES: &str = "\
Examples:
  millstream work --stream orders --group billing --exec ./charge.sh
  millstream work -s orders -g billing --exec ./charge.sh --autoscale 2..32 --timeout 30s
  millstream work -s orders -g billing --exec ./charge.sh --max-attempts 3 --backoff 5s..10m
  millstream work -s orders -g billing --exec ./charge.sh --consumer one --listen 127.0.0.1:9091
  millstream work -s orders -g audit --exec 'cat >> orders.jsonl' --concurrency 1 --until-empty
  millstream work -s orders -g audit --exec 'gzip >> orders.gz' --batch 500 --batch-wait 1s
  millstream work -s orders -g search --child 'python3 index.py' --dedupe 1d
  millstream work --streams-matching 'orders:*' -g billing --exec ./charge.sh
  millstream work -s orders -g hooks --http http://127.0.0.1:8000/orders --header 'X-Token: T'

Messages are JSON objects: {\"id\",\"stream\",\"group\",\"attempt\",\"fields\":{…}}

--exec
  The command gets the message on standard input, and as the environment
  variables MILLSTREAM_ID, MILLSTREAM_STREAM, MILLSTREAM_GROUP,
  MILLSTREAM_ATTEMPT and MILLSTREAM_FIELD_<NAME>. Its exit code decides:
    0        acknowledge
    65, 100  reject: the message becomes a dead letter immediately
    other    retry, also if a signal kills the command
  If the first runs end with 126 or 127 (cannot execute, not found), the command
  is broken: the worker stops with exit code 7, and no attempt counts.
  The last line of standard error becomes the error of the dead letter.
  With --batch, standard input has one line per message, MILLSTREAM_COUNT is
  the number of messages, and the exit code applies to all of them. A message
  that is retried is passed alone.
--child
  The program gets each message as a line on standard input, and answers with a
  line on standard output:
  {\"id\":\"…\",\"outcome\":\"ack\"|\"retry\"|\"reject\"|\"skip\",\"after_ms\":N,\"error\":\"…\"}
  With --pipeline N, up to N messages are in one program at a time, and there
  are up to --concurrency / N programs.
--http
  The message is the body of a POST request. The status of the response decides:
    2xx                 acknowledge
    408, 425, 429       retry
    other 4xx           reject: the message becomes a dead letter immediately
    other, no response  retry
  A retry waits for the time in Retry-After. Without it, --backoff applies.

SIGTERM, SIGHUP and Ctrl-C drain the worker: running handlers finish, and messages that have not started are \
released. A second signal, at least a second later, stops the worker immediately.

Exit codes:
    0              the worker ended normally
    1, 2, 3, 4     failure, wrong usage, no connection, no store in the folder
    6              --until-empty: messages were dead-lettered
    7              the command of --exec or --child cannot run
    8              --until-empty: gave up, because every handler call fails
    9              another live worker has the name of --consumer
    10             --until-empty: gave up, because the store is full or refuses what
                   the worker needs; or the group was deleted meanwhile
    129, 130, 143  a second signal ended the worker";

/// Handle the messages of a group with a command, a program or an HTTP endpoint
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Work {
    /// Stream to read; can be repeated
    #[arg(short, long, value_name = "STREAM", required_unless_present = "streams_matching", value_parser = NonEmptyStringValueParser::new())]
    stream: Vec<String>,
    /// Read all streams that match this glob pattern, such as 'orders:*': those that exist and those that appear later
    #[arg(long, value_name = "PATTERN", value_parser = NonEmptyStringValueParser::new())]
    streams_matching: Option<String>,
    /// Consumer group; created if it does not exist
    #[arg(short, long, value_parser = NonEmptyStringValueParser::new())]
    group: String,
    #[command(flatten)]
    handler: HandlerOptions,
    /// Header for --http, as 'Name: value'; can be repeated
    #[arg(long, value_name = "HEADER", help_heading = HANDLER_HEADING)]
    header: Vec<String>,
    /// Pass up to N messages to one --exec command, one JSON line each; its exit code applies to all
    #[arg(long, value_name = "N", value_parser = parse_count, help_heading = HANDLER_HEADING)]
    batch: Option<usize>,
    /// Maximum time to wait for a batch to fill
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = parse_duration, requires = "batch", help_heading = HANDLER_HEADING)]
    batch_wait: Duration,
    /// Send up to N messages at a time to one --child program, which answers each with its id, in any order [default:
    /// 1]
    #[arg(long, value_name = "N", value_parser = parse_count, help_heading = HANDLER_HEADING)]
    pipeline: Option<usize>,
    #[command(flatten)]
    worker: WorkerOptions,
    /// Exit about a second after the group has no unread and no pending messages left; the exit code is 6 if this
    /// worker dead-lettered messages, 8 if it gave up because every handler call fails, and 10 if it gave up because
    /// the store refuses calls, or if the group was deleted meanwhile
    #[arg(long, help_heading = "Running")]
    until_empty: bool,
    /// Drain when standard input ends: for programs that start a worker and must not leave it behind
    #[arg(long, hide = true)]
    until_stdin_ends: bool,
    /// Print only warnings and errors, no status and no report; --json still prints its report
    #[arg(short, long, help_heading = "Running")]
    quiet: bool,
    #[command(flatten)]
    log: LogOptions,
    #[command(flatten)]
    common: CommonOptions,
}

impl Work {
    pub(crate) async fn run(&self) -> Result<(), Failure> {
        let console = Console::new(!self.quiet, self.log.format());
        let default = if self.quiet || console.has_status() { "warn" } else { "info" };
        let log = console.clone();
        self.log.start(default, move |line| log.write(line))?;
        match self.work_and_report(&console).await {
            Err(failure) if self.log.format() == LogFormat::Json => Err(failure.logged()),
            result => result,
        }
    }

    async fn work_and_report(&self, console: &Console) -> Result<(), Failure> {
        let result = self.work(console).await;
        console.end_status();
        let Ended { consumer, report, broken_command, gave_up } = result?;
        if self.common.json {
            print_json_line(&status::report_json(&consumer, &report))?;
        } else if !self.quiet && self.log.format() == LogFormat::Text {
            note(&format!("millstream: {report}"));
        }
        if let Some(error) = broken_command {
            return Err(Failure::BrokenCommand(format!(
                "the command of the handler cannot run: {error}\ncorrect --exec or --child; all messages are kept, and no attempt counts"
            )));
        }
        match gave_up {
            Some(GaveUp::HandlersFail(error)) => {
                return Err(Failure::HandlersFail(format!(
                    "gave up, because every handler call fails: {error}\nthe messages are kept; run the command again later"
                )));
            }
            Some(GaveUp::StoreRefuses(error)) => {
                return Err(Failure::Unfinished(format!(
                    "gave up, because the store refuses calls or does not answer: {error}\nthe messages are kept; correct what the error names, and run the command again"
                )));
            }
            None => {}
        }
        if self.until_empty && report.groups_recreated > 0 {
            return Err(Failure::Unfinished(format!(
                "group '{}' or its stream was deleted while the worker ran, and the worker created the group again\nmessages may be gone or handled twice: check what was deleted, and why",
                self.group
            )));
        }
        if self.until_empty && report.dead > 0 {
            let messages = counted(report.dead, "message", "messages");
            return Err(Failure::DeadLetters(format!(
                "moved {messages} to the dead letters; list them with: {}",
                self.list_dead_letters()
            )));
        }
        Ok(())
    }

    /// Returns the command that lists the dead letters of the worker, or the streams that have some if there are
    /// several.
    fn list_dead_letters(&self) -> String {
        let dlq = self.worker.dlq.as_ref().map_or_else(String::new, |dlq| option("--dlq", dlq));
        match &*self.stream {
            [stream] if self.streams_matching.is_none() => suggest("dlq ls", &[stream], &dlq),
            _ => suggest("dlq ls", &[], ""),
        }
    }

    async fn work(&self, console: &Console) -> Result<Ended, Failure> {
        let no_signals = |error| Failure::Other(format!("cannot handle signals: {error}"));
        let mut signals = ShutdownSignals::listen().map_err(no_signals)?;
        self.check().map_err(|error| Failure::Usage(error.to_string()))?;
        let runner = Arc::new(self.runner(console).map_err(Failure::Usage)?);
        let mut parent_ended = pin!(parent::ended(self.until_stdin_ends));
        let backend = tokio::select! {
            backend = self.common.connect_or_create() => backend?,
            () = &mut parent_ended => return Err(Failure::Interrupted(ShutdownSignal::HangUp.number())),
            signal = signals.next() => return Err(Failure::Interrupted(signal.number())),
        };
        let worker = self.build_worker(&backend, &runner)?;
        let consumer = worker.consumer().to_owned();
        let handle = worker.handle();
        let pattern = self.streams_matching.as_deref();
        let backlog = Backlog::new(&backend, &self.stream, pattern, &self.group);
        let stopping = CancellationToken::new();
        let gave_up = OnceLock::new();
        let end_when_empty = async {
            if self.until_empty {
                tokio::select! {
                    is_empty = backlog.until_empty(&handle, REFUSAL_MAX) => if !is_empty {
                        let error = format!("no answer within {REFUSAL_MAX:?}");
                        error!(error, "the store does not answer: draining");
                        let _ = gave_up.set(GaveUp::StoreRefuses(error));
                    },
                    open = until_giving_up(&handle) => {
                        error!(error = open.error, "every handler call fails: draining");
                        let _ = gave_up.set(GaveUp::HandlersFail(open.error));
                    }
                    error = until_refused(&handle) => {
                        error!(error, "the store refuses calls: draining");
                        let _ = gave_up.set(GaveUp::StoreRefuses(error));
                    }
                }
                stopping.cancel();
                if matches!(gave_up.get(), Some(GaveUp::StoreRefuses(_))) {
                    return sleep(self.worker.drain + GIVE_UP_GRACE).await;
                }
            }
            std::future::pending::<()>().await;
        };
        let end_when_broken = async {
            runner.broken().await;
            error!("the command of the handler cannot run: draining");
            stopping.cancel();
            std::future::pending::<()>().await;
        };
        let end_with_parent = async {
            parent_ended.await;
            info!("the process that started this worker has ended: draining");
            stopping.cancel();
            std::future::pending::<()>().await;
        };
        let two_signals = async {
            let signal = signals.next().await;
            console.set_status("draining; a second signal stops immediately".to_owned());
            info!("received {signal}: draining; a second signal stops immediately");
            stopping.cancel();
            signals.next().await
        };
        let ended = tokio::select! {
            report = worker.run_until(stopping.cancelled()) => match report {
                Ok(report) => Ok(report),
                Err(error) => return Err(self.explain(&*backend, error).await),
            },
            second = two_signals => Err(second),
            () = end_when_empty => {
                let report = handle.stats();
                let gave_up = gave_up.into_inner();
                return Ok(Ended { consumer, report, broken_command: None, gave_up });
            }
            // These futures never complete.
            () = end_with_parent => Err(ShutdownSignal::Terminate),
            () = end_when_broken => Err(ShutdownSignal::Terminate),
            () = status::report_progress(&handle, &backlog, console) => Err(ShutdownSignal::Terminate),
        };
        match ended {
            Ok(report) => {
                runner.stop().await;
                let gave_up = gave_up.into_inner();
                Ok(Ended { consumer, report, broken_command: runner.broken_command(), gave_up })
            }
            Err(signal) => {
                warn!("received {signal} as the second signal: stopping immediately");
                // A worker that has received nothing may have waited for a live worker with its consumer name. Pending
                // messages belong to that one.
                let has_messages = handle.stats().received > 0;
                let released = timeout(RELEASE_TIMEOUT, async {
                    if has_messages {
                        self.release_pending(&*backend, &handle.streams(), &consumer).await?;
                    }
                    handle.remove_heartbeats().await;
                    Ok::<(), Error>(())
                });
                if !matches!(released.await, Ok(Ok(()))) {
                    warn!(
                        "cannot release the messages of this worker: other workers take them over when their leases expire"
                    );
                }
                Err(Failure::Interrupted(signal.number()))
            }
        }
    }

    /// Checks options that the worker would refuse, before the command connects to the store.
    fn check(&self) -> Result<(), BuildError> {
        let mut streams = HashSet::new();
        if let Some(repeated) = self.stream.iter().find(|stream| !streams.insert(*stream)) {
            return Err(BuildError::DuplicateStream(repeated.clone()));
        }
        match &self.worker.dlq {
            Some(stream) if streams.contains(stream) => {
                Err(BuildError::DeadLetterStreamIsRead(stream.clone()))
            }
            _ => Ok(()),
        }
    }

    fn runner(&self, console: &Console) -> Result<Runner, String> {
        // clap's `requires` does not report these, because --exec, --child and --http exclude each other.
        if !self.header.is_empty() && self.handler.http.is_none() {
            return Err("--header requires --http".to_owned());
        }
        if self.batch.is_some() && self.handler.exec.is_none() {
            return Err("--batch requires --exec".to_owned());
        }
        if self.pipeline.is_some() && self.handler.child.is_none() {
            return Err("--pipeline requires --child".to_owned());
        }
        let timeout = self.worker.timeout;
        let shell = |command: &String| Shell {
            command: command.clone(),
            timeout,
            console: console.clone(),
            watchdog: Arc::new(Watchdog::start()),
            check: Arc::new(CommandCheck::default()),
        };
        match &self.handler {
            HandlerOptions { exec: Some(command), .. } => {
                let (shell, blocks_keys) = (shell(command), self.worker.blocks_keys());
                Ok(Runner::Exec(Arc::new(Exec { shell, blocks_keys })))
            }
            HandlerOptions { child: Some(command), .. } => {
                Ok(Runner::Child(ChildPool::new(shell(command), self.pipeline.unwrap_or(1))))
            }
            HandlerOptions { http: Some(url), .. } => {
                Endpoint::new(url, &self.header, timeout.unwrap_or(HTTP_TIMEOUT))
                    .map(Box::new)
                    .map(Runner::Http)
            }
            _ => Err("no handler: pass --exec, --child or --http".to_owned()),
        }
    }

    fn build_worker(&self, backend: &Arc<dyn Admin>, runner: &Arc<Runner>) -> Result<Worker, Failure> {
        let worker = self.worker.builder(backend).group(&self.group);
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
        let worker =
            self.streams_matching.iter().fold(worker, |worker, pattern| worker.streams_matching(pattern));
        worker.build().map_err(|error| Failure::Usage(error.to_string()))
    }

    /// Converts the error that ended the worker. Names the stream if the store's error does not.
    async fn explain(&self, backend: &dyn Admin, error: Error) -> Failure {
        if error.kind() == ErrorKind::WrongType {
            for stream in &self.stream {
                if let Err(failure) = lookup::find_stream(backend, stream).await {
                    return failure;
                }
            }
        }
        error.into()
    }

    /// Releases all pending messages of this worker. Their deliveries do not count: the worker ends, whatever the
    /// message.
    async fn release_pending(
        &self,
        backend: &dyn Admin,
        streams: &[String],
        consumer: &str,
    ) -> Result<(), Error> {
        for stream in streams {
            let mut after = StreamId::MIN;
            loop {
                let pending =
                    backend.own_pending(Consumer::new(stream, &self.group, consumer), after, PAGE).await?;
                let Some(last) = pending.last() else { break };
                after = last.id;
                let rows: Vec<Release> =
                    pending.iter().map(|row| Release::uncounted(row.id, row.deliveries)).collect();
                backend.release(Consumer::new(stream, &self.group, consumer), &rows).await?;
            }
        }
        Ok(())
    }
}

struct Ended {
    consumer: String,
    report: Report,
    /// The error of a command that cannot run.
    broken_command: Option<String>,
    gave_up: Option<GaveUp>,
}

/// Why `--until-empty` gave up, with the last error.
#[derive(Debug)]
enum GaveUp {
    HandlersFail(String),
    StoreRefuses(String),
}

/// Waits until the circuit breaker has been open for several probes, and returns it.
async fn until_giving_up(handle: &WorkerHandle) -> OpenBreaker {
    loop {
        sleep(GIVE_UP_CHECK_INTERVAL).await;
        if let Some(open) = handle.open_breaker().filter(|open| open.failed_probes >= FAILED_PROBES_MAX) {
            return open;
        }
    }
}

/// Waits until the store has refused calls for some time, while no message was settled. Returns the last error.
async fn until_refused(handle: &WorkerHandle) -> String {
    let (mut settled, mut settled_at) = (0, Instant::now());
    loop {
        sleep(GIVE_UP_CHECK_INTERVAL).await;
        let stats = handle.stats();
        let now = stats.acknowledged + stats.skipped + stats.deduplicated + stats.dead + stats.retried;
        if now != settled {
            (settled, settled_at) = (now, Instant::now());
        }
        let refusal = handle.refusal().filter(|refusal| refusal.lasts_for() >= REFUSAL_MAX);
        if let Some(refusal) = refusal.filter(|_| settled_at.elapsed() >= REFUSAL_MAX) {
            return refusal.error;
        }
    }
}

/// The handler that the command line selects.
enum Runner {
    Exec(Arc<Exec>),
    Child(ChildPool),
    Http(Box<Endpoint>),
}

impl Runner {
    async fn run(&self, message: &Message) -> Outcome {
        match self {
            Runner::Exec(exec) => exec.run(message).await,
            Runner::Child(pool) => pool.run(message).await,
            Runner::Http(endpoint) => endpoint.run(message).await,
        }
    }

    /// Returns the name of the handler in metrics.
    fn name(&self) -> &'static str {
        match self {
            Runner::Exec(_) => "exec",
            Runner::Child(_) => "child",
            Runner::Http(_) => "http",
        }
    }

    /// Returns the check whether the command can run, if the handler is a command.
    fn check(&self) -> Option<&CommandCheck> {
        match self {
            Runner::Exec(exec) => Some(&exec.shell.check),
            Runner::Child(pool) => Some(pool.check()),
            Runner::Http(_) => None,
        }
    }

    async fn broken(&self) {
        match self.check() {
            Some(check) => check.broken().await,
            None => std::future::pending().await,
        }
    }

    fn broken_command(&self) -> Option<String> {
        self.check().and_then(CommandCheck::error)
    }

    /// Stops idle child programs.
    async fn stop(&self) {
        if let Runner::Child(pool) = self {
            pool.stop().await;
        }
    }
}
