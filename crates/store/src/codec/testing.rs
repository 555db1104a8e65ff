//! Shared by the tests of the codec and of snapshots: random operations on streams, and a dump of a stream.

use std::fmt::{Debug, Write};
use std::ops::ControlFlow;

use millstream_engine::stream::{
    ClaimOptions, DelayedSet, EntryRef, IdRange, NackOptions, PriorDelivery, Promotion,
};
use millstream_engine::{
    BlockLimits, Exactness, GroupStart, IdSpec, NackMode, References, Stream, StreamEffect, StreamId, Trim,
    TrimBy, TrimLimit,
};

use super::generate::CodecRandom;

/// Applies the same random operations to several streams, and checks that all of them give the same answers.
pub(crate) struct StreamDriver {
    pub(crate) random: CodecRandom,
    pub(crate) streams: Vec<Stream>,
    limits: BlockLimits,
    now_ms: u64,
}

const GROUPS: [&[u8]; 3] = [b"alpha", b"beta", b""];
const CONSUMERS: [&[u8]; 5] = [b"c1", b"c2", b"c10", b"\xff", b"a"];
const NAMES: [&[u8]; 4] = [b"user", b"action", b"amount", b""];
const VALUES: [&[u8]; 8] =
    [b"", b"click", b"42", b"-7", b"007", b"9223372036854775807", b"\x00\r\n", &[b'v'; 300]];

impl StreamDriver {
    #[cfg(test)]
    pub(crate) fn new(seed: u64, stream: Stream) -> StreamDriver {
        StreamDriver::with(CodecRandom::new(seed), stream)
    }

    pub(crate) fn with(mut random: CodecRandom, stream: Stream) -> StreamDriver {
        let limits = match random.below(4) {
            0 => BlockLimits { max_bytes: 4096, max_entries: 3 },
            1 => BlockLimits { max_bytes: 200, max_entries: 0 },
            2 => BlockLimits { max_bytes: 0, max_entries: 10 },
            _ => BlockLimits::default(),
        };
        StreamDriver { random, streams: vec![stream], limits, now_ms: 1_000 }
    }

    pub(crate) fn run(&mut self, steps: usize) {
        (0..steps).for_each(|_| self.step());
    }

    /// Queries all streams, checks that the answers are equal, and returns the answer.
    fn query<T: PartialEq + Debug>(&self, question: impl Fn(&Stream) -> T) -> T {
        let answer = question(&self.streams[0]);
        for other in &self.streams[1..] {
            assert_eq!(question(other), answer);
        }
        answer
    }

    fn apply(&mut self, effect: StreamEffect<'_>) {
        for stream in &mut self.streams {
            stream.apply(&effect, self.limits);
        }
    }

    fn step(&mut self) {
        self.now_ms += self.random.below(3) * self.random.below(40);
        match self.random.below(100) {
            0..36 => self.add(),
            36..40 => self.trim(),
            40..46 => self.delete(),
            46..48 => self.set_id(),
            48..54 => self.manage_groups(),
            54..70 => self.deliver(),
            70..74 => self.read_history(),
            74..80 => self.acknowledge(),
            80..86 => self.release(),
            86..89 => self.read_claiming(),
            89..92 => self.add_idempotent(),
            92..96 => self.claim(),
            _ => self.auto_claim(),
        }
        match self.random.below(20) {
            0..3 => self.delay(),
            3 => self.promote(),
            4 => self.undelay(),
            5 => self.promote_tickets(),
            _ => {}
        }
    }

    fn id(&mut self) -> StreamId {
        let known = ids_of(&self.streams[0]);
        match self.random.below(10) {
            0 => StreamId::MIN,
            1 => StreamId::MAX,
            2 => self.streams[0].last_id(),
            3 => StreamId::new(self.random.below(self.now_ms + 10), self.random.below(4)),
            _ if known.is_empty() => StreamId::new(0, 1),
            n => {
                let id = self.random.pick(&known);
                if n == 4 { id.next().unwrap_or(id) } else { id }
            }
        }
    }

    fn ids(&mut self) -> Vec<StreamId> {
        (0..=self.random.below(5)).map(|_| self.id()).collect()
    }

    fn add(&mut self) {
        let last = self.streams[0].last_id();
        let spec = match self.random.below(6) {
            0 => IdSpec::Explicit(StreamId::new(
                last.ms.saturating_add(self.random.below(200)),
                self.random.below(300),
            )),
            1 => IdSpec::AutoSeq(last.ms),
            _ => IdSpec::Auto,
        };
        let mut fields: Vec<&[u8]> = Vec::new();
        for n in 0..=self.random.below(3) {
            fields.push(if self.random.one_in(8) { self.random.pick(&NAMES) } else { NAMES[n as usize] });
            fields.push(self.random.pick(&VALUES));
        }
        if let Ok(id) = self.query(|stream| stream.decide_add(spec, &fields, self.now_ms)) {
            self.apply(StreamEffect::Append { id, fields: &fields });
        }
    }

    fn trim(&mut self) {
        let by = match self.random.below(2) {
            0 => TrimBy::MaxLen(self.random.below(self.streams[0].len() + 20)),
            _ => TrimBy::MinId(self.id()),
        };
        let (exactness, limit) = match self.random.below(4) {
            0 => (Exactness::Exact, TrimLimit::Default),
            _ => (Exactness::Approximate, TrimLimit::AtMost(self.random.below(30))),
        };
        let trim = Trim { by, exactness, limit };
        match self.references() {
            References::Keep => {
                if let Some(decision) = self.query(|stream| stream.decide_trim(&trim, self.limits)) {
                    self.apply(StreamEffect::TrimThrough { last: decision.through });
                }
            }
            references => {
                let found =
                    self.query(|stream| stream.decide_trim_referenced(&trim, references, self.limits));
                let found = found.unwrap_or_default();
                self.apply(StreamEffect::TrimEntries { ids: &found.ids });
                self.apply(StreamEffect::Forget { ids: &found.forgotten });
            }
        }
    }

    fn delete(&mut self) {
        let (ids, references) = (self.ids(), self.references());
        let found = self.query(|stream| stream.decide_delete_referenced(&ids, references));
        self.apply(StreamEffect::DeleteEntries { ids: &found.deleted });
        self.apply(StreamEffect::Forget { ids: &found.forgotten });
    }

    fn references(&mut self) -> References {
        self.random.pick(&[References::Keep, References::Delete, References::Acked])
    }

    fn release(&mut self) {
        let Some((group, _)) = self.reader() else { return };
        let mut ids = self.ids();
        ids.extend(self.query(|stream| Some(stream.group(group)?.pending().last()?.id)));
        let options = NackOptions {
            mode: self.random.pick(&[NackMode::Silent, NackMode::Fail, NackMode::Fatal]),
            deliveries: None,
            force: self.random.one_in(3),
            delay_ms: Some(self.random.below(3) * self.random.below(40)),
        };
        let at_ms = self.now_ms;
        let rows = self.query(|stream| stream.decide_nack(stream.group(group)?, &ids, options, at_ms).ok());
        let rows = &*rows.unwrap_or_default();
        match rows.iter().any(|row| row.not_before_ms > 0) {
            false => self.apply(StreamEffect::Release { group, rows }),
            true => self.apply(StreamEffect::ReleaseUntil { group, rows, at_ms }),
        }
    }

    fn read_claiming(&mut self) {
        let Some((group, consumer)) = self.reader() else { return };
        let (min_idle_ms, at_ms) = (self.random.below(40), self.now_ms);
        let taken = self.query(|stream| {
            let ignore = &mut |_: &EntryRef<'_>, _: Option<PriorDelivery>| {};
            Some(stream.visit_idle(stream.group(group)?, min_idle_ms, Some(2), at_ms, ignore))
        });
        let rows = taken.unwrap_or_default().rows;
        self.apply(StreamEffect::Claim { group, consumer, rows: &rows, at_ms });
    }

    fn delay(&mut self) {
        let (at_ms, due_ms) = (self.now_ms, self.now_ms + 1 + self.random.below(500));
        let fields: [&[u8]; 2] = [self.random.pick(&NAMES[..2]), self.random.pick(&VALUES)];
        if let Ok(ticket) = self.query(|stream| stream.decide_delay(due_ms, &fields)) {
            self.apply(StreamEffect::Delay { ticket, fields: &fields, at_ms });
        }
    }

    fn promote(&mut self) {
        let (at_ms, max_count) = (self.now_ms, 1 + self.random.below(20));
        if let Ok(Some(Promotion { through, count, first })) =
            self.query(|stream| stream.decide_promote(at_ms, max_count))
        {
            self.apply(StreamEffect::Promote { through, count, first, at_ms });
        }
    }

    fn promote_tickets(&mut self) {
        let (at_ms, first) = (self.now_ms, self.query(|stream| stream.delayed().and_then(DelayedSet::first)));
        if let Ok((tickets, first)) =
            self.query(|stream| stream.decide_promote_tickets(first.as_slice(), at_ms))
        {
            self.apply(StreamEffect::PromoteTickets { tickets: &tickets, first, at_ms });
        }
    }

    fn undelay(&mut self) {
        let first = self.query(|stream| stream.delayed().and_then(DelayedSet::first));
        let tickets = self.query(|stream| stream.decide_undelay(first.as_slice()));
        self.apply(StreamEffect::Undelay { tickets: &tickets });
    }

    /// Simulates an idempotent XADD, sometimes a repeated one. Sometimes changes the limits of the producer history.
    fn add_idempotent(&mut self) {
        let (producer, iid, at_ms) = (self.random.pick(&CONSUMERS), self.random.pick(&VALUES), self.now_ms);
        if self.query(|stream| stream.history_counters()).is_none() || self.random.one_in(9) {
            let (duration_s, max_size) = (1 + self.random.below(2), 1 + self.random.below(4));
            self.apply(StreamEffect::IdempotenceConfigure { duration_s, max_size });
        }
        if self.query(|stream| stream.query_remembered(producer, iid, at_ms)).is_some() {
            return self.apply(StreamEffect::Repeat);
        }
        let id = self.id();
        self.apply(StreamEffect::Remember { producer, iid, id, at_ms });
    }

    fn set_id(&mut self) {
        let last_id = self.id();
        let entries_added = self.random.one_in(2).then(|| self.streams[0].len() + self.random.below(3));
        if last_id != StreamId::MAX
            && self.query(|stream| stream.decide_set_id(last_id, entries_added)).is_ok()
        {
            self.apply(StreamEffect::SetId { last_id, entries_added, max_deleted_id: None });
        }
    }

    fn manage_groups(&mut self) {
        let (group, consumer) = (self.random.pick(&GROUPS), self.random.pick(&CONSUMERS));
        let entries_read = self.random.one_in(3).then(|| self.random.below(20));
        match (self.query(|stream| stream.group(group).is_some()), self.random.below(14)) {
            (false, _) => {
                let start =
                    if self.random.one_in(3) { GroupStart::Last } else { GroupStart::After(self.id()) };
                let last_id = self.query(|stream| stream.decide_group_start(start));
                self.apply(StreamEffect::GroupCreate { group, last_id, entries_read });
            }
            (true, 0) => self.apply(StreamEffect::GroupDestroy { group }),
            (true, 1..4) => {
                let last_id = self.id();
                self.apply(StreamEffect::GroupSetId { group, last_id, entries_read });
            }
            (true, 4) => self.apply(StreamEffect::ConsumerDelete { group, consumer }),
            (true, 5) => {
                let to = self.random.pick(&CONSUMERS);
                if to != consumer {
                    self.apply(StreamEffect::Adopt { group, from: consumer, to, at_ms: self.now_ms });
                }
            }
            (true, _) => self.apply(StreamEffect::ConsumerCreate { group, consumer, at_ms: self.now_ms }),
        }
    }

    /// Returns an existing group, and a consumer that may be new.
    fn reader(&mut self) -> Option<(&'static [u8], &'static [u8])> {
        let group = self.random.pick(&GROUPS);
        self.query(|stream| stream.group(group).is_some()).then(|| (group, self.random.pick(&CONSUMERS)))
    }

    fn deliver(&mut self) {
        let Some((group, consumer)) = self.reader() else { return };
        let (count, pending) = (1 + self.random.below(6), !self.random.one_in(6));
        let delivery = self.query(|stream| {
            let mut ids = Vec::new();
            let delivery =
                stream.visit_undelivered(stream.group(group)?, Some(count), &mut collect(&mut ids));
            delivery.map(|delivery| (delivery, ids))
        });
        let at_ms = self.now_ms;
        match delivery {
            None => self.apply(StreamEffect::ConsumerSeen { group, consumer, at_ms }),
            Some((delivery, _)) => {
                let (last, count) = (delivery.last, delivery.count);
                self.apply(StreamEffect::Deliver { group, consumer, last, count, at_ms, pending });
            }
        }
    }

    fn read_history(&mut self) {
        let Some((group, consumer)) = self.reader() else { return };
        let after = self.id();
        let ids = self.query(|stream| {
            let group = stream.group(group)?;
            Some(stream.query_consumer_pending(
                group,
                group.consumer(consumer)?,
                after,
                group.delivery_limit(),
                Some(4),
            ))
        });
        if let Some(ids) = ids {
            self.apply(StreamEffect::Redeliver { group, consumer, ids: &ids, at_ms: self.now_ms });
        }
    }

    fn acknowledge(&mut self) {
        let Some((group, _)) = self.reader() else { return };
        let ids = self.ids();
        self.apply(StreamEffect::Ack { group, ids: &ids });
    }

    fn claim(&mut self) {
        let Some((group, consumer)) = self.reader() else { return };
        let ids = self.ids();
        let options = ClaimOptions {
            min_idle_ms: self.random.below(8),
            delivered_at_ms: self.random.one_in(2).then(|| self.now_ms + self.random.below(20) - 15),
            deliveries: self.random.one_in(4).then(|| self.random.below(300)),
            force: self.random.one_in(2),
            just_ids: self.random.one_in(3),
        };
        let claimed =
            self.query(|stream| Some(stream.decide_claim(stream.group(group)?, &ids, &options, self.now_ms)));
        let Some(claimed) = claimed else { return };
        self.apply(StreamEffect::Claim { group, consumer, rows: &claimed.rows, at_ms: self.now_ms });
    }

    fn auto_claim(&mut self) {
        let Some((group, consumer)) = self.reader() else { return };
        let start = self.id();
        let options = ClaimOptions { min_idle_ms: self.random.below(8), ..ClaimOptions::default() };
        let found = self.query(|stream| {
            Some(stream.decide_auto_claim(stream.group(group)?, start, 3, &options, self.now_ms))
        });
        let Some(found) = found else { return };
        self.apply(StreamEffect::Claim { group, consumer, rows: &found.claimed.rows, at_ms: self.now_ms });
    }
}

fn collect(into: &mut Vec<StreamId>) -> impl FnMut(&EntryRef<'_>) -> ControlFlow<()> {
    |entry| {
        into.push(entry.id());
        ControlFlow::Continue(())
    }
}

fn ids_of(stream: &Stream) -> Vec<StreamId> {
    let mut ids = Vec::new();
    stream.visit_range(IdRange::ALL, None, &mut collect(&mut ids));
    ids
}

/// Returns everything that is visible of a stream, as text.
pub(crate) fn dump(stream: &Stream) -> String {
    let mut out = String::new();
    let ends = (stream.len(), stream.first_entry_id(), stream.last_entry_id(), stream.block_count());
    writeln!(out, "{:?} {ends:?}", stream.counters()).unwrap();
    stream.blocks().for_each(|block| writeln!(out, "{block:?}").unwrap());
    stream.visit_range(IdRange::ALL, None, &mut |entry: &EntryRef<'_>| {
        writeln!(out, "{} {:?}", entry.id(), entry.fields().collect::<Vec<_>>()).unwrap();
        ControlFlow::Continue(())
    });
    for (name, group) in stream.groups() {
        let lag = (stream.query_lag_exact(group), stream.query_lag_estimated(group));
        writeln!(out, "{name:?} {} {:?} {lag:?}", group.last_id(), group.entries_read()).unwrap();
        let owner = stream.group_policy_owner(group);
        writeln!(out, "{:?} {:?} {owner:?} {:?}", stream.missed(group), group.own_policy(), group.rules())
            .unwrap();
        group.consumers().for_each(|(name, _, consumer)| writeln!(out, "{name:?} {consumer:?}").unwrap());
        group.pending().walk(StreamId::MIN, Default::default(), |row| {
            let owner = group.owner_name(row.consumer);
            writeln!(out, "{} {owner:?} {} {}", row.id, row.delivered_at_ms, row.deliveries).unwrap();
            ControlFlow::Continue(())
        });
        group.pending().released().for_each(|row| writeln!(out, "released {}", row.id).unwrap());
        group.pending().waiting().for_each(|(due_ms, id)| writeln!(out, "due {due_ms} {id}").unwrap());
    }
    let policy = (stream.policy(), stream.policy_owner());
    writeln!(out, "{:?} {policy:?}", stream.history_counters()).unwrap();
    stream.history_items().for_each(|kept| writeln!(out, "{kept:?}").unwrap());
    if let Some(delayed) = stream.delayed() {
        writeln!(out, "{} {} {}", delayed.last_number(), delayed.len(), delayed.text_bytes()).unwrap();
        delayed.blocks().for_each(|block| writeln!(out, "{block:?}").unwrap());
    }
    out
}
