//! Random histories of commands in a group with a delivery limit and a back-off. A ledger that knows only the rules
//! checks each delivery and, after each move of the clock, where each entry is. Mistakes planted in commands must be
//! noticed.

use std::collections::BTreeMap;

use millstream_engine::stream::{ClaimOptions, NackOptions};
use millstream_engine::{ClaimedRow, Effect, NackMode, StreamEffect};

use super::limits::{DEFAULT, id, limit, path};
use super::*;
use crate::sim_tests::random::WorkloadRandom;
use crate::verbs::{AutoClaim, Claim, ConsumerDelete, Delete, Extend, Nack};

const ENTRIES: u64 = 12;
const LEASE_MS: u64 = 200;
const LIMIT: u64 = 3;
const BACKOFF: Backoff = Backoff { first_ms: 150, longest_ms: 1000 };
const CONSUMERS: [&str; 3] = ["a", "b", "c"];
const SEEDS: u64 = 60;

/// A mistake in a command, or in the timekeeper.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    LimitCheckedAfterDelivery,
    HistoryRenewsRowsAtTheLimit,
    WaitingRowsHandedToClaim,
    DeadLetterWithoutAck,
    AckWithoutDeadLetter,
    LimitIgnoredByTimekeeper,
}

/// What the ledger knows about an entry that is pending.
#[derive(Clone, Copy, Debug)]
struct LedgerRow {
    deliveries: u64,
    /// The owner, and when its lease began; `None` if the entry is released.
    owner: Option<(&'static str, u64)>,
    not_before_ms: u64,
}

impl LedgerRow {
    fn is_final(&self, now_ms: u64) -> bool {
        self.deliveries >= LIMIT && self.owner.is_none_or(|(_, at_ms)| at_ms + LEASE_MS <= now_ms)
    }
}

/// What a command may take.
#[derive(Clone, Copy, PartialEq)]
enum Takes {
    /// Entries whose lease and back-off are over.
    Ready,
    /// Entries that do not wait.
    Idle,
    /// Entries by name.
    Named,
    Own,
}

struct History {
    fixture: PolicyFixture,
    random: WorkloadRandom,
    mistake: Option<Mistake>,
    rows: BTreeMap<u64, LedgerRow>,
    acked: Vec<u64>,
    removed: Vec<u64>,
}

type Checked = Result<(), String>;

impl History {
    fn new(seed: u64, mistake: Option<Mistake>) -> History {
        let policy = Policy { backoff: Some(BACKOFF), ..limit(LEASE_MS, LIMIT) };
        let fixture = PolicyFixture::new(ENTRIES as usize, policy);
        let (random, rows) = (WorkloadRandom::new(seed), BTreeMap::new());
        History { fixture, random, mistake, rows, acked: vec![], removed: vec![] }
    }

    fn run(mut self) -> Checked {
        for step in 0..200 {
            self.step().map_err(|why| format!("step {step}: {why}"))?;
            self.fixture.txn().stream(KEY).unwrap().unwrap().check()?;
        }
        Ok(())
    }

    fn step(&mut self) -> Checked {
        let consumer = CONSUMERS[self.random.below(3) as usize];
        let seq = self.random.below(ENTRIES);
        let options = ClaimOptions::default();
        let read = |claim, history| ReadGroup {
            claim_idle_ms_min: claim,
            history_after: history,
            ..reader(consumer, 3, true)
        };
        match self.random.below(12) {
            0..3 => {
                let rows = self.entries(read(None, None));
                self.delivered(consumer, &rows, Takes::Ready)
            }
            3 => {
                let min_idle_ms = self.random.below(200);
                let mut rows = self.entries(read(Some(min_idle_ms), None));
                if self.mistake == Some(Mistake::WaitingRowsHandedToClaim) {
                    rows.extend(self.take(consumer, |row| row.owner.is_none() && row.deliveries < LIMIT));
                }
                self.delivered(consumer, &rows, Takes::Idle)
            }
            4 => {
                let rows = self.entries(read(None, Some(StreamId::MIN)));
                if self.mistake == Some(Mistake::HistoryRenewsRowsAtTheLimit) {
                    let is_own = |row: &LedgerRow| row.owner.is_some_and(|(name, _)| name == consumer);
                    self.take(consumer, |row| is_own(row) && row.deliveries >= LIMIT);
                }
                self.delivered(consumer, &rows, Takes::Own)
            }
            5 => {
                let (start, count) = (StreamId::MIN, 2);
                let mut rows = self.entries(AutoClaim { consumer: path(consumer), start, count, options });
                if self.mistake == Some(Mistake::LimitCheckedAfterDelivery) {
                    rows.extend(self.take(consumer, |row| row.deliveries >= LIMIT));
                }
                self.delivered(consumer, &rows, Takes::Idle)
            }
            6 => {
                let (consumer_path, ids) = (path(consumer), vec![id(seq)]);
                let claim = Claim { consumer: consumer_path, ids, options, idle_ms: None, last_id: None };
                let rows = self.entries(claim);
                self.delivered(consumer, &rows, Takes::Named)
            }
            7 => self.release(seq),
            8 => {
                let mut acknowledge = Acknowledge { key: KEY, group: GROUP, ids: [id(seq)] };
                if acknowledge.run(&mut self.fixture.txn()) == Ok(1) {
                    self.rows.remove(&seq);
                    self.acked.push(seq);
                }
                Ok(())
            }
            9 => {
                let extended =
                    Extend { consumer: path(consumer), ids: vec![id(seq)] }.run(&mut self.fixture.txn());
                if extended == Ok(vec![true])
                    && let Some(row) = self.rows.get_mut(&seq)
                {
                    row.owner = Some((consumer, self.fixture.store.now_ms()));
                }
                Ok(())
            }
            10 => {
                match self.random.below(3) {
                    0 => _ = ConsumerDelete(path(consumer)).run(&mut self.fixture.txn()),
                    1 if !self.removed.contains(&seq) => {
                        Delete { key: KEY, ids: vec![id(seq)] }.run(&mut self.fixture.txn()).unwrap();
                        self.removed.push(seq);
                        return Ok(());
                    }
                    _ => return Ok(()),
                }
                for row in
                    self.rows.values_mut().filter(|row| row.owner.is_some_and(|(name, _)| name == consumer))
                {
                    (row.owner, row.not_before_ms) = (None, 0);
                }
                Ok(())
            }
            _ => self.advance(),
        }
    }

    fn entries(&self, mut verb: impl EntryVerb) -> Vec<(u64, u64)> {
        let mut rows = ReadRows::default();
        verb.run_into(&mut self.fixture.txn(), &mut rows).unwrap();
        rows.0.retain(|(seq, _)| !self.removed.contains(seq));
        rows.0
    }

    /// Hands out rows that no command may hand out.
    fn take(&self, consumer: &str, is_taken: impl Fn(&LedgerRow) -> bool) -> Vec<(u64, u64)> {
        let now_ms = self.fixture.store.now_ms();
        let rows: Vec<ClaimedRow> = self
            .rows
            .iter()
            .filter(|(seq, row)| is_taken(row) && !self.removed.contains(seq))
            .map(|(seq, row)| ClaimedRow {
                id: id(*seq),
                delivered_at_ms: now_ms,
                deliveries: row.deliveries + 1,
            })
            .collect();
        let (group, consumer, at_ms) = (GROUP, consumer.as_bytes(), now_ms);
        let effect = Effect::Stream(StreamEffect::Claim { group, consumer, rows: &rows, at_ms });
        self.fixture.txn().apply(KEY, &effect);
        rows.iter().map(|row| (row.id.seq, row.deliveries)).collect()
    }

    /// Checks deliveries against the rules.
    fn delivered(&mut self, consumer: &'static str, rows: &[(u64, u64)], takes: Takes) -> Checked {
        let now_ms = self.fixture.store.now_ms();
        for &(seq, _) in rows {
            let before = self.rows.get(&seq).copied();
            let row = before.unwrap_or(LedgerRow { deliveries: 0, owner: None, not_before_ms: 0 });
            let is_early = match (takes, row.owner) {
                (Takes::Named | Takes::Own, _) => false,
                (Takes::Ready, Some((_, at_ms))) => {
                    let wait_ms = (BACKOFF.first_ms << (row.deliveries - 1)).min(BACKOFF.longest_ms);
                    now_ms < at_ms + LEASE_MS.max(wait_ms)
                }
                (Takes::Idle, Some(_)) => false,
                (_, None) => now_ms < row.not_before_ms,
            };
            if is_early || self.acked.contains(&seq) || row.deliveries >= LIMIT {
                return Err(format!("{seq} is delivered to {consumer} at {now_ms}, but it is {row:?}"));
            }
            let deliveries = row.deliveries + 1;
            self.rows
                .insert(seq, LedgerRow { deliveries, owner: Some((consumer, now_ms)), not_before_ms: 0 });
        }
        Ok(())
    }

    fn release(&mut self, seq: u64) -> Checked {
        let modes = [NackMode::Silent, NackMode::Fail, NackMode::Fatal];
        let (mode, now_ms) = (modes[self.random.below(3) as usize], self.fixture.store.now_ms());
        let delay_ms = (self.random.below(2) == 0).then(|| self.random.below(300));
        let options = NackOptions { mode, deliveries: None, force: false, delay_ms };
        let released = Nack { key: KEY, group: GROUP, ids: [id(seq)], options }.run(&mut self.fixture.txn());
        if let (Ok(1), Some(row)) = (released, self.rows.get_mut(&seq)) {
            let before = row.deliveries;
            row.deliveries = match mode {
                NackMode::Silent if before < LIMIT + 1 => before.saturating_sub(1),
                NackMode::Silent | NackMode::Fail => before,
                NackMode::Fatal => u64::MAX,
            };
            let wait_ms = match mode {
                NackMode::Fail if row.deliveries < LIMIT => {
                    (BACKOFF.first_ms << row.deliveries.saturating_sub(1)).min(BACKOFF.longest_ms)
                }
                _ => 0,
            };
            row.owner = None;
            row.not_before_ms = now_ms + delay_ms.unwrap_or(wait_ms);
        }
        Ok(())
    }

    /// Moves the clock, runs the timekeeper, and checks where each entry is.
    fn advance(&mut self) -> Checked {
        let ms = self.random.below(250);
        self.fixture.clock.advance(ms);
        let final_row = self.rows.iter().find(|(_, row)| row.is_final(self.fixture.store.now_ms()));
        let first_final = final_row.map(|(seq, _)| id(*seq));
        match (self.mistake, first_final) {
            (Some(Mistake::AckWithoutDeadLetter), Some(id)) => {
                Acknowledge { key: KEY, group: GROUP, ids: [id] }.run(&mut self.fixture.txn()).unwrap();
            }
            (Some(Mistake::DeadLetterWithoutAck), Some(id)) => {
                let text = id.to_string();
                let mut txn = self.fixture.store.lock(0, [DEFAULT], self.fixture.store.now_ms());
                add(&mut txn, DEFAULT, &Addition::new(&[b"dlq.id", text.as_bytes()])).unwrap();
            }
            _ => {}
        }
        if self.mistake != Some(Mistake::LimitIgnoredByTimekeeper) {
            while self.fixture.store.run_duties() {}
        }
        self.check_places()
    }

    fn check_places(&mut self) -> Checked {
        let (now_ms, dead) = (self.fixture.store.now_ms(), self.fixture.dead(DEFAULT, "dlq.id"));
        for seq in 0..ENTRIES {
            let is_pending =
                self.fixture.txn().group(KEY, GROUP).unwrap().unwrap().pending().get(id(seq)).is_some();
            let letters = dead.iter().filter(|text| **text == id(seq).to_string()).count();
            let places = letters + usize::from(is_pending) + usize::from(self.acked.contains(&seq));
            let known = self.rows.get(&seq).copied();
            let was_read = known.is_some() || places > 0;
            if was_read && places != 1 {
                return Err(format!(
                    "entry {seq} is in {places} places: pending {is_pending}, {letters} dead letters"
                ));
            }
            let is_removed = self.removed.contains(&seq);
            let is_final = known.is_some_and(|row| row.is_final(now_ms));
            if is_pending && is_final || letters > 0 && known.is_some() && !is_final && !is_removed {
                return Err(format!(
                    "entry {seq} is dead-lettered too late or too early at {now_ms}: {known:?}"
                ));
            }
            if letters > 0 {
                self.rows.remove(&seq);
            }
        }
        Ok(())
    }
}

#[test]
fn random_histories_follow_the_rules() {
    for seed in 1..=SEEDS {
        History::new(seed, None).run().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

#[test]
fn mistakes_are_noticed() {
    for mistake in [
        Mistake::LimitCheckedAfterDelivery,
        Mistake::HistoryRenewsRowsAtTheLimit,
        Mistake::WaitingRowsHandedToClaim,
        Mistake::DeadLetterWithoutAck,
        Mistake::AckWithoutDeadLetter,
        Mistake::LimitIgnoredByTimekeeper,
    ] {
        let noticed = (1..=SEEDS).find_map(|seed| History::new(seed, Some(mistake)).run().err());
        println!("{mistake:?}: {}", noticed.unwrap_or_else(|| panic!("{mistake:?} is not noticed")));
    }
}
