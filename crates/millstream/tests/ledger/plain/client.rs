//! The processes of plain clients: producers, and consumers that only read and acknowledge. They speak RESP over a
//! socket, and know nothing of leases, limits and other consumers.

use std::collections::HashSet;
use std::thread::sleep;
use std::time::Duration;

use bytes::Bytes;
use millstream_worker::backend::StreamId;

use super::DELAY_MS_MAX;
use crate::journal::{self, Journal, now_ms, parse_id};
use crate::kind::MessageKind;
use crate::random::Random;
use crate::role::{GROUP, Role, STREAM};
use crate::snapshot::{Sent, sent_fields};
use crate::steps::{POISON_EXIT, Plan, Step, die};
use crate::support::resp::Value;
use crate::support::wire::{Client, Outcome};

/// Maximum number of entries per read.
const COUNT: &str = "4";
/// Longest time a read waits for entries, in milliseconds.
const BLOCK_MS: &str = "500";
/// Longest wait for a reply before a client connects again. The connection may be half-open.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3);
/// Delay before a failed operation is tried again.
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// How often a consumer tries to acknowledge a message.
const ACK_TRIES: usize = 3;
/// Exit code of a process that a message ended.
const EXITED: i32 = 3;

/// Runs the role until its end. SIGTERM ends the process at once.
pub(crate) fn run(role: &Role) {
    let journal = Journal::open(&role.journal, &role.name);
    let (_, port) = role.url.rsplit_once(':').expect("a URL with a port");
    let port = port.parse().expect("a port");
    let mut connection = Connection { port, client: None, journal: &journal };
    match role.numbers {
        Some(numbers) => produce(role, &mut connection, numbers),
        None => consume(role, &mut connection),
    }
}

/// A connection that is made anew when it breaks.
struct Connection<'a> {
    port: u16,
    client: Option<Client>,
    journal: &'a Journal,
}

impl Connection<'_> {
    /// Sends a command and returns its reply, unless the connection breaks or the server refuses the command.
    fn call(&mut self, argv: &[&str]) -> Option<Value> {
        let reply = self.try_call(argv);
        if reply.is_none() {
            self.client = None;
            sleep(RETRY_DELAY);
        }
        reply
    }

    fn try_call(&mut self, argv: &[&str]) -> Option<Value> {
        if self.client.is_none() {
            self.client = Client::connect(self.port).ok();
        }
        let client = self.client.as_mut()?;
        client.send(argv);
        let Outcome::Reply(reply) = client.next(REPLY_TIMEOUT) else { return None };
        if let Value::Error(text) = &reply.value {
            self.journal.record("refused", [format!("{} {}", argv[0], String::from_utf8_lossy(text))]);
            return None;
        }
        Some(reply.value)
    }
}

/// Reads and acknowledges messages.
fn consume(role: &Role, connection: &mut Connection) {
    let journal = connection.journal;
    let (step, times) = role.death.unzip();
    let plan = Plan::new(step, times.unwrap_or_default());
    let mut random = Random::new(role.seed ^ u64::from(std::process::id()));
    let read =
        ["XREADGROUP", "GROUP", GROUP, &role.name, "COUNT", COUNT, "BLOCK", BLOCK_MS, "STREAMS", STREAM, ">"];
    loop {
        let requested_ms = now_ms();
        let entries = connection.call(&read).map(|reply| entries(&reply)).unwrap_or_default();
        if entries.is_empty() {
            continue;
        }
        let ids = entries.iter().map(|entry| entry.id.to_string());
        journal.record("got", std::iter::once(requested_ms.to_string()).chain(ids));
        plan.pass(Step::Got, journal);
        for entry in &entries {
            handle(role, &plan, entry, &mut random, connection);
        }
    }
}

/// Handles one message, and acknowledges it if that succeeds.
fn handle(role: &Role, plan: &Plan, entry: &PlainEntry, random: &mut Random, connection: &mut Connection) {
    let journal = connection.journal;
    let id = entry.id.to_string();
    plan.pass(Step::Begin, journal);
    let is_long = matches!(entry.sent.kind, MessageKind::Slow | MessageKind::Stuck);
    sleep(if is_long { role.lease.mul_f64(1.4) } else { Duration::from_millis(random.below(8)) });
    plan.pass(Step::Middle, journal);
    let has_failed = match entry.sent.kind {
        MessageKind::Ordinary | MessageKind::Slow | MessageKind::Stuck => role.outage.exists(),
        MessageKind::Flaky => role.outage.exists() || random.percent(50),
        MessageKind::Killing => die("poison", journal),
        MessageKind::Exiting => {
            journal.record("dying", [POISON_EXIT]);
            std::process::exit(EXITED);
        }
        _ => true,
    };
    if has_failed {
        journal.record("failed", [id]);
        return;
    }
    journal.record("done", [&id]);
    plan.pass(Step::Done, journal);
    plan.pass(Step::Acking, journal);
    for _ in 0..ACK_TRIES {
        if let Some(Value::Int(count)) = connection.call(&["XACK", STREAM, GROUP, &id]) {
            plan.pass(Step::AckSent, journal);
            journal.record("acked", [count.to_string(), id]);
            plan.pass(Step::Acked, journal);
            return;
        }
    }
}

/// Sends the messages that the journal does not record as added. A message whose reply was lost is sent again.
fn produce(role: &Role, connection: &mut Connection, (first, last): (u64, u64)) {
    let added = added(role);
    let journal = connection.journal;
    let mut random = Random::new(role.seed ^ u64::from(std::process::id()));
    for number in (first..=last).filter(|number| !added.contains(number)) {
        sleep(role.pace.mul_f64(random.below(200) as f64 / 100.0));
        let kind = MessageKind::of(role.seed, number);
        // The delay depends on the number only, so a message that is sent again has another due time.
        let delay = Random::new(number).below(DELAY_MS_MAX + 1);
        loop {
            let at_ms = now_ms() + delay;
            let (id, due_ms) = match (role.delays, number % 2 == 0) {
                (false, _) => ("*".to_owned(), None),
                (true, true) => (format!("*@{at_ms}"), Some(at_ms)),
                // The server counts from its own clock, whose milliseconds begin a little later.
                (true, false) => (format!("*+{delay}"), Some(at_ms - 1)),
            };
            let sending = Sending { number, kind, id, due_ms };
            if sending.send(journal, |argv| connection.call(argv)).is_some() {
                break;
            }
        }
    }
}

fn added(role: &Role) -> HashSet<u64> {
    let lines = journal::read(&role.journal);
    let added = lines.iter().filter(|line| line.event == "added").flat_map(|line| &line.words);
    added.filter_map(|word| word.split(':').next()?.parse().ok()).collect()
}

/// An entry that was read, or a delayed message with its ticket as the id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainEntry {
    pub id: StreamId,
    pub sent: Sent,
}

/// A message to send.
pub(crate) struct Sending {
    pub number: u64,
    pub kind: MessageKind,
    /// The id argument of XADD.
    pub id: String,
    /// The moment before which it may not be delivered.
    pub due_ms: Option<u64>,
}

impl Sending {
    /// Sends the message, and records before and after: `sent NUMBER` and `added NUMBER:DUE:REPLY`. The due time is 0
    /// if there is none. The reply is an entry id or a ticket.
    pub(crate) fn send(
        &self,
        journal: &Journal,
        mut call: impl FnMut(&[&str]) -> Option<Value>,
    ) -> Option<()> {
        let number = self.number.to_string();
        let due = self.due_ms.unwrap_or_default().to_string();
        let mut argv = vec!["XADD", STREAM, &self.id, "n", &number, "kind", self.kind.name()];
        if self.due_ms.is_some() {
            argv.extend(["due", &due]);
        }
        journal.record("sent", [&number]);
        let reply = bulk(&call(&argv)?)?;
        journal.record("added", [format!("{number}:{due}:{reply}")]);
        Some(())
    }
}

/// Parses the reply to XREADGROUP on one stream.
fn entries(reply: &Value) -> Vec<PlainEntry> {
    let Value::Array(streams) = reply else { return Vec::new() };
    let Some([Value::Array(stream)]) = streams.get(..1) else {
        panic!("not a reply of XREADGROUP: {reply:?}")
    };
    let [_, Value::Array(rows)] = &stream[..] else { panic!("not a reply of XREADGROUP: {reply:?}") };
    rows.iter().map(|row| entry(row).unwrap_or_else(|| panic!("not an entry: {row:?}"))).collect()
}

/// Parses an entry of two elements, or a delayed message.
pub(crate) fn entry(row: &Value) -> Option<PlainEntry> {
    let Value::Array(row) = row else { return None };
    let [id, Value::Array(texts)] = &row[..] else { return None };
    let texts = texts.iter().map(|text| bulk(text).map(Bytes::from)).collect::<Option<Vec<_>>>()?;
    let fields: Vec<(Bytes, Bytes)> =
        texts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    Some(PlainEntry { id: parse_id(&bulk(id)?)?, sent: sent_fields(&fields)? })
}

fn bulk(value: &Value) -> Option<String> {
    match value {
        Value::Bulk(bytes) => String::from_utf8(bytes.clone()).ok(),
        _ => None,
    }
}
