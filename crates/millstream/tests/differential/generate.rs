//! Generates random command sequences from a seed.
//!
//! There are few keys, groups and consumers, and most ids are in use, so that commands affect each other. Nothing
//! depends on the clock (ids are explicit, expiry is absolute and far away, idle times are far apart) or on replies,
//! so that any part of a sequence can be left out.

use crate::companions;
use crate::mutate::mutate;
use crate::random::Random;
use crate::script::{Argv, Script, Step, argv, is_named};
use crate::streams;
use crate::support::peers::Peer;

/// State from which the commands of one sequence are generated.
pub(crate) struct Pool {
    /// The only source of randomness.
    pub random: Random,
    /// Ids generated so far.
    ids: Vec<(u64, u64)>,
    next_ms: u64,
    keys: u64,
    groups: u64,
    consumers: u64,
    /// Whether 0-0, the greatest id and ids next to them are used for new entries.
    pub edge_ids: bool,
    /// Whether entries are deleted or trimmed, or counters are set by the client. After such a change, the lag differs
    /// between versions of Redis.
    pub deletes: bool,
    /// Whether features of Redis 8.2 are used: XDELEX, XACKDEL, reference policies of trims, XREAD +.
    pub has_references: bool,
    /// Whether the reference creates the consumer of an empty read, and reports when consumers last received entries.
    pub knows_activity: bool,
    /// Whether the reference is a Valkey.
    pub is_valkey: bool,
    /// Whether groups are destroyed. Redis 8.2 keeps the position of a destroyed group in a cache that ACKED uses
    /// (redis/redis#14552), so a sequence contains either ACKED or XGROUP DESTROY.
    pub destroys: bool,
}

/// Generates the sequence of a seed from commands that this server supports.
pub(crate) fn script(seed: u64, peer: &Peer) -> Script {
    let (has_references, knows_activity) = (peer.redis_version >= (8, 2), peer.redis_version >= (7, 2));
    let mut random = Random::new(seed);
    let resp3 = random.percent(50);
    let deletes = !random.percent(15);
    let length = random.between(20, 350);
    let mut pool = Pool {
        ids: vec![(1, 0)],
        next_ms: 1,
        keys: random.between(1, 4),
        groups: random.between(1, 3),
        consumers: random.between(1, 4),
        edge_ids: random.percent(15),
        deletes,
        has_references,
        knows_activity,
        is_valkey: peer.is_valkey,
        destroys: !has_references || random.percent(50),
        random,
    };
    let mut steps = vec![step(0, vec![block_limits(&mut pool.random)])];
    while (steps.len() as u64) < length {
        add_steps(&mut pool, &mut steps);
    }
    steps.extend(inspection(&pool).into_iter().map(|command| step(0, vec![command])));
    cut_into_pipelines(&mut pool.random, &mut steps);
    // Redis 8 corrected the lag of streams with deleted or trimmed entries.
    let lag_is_comparable = !deletes || peer.redis_version >= (8, 0);
    Script { resp3, lag_is_comparable, knows_activity, steps }
}

fn step(connection: usize, commands: Vec<Argv>) -> Step {
    Step { connection, commands, flush: false }
}

/// Small blocks let every kind of trim reach block boundaries within a few entries. A block always has space for one
/// entry.
fn block_limits(random: &mut Random) -> Argv {
    match random.below(6) {
        0 | 1 => argv(&["CONFIG", "SET", "stream-node-max-entries", "100"]),
        2 => argv(&["CONFIG", "SET", "stream-node-max-entries", "0"]),
        3 => argv(&["CONFIG", "SET", "stream-node-max-bytes", &random.between(900, 2500).to_string()]),
        _ => argv(&["CONFIG", "SET", "stream-node-max-entries", &random.between(1, 12).to_string()]),
    }
}

/// Adds one step, a series of XADD, or a transaction.
fn add_steps(pool: &mut Pool, steps: &mut Vec<Step>) {
    let connection = usize::from(pool.random.percent(10));
    match pool.random.below(100) {
        0..3 => {
            let key = pool.key();
            for _ in 0..pool.random.between(5, 120) {
                steps.push(step(connection, vec![streams::append(pool, &key)]));
            }
        }
        3..8 => transaction(pool, steps, connection),
        8 => steps.push(step(connection, vec![block_limits(&mut pool.random)])),
        _ => steps.push(step(connection, commands(pool))),
    }
}

fn commands(pool: &mut Pool) -> Vec<Argv> {
    let mut commands =
        if pool.random.percent(80) { streams::commands(pool) } else { companions::commands(pool) };
    if pool.random.percent(6) {
        let last = commands.pop().expect("at least one command");
        // Valkey checks the time before the key, and rejects types that it does not know.
        let is_checked_differently = pool.is_valkey && (is_named(&last, "GETEX") || is_named(&last, "SCAN"));
        commands.push(if is_checked_differently { last } else { mutate(&mut pool.random, last) });
    }
    commands
}

/// MULTI … EXEC. Sometimes keys are watched, the other connection interferes, a command is invalid, or the
/// transaction is discarded.
fn transaction(pool: &mut Pool, steps: &mut Vec<Step>, connection: usize) {
    if pool.random.percent(40) {
        let (one, two) = (pool.key(), pool.key());
        steps.push(step(connection, vec![argv(&["WATCH", &one, &two])]));
        if pool.random.percent(50) {
            steps.push(step(1 - connection, commands(pool)));
        }
    }
    steps.push(step(connection, vec![argv(&["MULTI"])]));
    for _ in 0..pool.random.between(0, 6) {
        let inside = if pool.random.percent(5) { vec![streams::blocking(pool)] } else { commands(pool) };
        steps.push(step(connection, inside));
    }
    let end = if pool.random.percent(88) { "EXEC" } else { "DISCARD" };
    steps.push(step(connection, vec![argv(&[end])]));
}

/// Commands that inspect every stream completely, for the end of each sequence.
fn inspection(pool: &Pool) -> Vec<Argv> {
    let mut commands = vec![argv(&["EXEC"]), argv(&["SELECT", "0"]), argv(&["KEYS", "*"])];
    for number in 0..pool.keys {
        let key = format!("s{number}");
        commands.push(argv(&["TYPE", &key]));
        commands.push(argv(&["XRANGE", &key, "-", "+"]));
        commands.push(argv(&["XINFO", "STREAM", &key, "FULL", "COUNT", "0"]));
        commands.push(argv(&["XINFO", "GROUPS", &key]));
        for group in 0..pool.groups {
            commands.push(argv(&["XPENDING", &key, &format!("g{group}"), "-", "+", "1000"]));
        }
    }
    commands
}

/// Cuts the sequence into pipelines of one to fifty steps.
fn cut_into_pipelines(random: &mut Random, steps: &mut [Step]) {
    let mut left = random.between(1, 50);
    for step in steps {
        left -= 1;
        step.flush = left == 0;
        if left == 0 {
            left = if random.percent(30) { 1 } else { random.between(1, 50) };
        }
    }
}

impl Pool {
    /// Returns a key that usually is a stream.
    pub(crate) fn key(&mut self) -> String {
        if self.random.percent(2) {
            return self.random.pick(&["missing", "k0", "k1"]).to_string();
        }
        format!("s{}", self.random.below(self.keys))
    }

    /// Returns a key that usually has another type.
    pub(crate) fn other_key(&mut self) -> String {
        if self.random.percent(10) {
            return self.key();
        }
        format!("k{}", self.random.below(4))
    }

    /// Returns a group, rarely one that does not exist.
    pub(crate) fn group(&mut self) -> String {
        if self.random.percent(2) {
            "nobody".to_string()
        } else {
            format!("g{}", self.random.below(self.groups))
        }
    }

    /// Returns a consumer.
    pub(crate) fn consumer(&mut self) -> String {
        format!("c{}", self.random.below(self.consumers))
    }

    /// Returns an id for a new entry: usually the next, sometimes one in use or at the edge of the range of ids.
    pub(crate) fn new_id(&mut self) -> String {
        match self.random.below(100) {
            0..80 => {
                self.next_ms += [0, 0, 1, 1, 1, 2, 100][self.random.below(7) as usize];
                let sequence =
                    self.ids.last().map_or(0, |&(ms, seq)| if ms == self.next_ms { seq + 1 } else { 0 });
                let id = (self.next_ms, sequence + self.random.below(3) / 2);
                self.ids.push(id);
                format_id(id)
            }
            80..86 => format!("{}-*", self.next_ms + self.random.below(2)),
            86..88 => format!("{}", self.next_ms + 1),
            88..96 => self.id(),
            _ if self.edge_ids => self.edge_id(),
            _ => self.id(),
        }
    }

    /// Returns an id to look up: usually one in use or next to one.
    pub(crate) fn id(&mut self) -> String {
        let (ms, seq) = self.ids[self.random.below(self.ids.len() as u64) as usize];
        match self.random.below(100) {
            0..55 => format_id((ms, seq)),
            55..63 => format_id((ms, seq + 1)),
            63..70 => format_id((ms, seq.saturating_sub(1))),
            70..80 => ms.to_string(),
            80..85 => format_id((ms + 1, 0)),
            85..95 => format_id(
                self.ids[self.ids.len() - 1 - self.random.below(self.ids.len().min(5) as u64) as usize],
            ),
            95..98 => "0".to_string(),
            _ => self.edge_id(),
        }
    }

    /// Returns an id at which arithmetic can overflow, or an unusual spelling.
    pub(crate) fn edge_id(&mut self) -> String {
        let edges = [
            "0-0",
            "0-1",
            "0",
            "18446744073709551615-18446744073709551615",
            "18446744073709551615-18446744073709551614",
            "18446744073709551615",
            "0-18446744073709551615",
            "01-01",
        ];
        self.random.pick(&edges).to_string()
    }

    /// Returns an id greater than all generated so far.
    pub(crate) fn id_above(&mut self) -> String {
        self.next_ms += 1;
        let id = (self.next_ms, 0);
        self.ids.push(id);
        format_id(id)
    }

    /// Returns a bound of a range.
    pub(crate) fn bound(&mut self, open_end: &str) -> String {
        match self.random.below(10) {
            0..4 => open_end.to_string(),
            4 | 5 => format!("({}", self.id()),
            _ => self.id(),
        }
    }

    /// Returns a count: usually small, sometimes zero, negative or very large.
    pub(crate) fn count(&mut self) -> String {
        match self.random.below(12) {
            0 => "0".to_string(),
            1 => "-1".to_string(),
            2 => "1000000".to_string(),
            _ => self.random.between(1, 12).to_string(),
        }
    }
}

fn format_id((ms, seq): (u64, u64)) -> String {
    format!("{ms}-{seq}")
}
