//! The engine against a naive model: both get the same random requests, and their results must be equal.
//!
//! The model implements the documented meaning of the commands with ordered maps and no optimization. A failure
//! prints its seed. `MILLSTREAM_MODEL_SEEDS` sets the number of seeds.

mod delayed;
mod naive;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use millstream_engine::stream::{
    ClaimOptions, Delivered, Delivery, EntryRef, IdRange, IdempotenceInfo, IdempotenceLimits, IdleClaim,
    NackOptions, PriorDelivery, Recipient,
};
use millstream_engine::{
    BlockLimits, ClaimedRow, Exactness, GroupStart, IdSpec, NackMode, References, Stream, StreamEffect,
    StreamId, Trim, TrimBy, TrimLimit,
};
use naive::{NaiveEntry, NaiveStream};

/// A seeded xorshift generator.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// One run: a stream, its model, and the requests that drive both.
struct Run {
    random: Random,
    stream: Stream,
    naive: NaiveStream,
    limits: BlockLimits,
    now_ms: u64,
}

const GROUPS: [&[u8]; 3] = [b"alpha", b"beta", b""];
const CONSUMERS: [&[u8]; 4] = [b"c1", b"c2", b"c10", b"\xff"];
const NAMES: [&[u8]; 4] = [b"user", b"action", b"amount", b""];
const VALUES: [&[u8]; 8] =
    [b"", b"click", b"42", b"-7", b"007", b"9223372036854775807", b"\x00\r\n", &[b'v'; 300]];

impl Run {
    fn new(seed: u64) -> Run {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let limits = match random.below(4) {
            0 => BlockLimits { max_bytes: 4096, max_entries: 3 },
            1 => BlockLimits { max_bytes: 200, max_entries: 0 },
            2 => BlockLimits { max_bytes: 0, max_entries: 10 },
            _ => BlockLimits::default(),
        };
        Run { random, stream: Stream::new(), naive: NaiveStream::default(), limits, now_ms: 1_000 }
    }

    fn apply(&mut self, effect: StreamEffect<'_>) {
        self.stream.apply(&effect, self.limits);
    }

    fn step(&mut self) {
        self.now_ms += self.random.below(3);
        match self.random.below(100) {
            0..24 => self.add(),
            24..28 => self.trim(),
            28..30 => self.trim_referenced(),
            30..34 => self.delete(),
            34..38 => self.delete_referenced(),
            38..40 => self.set_id(),
            40..45 => self.manage_groups(),
            45..58 => self.deliver(),
            58..62 => self.read_history(),
            62..70 => self.acknowledge(),
            70..74 => self.ack_delete(),
            74..79 => self.release(),
            79..84 => self.read_claiming(),
            84..86 => self.extend(),
            86..91 => self.claim(),
            91..94 => self.auto_claim(),
            94..97 => self.add_idempotent(),
            _ => self.read_range(),
        }
        match self.random.below(20) {
            0..3 => self.delay(),
            3..5 => self.promote(),
            5 => self.undelay(),
            6 => self.promote_tickets(),
            _ => {}
        }
    }

    /// Returns mostly ids that are in use or next to one, and sometimes ids at the edges.
    fn id(&mut self) -> StreamId {
        let known: Vec<StreamId> = self.naive.entries.keys().copied().collect();
        match self.random.below(10) {
            0 => StreamId::MIN,
            1 => StreamId::MAX,
            2 => self.naive.last_id,
            3 => StreamId::new(self.random.below(self.now_ms + 10), self.random.below(4)),
            _ if known.is_empty() => StreamId::new(0, 1),
            n => {
                let id = known[self.random.below(known.len() as u64) as usize];
                match n {
                    4 => id.next().unwrap_or(id),
                    5 => id.prev().unwrap_or(id),
                    _ => id,
                }
            }
        }
    }

    fn ids(&mut self) -> Vec<StreamId> {
        (0..=self.random.below(5)).map(|_| self.id()).collect()
    }

    fn count(&mut self) -> Option<u64> {
        (!self.random.one_in(4)).then(|| self.random.below(6))
    }

    fn add(&mut self) {
        let spec = match self.random.below(6) {
            0 => IdSpec::Explicit(self.id()),
            1 => {
                IdSpec::AutoSeq(self.naive.last_id.ms.saturating_add(self.random.below(3)).saturating_sub(1))
            }
            _ => IdSpec::Auto,
        };
        let spec = match spec {
            // An entry with the greatest id would make every later add fail.
            IdSpec::Explicit(StreamId::MAX) => IdSpec::Auto,
            spec => spec,
        };
        let mut fields: Vec<&[u8]> = Vec::new();
        for n in 0..=self.random.below(3) {
            fields.push(if self.random.one_in(8) { self.random.pick(&NAMES) } else { NAMES[n as usize] });
            fields.push(self.random.pick(&VALUES));
        }
        let decided = self.stream.decide_add(spec, &fields, self.now_ms);
        assert_eq!(decided.ok(), self.naive.next_id(spec, self.now_ms), "{spec:?}");
        if let Ok(id) = decided {
            self.apply(StreamEffect::Append { id, fields: &fields });
            self.naive.add(id, &fields);
        }
    }

    fn trim(&mut self) {
        let by = match self.random.below(2) {
            0 => TrimBy::MaxLen(self.random.below(self.stream.len() + 5)),
            _ => TrimBy::MinId(self.id()),
        };
        let approximate = self.random.one_in(2);
        let (exactness, limit) = match approximate {
            true => (Exactness::Approximate, TrimLimit::AtMost(self.random.below(20))),
            false => (Exactness::Exact, TrimLimit::Default),
        };
        let decision = self.stream.decide_trim(&Trim { by, exactness, limit }, self.limits);
        let requested = self.naive.trim_count(by);
        match decision {
            None if !approximate => assert_eq!(requested, 0),
            None => {}
            Some(decision) => {
                assert!(
                    decision.count <= requested && (approximate || decision.count == requested),
                    "{by:?}"
                );
                if let TrimLimit::AtMost(most @ 1..) = limit {
                    assert!(decision.count <= most);
                }
                assert_eq!(self.naive.trim_through(decision.through), decision.count);
                self.apply(StreamEffect::TrimThrough { last: decision.through });
            }
        }
    }

    fn delete(&mut self) {
        let ids = self.ids();
        let found = self.stream.decide_delete(&ids);
        self.apply(StreamEffect::DeleteEntries { ids: &found });
        assert_eq!(self.naive.delete(&ids), found.len());
    }

    fn set_id(&mut self) {
        let last_id = self.id();
        let entries_added = self.random.one_in(2).then(|| self.stream.len() + self.random.below(3));
        if last_id != StreamId::MAX && self.stream.decide_set_id(last_id, entries_added).is_ok() {
            assert!(last_id >= self.naive.last_entry() && last_id >= self.naive.max_deleted);
            // A smaller value lets later requests move the last id back before deleted entries.
            let max_deleted_id = self.random.one_in(2).then(|| StreamId::new(0, 1));
            self.apply(StreamEffect::SetId { last_id, entries_added, max_deleted_id });
            self.naive.max_deleted = max_deleted_id.unwrap_or(self.naive.max_deleted);
            self.naive.last_id = last_id;
            self.naive.entries_added = entries_added.unwrap_or(self.naive.entries_added);
        }
    }

    fn manage_groups(&mut self) {
        let group = self.random.pick(&GROUPS);
        let consumer = self.random.pick(&CONSUMERS);
        match (self.stream.group(group).is_some(), self.random.below(12)) {
            (false, _) => {
                let start =
                    if self.random.one_in(3) { GroupStart::Last } else { GroupStart::After(self.id()) };
                let last_id = self.stream.decide_group_start(start);
                self.apply(StreamEffect::GroupCreate { group, last_id, entries_read: None });
                self.naive.create_group(group, last_id);
            }
            (true, 0) => {
                self.apply(StreamEffect::GroupDestroy { group });
                self.naive.groups.remove(group);
            }
            (true, 1..4) => {
                let last_id = self.id();
                self.apply(StreamEffect::GroupSetId { group, last_id, entries_read: None });
                let group = self.naive.groups.get_mut(group).unwrap();
                (group.last_id, group.missed) = (last_id, (0, StreamId::MIN));
            }
            (true, 4..6) => {
                self.apply(StreamEffect::ConsumerDelete { group, consumer });
                self.naive.delete_consumer(group, consumer);
            }
            (true, 6..8) => {
                let to = self.random.pick(&CONSUMERS);
                if to != consumer {
                    self.apply(StreamEffect::Adopt { group, from: consumer, to, at_ms: self.now_ms });
                    self.naive.adopt(group, consumer, to);
                }
            }
            (true, _) => {
                self.apply(StreamEffect::ConsumerCreate { group, consumer, at_ms: self.now_ms });
                self.naive.create_consumer(group, consumer);
            }
        }
    }

    /// Returns a group that exists and a consumer that may be new.
    fn reader(&mut self) -> Option<(&'static [u8], &'static [u8])> {
        let group = self.random.pick(&GROUPS);
        self.stream.group(group)?;
        Some((group, self.random.pick(&CONSUMERS)))
    }

    fn deliver(&mut self) {
        let Some((group, consumer)) = self.reader() else { return };
        let count = self.count().filter(|&count| count > 0);
        let pending = !self.random.one_in(6);
        let at_ms = self.now_ms;
        let to = Recipient { consumer, at_ms, pending };
        if self.stream.group(group).unwrap().consumer(consumer).is_none() {
            let undelivered = self.stream.deliver(group, &to, count, &mut collect(&mut Vec::new()));
            assert_eq!(undelivered, Ok(Delivered::NeedsConsumer));
            self.apply(StreamEffect::ConsumerCreate { group, consumer, at_ms });
            self.naive.create_consumer(group, consumer);
        }
        let (mut shown, mut replayed) = (Vec::new(), self.stream.clone());
        let delivery = self.stream.deliver(group, &to, count, &mut collect(&mut shown)).unwrap().entries();
        assert_eq!(shown, self.naive.deliver(group, consumer, count, pending, at_ms));
        assert_eq!(delivery.map(|delivery| delivery.last), shown.last().map(|entry| entry.0));
        if let Some(Delivery { last, count }) = delivery {
            let effect = StreamEffect::Deliver { group, consumer, last, count, at_ms, pending };
            replayed.apply(&effect, self.limits);
        }
        assert_eq!(format!("{:?}", self.stream), format!("{replayed:?}"));
    }

    fn read_history(&mut self) {
        let Some((group, consumer)) = self.reader() else { return };
        let (after, count) = (self.id(), self.count());
        let found = self.stream.group(group).unwrap();
        let Some(handle) = found.consumer(consumer) else { return };
        let ids = self.stream.query_consumer_pending(found, handle, after, u64::MAX, count);
        let (mut rows, mut shown) = (Vec::new(), Vec::new());
        self.stream.visit_ids(&ids, |id, entry| {
            shown.extend(entry.is_some().then_some(id));
            rows.push((id, entry.map(fields_of)));
        });
        assert_eq!(rows, self.naive.history(group, consumer, after, count, self.now_ms));
        self.apply(StreamEffect::Redeliver { group, consumer, ids: &shown, at_ms: self.now_ms });
    }

    fn acknowledge(&mut self) {
        let Some((group, _)) = self.reader() else { return };
        let mut ids = self.ids();
        let found = self.stream.group(group).unwrap();
        ids.extend(found.pending().first().map(|row| row.id));
        let before = found.pending().len();
        self.apply(StreamEffect::Ack { group, ids: &ids });
        let acked = before - self.stream.group(group).unwrap().pending().len();
        assert_eq!(self.naive.acknowledge(group, &ids) as u64, acked);
    }

    fn references(&mut self) -> References {
        [References::Keep, References::Delete, References::Acked][self.random.below(3) as usize]
    }

    fn trim_referenced(&mut self) {
        let by = match self.random.below(2) {
            0 => TrimBy::MaxLen(self.random.below(self.stream.len() + 5)),
            _ => TrimBy::MinId(self.id()),
        };
        let references = if self.random.one_in(2) { References::Delete } else { References::Acked };
        let trim = Trim { by, exactness: Exactness::Exact, limit: TrimLimit::Default };
        let found = self.stream.decide_trim_referenced(&trim, references, self.limits).unwrap_or_default();
        // A limited trim counts whole blocks against its limit, so it removes a prefix of what the unlimited trim
        // removes.
        let limit = 1 + self.random.below(20);
        let limited = Trim { exactness: Exactness::Approximate, limit: TrimLimit::AtMost(limit), ..trim };
        let limited =
            self.stream.decide_trim_referenced(&limited, references, self.limits).unwrap_or_default();
        assert!(limited.ids.len() as u64 <= limit && found.ids.starts_with(&limited.ids));
        assert_eq!(self.naive.trim_referenced(by, references), found.ids, "{by:?} {references:?}");
        match found.ids.last() {
            Some(&last) if !found.has_gaps => self.apply(StreamEffect::TrimThrough { last }),
            _ => self.apply(StreamEffect::TrimEntries { ids: &found.ids }),
        }
        self.apply(StreamEffect::Forget { ids: &found.forgotten });
    }

    fn delete_referenced(&mut self) {
        let (ids, references) = (self.ids(), self.references());
        let decision = self.stream.decide_delete_referenced(&ids, references);
        assert_eq!(
            decision.answers,
            self.naive.delete_referenced(&ids, references),
            "{references:?} {ids:?}"
        );
        self.apply(StreamEffect::DeleteEntries { ids: &decision.deleted });
        self.apply(StreamEffect::Forget { ids: &decision.forgotten });
    }

    fn ack_delete(&mut self) {
        let Some((group, _)) = self.reader() else { return };
        let (mut ids, references) = (self.ids(), self.references());
        let found = self.stream.group(group).unwrap();
        ids.extend(found.pending().first().map(|row| row.id));
        let decision = self.stream.decide_ack_delete(found, &ids, references);
        assert_eq!(
            decision.answers,
            self.naive.ack_delete(group, &ids, references),
            "{references:?} {ids:?}"
        );
        self.apply(StreamEffect::Ack { group, ids: &decision.acknowledged });
        self.apply(StreamEffect::DeleteEntries { ids: &decision.deleted });
        self.apply(StreamEffect::Forget { ids: &decision.forgotten });
    }

    fn release(&mut self) {
        let Some((group, _)) = self.reader() else { return };
        let mut ids = self.ids();
        let found = self.stream.group(group).unwrap();
        ids.extend(found.pending().last().map(|row| row.id));
        let mode = [NackMode::Silent, NackMode::Fail, NackMode::Fatal][self.random.below(3) as usize];
        let deliveries = self.random.one_in(3).then(|| self.random.below(9));
        let (force, delay_ms) = (self.random.one_in(3), self.random.below(3) * self.random.below(30));
        let (options, at_ms) =
            (NackOptions { mode, deliveries, force, delay_ms: Some(delay_ms) }, self.now_ms);
        let rows = self.stream.decide_nack(found, &ids, options, at_ms).unwrap();
        let not_before_ms = (delay_ms > 0).then_some(at_ms + delay_ms);
        assert_eq!(rows.len(), self.naive.nack(group, &ids, mode, (deliveries, force), not_before_ms));
        match not_before_ms {
            None => self.apply(StreamEffect::Release { group, rows: &rows }),
            Some(_) => self.apply(StreamEffect::ReleaseUntil { group, rows: &rows, at_ms }),
        }
    }

    fn read_claiming(&mut self) {
        let Some((group, consumer)) = self.reader() else { return };
        let (min_idle_ms, count) = (self.random.below(8), self.count());
        let (stream, found) = (&self.stream, self.stream.group(group).unwrap());
        let has_idle = stream.has_idle(found, min_idle_ms, self.now_ms);
        let idle_at = stream.query_idle_at(found, min_idle_ms, self.now_ms);
        let due_at = found.pending().next_due_ms(self.now_ms).unwrap_or(u64::MAX);
        let mut shown = Vec::new();
        let mut sink = |entry: &EntryRef<'_>, before: Option<PriorDelivery>| {
            shown.push((entry.id(), fields_of(entry), before));
        };
        let taken = stream.visit_idle(found, min_idle_ms, count, self.now_ms, &mut sink);
        // No further entry can be claimed before the times that the engine predicted.
        let earlier = idle_at.min(due_at).saturating_sub(1).max(self.now_ms);
        let early = stream.visit_idle(found, min_idle_ms, None, earlier, &mut |_: &EntryRef<'_>, _| {});
        let now = stream.visit_idle(found, min_idle_ms, None, self.now_ms, &mut |_: &EntryRef<'_>, _| {});
        let ids = |taken: &IdleClaim| taken.rows.iter().map(|row| row.id).collect::<Vec<_>>();
        assert!(idle_at > self.now_ms && ids(&early) == ids(&now) && (has_idle || now.rows.is_empty()));
        let left = count.map(|count| count - taken.rows.len() as u64);
        let mut new = Vec::new();
        let delivery = stream.visit_undelivered(found, left, &mut collect(&mut new));
        shown.extend(new.into_iter().map(|(id, fields)| (id, fields, None)));
        assert_eq!(shown, self.naive.read_claiming(group, consumer, min_idle_ms, count, self.now_ms));
        let at_ms = self.now_ms;
        if !taken.rows.is_empty() {
            self.apply(StreamEffect::Claim { group, consumer, rows: &taken.rows, at_ms });
        }
        if let Some(Delivery { last, count }) = delivery {
            self.apply(StreamEffect::Deliver { group, consumer, last, count, at_ms, pending: true });
        }
    }

    fn extend(&mut self) {
        let Some((group, consumer)) = self.reader() else { return };
        let mut ids = self.ids();
        let found = self.stream.group(group).unwrap();
        ids.extend(found.pending().first().map(|row| row.id));
        let extended = self.stream.decide_extend(found, consumer, &ids, self.now_ms);
        let answers: Vec<bool> = extended.iter().map(Option::is_some).collect();
        assert_eq!(answers, self.naive.extend(group, consumer, &ids, self.now_ms));
        let rows: Vec<ClaimedRow> = extended.into_iter().flatten().collect();
        if !rows.is_empty() {
            self.apply(StreamEffect::Claim { group, consumer, rows: &rows, at_ms: self.now_ms });
        }
    }

    /// A producer adds an entry, possibly a duplicate. Sometimes its limits change first, sometimes time passes.
    fn add_idempotent(&mut self) {
        if self.random.one_in(6) {
            self.now_ms += self.random.below(3) * 700;
        }
        if self.naive.producer_history.is_none() || self.random.one_in(12) {
            let limits = IdempotenceLimits {
                duration_s: 1 + self.random.below(2),
                max_size: 1 + self.random.below(4),
            };
            let IdempotenceLimits { duration_s, max_size } = limits;
            self.apply(StreamEffect::IdempotenceConfigure { duration_s, max_size });
            self.naive.configure(limits);
        }
        let (producer, iid) = (self.random.pick(&CONSUMERS), self.random.pick(&VALUES));
        let known = self.stream.query_remembered(producer, iid, self.now_ms);
        assert_eq!(known, self.naive.recall(producer, iid, self.now_ms));
        if known.is_some() {
            self.apply(StreamEffect::Repeat);
            self.naive.producer_history.as_mut().unwrap().duplicates += 1;
        } else if let Ok(id) = self.stream.decide_add(IdSpec::Auto, &[b"f", iid], self.now_ms) {
            self.apply(StreamEffect::Append { id, fields: &[b"f", iid] });
            self.naive.add(id, &[b"f", iid]);
            self.apply(StreamEffect::Remember { producer, iid, id, at_ms: self.now_ms });
            self.naive.remember(producer, iid, id, self.now_ms);
        }
        let id = self.id();
        let record = self.stream.decide_record(producer, iid, id, self.now_ms);
        if record == Ok(true) {
            self.apply(StreamEffect::Remember { producer, iid, id, at_ms: self.now_ms });
            self.naive.remember(producer, iid, id, self.now_ms);
        }
    }

    fn options(&mut self) -> ClaimOptions {
        ClaimOptions {
            min_idle_ms: self.random.below(8),
            delivered_at_ms: self.random.one_in(2).then(|| self.now_ms + self.random.below(20) - 15),
            deliveries: self.random.one_in(4).then(|| self.random.below(9)),
            force: self.random.one_in(3),
            just_ids: self.random.one_in(3),
        }
    }

    fn claim(&mut self) {
        let Some((group, consumer)) = self.reader() else { return };
        let (ids, options) = (self.ids(), self.options());
        let found = self.stream.group(group).unwrap();
        let claimed = self.stream.decide_claim(found, &ids, &options, self.now_ms);
        let rows: Vec<_> =
            claimed.rows.iter().map(|row| (row.id, row.delivered_at_ms, row.deliveries)).collect();
        let expected = self.naive.claim(group, consumer, &ids, &options, self.now_ms);
        assert_eq!((rows, claimed.gone.clone()), expected, "{options:?}");
        self.apply(StreamEffect::Ack { group, ids: &claimed.gone });
        self.apply(StreamEffect::Claim { group, consumer, rows: &claimed.rows, at_ms: self.now_ms });
    }

    fn auto_claim(&mut self) {
        let Some((group, consumer)) = self.reader() else { return };
        let (start, count) = (self.id(), 1 + self.random.below(4));
        let options = ClaimOptions { min_idle_ms: self.random.below(8), ..ClaimOptions::default() };
        let found = self.stream.group(group).unwrap();
        let found = self.stream.decide_auto_claim(found, start, count, &options, self.now_ms);
        let rows: Vec<_> =
            found.claimed.rows.iter().map(|row| (row.id, row.delivered_at_ms, row.deliveries)).collect();
        let expected = self.naive.auto_claim(group, consumer, start, count, options.min_idle_ms, self.now_ms);
        assert_eq!((rows, found.claimed.gone.clone(), found.next), expected);
        self.apply(StreamEffect::Ack { group, ids: &found.claimed.gone });
        self.apply(StreamEffect::Claim { group, consumer, rows: &found.claimed.rows, at_ms: self.now_ms });
    }

    fn read_range(&mut self) {
        let range = IdRange { first: self.id(), last: self.id() };
        let count = self.count();
        let (mut forward, mut back) = (Vec::new(), Vec::new());
        self.stream.visit_range(range, count, &mut collect(&mut forward));
        self.stream.visit_range_back(range, count, &mut collect(&mut back));
        assert_eq!(forward, self.naive.range(range, count, false));
        assert_eq!(back, self.naive.range(range, count, true));
        let id = self.id();
        assert_eq!(self.stream.contains(id), self.naive.entries.contains_key(&id));
    }

    /// Compares every query of the engine with the model.
    fn compare(&self) {
        self.stream.check().unwrap();
        let (stream, naive) = (&self.stream, &self.naive);
        assert_eq!(stream.len(), naive.entries.len() as u64);
        assert_eq!(stream.last_id(), naive.last_id);
        assert_eq!(stream.entries_added(), naive.entries_added);
        assert_eq!(stream.max_deleted_id(), naive.max_deleted);
        assert_eq!(stream.first_entry_id(), naive.entries.keys().next().copied().unwrap_or_default());
        assert_eq!(stream.last_entry_id(), naive.last_entry());
        let names: Vec<_> = stream.groups().map(|(name, _)| name.to_vec()).collect();
        assert_eq!(names, naive.groups.keys().cloned().collect::<Vec<_>>());
        for (name, group) in stream.groups() {
            let expected = &naive.groups[name];
            assert_eq!(group.last_id(), expected.last_id);
            assert_eq!(stream.query_lag_exact(group), naive.lag(name));
            let missed = stream.missed(group);
            assert_eq!(missed.count, expected.missed.0);
            assert!(missed.through >= expected.missed.1);
            // A trim by id can end between two entries. But it ends before the next one.
            let later = naive.entries.range(expected.missed.1..).next();
            assert!(missed.count == 0 || later.is_none_or(|(id, _)| missed.through < *id));
            let consumers: Vec<_> =
                group.consumers().map(|(name, _, c)| (name.to_vec(), c.pending)).collect();
            assert_eq!(consumers, expected.consumer_counts());
            let mut rows = Vec::new();
            group.pending().walk(StreamId::MIN, Default::default(), |row| {
                let owner = group.owner_name(row.consumer).to_vec();
                rows.push((row.id, (owner, row.delivered_at_ms, row.deliveries)));
                ControlFlow::Continue(())
            });
            assert_eq!(rows, expected.pending.clone().into_iter().collect::<Vec<_>>());
            let released: Vec<_> = group.pending().released().map(|row| row.id).collect();
            let waiting: Vec<_> = expected.waiting.iter().copied().collect();
            let queue = expected.released.iter().chain(waiting.iter().map(|(_, id)| id));
            assert!(released.iter().eq(queue));
            assert_eq!(group.pending().waiting().collect::<Vec<_>>(), waiting);
        }
        self.compare_producer_history();
        self.compare_delayed();
    }

    fn compare_producer_history(&self) {
        let (stream, Some(history)) = (&self.stream, &self.naive.producer_history) else {
            return assert!(self.stream.history_counters().is_none());
        };
        let kept = stream
            .history_items()
            .map(|kept| (kept.producer.to_vec(), kept.iid.to_vec(), kept.id, kept.since_ms));
        assert_eq!(kept.collect::<Vec<_>>(), history.kept);
        let duration_ms = history.limits.duration_s * 1000;
        let live = || history.kept.iter().filter(|kept| kept.3 + duration_ms > self.now_ms);
        let producers: BTreeSet<_> = live().map(|kept| &kept.0).collect();
        let expected = IdempotenceInfo {
            limits: history.limits,
            producers: producers.len() as u64,
            iids: live().count() as u64,
            added: history.added,
            duplicates: history.duplicates,
        };
        assert_eq!(stream.query_idempotence(IdempotenceLimits::default(), self.now_ms), expected);
    }
}

fn fields_of(entry: &EntryRef<'_>) -> NaiveEntry {
    entry.fields().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}

fn collect(into: &mut Vec<(StreamId, NaiveEntry)>) -> impl FnMut(&EntryRef<'_>) -> ControlFlow<()> {
    |entry| {
        into.push((entry.id(), fields_of(entry)));
        ControlFlow::Continue(())
    }
}

#[test]
fn engine_matches_the_naive_model_on_random_requests() {
    let seeds =
        std::env::var("MILLSTREAM_MODEL_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(300);
    for seed in 0..seeds {
        let outcome = std::panic::catch_unwind(|| {
            let mut run = Run::new(seed);
            for step in 0..600 {
                run.step();
                if step % 20 == 0 {
                    run.compare();
                }
            }
            run.compare();
        });
        assert!(outcome.is_ok(), "seed {seed} failed, see above");
    }
}
