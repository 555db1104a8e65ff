//! The record of actions: who did what, from where, and what came of it. Never payloads, never secrets.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use millstream_worker::operate::wording::{format_time, millis, millis_since_epoch};
use parking_lot::Mutex;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::access::Visitor;
use crate::options::AuditSink;
use crate::problem::Problem;

/// Number of records to keep in memory.
const RECORDS_MAX: usize = 200;
/// Maximum number of refusals and failed logins to record per second. Strangers can cause them, so the rest is only
/// counted.
const REFUSALS_MAX: u32 = 10;

/// Who did what, when and from where, and what else the record says about it.
#[derive(Debug, Serialize)]
pub(crate) struct AuditRecord(pub(crate) Value);

/// What every record has.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct RecordHead {
    at: String,
    at_ms: u64,
    from: String,
    user: Option<String>,
    action: String,
}

impl JsonSchema for AuditRecord {
    fn schema_name() -> Cow<'static, str> {
        "AuditRecord".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        RecordHead::json_schema(generator)
    }
}

/// The record of actions.
pub(crate) struct Audit {
    sink: Option<AuditSink>,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    records: VecDeque<Value>,
    /// The second in which refusals are counted, and their number.
    refused: (Option<Instant>, u32),
    /// Number of refusals without a record since the last one with.
    left_out: u32,
}

impl Audit {
    pub(crate) fn new(sink: Option<AuditSink>) -> Audit {
        Audit { sink, last: Mutex::default() }
    }

    /// Records an action. `about` names its subject and its outcome.
    pub(crate) fn action(
        &self,
        address: IpAddr,
        user: &str,
        action: &str,
        about: Map<String, Value>,
        took: Duration,
        problem: Option<&Problem>,
    ) {
        let mut record = record(address, Some(user), action);
        record.extend(about);
        record.insert("ms".to_owned(), millis(took).into());
        record.insert("error".to_owned(), problem.map(Problem::detail).into());
        self.write(Value::Object(record), &mut self.last.lock());
    }

    pub(crate) fn session(&self, address: IpAddr, user: &str, action: &str) {
        self.write(Value::Object(record(address, Some(user), action)), &mut self.last.lock());
    }

    /// Records a failed login. Not the name of the user: it can be a mistyped password, and a stranger chooses it.
    pub(crate) fn failed_login(&self, address: IpAddr, problem: &Problem) {
        self.refused(address, "login_failed", None, problem);
    }

    pub(crate) fn refusal(&self, address: IpAddr, path: &str, problem: &Problem) {
        self.refused(address, "refused", Some(path), problem);
    }

    fn refused(&self, address: IpAddr, action: &str, path: Option<&str>, problem: &Problem) {
        let mut last = self.last.lock();
        let now = Instant::now();
        let is_same = last.refused.0.is_some_and(|since| now.duration_since(since) < Duration::from_secs(1));
        last.refused = if is_same { (last.refused.0, last.refused.1 + 1) } else { (Some(now), 1) };
        if last.refused.1 > REFUSALS_MAX {
            last.left_out += 1;
            return;
        }
        let mut record = record(address, None, action);
        if let Some(path) = path {
            record.insert("path".to_owned(), path.chars().take(100).collect::<String>().into());
        }
        record.insert("code".to_owned(), problem.code().into());
        if last.left_out > 0 {
            record.insert("left_out".to_owned(), std::mem::take(&mut last.left_out).into());
        }
        self.write(Value::Object(record), &mut last);
    }

    /// Returns the last records that a visitor may see, newest first: its own, and if it is an operator, those of
    /// others about streams that it may see or about no stream.
    pub(crate) fn last(&self, visitor: &Visitor) -> Vec<AuditRecord> {
        let (last, is_operator) = (self.last.lock(), (visitor.is_operator)());
        let is_shown = |record: &&Value| {
            (is_operator || record["user"] == visitor.name.as_str())
                && record["stream"].as_str().is_none_or(|stream| (visitor.may_see)(stream))
        };
        last.records.iter().rev().filter(is_shown).cloned().map(AuditRecord).collect()
    }

    fn write(&self, record: Value, last: &mut Last) {
        tracing::info!(target: "millstream_dash::audit", "{record}");
        if let Some(sink) = &self.sink {
            sink(&record);
        }
        if last.records.len() == RECORDS_MAX {
            last.records.pop_front();
        }
        last.records.push_back(record);
    }
}

fn record(address: IpAddr, user: Option<&str>, action: &str) -> Map<String, Value> {
    let at_ms = millis_since_epoch(SystemTime::now());
    let record = json!({
        "at": format_time(at_ms),
        "at_ms": at_ms,
        "from": address.to_string(),
        "user": user,
        "action": action,
    });
    match record {
        Value::Object(record) => record,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::tests::visitor;

    #[tokio::test]
    async fn memory_keeps_the_last_records_and_few_refusals() {
        let visitor = visitor("x").await;
        let audit = Audit::new(None);
        let address = IpAddr::from([127, 0, 0, 1]);
        for number in 0..RECORDS_MAX + 5 {
            audit.session(address, &number.to_string(), "login");
        }
        let records = json!(audit.last(&visitor));
        assert_eq!(records.as_array().unwrap().len(), RECORDS_MAX);
        assert_eq!(records[0]["user"], (RECORDS_MAX + 4).to_string());
        for _ in 0..50 {
            audit.refusal(address, "/x", &Problem::bad_request("x"));
            audit.failed_login(address, &Problem::bad_request("x"));
        }
        let records = json!(audit.last(&visitor));
        let is_refusal =
            |record: &&Value| record["action"] == "refused" || record["action"] == "login_failed";
        let refusals = records.as_array().unwrap().iter().filter(is_refusal);
        assert_eq!(refusals.count(), REFUSALS_MAX as usize);
    }

    #[tokio::test]
    async fn only_operators_see_the_records_of_others() {
        let audit = Audit::new(None);
        let address = IpAddr::from([127, 0, 0, 1]);
        audit.session(address, "alice", "login");
        audit.session(address, "bob", "login");
        let mut alice = visitor("alice").await;
        assert_eq!(json!(audit.last(&alice)).as_array().unwrap().len(), 2);
        alice.is_operator = std::sync::Arc::new(|| false);
        let seen = json!(audit.last(&alice));
        assert_eq!((seen.as_array().unwrap().len(), &seen[0]["user"]), (1, &json!("alice")));
    }
}
