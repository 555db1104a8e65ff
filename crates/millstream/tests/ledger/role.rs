//! The role of a process in a campaign. The supervisor passes it in one environment variable.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::order::Ownership;
use crate::recording::Mistake;
use crate::steps::Step;

/// The environment variable that gives a process of this test binary a role.
pub(crate) const VARIABLE: &str = "MILLSTREAM_LEDGER_ROLE";

/// The stream and the group of every campaign.
pub(crate) const STREAM: &str = "orders";
pub(crate) const GROUP: &str = "billing";

/// The work of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Role {
    /// URL of the store.
    pub url: String,
    pub journal: PathBuf,
    /// While this file exists, its handlers fail.
    pub outage: PathBuf,
    /// Name of the process in the journal.
    pub name: String,
    /// Names of its workers, and whether they keep them across restarts.
    pub workers: Vec<(String, bool)>,
    /// First and last number that it sends.
    pub numbers: Option<(u64, u64)>,
    /// Approximate delay between two sends.
    pub pace: Duration,
    pub seed: u64,
    pub lease: Duration,
    pub max_deliveries: u64,
    pub max_attempts: u64,
    /// The step at which it kills itself, and at which occurrence of the step.
    pub death: Option<(Step, u64)>,
    /// The bug of its workers for the ledger to find.
    pub mistake: Option<Mistake>,
    /// Whether it records the lag, because the supervisor cannot open the store.
    pub watches: bool,
    /// Whether it is a plain client, without the worker crate.
    pub is_plain: bool,
    /// Whether this producer delays its messages.
    pub delays: bool,
    /// How its workers own the stream, if they do.
    pub ownership: Option<Ownership>,
}

impl Role {
    /// Returns the role of this process, if it has one.
    pub(crate) fn of_this_process() -> Option<Role> {
        let text = std::env::var(VARIABLE).ok()?;
        let value = serde_json::from_str(&text).expect("a role is JSON");
        Some(Role::from_json(&value).expect("a role is complete"))
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "url": self.url,
            "journal": self.journal.to_str(),
            "outage": self.outage.to_str(),
            "name": self.name,
            "workers": self.workers,
            "numbers": self.numbers,
            "pace_ms": self.pace.as_millis() as u64,
            "seed": self.seed,
            "lease_ms": self.lease.as_millis() as u64,
            "max_deliveries": self.max_deliveries,
            "max_attempts": self.max_attempts,
            "death": self.death.map(|(step, times)| (step.name(), times)),
            "mistake": self.mistake.map(Mistake::name),
            "watches": self.watches,
            "is_plain": self.is_plain,
            "delays": self.delays,
            "ownership": self.ownership.map(Ownership::name),
        })
    }

    fn from_json(value: &Value) -> Option<Role> {
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        let time = |name: &str| value[name].as_u64().map(Duration::from_millis);
        let worker = |worker: &Value| Some((worker[0].as_str()?.to_owned(), worker[1].as_bool()?));
        let death = &value["death"];
        Some(Role {
            url: text("url")?,
            journal: text("journal")?.into(),
            outage: text("outage")?.into(),
            name: text("name")?,
            workers: value["workers"].as_array()?.iter().map(worker).collect::<Option<_>>()?,
            numbers: value["numbers"][0].as_u64().zip(value["numbers"][1].as_u64()),
            pace: time("pace_ms")?,
            seed: value["seed"].as_u64()?,
            lease: time("lease_ms")?,
            max_deliveries: value["max_deliveries"].as_u64()?,
            max_attempts: value["max_attempts"].as_u64()?,
            death: death[0].as_str().and_then(Step::parse).zip(death[1].as_u64()),
            mistake: value["mistake"].as_str().and_then(Mistake::parse),
            watches: value["watches"].as_bool()?,
            is_plain: value["is_plain"].as_bool()?,
            delays: value["delays"].as_bool()?,
            ownership: value["ownership"].as_str().and_then(Ownership::parse),
        })
    }
}

#[test]
fn a_role_survives_json() {
    let role = Role {
        url: "memory:".to_owned(),
        journal: "/tmp/journal".into(),
        outage: "/tmp/outage".into(),
        name: "worker-1".to_owned(),
        workers: vec![("a".to_owned(), true), ("b".to_owned(), false)],
        numbers: Some((1, 9)),
        pace: Duration::from_millis(7),
        seed: 3,
        lease: Duration::from_secs(1),
        max_deliveries: 6,
        max_attempts: 12,
        death: Some((Step::AckSent, 2)),
        mistake: Some(Mistake::ReadsWithoutFence),
        watches: true,
        is_plain: false,
        delays: true,
        ownership: Some(Ownership::ByKey),
    };
    assert_eq!(Role::from_json(&role.to_json()), Some(role.clone()));
    let idle = Role { numbers: None, death: None, mistake: None, ownership: None, ..role };
    assert_eq!(Role::from_json(&idle.to_json()), Some(idle));
}
