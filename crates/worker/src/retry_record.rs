//! What a group remembers about a message that failed or may have crashed a worker, from one delivery to the next.
//!
//! The store keeps one record per message, as a JSON object, in the hash that [`retry_key`](crate::names::retry_key)
//! names. The field is the message id. A message that never failed has no record, and a message that is acknowledged or
//! dead-lettered loses its record with the same call.
//!
//! ```json
//! {"attempts":3,"due_at_ms":1760000000000,"failed_at_ms":1759999990000,"error":"503 from the bank","reason":"failed"}
//! ```

use serde::{Deserialize, Serialize};

use crate::outcome::{Failure, shortened};

/// Maximum bytes of the error text in a record. A longer text is cut.
pub const ERROR_BYTES_MAX: usize = 512;

/// What a group remembers about a message between two deliveries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RetryRecord {
    /// Number of attempts that the handler answered with a failure.
    #[serde(skip_serializing_if = "is_zero")]
    pub attempts: u64,
    /// Number of deliveries that ended without an answer, before the last of these attempts. The store counts those
    /// after it.
    #[serde(skip_serializing_if = "is_zero")]
    pub unanswered: u64,
    /// The message is not delivered before this time, in milliseconds since 1970 by the clock of the store. 0 if it can
    /// be delivered at once.
    #[serde(skip_serializing_if = "is_zero")]
    pub due_at_ms: u64,
    /// When the last attempt failed, in milliseconds since 1970 by the clock of the store.
    #[serde(skip_serializing_if = "is_zero")]
    pub failed_at_ms: u64,
    /// The error of the last failed attempt, cut to [`ERROR_BYTES_MAX`].
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// The type of that error. Empty if it has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error_type: String,
    /// The name of its [`Reason`](crate::Reason). Empty if the handler gave no error.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// For a message that may crash workers: how often a handler has begun with it since the last answer.
    #[serde(skip_serializing_if = "is_zero")]
    pub begun: u64,
    /// The delivery count of the delivery in which the last of these handlers began.
    #[serde(skip_serializing_if = "is_zero")]
    pub begun_delivery: u64,
    /// Whether no other handler of the worker ran when the last of these handlers began.
    #[serde(skip_serializing_if = "is_false")]
    pub alone: bool,
}

impl RetryRecord {
    /// Parses the JSON form. Returns the record of a message that never failed if the text is not a record.
    ///
    /// A record only delays and limits attempts. A damaged one must not keep the message from being handled.
    pub fn parse(json: &[u8]) -> RetryRecord {
        serde_json::from_slice(json).unwrap_or_default()
    }

    /// Returns the record without its times.
    pub(crate) fn without_times(&self) -> RetryRecord {
        RetryRecord { due_at_ms: 0, failed_at_ms: 0, ..self.clone() }
    }

    /// Returns the JSON form.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Sets the error of the last failed attempt.
    pub fn set_failure(&mut self, failure: Option<&Failure>) {
        self.error = failure.map_or("", |failure| shortened(&failure.error, ERROR_BYTES_MAX)).to_owned();
        self.error_type =
            failure.map_or("", |failure| shortened(&failure.error_type, ERROR_BYTES_MAX)).to_owned();
        self.reason = failure.map_or("", |failure| failure.reason.as_str()).to_owned();
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Reason;

    #[test]
    fn parse_returns_what_to_json_wrote() {
        let mut record = RetryRecord { attempts: 3, due_at_ms: 1_760_000_000_000, ..RetryRecord::default() };
        assert_eq!(record.to_json(), r#"{"attempts":3,"due_at_ms":1760000000000}"#);
        let failure = Failure { error: "a \"b\"\n".into(), error_type: "Io".into(), reason: Reason::Timeout };
        record.set_failure(Some(&failure));
        (record.begun, record.alone, record.failed_at_ms) = (2, true, 9);
        assert_eq!(RetryRecord::parse(record.to_json().as_bytes()), record);
        assert_eq!((record.error.as_str(), record.reason.as_str()), ("a \"b\"\n", "timeout"));
        record.set_failure(None);
        assert_eq!((record.error.as_str(), record.reason.as_str()), ("", ""));
    }

    #[test]
    fn an_empty_record_stays_small() {
        assert_eq!(RetryRecord::default().to_json(), "{}");
    }

    #[test]
    fn long_errors_are_cut() {
        let mut record = RetryRecord::default();
        let failure = |bytes| Failure::without_type(Reason::Failed, "x".repeat(bytes));
        for (bytes, kept) in [(ERROR_BYTES_MAX, ERROR_BYTES_MAX), (ERROR_BYTES_MAX + 1, ERROR_BYTES_MAX)] {
            record.set_failure(Some(&failure(bytes)));
            assert_eq!(record.error.len(), kept);
        }
    }

    #[test]
    fn a_record_of_another_version_or_a_damaged_one_is_read_as_far_as_possible() {
        assert_eq!(RetryRecord::parse(br#"{"attempts":2,"later":[1]}"#).attempts, 2);
        for damaged in [&b""[..], b"{", b"[]", b"\xff", br#"{"attempts":-1}"#] {
            assert_eq!(RetryRecord::parse(damaged), RetryRecord::default());
        }
    }
}
