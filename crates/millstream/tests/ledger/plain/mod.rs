//! Crash tests of plain clients: programs that know only XADD, XREADGROUP and XACK. The server's policies do the
//! rest: redelivery after a lease, back-off, a limit on deliveries, dead letters, and delayed messages.
//!
//! It is a [`Campaign`] with other processes ([client]) and another [account]. The group has a policy before the
//! first process starts. At the end some messages stay pending and some delayed, and the server is killed and
//! restarted once more, so that the account is that of a recovered store.

pub(crate) mod account;
pub(crate) mod client;
mod sensitivity;

use std::path::Path;
use std::time::Duration;

use crate::campaign::{Campaign, Size};
use crate::kind::MessageKind;
use crate::managed::Program;
use crate::role::{GROUP, STREAM};
use crate::store::StoreKind;
use crate::support::resp::Value;
use crate::support::wire::Client;

use account::Account;
use client::{PlainEntry, Sending};

/// LEASE of the group.
pub(crate) const LEASE: Duration = Duration::from_millis(500);
/// MAXDELIVER of the group.
pub(crate) const MAX_DELIVERIES: u64 = 5;
/// BACKOFF of the group, in milliseconds.
const BACKOFF_MS: [&str; 2] = ["100", "500"];
/// Longest delay of a delayed message.
pub(crate) const DELAY_MS_MAX: u64 = 3000;
/// Number of messages that are pending at the end, and number of messages that are delayed at the end.
const LEFT_OVER: u64 = 5;
/// Delay of the messages that are delayed at the end: one hour.
const LEFT_OVER_DELAY: &str = "*+3600000";

/// Runs a campaign of plain clients on a server with policies, and returns its account.
pub(crate) fn run(seed: u64, size: Size, folder: &Path) -> Account {
    let mut campaign = Campaign::new(StoreKind::Millstream, Program::PlainClient, seed, size, folder);
    set_policy(&mut campaign.client());
    campaign.inject_faults();
    campaign.stop_faults();
    campaign.drain();
    leave_messages(&campaign);
    campaign.store.kill_servers();
    campaign.store.start_servers();
    let snapshot = campaign.snapshot();
    let delayed = delayed_messages(&mut campaign.client());
    Account::compute(&campaign.lines(), &snapshot, &delayed)
}

fn set_policy(client: &mut Client) {
    let lease = LEASE.as_millis().to_string();
    let limit = MAX_DELIVERIES.to_string();
    let created = client.call(&["XGROUP", "CREATE", STREAM, GROUP, "0", "MKSTREAM"]);
    assert_eq!(created, Value::Simple(b"OK".to_vec()));
    let [first, longest] = BACKOFF_MS;
    let policy = ["LEASE", &lease, "MAXDELIVER", &limit, "BACKOFF", first, longest];
    let set = client.call(&[&["XPOLICY", "SET", STREAM, "GROUP", GROUP], &policy[..]].concat());
    assert_eq!(set, Value::Simple(b"OK".to_vec()));
}

/// Adds messages that are read and never acknowledged, and messages that are not due before the end.
fn leave_messages(campaign: &Campaign) {
    let mut client = campaign.client();
    let mut next = campaign.size.messages;
    for id in ["*", LEFT_OVER_DELAY] {
        for _ in 0..LEFT_OVER {
            next += 1;
            Sending { number: next, kind: MessageKind::Later, id: id.to_owned(), due_ms: None }
                .send(&campaign.journal, |argv| Some(client.call(argv)))
                .expect("the server accepts the last messages");
        }
    }
    let count = LEFT_OVER.to_string();
    let read = ["XREADGROUP", "GROUP", GROUP, "leaver", "COUNT", &count, "STREAMS", STREAM, ">"];
    assert!(matches!(client.call(&read), Value::Array(_)), "the last messages were not delivered");
}

/// Returns the messages that are not in the stream yet.
fn delayed_messages(client: &mut Client) -> Vec<PlainEntry> {
    let Value::Array(rows) = client.call(&["XDELAY", "RANGE", STREAM, "-", "+"]) else {
        panic!("XDELAY RANGE has no array as its reply")
    };
    rows.iter().map(|row| client::entry(row).expect("a delayed message")).collect()
}

impl Campaign {
    /// Whether messages are delayed.
    pub(crate) fn has_delayed_messages(&self) -> bool {
        self.is_plain() && !delayed_messages(&mut self.client()).is_empty()
    }
}
