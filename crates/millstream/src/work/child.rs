//! `--child`: long-lived programs that read messages and answer with outcomes, as JSON lines.
//!
//! ```text
//! > {"id":"1-1","stream":"orders","group":"billing","attempt":1,"fields":{"item":"book"}}
//! < {"outcome":"ack"}
//! > {"id":"1-2",…}
//! < {"outcome":"retry","after_ms":5000,"error":"the bank is closed"}
//! ```
//!
//! A program handles one message at a time, and every busy slot has a program of its own. A program that exits,
//! exceeds the timeout or gives an invalid answer is stopped and its message retried. The next message starts a new
//! program. When the worker ends, it closes the standard input of the programs, and they should exit.

use std::future::pending;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use millstream_worker::{Failure, Message, Outcome, Reason};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::{Instant, timeout_at};

use super::broken_command::CommandCheck;
use super::exec::{STOP_GRACE, not_started, retry, time_limit, timed_out};
use super::payload::payload;
use super::process::{Process, Shell};
use crate::ops::safe_text::printable;
use crate::ops::value::clipped;

/// Maximum size of an answer.
const ANSWER_BYTES_MAX: u64 = 1024 * 1024;
/// Time without messages after which a program is stopped.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Time that programs have to exit after their standard input was closed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum length of an invalid answer in the error message.
const QUOTED_CHARS: usize = 80;

/// A pool of programs that stay running between messages.
pub(super) struct ChildPool {
    shell: Shell,
    /// Programs without a message, and since when. The most recently used one is last.
    idle: Mutex<Vec<(ChildProgram, Instant)>>,
}

impl ChildPool {
    pub(super) fn new(shell: Shell) -> ChildPool {
        ChildPool { shell, idle: Mutex::new(Vec::new()) }
    }

    /// Returns the check whether the program can run.
    pub(super) fn check(&self) -> &CommandCheck {
        &self.shell.check
    }

    /// Handles one message.
    pub(super) async fn run(&self, message: &Message) -> Outcome {
        let check = &self.shell.check;
        if let Some(outcome) = check.outcome_if_broken() {
            return outcome;
        }
        let mut program = match self.take() {
            Ok(program) => program,
            Err(error) => return not_started(&error),
        };
        let payload = payload(message);
        tokio::select! {
            answer = program.handle(&payload) => match answer {
                Ok(outcome) => {
                    self.put_back(program);
                    check.judge(message, None, outcome)
                }
                Err(error) => {
                    let (status, line) = program.stop().await;
                    let detail = line.map_or_else(String::new, |line| format!(": {line}"));
                    check.judge(message, status, retry(format!("{error}{detail}"), "child", Reason::Failed))
                }
            },
            limit = time_limit(self.shell.timeout) => {
                let (_, line) = program.stop().await;
                check.judge(message, None, timed_out(limit, line))
            }
            () = message.cancelled.cancelled() => {
                program.process.terminate();
                // A cancelled message has no outcome. The worker soon drops this future, and that kills the program.
                pending().await
            }
        }
    }

    /// Stops the idle programs: closes their standard input, and kills those that do not exit in time.
    pub(super) async fn stop(&self) {
        let idle = std::mem::take(&mut *self.idle.lock());
        // Dropping the rest of a program closes its standard input.
        let processes: Vec<Process> = idle.into_iter().map(|(program, _)| program.process).collect();
        let deadline = Instant::now() + EXIT_TIMEOUT;
        for process in processes {
            stop_by(deadline, process).await;
        }
    }

    /// Returns an idle program, or starts one.
    fn take(&self) -> std::io::Result<ChildProgram> {
        while let Some((mut program, _)) = { self.idle.lock().pop() } {
            // A program that exited while idle is dropped: it had no message.
            if !program.process.has_ended() {
                return Ok(program);
            }
        }
        ChildProgram::start(&self.shell)
    }

    /// Makes a program available for the next message, and stops those that have been idle for too long.
    fn put_back(&self, program: ChildProgram) {
        let now = Instant::now();
        let mut idle = self.idle.lock();
        idle.push((program, now));
        let fresh = idle.iter().position(|(_, since)| now.duration_since(*since) < IDLE_MAX).unwrap_or(0);
        for (program, _) in idle.drain(..fresh) {
            tokio::spawn(stop_by(now + EXIT_TIMEOUT, program.process));
        }
    }
}

/// Waits for a program whose standard input is closed, and kills it after the deadline.
async fn stop_by(deadline: Instant, mut process: Process) {
    if timeout_at(deadline, process.wait()).await.is_err() {
        process.stop(STOP_GRACE).await;
    }
}

/// A running program with its pipes.
struct ChildProgram {
    process: Process,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl ChildProgram {
    fn start(shell: &Shell) -> std::io::Result<ChildProgram> {
        let mut process = shell.start(|command| {
            command.stdout(Stdio::piped());
        })?;
        let pipes = process.take_stdin().zip(process.take_stdout());
        let (stdin, stdout) = pipes.ok_or(std::io::ErrorKind::BrokenPipe)?;
        Ok(ChildProgram { process, stdin, stdout: BufReader::new(stdout) })
    }

    /// Sends a message and reads the answer. The error describes an invalid or missing answer.
    async fn handle(&mut self, payload: &Value) -> Result<Outcome, String> {
        if !self.stdout.buffer().trim_ascii().is_empty() {
            return Err("the child wrote a line before it got a message".to_owned());
        }
        let written = self.stdin.write_all(format!("{payload}\n").as_bytes()).await;
        let answer = self.read_answer().await?;
        match (written, answer) {
            (Ok(()), Some(line)) => parse_answer(&line, payload["id"].as_str().unwrap_or_default())
                .map_err(|error| format!("invalid answer {} of the child: {error}", quoted(&line))),
            (Err(_), _) | (_, None) => Err("the child exited without an answer".to_owned()),
        }
    }

    /// Reads the next line that is not blank. `None` at the end of the output.
    async fn read_answer(&mut self) -> Result<Option<Vec<u8>>, String> {
        loop {
            let mut line = Vec::new();
            let read = (&mut self.stdout).take(ANSWER_BYTES_MAX).read_until(b'\n', &mut line).await;
            match read {
                Ok(0) => return Ok(None),
                Ok(_) if !line.trim_ascii().is_empty() => return Ok(Some(line)),
                Ok(_) => {}
                Err(error) => return Err(format!("cannot read the answer of the child: {error}")),
            }
        }
    }

    /// Stops the program. Returns how it ended, and the last line of its standard error.
    async fn stop(&mut self) -> (Option<ExitStatus>, Option<String>) {
        let status = self.process.stop(STOP_GRACE).await;
        (status, self.process.last_stderr_line().await)
    }
}

fn quoted(line: &[u8]) -> String {
    format!("{:?}", clipped(&printable(line.trim_ascii()), QUOTED_CHARS))
}

/// Parses the answer for the message with this id. The error describes what is wrong with it.
fn parse_answer(line: &[u8], id: &str) -> Result<Outcome, String> {
    let answer: Value = serde_json::from_slice(line).map_err(|_| "it is not JSON".to_owned())?;
    if answer.get("id").is_some_and(|other| other.as_str() != Some(id)) {
        return Err(format!("its id is not {id}"));
    }
    let error = answer.get("error").and_then(Value::as_str).map(str::to_owned);
    let failure = |error: String, reason| Failure { error, error_type: "child".to_owned(), reason };
    match answer.get("outcome").and_then(Value::as_str) {
        Some("ack") => Ok(Outcome::Ack),
        Some("skip") => Ok(Outcome::Skip),
        Some("reject") => {
            let error = error.unwrap_or_else(|| "rejected by the child".to_owned());
            Ok(Outcome::Reject(failure(error, Reason::Rejected)))
        }
        Some("retry") => {
            let after = match answer.get("after_ms") {
                None | Some(Value::Null) => None,
                Some(after) => Some(after.as_u64().ok_or("its after_ms is not a whole number")?),
            };
            Ok(Outcome::Retry {
                after: after.map(|after| Duration::from_millis(after).min(super::RETRY_AFTER_MAX)),
                failure: error.map(|error| failure(error, Reason::Failed)),
            })
        }
        _ => Err("its outcome is not ack, retry, reject or skip".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Outcome, String> {
        parse_answer(line.as_bytes(), "7-1")
    }

    #[test]
    fn all_outcomes_are_parsed() {
        assert_eq!(parsed(r#"{"outcome":"ack"}"#), Ok(Outcome::Ack));
        assert_eq!(parsed(r#"{"outcome":"skip","id":"7-1"}"#), Ok(Outcome::Skip));
        let Ok(Outcome::Reject(failure)) = parsed(r#"{"outcome":"reject","error":"no amount"}"#) else {
            panic!()
        };
        assert_eq!((failure.error.as_str(), failure.reason), ("no amount", Reason::Rejected));
        let later = Ok(Outcome::retry_after(Duration::from_millis(250)));
        assert_eq!(parsed(r#"{"outcome":"retry","after_ms":250}"#), later);
        assert_eq!(parsed(r#"{"outcome":"retry","after_ms":null}"#), Ok(Outcome::retry()));
    }

    #[test]
    fn invalid_answers_are_described() {
        for (line, why) in [
            ("done", "not JSON"),
            ("{}", "outcome is not ack"),
            (r#"{"outcome":"ok"}"#, "outcome is not ack"),
            (r#"["ack"]"#, "outcome is not ack"),
            (r#"{"outcome":"ack","id":"7-2"}"#, "id is not 7-1"),
            (r#"{"outcome":"retry","after_ms":-1}"#, "after_ms"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}
