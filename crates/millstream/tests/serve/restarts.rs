//! Random commands on one stream, and a server that is killed again and again: after each restart the server must
//! return exactly the state that it returned before the kill.
//!
//! A failure prints its seed. `MILLSTREAM_RESTARTS=40-60` runs these seeds instead of the default ones.

use std::ops::RangeInclusive;

use crate::process::{Client, Server, TempDir};
use crate::random::Random;

const SEEDS: RangeInclusive<u64> = 1..=3;
const ROUNDS: u32 = 5;
const BATCHES: u32 = 12;
const COMMANDS_IN_A_BATCH: u32 = 12;

const GROUPS: [&str; 2] = ["g", "h"];
const CONSUMERS: [&str; 3] = ["ann", "bob", "cid"];
const PRODUCERS: [&str; 2] = ["p", "q"];
const NAMES: [&str; 8] = ["i0", "i1", "i2", "i3", "i4", "i5", "i6", "i7"];
const REFERENCES: [&str; 4] = ["", "KEEPREF", "DELREF", "ACKED"];

#[test]
fn every_restart_restores_the_exact_state() {
    for seed in seeds() {
        run(seed);
    }
}

fn seeds() -> RangeInclusive<u64> {
    let Ok(wanted) = std::env::var("MILLSTREAM_RESTARTS") else { return SEEDS };
    let (first, last) = wanted.split_once('-').unwrap_or((&wanted, &wanted));
    let number = |text: &str| text.parse().expect("MILLSTREAM_RESTARTS must be SEED or FIRST-LAST");
    number(first)..=number(last)
}

fn run(seed: u64) {
    let policy = ["always", "everysec", "no"][(seed % 3) as usize];
    let flags = ["--appendonly", "yes", "--appendfsync", policy];
    let mut writer = Writer { random: Random::new(seed), ids: vec!["7-7".to_owned()] };
    let dir = TempDir::new();
    let mut server = Server::start_in(&dir, &flags);
    // A duration that does not expire even on a slow machine.
    server.connect().ask(&["XGROUP CREATE s g 0 MKSTREAM", "XCFGSET s IDMP-DURATION 86400"]);
    for round in 1..=ROUNDS {
        let mut client = server.connect();
        let mut sent = Vec::new();
        for _ in 0..BATCHES {
            let commands: Vec<String> = (0..COMMANDS_IN_A_BATCH).map(|_| writer.command()).collect();
            let answers = client.ask(&commands.iter().map(String::as_str).collect::<Vec<_>>());
            for refused in ["syntax", "wrong number", "unknown command", "Invalid"] {
                assert!(!answers.contains(refused), "seed {seed}: {commands:#?}\n{answers}");
            }
            writer.learn(&answers);
            sent.extend(commands);
            // Snapshots and the log are recovered in different ways.
            if writer.random.percent(12) {
                client.call("SAVE", "+OK\r\n");
                sent.push("SAVE".to_owned());
            }
        }
        let before = state(&mut client);
        server.signal("-KILL");
        server.wait();
        server = Server::start_in(&dir, &flags);
        let after = state(&mut server.connect());
        assert!(
            after == before,
            "seed {seed}, round {round}, {policy}: the state differs\n{}\nafter\n{}",
            difference(&before, &after),
            sent.join("\n")
        );
    }
}

/// Returns everything that a client can read about the stream, except values that change with time.
fn state(client: &mut Client) -> String {
    let mut state = client.ask(&["DBSIZE", "XLEN s", "XRANGE s - +"]);
    state += &without_seen_times(&client.ask(&["XINFO STREAM s FULL COUNT 0"]));
    for group in GROUPS {
        state += &client.ask(&[&format!("XPENDING s {group}")]);
        state += &without_idle_times(&client.ask(&[&format!("XPENDING s {group} - + 100000")]));
        for consumer in CONSUMERS {
            state +=
                &without_idle_times(&client.ask(&[&format!("XPENDING s {group} - + 100000 {consumer}")]));
        }
    }
    state + &hidden_state(client)
}

/// Returns the state that clients can see only by changing the stream: the order of released entries, and the producer
/// history. Changes a copy of the stream.
fn hidden_state(client: &mut Client) -> String {
    let mut state = client.ask(&["COPY s copy REPLACE"]);
    for group in GROUPS {
        // No entry has been idle for that long: this claims released entries, then reads new ones.
        let claim = format!("XREADGROUP GROUP {group} tester CLAIM 9000000000000 STREAMS copy >");
        state += &without_idle_times(&client.ask(&[&claim]));
    }
    let last = last_id(&client.ask(&["XINFO STREAM copy"]));
    for (producer, name) in PRODUCERS.iter().flat_map(|producer| NAMES.map(|name| (producer, name))) {
        let answer = client.ask(&[&format!("XADD copy IDMP {producer} {name} * tried again")]);
        let is_known = last_id(&answer) <= last;
        state += &format!("{producer} {name} {}", if is_known { &answer } else { "is new\r\n" });
    }
    client.ask(&["DEL copy"]);
    state
}

/// Removes seen-times. The time of an empty read is not stored, because that would need a record for every empty
/// poll.
fn without_seen_times(answer: &str) -> String {
    let lines: Vec<&str> = answer.lines().collect();
    let is_seen_time = |at: usize| at > 0 && lines[at - 1] == "seen-time";
    let kept = lines.iter().enumerate().map(|(at, line)| if is_seen_time(at) { "seen" } else { line });
    kept.flat_map(|line| [line, "\n"]).collect()
}

/// Removes idle times. A row ends with its idle time and its delivery count. `-1` stays, because it means that there is
/// no idle time.
fn without_idle_times(answer: &str) -> String {
    let lines: Vec<&str> = answer.lines().collect();
    let is_idle_time = |at: usize| {
        lines[at].starts_with(':')
            && lines[at] != ":-1"
            && lines.get(at + 1).is_some_and(|next| next.starts_with(':'))
    };
    let kept = lines.iter().enumerate().map(|(at, line)| if is_idle_time(at) { "idle" } else { line });
    kept.flat_map(|line| [line, "\n"]).collect()
}

/// Returns the greatest stream id that is a line of its own.
fn last_id(answer: &str) -> Option<(u64, u64)> {
    answer.lines().filter_map(id).max()
}

fn id(line: &str) -> Option<(u64, u64)> {
    let (ms, seq) = line.split_once('-')?;
    Some((ms.parse().ok()?, seq.parse().ok()?))
}

/// Returns the first lines that differ, with some lines before them.
fn difference(before: &str, after: &str) -> String {
    let same = before.lines().zip(after.lines()).take_while(|(before, after)| before == after).count();
    let part =
        |text: &str| text.lines().skip(same.saturating_sub(12)).take(24).collect::<Vec<_>>().join("\n");
    format!("before, from line {same}:\n{}\nafter:\n{}", part(before), part(after))
}

/// Generates random commands. It knows the ids that the server has returned.
struct Writer {
    random: Random,
    ids: Vec<String>,
}

impl Writer {
    /// Stores the ids from these replies.
    fn learn(&mut self, answers: &str) {
        for line in answers.lines().filter(|line| id(line).is_some()) {
            if !self.ids.iter().any(|known| known == line) {
                self.ids.push(line.to_owned());
            }
        }
    }

    fn command(&mut self) -> String {
        match self.random.below(100) {
            0..24 => self.add(),
            24..44 => self.read(),
            44..52 => format!("XACK s {} {}", self.group(), self.some_ids().join(" ")),
            52..60 => self.release(),
            60..69 => self.claim(),
            69..77 => self.delete(),
            77..82 => self.trim(),
            82..87 => self.extend_or_adopt(),
            87..92 => self.idempotence(),
            _ => self.groups(),
        }
    }

    fn add(&mut self) -> String {
        let references = self.random.pick(&REFERENCES);
        let trim = match self.random.below(6) {
            0 => format!("{references} MAXLEN {}", self.random.between(5, 60)),
            1 => format!("{references} MAXLEN ~ {}", self.random.between(5, 60)),
            2 => format!("{references} MINID {}", self.id()),
            _ => String::new(),
        };
        let once = match self.random.below(4) {
            0 => format!("IDMP {} {}", self.producer(), self.random.pick(&NAMES)),
            1 => format!("IDMPAUTO {}", self.producer()),
            _ => String::new(),
        };
        format!("XADD s {trim} {once} * f {}", self.random.below(12))
    }

    fn read(&mut self) -> String {
        let who = format!("XREADGROUP GROUP {} {}", self.group(), self.consumer());
        let count = self.random.between(1, 8);
        match self.random.below(8) {
            0 => format!("{who} COUNT {count} STREAMS s 0"),
            1 => format!("{who} COUNT {count} NOACK STREAMS s >"),
            2 => format!("{who} COUNT {count} CLAIM 0 STREAMS s >"),
            3 => format!("{who} CLAIM {} NOACK STREAMS s >", self.random.pick(&["5", "500", "3600000"])),
            4 => format!("{who} MAXCOUNT {count} STREAMS s >"),
            5 => format!("{who} MAXSIZE {} CLAIM 20 STREAMS s >", count * 60),
            _ => format!("{who} COUNT {count} STREAMS s >"),
        }
    }

    fn release(&mut self) -> String {
        let mode = self.random.pick(&["SILENT", "FAIL", "FATAL"]);
        let more = self.random.pick(&["", "", "FORCE", "RETRYCOUNT 5", "FORCE RETRYCOUNT 0"]);
        format!("XNACK s {} {mode} {} {more}", self.group(), self.counted_ids())
    }

    fn claim(&mut self) -> String {
        let (group, consumer) = (self.group(), self.consumer());
        let idle = self.random.pick(&["0", "0", "10", "3600000"]);
        let just = self.random.pick(&["", "JUSTID"]);
        if self.random.percent(30) {
            let from = self.random.pick(&["0", "(5-5"]);
            return format!("XAUTOCLAIM s {group} {consumer} {idle} {from} COUNT 4 {just}");
        }
        let more = self.random.pick(&["", "IDLE 7000000", "TIME 1700000000000", "RETRYCOUNT 9", "FORCE"]);
        format!("XCLAIM s {group} {consumer} {idle} {} {more} {just}", self.some_ids().join(" "))
    }

    fn delete(&mut self) -> String {
        let references = self.random.pick(&REFERENCES);
        match self.random.below(3) {
            0 => format!("XDEL s {}", self.some_ids().join(" ")),
            1 => format!("XDELEX s {references} {}", self.counted_ids()),
            _ => format!("XACKDEL s {} {references} {}", self.group(), self.counted_ids()),
        }
    }

    fn trim(&mut self) -> String {
        let references = self.random.pick(&REFERENCES);
        match self.random.below(3) {
            0 => format!("XTRIM s MINID {} {references}", self.id()),
            1 => format!("XTRIM s MAXLEN ~ {} {references}", self.random.between(5, 60)),
            _ => format!("XTRIM s MAXLEN {} {references}", self.random.between(5, 60)),
        }
    }

    fn extend_or_adopt(&mut self) -> String {
        let (group, consumer) = (self.group(), self.consumer());
        match self.random.percent(70) {
            true => format!("XEXTEND s {group} {consumer} {}", self.counted_ids()),
            false => format!("XADOPT s {group} {consumer} {}", self.consumer()),
        }
    }

    fn idempotence(&mut self) -> String {
        match self.random.below(4) {
            0 => format!("XCFGSET s IDMP-MAXSIZE {}", self.random.between(2, 6)),
            1 => format!("XCFGSET s IDMP-DURATION {}", self.random.between(86_399, 86_400)),
            _ => format!("XIDMPRECORD s {} {} {}", self.producer(), self.random.pick(&NAMES), self.id()),
        }
    }

    fn groups(&mut self) -> String {
        let (group, consumer) = (self.group(), self.consumer());
        match self.random.below(10) {
            0..4 => format!("XGROUP CREATE s {group} {}", self.random.pick(&["0", "$"])),
            4 => format!("XGROUP DESTROY s {group}"),
            5 => format!("XGROUP SETID s {group} {}", self.id()),
            6 => format!("XGROUP DELCONSUMER s {group} {consumer}"),
            7 => format!("XSETID s {} ENTRIESADDED 100000", self.latest()),
            _ => format!("XGROUP CREATECONSUMER s {group} {consumer}"),
        }
    }

    fn group(&mut self) -> &'static str {
        self.random.pick(&GROUPS)
    }

    fn consumer(&mut self) -> &'static str {
        self.random.pick(&CONSUMERS)
    }

    fn producer(&mut self) -> &'static str {
        self.random.pick(&PRODUCERS)
    }

    /// Returns one of the latest thirty ids.
    fn id(&mut self) -> String {
        let back = self.random.below(30.min(self.ids.len() as u64)) as usize;
        self.ids[self.ids.len() - 1 - back].clone()
    }

    fn latest(&self) -> &str {
        self.ids.iter().max_by_key(|text| id(text)).expect("there is always an id")
    }

    fn some_ids(&mut self) -> Vec<String> {
        (0..self.random.between(1, 12)).map(|_| self.id()).collect()
    }

    fn counted_ids(&mut self) -> String {
        let ids = self.some_ids();
        format!("IDS {} {}", ids.len(), ids.join(" "))
    }
}
