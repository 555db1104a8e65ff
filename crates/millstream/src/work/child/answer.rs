//! Parses a line of a program: a JSON object with the outcome of a message, or with lines for the log.

use std::time::Duration;

use millstream_worker::{Failure, Outcome, Reason};
use serde_json::Value;

use super::super::RETRY_AFTER_MAX;

/// A line of a program.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Answer(Answer),
    Log(LogLine),
}

/// What a program writes to the log of the worker.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LogLine {
    /// The message that it is about, if the program says so.
    pub(super) id: Option<String>,
    pub(super) level: &'static str,
    pub(super) text: String,
    /// The error of the messages in the program if it ends now.
    pub(super) error: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The message that it answers. `None` if the program did not say.
    pub(super) id: Option<String>,
    pub(super) outcome: Outcome,
}

/// Parses a line. The error describes what is wrong with it.
pub(super) fn parse_line(line: &[u8]) -> Result<Line, String> {
    let answer: Value = serde_json::from_slice(line).map_err(|_| "it is not JSON".to_owned())?;
    let id = match answer.get("id") {
        None | Some(Value::Null) => None,
        Some(Value::String(id)) => Some(id.clone()),
        Some(_) => return Err("its id is not a string".to_owned()),
    };
    let text = |name: &str| answer.get(name).and_then(Value::as_str).map(str::to_owned);
    if let Some(log) = text("log") {
        let level = match answer.get("level").and_then(Value::as_str) {
            Some("error" | "critical" | "fatal") => "error",
            Some("warn" | "warning") => "warn",
            Some("debug" | "trace") => "debug",
            _ => "info",
        };
        return Ok(Line::Log(LogLine { id, level, text: log, error: text("error") }));
    }
    let failure = |error: String, reason| Failure {
        error,
        error_type: text("error_type").unwrap_or_else(|| "child".to_owned()),
        reason,
    };
    let outcome = match answer.get("outcome").and_then(Value::as_str) {
        Some("ack") => Outcome::Ack,
        Some("skip") => Outcome::Skip,
        Some("reject") => {
            let error = text("error").unwrap_or_else(|| "rejected by the child".to_owned());
            Outcome::Reject(failure(error, Reason::Rejected))
        }
        Some("retry") => {
            let after = match answer.get("after_ms") {
                None | Some(Value::Null) => None,
                Some(after) => Some(after.as_u64().ok_or("its after_ms is not a whole number")?),
            };
            Outcome::Retry {
                after: after.map(|after| Duration::from_millis(after).min(RETRY_AFTER_MAX)),
                failure: text("error").map(|error| failure(error, Reason::Failed)),
            }
        }
        _ => return Err("its outcome is not ack, retry, reject or skip".to_owned()),
    };
    Ok(Line::Answer(Answer { id, outcome }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_answer(line: &str) -> Answer {
        let Line::Answer(answer) = parse_line(line.as_bytes()).unwrap() else { panic!("{line}") };
        answer
    }

    fn outcome(line: &str) -> Outcome {
        parse_answer(line).outcome
    }

    #[test]
    fn all_outcomes_are_parsed() {
        assert_eq!(outcome(r#"{"outcome":"ack"}"#), Outcome::Ack);
        assert_eq!(outcome(r#"{"outcome":"skip","id":"7-1"}"#), Outcome::Skip);
        let Outcome::Reject(failure) = outcome(r#"{"outcome":"reject","error":"no amount"}"#) else {
            panic!()
        };
        assert_eq!((failure.error.as_str(), failure.reason), ("no amount", Reason::Rejected));
        assert_eq!(failure.error_type, "child");
        let later = Outcome::retry_after(Duration::from_millis(250));
        assert_eq!(outcome(r#"{"outcome":"retry","after_ms":250}"#), later);
        assert_eq!(outcome(r#"{"outcome":"retry","after_ms":null}"#), Outcome::retry());
        let typed = outcome(r#"{"outcome":"retry","error":"x","error_type":"OSError"}"#);
        assert_eq!(typed.failure().unwrap().error_type, "OSError");
    }

    #[test]
    fn the_id_is_optional() {
        let id = |line: &str| parse_answer(line).id;
        assert_eq!(id(r#"{"outcome":"ack","id":"7-1"}"#), Some("7-1".to_owned()));
        assert_eq!((id(r#"{"outcome":"ack"}"#), id(r#"{"outcome":"ack","id":null}"#)), (None, None));
    }

    #[test]
    fn a_line_for_the_log_has_a_level() {
        for (level, name) in
            [("error", "critical"), ("warn", "warning"), ("debug", "debug"), ("info", "loud")]
        {
            let line = format!(r#"{{"log":"a\nb","level":"{name}","id":"7-1","error":"b"}}"#);
            let log = LogLine { id: Some("7-1".into()), level, text: "a\nb".into(), error: Some("b".into()) };
            assert_eq!(parse_line(line.as_bytes()), Ok(Line::Log(log)));
        }
    }

    #[test]
    fn invalid_answers_are_described() {
        for (line, why) in [
            ("done", "not JSON"),
            ("{}", "outcome is not ack"),
            (r#"{"outcome":"ok"}"#, "outcome is not ack"),
            (r#"["ack"]"#, "outcome is not ack"),
            (r#"{"outcome":"ack","id":7}"#, "id is not a string"),
            (r#"{"outcome":"retry","after_ms":-1}"#, "after_ms"),
        ] {
            let error = parse_line(line.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}
