//! Random commands of every type on few keys, so that they interact.

use std::ops::ControlFlow;
use std::sync::Arc;

use millstream_engine::policy::{Backoff, Policy};
use millstream_engine::stream::{ClaimOptions, Delivered, EntryRef, IdRange, NackOptions, PriorDelivery};
use millstream_engine::value::Kind;
use millstream_engine::{
    Due, Exactness, GroupStart, IdSpec, Idempotence, ListEnd, NackMode, References, Refusal, Stream,
    StreamId, Trim, TrimBy, TrimLimit,
};
use parking_lot::Mutex;

use super::random::WorkloadRandom;
use crate::dump::dump_within;
use crate::verbs::{
    self, AckDelete, Acknowledge, Adopt, AutoClaim, CancelDelayed, Claim, ConfigureIdempotence,
    ConsumerCreate, ConsumerDelete, ConsumerPath, Delete, DeleteEx, Extend, GroupCreate, GroupDestroy,
    GroupSetId, IdempotenceChange, Nack, PromoteDelayed, RecordIdempotence, ResetPolicy, SetCounters,
    SetPolicy, StreamCounters, TrimStream, Verb, read_history, read_new, read_ready,
};
use crate::{Addition, ExpireIf, Interest, ServeResult, SetExpiry, SetIf, Store, Txn};

pub(super) const DATABASES: u32 = 2;
const KEYS: [&[u8]; 5] = [b"a", b"b", b"c", b"d", b"e"];
const GROUPS: [&[u8]; 2] = [b"g", b"h"];
const CONSUMERS: [&[u8]; 3] = [b"x", b"y", b"z"];
const REFERENCES: [References; 3] = [References::Keep, References::Delete, References::Acked];
const WORDS: [&[u8]; 5] = [b"", b"v", b"42", b"word", b"a value of some length that fills segments sooner"];

/// States seen inside a transaction, with their log positions.
pub(super) type SeenStates = Arc<Mutex<Vec<(u64, String)>>>;

/// Runs one transaction on up to three keys, one on all keys, or several under one lock. The caller ends it by dropping
/// the result.
pub(super) fn transaction<'s>(store: &'s Store, random: &mut WorkloadRandom, seen: &SeenStates) -> Txn<'s> {
    let (db, now_ms) = (random.below(u64::from(DATABASES)) as u32, store.now_ms());
    if random.one_in(12) {
        let mut txn = store.lock_all(db, now_ms);
        whole_databases(&mut txn, random, seen);
        return txn;
    }
    let keys: Vec<&[u8]> = (0..=random.below(3)).map(|_| random.pick(&KEYS)).collect();
    let mut txn = store.lock(db, keys.iter().copied(), now_ms);
    for _ in 0..1 + random.below(2) * random.below(4) {
        command(&mut txn, &keys, random, seen);
    }
    // More transactions under the same lock and in the same record.
    for _ in 0..random.below(2) * random.below(3) {
        let key = random.pick(&KEYS);
        if !txn.end() || !txn.begin_next(db, key) {
            break;
        }
        command(&mut txn, &[key], random, seen);
    }
    txn
}

/// Renames a key, and sets another value under the old name.
pub(super) fn replacement<'s>(store: &'s Store, random: &mut WorkloadRandom) -> Txn<'s> {
    let (from, to) = (random.pick(&KEYS), random.pick(&KEYS));
    let mut txn = store.lock(0, [from, to], store.now_ms());
    let _ = txn.rename(from, to, false);
    let word = random.pick(&WORDS);
    txn.set(from, word, SetIf::Always, SetExpiry::Never);
    txn
}

fn whole_databases(txn: &mut Txn<'_>, random: &mut WorkloadRandom, seen: &SeenStates) {
    match random.below(6) {
        0 => txn.flush_database(),
        1 if random.one_in(3) => txn.flush_all(),
        2 | 3 => txn.swap_databases(0, 1).expect("both databases exist"),
        _ => {
            for _ in 0..4 {
                command(txn, &KEYS, random, seen);
            }
        }
    }
}

fn command(txn: &mut Txn<'_>, keys: &[&'static [u8]], random: &mut WorkloadRandom, seen: &SeenStates) {
    let key = random.pick(keys);
    if random.one_in(6) {
        return any_key(txn, key, random.pick(keys), random);
    }
    match txn.kind(key) {
        Some(Kind::Stream) => on_stream(txn, key, random.pick(keys), random, seen),
        Some(Kind::String) => on_string(txn, key, random),
        Some(Kind::Hash) => on_hash(txn, key, random),
        Some(Kind::List) => on_list(txn, key, random),
        Some(Kind::Set) => on_set(txn, key, random),
        None => match random.below(9) {
            0 => on_string(txn, key, random),
            1 => on_hash(txn, key, random),
            2 => on_list(txn, key, random),
            3 => on_set(txn, key, random),
            _ => on_stream(txn, key, random.pick(keys), random, seen),
        },
    }
}

fn any_key(txn: &mut Txn<'_>, key: &[u8], other: &[u8], random: &mut WorkloadRandom) {
    let other_db = (txn.db() + 1) % DATABASES;
    let now_ms = txn.now_ms() as i64;
    match random.below(9) {
        0 => _ = txn.delete(key),
        1..4 => _ = txn.expire_at(key, now_ms + random.below(300) as i64, ExpireIf::Always),
        4 => _ = txn.persist(key),
        5 if txn.rename(key, other, random.one_in(4)) == Ok(true) => txn.own_policies(txn.db(), other, key),
        6 => _ = txn.copy(key, other, random.pick(&[txn.db(), other_db]), random.one_in(2)),
        7 if txn.move_to(key, other_db) == Ok(true) => txn.own_policies(other_db, key, other),
        5 | 7 => {}
        _ => _ = txn.touch(key),
    }
}

fn on_string(txn: &mut Txn<'_>, key: &[u8], random: &mut WorkloadRandom) {
    let word = random.pick(&WORDS);
    match random.below(4) {
        0 => _ = txn.append(key, word),
        1 => _ = txn.increment(key, random.below(9) as i64),
        _ => {
            let at_ms = txn.now_ms() + random.below(300);
            let expiry = random.pick(&[SetExpiry::Never, SetExpiry::Keep, SetExpiry::At(at_ms)]);
            txn.set(key, word, SetIf::Always, expiry);
        }
    }
}

fn on_hash(txn: &mut Txn<'_>, key: &[u8], random: &mut WorkloadRandom) {
    let (field, value) = (random.pick(&WORDS), random.pick(&WORDS));
    match random.below(4) {
        0 => _ = txn.hash_delete(key, &[field, value]),
        1 => _ = txn.hash_increment(key, b"n", 3),
        _ => _ = txn.hash_set(key, &[field, value]),
    }
}

fn on_list(txn: &mut Txn<'_>, key: &[u8], random: &mut WorkloadRandom) {
    let end = random.pick(&[ListEnd::Head, ListEnd::Tail]);
    match random.below(5) {
        0 | 1 => _ = txn.list_pop(key, end, 1 + random.below(3), |_, _| {}),
        _ => _ = txn.list_push(key, end, &[random.pick(&WORDS), random.pick(&WORDS)]),
    }
}

fn on_set(txn: &mut Txn<'_>, key: &[u8], random: &mut WorkloadRandom) {
    let members = [random.pick(&WORDS), random.pick(&WORDS)];
    match random.below(3) {
        0 => _ = txn.set_remove(key, &members),
        _ => _ = txn.set_add(key, &members),
    }
}

fn on_stream(
    txn: &mut Txn<'_>,
    key: &'static [u8],
    other: &'static [u8],
    random: &mut WorkloadRandom,
    seen: &SeenStates,
) {
    let reader = ConsumerPath { key, group: random.pick(&GROUPS), consumer: random.pick(&CONSUMERS) };
    match random.below(100) {
        0..25 => add(txn, key, random),
        25 => promote(txn, key, random),
        26..28 => set_policy(txn, key, random),
        28..31 => {
            let (trim, references) = (trim(txn, key, random), random.pick(&REFERENCES));
            let _ = TrimStream { key, trim, references }.run(txn);
        }
        31..32 => _ = Delete { key, ids: ids(txn, key, random) }.run(txn),
        32..36 => {
            let (ids, references) = (ids(txn, key, random), random.pick(&REFERENCES));
            let _ = DeleteEx { key, ids, references }.run(txn);
        }
        36..38 => set_id(txn, key, random),
        38..46 => manage_group(txn, reader, random),
        46..50 => release(txn, reader, random),
        50..54 => _ = read_claiming(txn, reader, random.below(60), !random.one_in(4)),
        54..56 => _ = Extend { consumer: reader, ids: ids(txn, key, random) }.run(txn),
        56..59 => remember(txn, key, random),
        59..72 => {
            // Consecutive deliveries are merged into one change of the record.
            let (count, becomes_pending) = (Some(1 + random.below(4)), !random.one_in(4));
            for _ in 0..=random.below(2) {
                if read_new(txn, reader, count, becomes_pending, &mut ignore) == Ok(Delivered::NeedsReady) {
                    let mut ignore = |_: &EntryRef<'_>, _: Option<PriorDelivery>| {};
                    let _ = read_ready(txn, reader, count, &mut ignore);
                }
            }
            // An entry added after the delivery must stay after it.
            if random.one_in(3) {
                add(txn, key, random);
            }
        }
        72..77 => {
            let after = id(txn, key, random);
            let _ = read_history(txn, reader, after, Some(3), |_, _| ControlFlow::Continue(()));
        }
        77..83 => _ = Acknowledge { key, group: reader.group, ids: ids(txn, key, random) }.run(txn),
        83..86 => {
            let (ids, references) = (ids(txn, key, random), random.pick(&REFERENCES));
            let _ = AckDelete { key, group: reader.group, ids, references }.run(txn);
        }
        86..92 => claim(txn, reader, random),
        92..96 => {
            let options = ClaimOptions { min_idle_ms: random.below(60), ..ClaimOptions::default() };
            let count = 1 + random.below(3);
            let _ = AutoClaim { consumer: reader, start: StreamId::MIN, count, options }.claim(txn);
        }
        _ => wait(txn, reader, random.one_in(3).then_some(other), random.one_in(2), seen),
    }
}

fn add(txn: &mut Txn<'_>, key: &[u8], random: &mut WorkloadRandom) {
    let last = txn.stream(key).ok().flatten().map_or(StreamId::MIN, Stream::last_id);
    let id = match random.below(8) {
        0 => IdSpec::Explicit(StreamId::new(last.ms, last.seq + 1 + random.below(3))),
        1 => IdSpec::AutoSeq(last.ms),
        2 => IdSpec::Delayed(Due::In(random.below(3) * random.below(200))),
        3 => IdSpec::Delayed(Due::At(txn.now_ms() + random.below(100))),
        _ => IdSpec::Auto,
    };
    let short = Trim { by: TrimBy::MaxLen(12), exactness: Exactness::Exact, limit: TrimLimit::Default };
    let fields: [&[u8]; 4] = [b"name", random.pick(&WORDS), random.pick(&WORDS), random.pick(&WORDS)];
    let fields = if random.one_in(2) { &fields[..2] } else { &fields };
    let trim = random.one_in(3).then_some(short);
    let entry = Addition { id, trim, references: random.pick(&REFERENCES), ..Addition::new(fields) };
    let _ = verbs::add(txn, key, &entry);
    // Further entries with the same names use the short form, unless an entry with other names is between them.
    let other = Addition::new(&[b"other", b"name"]);
    for _ in 0..random.below(2) * random.below(4) {
        let _ = verbs::add(txn, key, if random.one_in(3) { &other } else { &entry });
    }
}

/// Sets or forgets the policy of a stream or of a group. Dead letters go to a stream that no command changes, so that
/// the timekeeper locks it although the transaction does not.
fn set_policy(txn: &mut Txn<'_>, key: &[u8], random: &mut WorkloadRandom) {
    let group = random.one_in(2).then(|| random.pick(&GROUPS));
    if random.one_in(5) {
        let _ = ResetPolicy { key, group }.run(txn);
        return;
    }
    let mut some = |from: u64, below: u64| random.one_in(3).then(|| from + random.below(below));
    let mut change = Policy {
        lease_ms: Some(100),
        max_deliveries: some(0, 4),
        consumer_ttl_ms: some(100, 200),
        ..Policy::default()
    };
    if group.is_none() {
        change.max_age_ms = some(50, 3000);
        change.max_length = some(1, 12);
        change.acked_age_ms = some(0, 200);
    }
    if random.one_in(3) {
        change.backoff = Some(Backoff { first_ms: 40, longest_ms: 90 });
    }
    let mut set = SetPolicy::new(key, group, change);
    set.owner = group;
    let _ = set.run(txn);
}

/// Promotes delayed entries that are due, or promotes or cancels some of them by ticket.
fn promote(txn: &mut Txn<'_>, key: &[u8], random: &mut WorkloadRandom) {
    let mut tickets = Vec::new();
    if let Some(delayed) = txn.stream(key).ok().flatten().and_then(Stream::delayed) {
        delayed.visit_range(IdRange::ALL, Some(4), &mut |entry: &EntryRef<'_>| {
            tickets.push(entry.id());
            ControlFlow::Continue(())
        });
    }
    let tickets = tickets.split_off(tickets.len().min(random.below(3) as usize));
    match random.below(4) {
        0 => _ = CancelDelayed { key, tickets }.run(txn),
        1 => _ = PromoteDelayed { key, tickets }.run(txn),
        _ => _ = verbs::promote_due(txn, key, 1 + random.below(9)),
    }
}

/// Sends an idempotent XADD, sometimes a repeated one, or changes the producer history directly.
fn remember(txn: &mut Txn<'_>, key: &[u8], random: &mut WorkloadRandom) {
    let (producer, iid) = (random.pick(&CONSUMERS[..2]), random.pick(&WORDS[1..3]));
    match random.below(6) {
        0 => {
            let change = IdempotenceChange {
                duration_s: random.one_in(2).then(|| 1 + random.below(2)),
                max_size: random.one_in(2).then(|| 1 + random.below(3)),
            };
            let _ = ConfigureIdempotence { key, change }.run(txn);
        }
        1 => _ = RecordIdempotence { key, producer, iid, id: id(txn, key, random) }.run(txn),
        n => {
            let idempotence = match n {
                2 => Idempotence::Auto { producer },
                _ => Idempotence::Given { producer, iid },
            };
            let fields: [&[u8]; 2] = [b"sent", iid];
            let _ =
                verbs::add(txn, key, &Addition { idempotence: Some(idempotence), ..Addition::new(&fields) });
        }
    }
}

fn release(txn: &mut Txn<'_>, reader: ConsumerPath<&[u8]>, random: &mut WorkloadRandom) {
    let options = NackOptions {
        mode: random.pick(&[NackMode::Silent, NackMode::Fail, NackMode::Fatal]),
        deliveries: random.one_in(4).then(|| random.below(9)),
        force: random.one_in(3),
        delay_ms: Some(random.below(3) * random.below(60)),
    };
    let ConsumerPath { key, group, .. } = reader;
    let _ = Nack { key, group, ids: ids(txn, key, random), options }.run(txn);
}

fn read_claiming(
    txn: &mut Txn<'_>,
    reader: ConsumerPath<&[u8]>,
    min_idle_ms: u64,
    becomes_pending: bool,
) -> Result<u64, Refusal> {
    let mut ignore = |_: &EntryRef<'_>, _: Option<PriorDelivery>| {};
    verbs::read_claiming(txn, reader, min_idle_ms, Some(3), becomes_pending, &mut ignore)
}

fn trim(txn: &Txn<'_>, key: &[u8], random: &mut WorkloadRandom) -> Trim {
    let by = match random.below(2) {
        0 => TrimBy::MaxLen(random.below(8)),
        _ => TrimBy::MinId(id(txn, key, random)),
    };
    let exactness = random.pick(&[Exactness::Exact, Exactness::Approximate]);
    Trim { by, exactness, limit: TrimLimit::Default }
}

fn set_id(txn: &mut Txn<'_>, key: &[u8], random: &mut WorkloadRandom) {
    let Ok(Some(stream)) = txn.stream(key) else { return };
    let last_id =
        random.pick(&[stream.last_id(), StreamId::new(stream.last_id().ms + 5, 0), stream.last_entry_id()]);
    let entries_added = random.one_in(2).then(|| stream.entries_added() + random.below(3));
    let max_deleted_id = random.one_in(3).then(|| stream.max_deleted_id());
    let counters = StreamCounters { last_id, entries_added, max_deleted_id };
    let _ = SetCounters { key, counters }.run(txn);
}

fn manage_group(txn: &mut Txn<'_>, reader: ConsumerPath<&[u8]>, random: &mut WorkloadRandom) {
    let ConsumerPath { key, group, .. } = reader;
    let start = match random.below(4) {
        0 => GroupStart::Last,
        1 | 2 => GroupStart::After(StreamId::MIN),
        _ => GroupStart::After(id(txn, key, random)),
    };
    let entries_read = random.one_in(3).then(|| random.below(9));
    match random.below(13) {
        12 => _ = Adopt { from: reader, to: random.pick(&CONSUMERS) }.run(txn),
        0 => _ = GroupDestroy { key, group }.run(txn),
        1 => _ = GroupSetId { key, group, start, entries_read }.run(txn),
        2..4 => _ = ConsumerDelete(reader).run(txn),
        4..6 => _ = ConsumerCreate(reader).run(txn),
        _ => _ = GroupCreate { key, group, start, make_stream: true, entries_read }.run(txn),
    }
}

fn claim(txn: &mut Txn<'_>, reader: ConsumerPath<&[u8]>, random: &mut WorkloadRandom) {
    let options = ClaimOptions {
        min_idle_ms: random.below(3) * random.below(60),
        delivered_at_ms: random.one_in(3).then(|| txn.now_ms() - random.below(20)),
        deliveries: random.one_in(4).then(|| random.below(9)),
        force: random.one_in(2),
        just_ids: random.one_in(3),
    };
    let last_id = random.one_in(6).then(|| id(txn, reader.key, random));
    let ids = ids(txn, reader.key, random);
    let _ = Claim { consumer: reader, ids, options, idle_ms: None, last_id }.claim(txn);
}

/// Adds a reader that blocks until a client adds an entry. If `claims` is true, a released entry unblocks it too. The
/// delivery to this reader becomes a separate record.
fn wait(
    txn: &mut Txn<'_>,
    reader: ConsumerPath<&'static [u8]>,
    also: Option<&'static [u8]>,
    claims: bool,
    seen: &SeenStates,
) {
    /// So long that only released entries are claimed.
    const MIN_IDLE_MS: u64 = 1 << 40;
    let keys = [reader.key].into_iter().chain(also);
    let (group, consumer) = (reader.group.into(), reader.consumer.into());
    let interest = match claims {
        true => Interest::Claim { group, consumer, min_idle_ms: MIN_IDLE_MS },
        false => Interest::Group { group, consumer },
    };
    let interests: Vec<_> = keys.map(|key| (Box::from(key), interest.clone())).collect();
    let seen = Arc::clone(seen);
    txn.block(&interests, move |txn| {
        seen.lock().push((txn.store().appended_position(), dump_within(txn)));
        let read = match claims {
            true => read_claiming(txn, reader, MIN_IDLE_MS, true),
            false => read_new(txn, reader, Some(2), true, &mut ignore)
                .map(|read| read.entries().map_or(0, |delivery| delivery.count)),
        };
        if read == Ok(0) { ServeResult::StillBlocked } else { ServeResult::Served }
    });
}

fn ignore(_: &EntryRef<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Returns mostly the id of an entry or of a pending entry.
fn id(txn: &Txn<'_>, key: &[u8], random: &mut WorkloadRandom) -> StreamId {
    let Ok(Some(stream)) = txn.stream(key) else { return StreamId::MIN };
    let mut known = vec![StreamId::MIN, stream.last_id()];
    stream.visit_range(IdRange::ALL, None, &mut |entry: &EntryRef<'_>| {
        known.push(entry.id());
        ControlFlow::Continue(())
    });
    let mut pending = Vec::new();
    for (_, group) in stream.groups() {
        group.pending().walk(StreamId::MIN, Default::default(), |row| {
            pending.push(row.id);
            ControlFlow::Continue(())
        });
    }
    let of_pending = !pending.is_empty() && random.one_in(2);
    random.pick(if of_pending { &pending } else { &known })
}

fn ids(txn: &Txn<'_>, key: &[u8], random: &mut WorkloadRandom) -> Vec<StreamId> {
    (0..=random.below(3)).map(|_| id(txn, key, random)).collect()
}
