//! One process for each message, or for several at once. Its exit code decides:
//!
//! | exit code | what becomes of the message |
//! |---|---|
//! | 0 | acknowledged |
//! | 65 (`EX_DATAERR`), 100 | rejected: to the dead letters at once |
//! | 75 (`EX_TEMPFAIL`), any other | tried again |
//! | killed by a signal, took too long | tried again |
//!
//! The message is JSON on the standard input and variables of the environment; the last line of the standard error is
//! the error that the dead letter tells.
//!
//! Of several messages each is a line of the standard input, and the exit code is that of all. What is tried again is tried
//! alone: a message that can never succeed must not take its neighbours along to the dead letters.

use std::ffi::OsString;
use std::future::pending;
use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use millstream_worker::{Failure, Message, Outcome, Reason};
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

use super::payload::{batch_variables, payload, variables};
use super::process::{Process, Shell};

/// How long a process that took too long has to end by itself.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// Exit codes that reject: `EX_DATAERR`, and what qmail's programs say for a permanent error.
const REJECTING: [i32; 2] = [65, 100];

/// Runs a command for each message, or for several.
pub(super) struct Exec(pub(super) Shell);

enum Ended {
    Exited(std::io::Result<ExitStatus>),
    TookTooLong(Duration),
    Cancelled,
}

impl Exec {
    /// Handles one message.
    pub(super) async fn run(&self, message: &Message) -> Outcome {
        self.run_process(std::slice::from_ref(message), variables(message)).await
    }

    /// Handles several messages: those that come for the first time together, the others one by one.
    pub(super) async fn run_batch(&self, messages: Vec<Message>) -> Vec<Outcome> {
        let first: Vec<Message> = messages.iter().filter(|message| message.attempt == 1).cloned().collect();
        let of_first = if first.is_empty() { None } else { Some(self.run_lines(&first).await) };
        let mut outcomes = Vec::with_capacity(messages.len());
        for message in &messages {
            outcomes.push(match &of_first {
                Some(outcome) if message.attempt == 1 => outcome.clone(),
                _ => self.run_lines(std::slice::from_ref(message)).await,
            });
        }
        outcomes
    }

    async fn run_lines(&self, messages: &[Message]) -> Outcome {
        let not_ours = async {
            all_cancelled(messages).await;
            sleep(PATIENCE).await;
        };
        tokio::select! {
            outcome = self.run_process(messages, batch_variables(messages)) => outcome,
            // Others of the batch may still be: these are left out of what is decided.
            () = not_ours => retry("it is no longer ours".to_owned(), "cancelled", Reason::Failed),
        }
    }

    async fn run_process(&self, messages: &[Message], variables: Vec<(String, OsString)>) -> Outcome {
        let shares_screen = self.0.console.shares_screen();
        let started = self.0.start(|shell| {
            shell.envs(variables);
            if shares_screen {
                shell.stdout(Stdio::piped());
            }
        });
        let mut process = match started {
            Ok(process) => process,
            Err(error) => return retry(format!("cannot start sh: {error}"), "start", Reason::Failed),
        };
        if shares_screen {
            process.pass_on_output(&self.0.console);
        }
        match self.ended(&mut process, messages).await {
            Ended::Exited(Ok(status)) => judge(status, process.last_words().await),
            Ended::Exited(Err(error)) => {
                retry(format!("cannot wait for it: {error}"), "wait", Reason::Failed)
            }
            Ended::TookTooLong(limit) => {
                process.stop(PATIENCE).await;
                too_late(limit, process.last_words().await)
            }
            Ended::Cancelled => {
                process.terminate();
                // No message is ours any longer: there is nothing to decide. Whoever drops us kills what is left.
                pending().await
            }
        }
    }

    async fn ended(&self, process: &mut Process, messages: &[Message]) -> Ended {
        let stdin = process.take_stdin();
        let mut feed = pin!(async {
            if let Some(mut stdin) = stdin {
                let lines: String =
                    messages.iter().map(|message| format!("{}\n", payload(message))).collect();
                // A command need not read it.
                let _ = stdin.write_all(lines.as_bytes()).await;
            }
        });
        let mut too_long = pin!(limit(self.0.timeout));
        let mut cancelled = pin!(all_cancelled(messages));
        let mut fed = false;
        loop {
            tokio::select! {
                status = process.wait() => return Ended::Exited(status),
                () = &mut feed, if !fed => fed = true,
                limit = &mut too_long => return Ended::TookTooLong(limit),
                () = &mut cancelled => return Ended::Cancelled,
            }
        }
    }
}

/// Ends when none of the messages is ours any longer.
async fn all_cancelled(messages: &[Message]) {
    for message in messages {
        message.cancelled.cancelled().await;
    }
}

/// Ends after the limit, and gives it; never without one.
pub(super) async fn limit(limit: Option<Duration>) -> Duration {
    match limit {
        Some(limit) => {
            sleep(limit).await;
            limit
        }
        None => pending().await,
    }
}

/// Another try, and why.
pub(super) fn retry(error: String, error_type: impl Into<String>, reason: Reason) -> Outcome {
    Outcome::Retry { after: None, failure: Some(Failure { error, error_type: error_type.into(), reason }) }
}

/// Another try because of the time it took.
pub(super) fn too_late(limit: Duration, last_words: Option<String>) -> Outcome {
    let said = last_words.map_or_else(String::new, |words| format!(": {words}"));
    retry(format!("no outcome within {limit:?}{said}"), "timeout", Reason::Timeout)
}

fn judge(status: ExitStatus, last_words: Option<String>) -> Outcome {
    let (how, error_type) = match (status.code(), status.signal()) {
        (Some(0), _) => return Outcome::Ack,
        (Some(code), _) => (format!("exit code {code}"), format!("exit {code}")),
        (None, Some(signal)) => (format!("killed by signal {signal}"), format!("signal {signal}")),
        (None, None) => (status.to_string(), "exit".to_owned()),
    };
    let error = last_words.unwrap_or(how);
    match status.code() {
        Some(code) if REJECTING.contains(&code) => {
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
    fn zero_is_done_two_codes_reject_all_others_try_again() {
        assert_eq!(judge(exited(0), Some("noise".into())), Outcome::Ack);
        for code in REJECTING {
            let Outcome::Reject(failure) = judge(exited(code), Some("bad data".into())) else {
                panic!("{code}")
            };
            assert_eq!((failure.error.as_str(), failure.error_type), ("bad data", format!("exit {code}")));
        }
        for code in [1, 2, 75, 126, 127, 255] {
            let outcome = judge(exited(code), None);
            assert_eq!(outcome, retry(format!("exit code {code}"), format!("exit {code}"), Reason::Failed));
        }
    }

    #[test]
    fn a_signal_is_worth_another_try() {
        let killed = ExitStatus::from_raw(9);
        assert_eq!(judge(killed, None), retry("killed by signal 9".into(), "signal 9", Reason::Failed));
    }
}
