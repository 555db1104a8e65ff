//! Long-lived programs that speak JSON lines: a message in, an outcome out.
//!
//! ```text
//! > {"id":"1-1","stream":"orders","group":"billing","attempt":1,"fields":{"item":"book"}}
//! < {"outcome":"ack"}
//! > {"id":"1-2",…}
//! < {"outcome":"retry","after_ms":5000,"error":"the bank is closed"}
//! ```
//!
//! A program has one message at a time, and there are as many of them as slots at work. One that dies, takes too long or
//! answers something else is ended, its message tried again, and the next message starts a new one. When there is nothing
//! more to do its standard input is closed, and it should end.

use std::future::pending;
use std::process::Stdio;
use std::time::Duration;

use millstream_worker::{Failure, Message, Outcome, Reason};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::{Instant, timeout_at};

use super::exec::{PATIENCE, limit, retry, too_late};
use super::payload::payload;
use super::process::{Process, Shell};
use crate::ops::value::{clipped, text};

/// The longest answer.
const ANSWER_BYTES_MAX: u64 = 1024 * 1024;
/// A program that had nothing to do for so long is ended.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// How long programs have to end after their standard input was closed.
const GOODBYE: Duration = Duration::from_secs(5);
/// How much of an answer that makes no sense is told.
const QUOTED_CHARS: usize = 80;

/// Hands messages to programs that stay.
pub(super) struct Children {
    shell: Shell,
    /// Those that wait for a message, and since when; the last one to have worked is the last here.
    idle: Mutex<Vec<(Speaker, Instant)>>,
}

impl Children {
    pub(super) fn new(shell: Shell) -> Children {
        Children { shell, idle: Mutex::new(Vec::new()) }
    }

    /// Handles one message.
    pub(super) async fn run(&self, message: &Message) -> Outcome {
        let mut speaker = match self.take() {
            Ok(speaker) => speaker,
            Err(error) => return retry(format!("cannot start sh: {error}"), "start", Reason::Failed),
        };
        let question = payload(message);
        tokio::select! {
            answer = speaker.ask(&question) => match answer {
                Ok(outcome) => {
                    self.put_back(speaker);
                    outcome
                }
                Err(nonsense) => {
                    let words = speaker.end_at_once().await.map_or_else(String::new, |words| format!(": {words}"));
                    retry(format!("{nonsense}{words}"), "child", Reason::Failed)
                }
            },
            limit = limit(self.shell.timeout) => too_late(limit, speaker.end_at_once().await),
            () = message.cancelled.cancelled() => {
                speaker.process.terminate();
                // The message is no longer ours: there is nothing to decide. Whoever drops us kills what is left.
                pending().await
            }
        }
    }

    /// Ends those that wait. They are asked by closing their standard input, and made to after a while.
    pub(super) async fn end(&self) {
        let idle = std::mem::take(&mut *self.idle.lock());
        let ending: Vec<Process> = idle.into_iter().map(|(speaker, _)| speaker.process).collect();
        let deadline = Instant::now() + GOODBYE;
        for process in ending {
            end_by(deadline, process).await;
        }
    }

    fn take(&self) -> std::io::Result<Speaker> {
        while let Some((mut speaker, _)) = { self.idle.lock().pop() } {
            // One that died with nothing in hand has failed nobody.
            if !speaker.process.has_ended() {
                return Ok(speaker);
            }
        }
        Speaker::start(&self.shell)
    }

    fn put_back(&self, speaker: Speaker) {
        let now = Instant::now();
        let mut idle = self.idle.lock();
        idle.push((speaker, now));
        let fresh = idle.iter().position(|(_, since)| now.duration_since(*since) < IDLE_MAX).unwrap_or(0);
        for (speaker, _) in idle.drain(..fresh) {
            tokio::spawn(end_by(now + GOODBYE, speaker.process));
        }
    }
}

/// Waits for a program whose standard input is closed; makes it end after the deadline.
async fn end_by(deadline: Instant, mut process: Process) {
    if timeout_at(deadline, process.wait()).await.is_err() {
        process.stop(PATIENCE).await;
    }
}

/// A program to talk to.
struct Speaker {
    process: Process,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Speaker {
    fn start(shell: &Shell) -> std::io::Result<Speaker> {
        let mut process = shell.start(|command| {
            command.stdout(Stdio::piped());
        })?;
        let pipes = process.take_stdin().zip(process.take_stdout());
        let (questions, answers) = pipes.ok_or(std::io::ErrorKind::BrokenPipe)?;
        Ok(Speaker { process, questions, answers: BufReader::new(answers) })
    }

    /// Says a message and hears the outcome. An error says in what way the answer was none.
    async fn ask(&mut self, question: &Value) -> Result<Outcome, String> {
        if !self.answers.buffer().trim_ascii().is_empty() {
            return Err("the child spoke before it was asked".to_owned());
        }
        let said = self.questions.write_all(format!("{question}\n").as_bytes()).await;
        let heard = self.hear().await?;
        match (said, heard) {
            (Ok(()), Some(line)) => parse_answer(&line, question["id"].as_str().unwrap_or_default())
                .map_err(|why| format!("the child answered {}, {why}", quoted(&line))),
            (Err(_), _) | (_, None) => Err("the child ended without an answer".to_owned()),
        }
    }

    /// The next line that is not blank; `None` at the end.
    async fn hear(&mut self) -> Result<Option<Vec<u8>>, String> {
        loop {
            let mut line = Vec::new();
            let read = (&mut self.answers).take(ANSWER_BYTES_MAX).read_until(b'\n', &mut line).await;
            match read {
                Ok(0) => return Ok(None),
                Ok(_) if !line.trim_ascii().is_empty() => return Ok(Some(line)),
                Ok(_) => {}
                Err(error) => return Err(format!("cannot hear the child: {error}")),
            }
        }
    }

    /// Ends it, and gives its last words.
    async fn end_at_once(&mut self) -> Option<String> {
        self.process.stop(PATIENCE).await;
        self.process.last_words().await
    }
}

fn quoted(line: &[u8]) -> String {
    format!("{:?}", clipped(&text(line.trim_ascii()), QUOTED_CHARS))
}

/// The outcome in an answer about the message of this id, or in what way it is none.
fn parse_answer(line: &[u8], id: &str) -> Result<Outcome, String> {
    let answer: Value = serde_json::from_slice(line).map_err(|_| "which is no JSON".to_owned())?;
    if answer.get("id").is_some_and(|other| other.as_str() != Some(id)) {
        return Err(format!("which is not about {id}"));
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
                Some(after) => Some(after.as_u64().ok_or("whose after_ms is no whole number")?),
            };
            Ok(Outcome::Retry {
                after: after.map(|after| Duration::from_millis(after).min(super::AFTER_MAX)),
                failure: error.map(|error| failure(error, Reason::Failed)),
            })
        }
        _ => Err("whose outcome is none of ack, retry, reject, skip".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Outcome, String> {
        parse_answer(line.as_bytes(), "7-1")
    }

    #[test]
    fn the_four_outcomes() {
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
    fn nonsense_is_told_as_such() {
        for (line, why) in [
            ("done", "no JSON"),
            ("{}", "none of ack"),
            (r#"{"outcome":"ok"}"#, "none of ack"),
            (r#"["ack"]"#, "none of ack"),
            (r#"{"outcome":"ack","id":"7-2"}"#, "not about 7-1"),
            (r#"{"outcome":"retry","after_ms":-1}"#, "after_ms"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}
