//! `--exec`: one process for each message or batch. Its exit code decides the outcome:
//!
//! | exit code | outcome |
//! |---|---|
//! | 0 | acknowledged |
//! | 65 (`EX_DATAERR`), 100 | rejected: dead-lettered immediately |
//! | 126, 127 before the command has run once | delivered again; the delivery does not count (see `broken_command`) |
//! | 75 (`EX_TEMPFAIL`), any other | retried |
//! | killed by a signal, exceeded the timeout | retried |
//! | none: the shell could not be started | delivered again; the delivery does not count |
//!
//! The process gets the message as JSON on standard input and as environment variables. The last line of its standard
//! error becomes the error of the dead letter.
//!
//! For a batch, every message is one line of standard input, and the exit code applies to all of them. A retried
//! message gets a process of its own. Otherwise, a message that always fails would dead-letter the rest of its batch.

use std::collections::HashSet;
use std::future::pending;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use millstream_worker::{Failure, Message, Outcome, Reason};
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;
use tracing::warn;

use super::console::LineOrigin;
use super::payload::{Variable, Variables, payload};
use super::process::{Process, Shell};

/// Time between SIGTERM and SIGKILL for a process that is stopped.
pub(super) const STOP_GRACE: Duration = Duration::from_secs(1);
/// Exit codes that reject a message: `EX_DATAERR`, and qmail's code for permanent errors.
const REJECT_CODES: [i32; 2] = [65, 100];

/// Runs a command for each message or batch.
pub(super) struct Exec {
    pub(super) shell: Shell,
    /// Whether a message that fails blocks its key, if the worker orders messages.
    pub(super) blocks_keys: bool,
}

enum RunEnd {
    Exited(io::Result<ExitStatus>),
    TimedOut(Duration),
    Cancelled,
}

impl Exec {
    pub(super) async fn run(&self, message: &Message) -> Outcome {
        self.run_process(std::slice::from_ref(message), &Variables::of_message(message)).await
    }

    /// Handles a batch: first attempts together in one process, retries one by one.
    ///
    /// If a failure blocks its key, messages behind a retry of their key run one by one too, and those behind a failure
    /// do not run: the worker delivers them again.
    pub(super) async fn run_batch(&self, messages: Vec<Message>) -> Vec<Outcome> {
        let key_of = |message: &Message| (Arc::clone(&message.stream), message.key().cloned());
        // Only a worker that owns its stream orders messages.
        let blocks_keys = self.blocks_keys && messages.iter().all(|message| message.fence.is_some());
        let mut retried = HashSet::new();
        let together: Vec<bool> = messages
            .iter()
            .map(|message| {
                let is_first = message.attempt == 1 && !retried.contains(&key_of(message));
                if !is_first && blocks_keys {
                    retried.insert(key_of(message));
                }
                is_first
            })
            .collect();
        let first = messages.iter().zip(&together).filter(|(_, together)| **together);
        let first: Vec<Message> = first.map(|(message, _)| message.clone()).collect();
        let first_outcome = if first.is_empty() { None } else { Some(self.run_lines(&first).await) };
        let mut failed = HashSet::new();
        let mut outcomes = Vec::with_capacity(messages.len());
        for (message, together) in messages.iter().zip(together) {
            let outcome = match &first_outcome {
                Some(outcome) if together => outcome.clone(),
                _ if failed.contains(&key_of(message)) => Outcome::retry(),
                _ => self.run_lines(std::slice::from_ref(message)).await,
            };
            if blocks_keys && matches!(outcome, Outcome::Retry { .. } | Outcome::NotStarted(_)) {
                failed.insert(key_of(message));
            }
            outcomes.push(outcome);
        }
        outcomes
    }

    async fn run_lines(&self, messages: &[Message]) -> Outcome {
        let lost = async {
            all_cancelled(messages).await;
            sleep(STOP_GRACE).await;
        };
        let variables = Variables::of_batch(messages);
        tokio::select! {
            outcome = self.run_process(messages, &variables) => outcome,
            // The worker ignores the outcome of messages whose leases it lost. The rest of the batch must not wait.
            () = lost => retry("the lease was lost".to_owned(), "cancelled", Reason::Failed),
        }
    }

    /// Starts the command. If the system refuses the environment as too large, starts it without the fields, which the
    /// command gets on standard input anyway.
    fn start(&self, messages: &[Message], variables: &Variables) -> io::Result<Process> {
        let (id, more) = (messages[0].id, messages.len() - 1);
        let origin = move || LineOrigin { id: Some(id.to_string()), more };
        let start = |fields: &[Variable]| {
            self.shell.start(origin, |shell| {
                shell.envs(variables.message.iter().chain(fields).map(|(name, value)| (name, value)));
                shell.stdout(Stdio::piped());
            })
        };
        let mut process = match start(&variables.fields) {
            Err(error) if error.kind() == io::ErrorKind::ArgumentListTooLong => start(&[])?,
            started => started?,
        };
        process.forward_stdout(&self.shell.console, origin());
        Ok(process)
    }

    async fn run_process(&self, messages: &[Message], variables: &Variables) -> Outcome {
        if let Some(outcome) = self.shell.check.outcome_if_broken() {
            return outcome;
        }
        let mut process = match self.start(messages, variables) {
            Ok(process) => process,
            Err(error) => return not_started(&error),
        };
        match self.feed_and_wait(&mut process, messages).await {
            RunEnd::Exited(Ok(status)) => {
                let outcome = outcome_of(status, process.last_stderr_line().await);
                self.shell.check.judge(&messages[0], Some(status), outcome)
            }
            RunEnd::Exited(Err(error)) => {
                retry(format!("cannot wait for the command: {error}"), "wait", Reason::Failed)
            }
            RunEnd::TimedOut(limit) => {
                process.stop(STOP_GRACE).await;
                let outcome = timed_out(limit, process.last_stderr_line().await);
                self.shell.check.judge(&messages[0], None, outcome)
            }
            RunEnd::Cancelled => {
                process.terminate();
                // Cancelled messages have no outcome. The worker soon drops this future, and that kills the process.
                pending().await
            }
        }
    }

    /// Writes the messages to the process. Waits until the process exits or times out, or all messages are cancelled.
    async fn feed_and_wait(&self, process: &mut Process, messages: &[Message]) -> RunEnd {
        let stdin = process.take_stdin();
        let mut feed = pin!(async {
            if let Some(mut stdin) = stdin {
                let lines: String =
                    messages.iter().map(|message| format!("{}\n", payload(message))).collect();
                // The write fails if the command exits without reading its input. That is not an error.
                let _ = stdin.write_all(lines.as_bytes()).await;
            }
        });
        let mut timeout = pin!(time_limit(self.shell.timeout));
        let mut cancelled = pin!(all_cancelled(messages));
        let mut fed = false;
        loop {
            tokio::select! {
                status = process.wait() => return RunEnd::Exited(status),
                () = &mut feed, if !fed => fed = true,
                limit = &mut timeout => return RunEnd::TimedOut(limit),
                () = &mut cancelled => return RunEnd::Cancelled,
            }
        }
    }
}

/// Completes when all messages are cancelled: their leases are lost, or the drain timed out.
async fn all_cancelled(messages: &[Message]) {
    for message in messages {
        message.cancelled.cancelled().await;
    }
}

/// Completes after the limit and returns it. Never completes without a limit.
pub(super) async fn time_limit(limit: Option<Duration>) -> Duration {
    match limit {
        Some(limit) => {
            sleep(limit).await;
            limit
        }
        None => pending().await,
    }
}

/// Returns the outcome of a failed attempt that is retried.
pub(super) fn retry(error: String, error_type: impl Into<String>, reason: Reason) -> Outcome {
    Outcome::Retry { after: None, failure: Some(Failure { error, error_type: error_type.into(), reason }) }
}

/// Returns the outcome if the shell could not be started. The message is not to blame, so the delivery does not count.
pub(super) fn not_started(error: &io::Error) -> Outcome {
    warn!(%error, "cannot start sh: the message stays pending and is delivered again later");
    not_ready(format!("cannot start sh: {error}"))
}

/// Returns the outcome of a message that no handler has begun with, for a reason other than the message.
pub(super) fn not_ready(error: String) -> Outcome {
    Outcome::NotStarted(Failure { error, error_type: "start".to_owned(), reason: Reason::Failed })
}

/// Returns the last line of standard error as the end of an error message.
pub(super) fn detail(stderr_line: Option<&str>) -> String {
    stderr_line.map_or_else(String::new, |line| format!(": {line}"))
}

/// Returns the outcome of an attempt that exceeded the timeout.
pub(super) fn timed_out(limit: Duration, stderr_line: Option<String>) -> Outcome {
    let error = format!("no outcome within {limit:?}{}", detail(stderr_line.as_deref()));
    retry(error, "timeout", Reason::Timeout)
}

/// Returns the outcome for an exit status.
fn outcome_of(status: ExitStatus, stderr_line: Option<String>) -> Outcome {
    let (description, error_type) = match (status.code(), status.signal()) {
        (Some(0), _) => return Outcome::Ack,
        (Some(code), _) => (format!("exit code {code}"), format!("exit {code}")),
        (None, Some(signal)) => (format!("killed by signal {signal}"), format!("signal {signal}")),
        (None, None) => (status.to_string(), "exit".to_owned()),
    };
    let error = stderr_line.unwrap_or(description);
    match status.code() {
        Some(code) if REJECT_CODES.contains(&code) => {
            Outcome::Reject(Failure { error, error_type, reason: Reason::Rejected })
        }
        _ => retry(error, error_type, Reason::Failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exited(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    #[test]
    fn exit_codes_acknowledge_reject_or_retry() {
        assert_eq!(outcome_of(exited(0), Some("noise".into())), Outcome::Ack);
        for code in REJECT_CODES {
            let Outcome::Reject(failure) = outcome_of(exited(code), Some("bad data".into())) else {
                panic!("{code}")
            };
            assert_eq!((failure.error.as_str(), failure.error_type), ("bad data", format!("exit {code}")));
        }
        for code in [1, 2, 75, 126, 127, 255] {
            let outcome = outcome_of(exited(code), None);
            assert_eq!(outcome, retry(format!("exit code {code}"), format!("exit {code}"), Reason::Failed));
        }
    }

    #[test]
    fn a_process_killed_by_a_signal_is_retried() {
        let killed = ExitStatus::from_raw(9);
        assert_eq!(outcome_of(killed, None), retry("killed by signal 9".into(), "signal 9", Reason::Failed));
    }
}
