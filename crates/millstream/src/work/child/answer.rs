//! Parses an answer: a line of JSON with the outcome of a message.

use std::time::Duration;

use millstream_worker::{Failure, Outcome, Reason};
use serde_json::Value;

use super::super::RETRY_AFTER_MAX;

/// An answer of a program.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The message that it answers. `None` if the program did not say.
    pub(super) id: Option<String>,
    pub(super) outcome: Outcome,
}

/// Parses an answer. The error describes what is wrong with it.
pub(super) fn parse_answer(line: &[u8]) -> Result<Answer, String> {
    let answer: Value = serde_json::from_slice(line).map_err(|_| "it is not JSON".to_owned())?;
    let id = match answer.get("id") {
        None | Some(Value::Null) => None,
        Some(Value::String(id)) => Some(id.clone()),
        Some(_) => return Err("its id is not a string".to_owned()),
    };
    let text = |name: &str| answer.get(name).and_then(Value::as_str).map(str::to_owned);
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
    Ok(Answer { id, outcome })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(line: &str) -> Outcome {
        parse_answer(line.as_bytes()).unwrap().outcome
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
        let id = |line: &str| parse_answer(line.as_bytes()).unwrap().id;
        assert_eq!(id(r#"{"outcome":"ack","id":"7-1"}"#), Some("7-1".to_owned()));
        assert_eq!((id(r#"{"outcome":"ack"}"#), id(r#"{"outcome":"ack","id":null}"#)), (None, None));
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
            let error = parse_answer(line.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}
