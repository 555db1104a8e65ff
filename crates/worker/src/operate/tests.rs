//! Tests of what operators do, on the embedded store.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::dead_letters::{self, DeadLetterSource, PurgeDeadLetters, RedriveDeadLetters};
use super::groups::{RemoveConsumer, RemoveGroup, ResetGroup};
use super::idle_times::idle_times;
use super::life::states_of;
use super::operation::{OnParts, Operate, apply, check};
use super::partitions::removal_of_group;
use super::pending::{self, ChangePending, PendingChange, PendingQuery, PendingSelection};
use super::plan::Executed;
use super::trim::{COUNTED_MAX, DeleteEntries, TrimStream};
use crate::backend::{
    Acknowledgement, Admin, Consumer, Embedded, Range, Read, Release, Start, StreamId, TrimLimit,
};
use crate::group_manager::{GroupManager, Position};
use crate::names::control_stream;
use crate::partitions::Partitions;
use crate::producer::Producer;
use crate::redaction::Redaction;
use crate::redrive::{Filter, Redrive};

/// Returns a store with entries in the stream orders, and a group billing of which `one` has read some.
async fn store(entries: usize, read: usize) -> (Arc<dyn Admin>, Vec<StreamId>) {
    let backend: Arc<dyn Admin> = Arc::new(Embedded::in_memory());
    backend.create_group("orders", "billing", Start::Beginning).await.unwrap();
    let ids = add(&backend, entries).await;
    deliver(&backend, "one", read).await;
    (backend, ids)
}

fn orders() -> String {
    "orders".to_owned()
}

fn billing() -> String {
    "billing".to_owned()
}

async fn add(backend: &Arc<dyn Admin>, entries: usize) -> Vec<StreamId> {
    let producer = Producer::new(backend.clone(), "orders");
    producer.send_all((0..entries).map(|n| [("n", n.to_string())])).await.unwrap()
}

async fn deliver(backend: &Arc<dyn Admin>, consumer: &str, count: usize) {
    let read = Read { stream: "orders", group: "billing", consumer, count, block: None, claim_idle: None };
    assert_eq!(backend.read(&read).await.unwrap().len(), count);
}

async fn position(backend: &Arc<dyn Admin>) -> StreamId {
    backend.groups("orders").await.unwrap()[0].last_delivered
}

async fn length(backend: &Arc<dyn Admin>, stream: &str) -> u64 {
    backend.stream(stream).await.unwrap().map_or(0, |info| info.length)
}

#[tokio::test]
async fn a_reset_goes_where_its_preview_said() {
    let (backend, ids) = store(5, 2).await;
    let operation = ResetGroup { stream: orders(), group: billing(), to: Position::End };
    let plan = operation.plan(&backend, None).await.unwrap();
    add(&backend, 2).await;
    let reset = |digest: String, force| {
        let (backend, operation) = (backend.clone(), operation.clone());
        async move { apply(&operation, &backend, &digest, force).await.unwrap() }
    };
    let Executed::InUse(refused) = reset(plan.digest.clone(), false).await else { panic!() };
    assert_eq!(refused.effect.active_consumers, ["one"]);
    assert_eq!(position(&backend).await, ids[1]);
    let Executed::Done(done) = reset(plan.digest.clone(), true).await else { panic!() };
    assert_eq!((done.after.last_delivered, position(&backend).await), (ids[4], ids[4]));
    let Executed::Outdated(now) = reset(plan.digest, true).await else { panic!() };
    assert_eq!(now.effect.before.last_delivered, ids[4]);
    assert!(matches!(reset("nonsense".to_owned(), true).await, Executed::Outdated(_)));
}

#[tokio::test]
async fn a_reset_fails_if_the_group_has_moved() {
    let (backend, _) = store(5, 2).await;
    let groups = GroupManager::new(Arc::clone(&backend));
    let plan = groups.preview_reset("orders", "billing", Position::Beginning).await.unwrap();
    deliver(&backend, "one", 1).await;
    let before = position(&backend).await;
    let error = groups.reset(&plan).await.unwrap_err();
    assert!(error.to_string().contains("has moved since the preview"), "{error}");
    assert_eq!(position(&backend).await, before);
}

#[tokio::test]
async fn groups_and_consumers_are_removed_as_planned() {
    let (backend, ids) = store(4, 2).await;
    let remove = |heir: Option<&str>| {
        let heir = heir.map(str::to_owned);
        RemoveConsumer { stream: orders(), group: billing(), consumer: "one".to_owned(), heir }
    };
    let error = remove(None).plan(&backend, None).await.unwrap_err();
    assert!(error.to_string().contains("2 pending entries; name an heir"), "{error}");
    let error = remove(Some("one")).plan(&backend, None).await.unwrap_err();
    assert!(error.to_string().contains("its own heir"));
    let to_two = remove(Some("two"));
    let planned = to_two.plan(&backend, None).await.unwrap();
    assert!(planned.effect.heir_is_new && planned.effect.moved == 2);
    deliver(&backend, "one", 1).await;
    let remove = |digest| apply(&to_two, &backend, digest, false);
    let Executed::Outdated(now) = remove(&planned.digest).await.unwrap() else { panic!() };
    let Executed::Done(removed) = remove(&now.digest).await.unwrap() else { panic!() };
    assert_eq!((removed.heir.as_deref(), removed.moved), (Some("two"), 3));

    let operation = RemoveGroup { stream: orders(), group: billing(), forget: None };
    let planned = operation.plan(&backend, None).await.unwrap();
    assert_eq!((planned.effect.pending, planned.effect.consumers), (3, 1));
    let acknowledged = Acknowledgement { ids: ids[..1].to_vec(), ..Acknowledgement::default() };
    backend.acknowledge("orders", "billing", &acknowledged).await.unwrap();
    let remove = |digest| apply(&operation, &backend, digest, true);
    let Executed::Outdated(now) = remove(&planned.digest).await.unwrap() else { panic!() };
    assert!(matches!(remove(&now.digest).await.unwrap(), Executed::Done(_)));
    assert!(backend.groups("orders").await.unwrap().is_empty());
}

fn trim(limit: TrimLimit, keep_unread: bool) -> TrimStream {
    TrimStream { stream: orders(), limit, keep_unread }
}

#[tokio::test]
async fn a_trim_says_what_each_group_loses() {
    let (backend, ids) = store(10, 3).await;
    let limit = TrimLimit::Length(4);
    let plan = trim(limit, false).plan(&backend, None).await.unwrap();
    assert_eq!((plan.effect.matched, plan.effect.exact), (6, true));
    assert_eq!(plan.effect.first_kept, Some(ids[6]));
    let loss = &plan.effect.groups[0];
    assert_eq!((loss.unread, loss.unread_exact, loss.pending, loss.pending_exact), (3, true, Some(3), true));
    let kept = trim(limit, true).plan(&backend, None).await.unwrap();
    assert_eq!((kept.effect.matched, kept.effect.groups[0].unread), (0, 0));
    // Entries that are added do not change what the trim removes.
    add(&backend, 3).await;
    let run = async |limit| apply(&trim(limit, false), &backend, &plan.digest, false).await.unwrap();
    assert!(matches!(run(TrimLimit::Length(5)).await, Executed::Outdated(_)));
    assert!(matches!(run(limit).await, Executed::Done(done) if done.removed == 6));
    assert_eq!(length(&backend, "orders").await, 7);
    assert!(matches!(run(limit).await, Executed::Outdated(_)));
    let planned = async |limit| trim(limit, false).plan(&backend, None).await.unwrap().effect;
    assert_eq!(planned(TrimLimit::Length(0)).await.matched, 7);
    assert_eq!(planned(TrimLimit::Length(7)).await.matched, 0);
    let by_id = planned(TrimLimit::MinId(ids[8])).await;
    assert_eq!((by_id.matched, by_id.groups[0].unread, by_id.groups[0].unread_exact), (2, 2, true));
}

#[tokio::test]
async fn a_trim_in_the_middle_of_a_long_stream_is_not_counted_entry_by_entry() {
    let (backend, _) = store(2 * COUNTED_MAX + 2, 1).await;
    let length = COUNTED_MAX as u64 + 1;
    let plan = trim(TrimLimit::Length(length), false).plan(&backend, None).await.unwrap();
    assert_eq!((plan.effect.matched, plan.effect.exact, plan.effect.first_kept), (length, true, None));
    let loss = &plan.effect.groups[0];
    assert_eq!((loss.unread, loss.unread_exact, loss.pending), (length - 1, true, None));
    let nearer = trim(TrimLimit::Length(length - 1), false).plan(&backend, None).await.unwrap();
    assert!(nearer.effect.first_kept.is_some() && nearer.effect.matched == length + 1);
}

#[tokio::test]
async fn entries_are_deleted_as_planned() {
    let (backend, ids) = store(3, 0).await;
    let operation = DeleteEntries { stream: orders(), ids: vec![ids[0], StreamId::new(1, 1), ids[2]] };
    let plan = operation.plan(&backend, None).await.unwrap();
    assert_eq!((plan.effect.asked, plan.effect.ids.len()), (3, 2));
    let delete = || apply(&operation, &backend, &plan.digest, false);
    assert!(matches!(delete().await.unwrap(), Executed::Done(done) if done.deleted == 2));
    assert!(matches!(delete().await.unwrap(), Executed::Outdated(_)));
}

#[tokio::test]
async fn pending_entries_are_listed_in_pages_with_their_fields() {
    let (backend, ids) = store(5, 5).await;
    backend.delete_entries("orders", &ids[1..2]).await.unwrap();
    let all = PendingQuery::default();
    let list = |after, count, scan| pending::list(&*backend, "orders", "billing", &all, after, count, scan);
    let first = list(None, 2, 100).await.unwrap();
    assert_eq!((first.matched, first.exact, first.next), (5, true, Some(ids[1])));
    assert_eq!(first.rows[0].fields.as_ref().unwrap()[0].1, "0");
    assert_eq!(first.rows[1].fields, None);
    let last = list(first.next, 3, 100).await.unwrap();
    let listed: Vec<StreamId> = last.rows.iter().map(|listed| listed.row.id).collect();
    assert_eq!((&listed[..], last.next), (&ids[2..], None));
    let bounded = list(None, 10, 4).await.unwrap();
    assert_eq!((bounded.matched, bounded.exact, bounded.rows.len()), (4, false, 4));
    let often = PendingQuery { deliveries_min: Some(2), ..PendingQuery::default() };
    let (often, _) =
        pending::select(&*backend, "orders", "billing", &often, StreamId::MIN, 100).await.unwrap();
    assert_eq!(often, []);
    // An entry that was released has no idle time. So it is idle for five minutes, and it is not stuck.
    let released = pending::rows_of(&*backend, "orders", "billing", &ids[4..]).await.unwrap();
    pending::change(&*backend, "orders", "billing", &PendingChange::Release, &released).await.unwrap();
    for _ in 0..4 {
        let listed = pending::rows_of(&*backend, "orders", "billing", &ids[..1]).await.unwrap();
        let claim = PendingChange::Claim { consumer: "two".to_owned() };
        pending::change(&*backend, "orders", "billing", &claim, &listed).await.unwrap();
    }
    let selected = async |query: PendingQuery| {
        let (rows, _) =
            pending::select(&*backend, "orders", "billing", &query, StreamId::MIN, 100).await.unwrap();
        rows.into_iter().map(|row| row.id).collect::<Vec<_>>()
    };
    let idle = PendingQuery { idle_min: Some(Duration::from_secs(300)), ..PendingQuery::default() };
    let stuck = PendingQuery { stuck: true, ..PendingQuery::default() };
    assert_eq!((selected(idle).await, selected(stuck).await), (ids[4..].to_vec(), ids[..1].to_vec()));
}

#[tokio::test]
async fn rows_that_have_changed_hands_are_left_alone() {
    let (backend, ids) = store(6, 4).await;
    let listed = pending::rows_of(&*backend, "orders", "billing", &ids).await.unwrap();
    assert_eq!(listed.len(), 4);
    // One entry is released and claimed by another consumer, one is acknowledged, one is deleted.
    let one = Consumer::new("orders", "billing", "one");
    backend.release(one, &[Release::counted(ids[0], 1)]).await.unwrap();
    let two = Consumer::new("orders", "billing", "two");
    backend.autoclaim(two, Duration::from_secs(3600), StreamId::MIN, 1).await.unwrap();
    let done = Acknowledgement { ids: vec![ids[1]], ..Acknowledgement::default() };
    backend.acknowledge("orders", "billing", &done).await.unwrap();
    backend.delete_entries("orders", &ids[2..3]).await.unwrap();
    let change = |change| {
        let (backend, listed) = (Arc::clone(&backend), listed.clone());
        async move {
            let done = pending::change(&*backend, "orders", "billing", &change, &listed).await.unwrap();
            (done.asked, done.done, done.changed_hands, done.skipped)
        }
    };
    let owner = |id| {
        let backend = Arc::clone(&backend);
        async move {
            let rows = pending::rows_of(&*backend, "orders", "billing", &[id]).await.unwrap();
            rows.into_iter().next().and_then(|row| row.consumer)
        }
    };
    assert_eq!(change(PendingChange::Extend).await, (4, 2, 2, 0));
    assert_eq!(change(PendingChange::Claim { consumer: "three".into() }).await, (4, 1, 2, 1));
    assert_eq!(owner(ids[3]).await.as_deref(), Some("three"));
    assert_eq!(owner(ids[0]).await.as_deref(), Some("two"));
    // The row that was claimed has another owner now; that of the deleted entry is as it was.
    assert_eq!(change(PendingChange::Release).await, (4, 1, 3, 0));
    assert_eq!(change(PendingChange::Acknowledge).await, (4, 0, 4, 0));
    let now = pending::rows_of(&*backend, "orders", "billing", &ids).await.unwrap();
    let done =
        pending::change(&*backend, "orders", "billing", &PendingChange::Acknowledge, &now).await.unwrap();
    assert_eq!((done.done, done.changed_hands), (3, 0));
}

#[tokio::test]
async fn the_digest_of_pending_entries_follows_their_owners() {
    let (backend, ids) = store(2, 2).await;
    let operation = |selection| ChangePending {
        stream: orders(),
        group: billing(),
        selection,
        change: PendingChange::Acknowledge,
    };
    let all = operation(PendingSelection::Matching { query: PendingQuery::default(), scan: 100 });
    let of_ids = operation(PendingSelection::Ids(ids.clone()));
    let plan = all.plan(&backend, None).await.unwrap();
    assert_eq!(all.plan(&backend, None).await.unwrap().digest, plan.digest);
    let ids_plan = of_ids.plan(&backend, None).await.unwrap();
    let one = Consumer::new("orders", "billing", "one");
    backend.release(one, &[Release::counted(ids[0], 1)]).await.unwrap();
    assert!(matches!(apply(&all, &backend, &plan.digest, false).await.unwrap(), Executed::Outdated(_)));
    let done = apply(&of_ids, &backend, &ids_plan.digest, false).await.unwrap();
    assert!(matches!(done, Executed::Done(done) if done.changed.done == 2));
}

/// An operation on all partitions has one plan, which is out of date if one of the partitions has changed.
#[tokio::test]
async fn an_operation_on_partitions_is_planned_and_applied_as_one() {
    let (backend, _) = store(3, 3).await;
    backend.create_group("others", "billing", Start::Beginning).await.unwrap();
    let remove = |stream| RemoveGroup { stream, group: billing(), forget: None };
    let operation = OnParts::new("all", [orders(), "others".to_owned()], remove);
    let plan = operation.plan(&backend, None).await.unwrap();
    assert_eq!((plan.effect.pending, plan.parts.len(), &*plan.effect.stream), (3, 2, "all"));
    assert_eq!(plan.effect.active_consumers, ["one"]);
    let run = || apply(&operation, &backend, &plan.digest, true);
    backend.move_group("others", "billing", Start::After(StreamId::new(5, 0))).await.unwrap();
    assert!(matches!(run().await.unwrap(), Executed::Outdated(_)));
    assert_eq!(backend.groups("orders").await.unwrap().len(), 1);
    backend.move_group("others", "billing", Start::Beginning).await.unwrap();
    assert!(matches!(run().await.unwrap(), Executed::Done(done) if done.removed));
    assert!(backend.groups("orders").await.unwrap().is_empty());
    assert!(apply(&operation, &backend, "none", true).await.is_err());
}

/// Also if only one of them has the group.
#[tokio::test]
async fn removing_a_group_of_a_logical_stream_removes_what_its_workers_share() {
    let backend: Arc<dyn Admin> = Arc::new(Embedded::in_memory());
    let partitions = Partitions::plan("pay", 2, None).unwrap();
    partitions.create(&*backend).await.unwrap();
    let control = control_stream("pay", "billing");
    for stream in [partitions.names()[1], &control] {
        backend.create_group(stream, "billing", Start::Beginning).await.unwrap();
    }
    let operation = removal_of_group(&backend, "pay", "billing").await.unwrap();
    let plan = operation.plan(&backend, None).await.unwrap();
    assert_eq!(plan.effect.stream, "pay");
    let done = apply(&operation, &backend, &plan.digest, false).await.unwrap();
    assert!(matches!(done, Executed::Done(done) if done.removed));
    assert!(backend.stream(&control).await.unwrap().is_none());
}

#[tokio::test]
async fn idle_times_are_counted_by_range() {
    let (backend, ids) = store(4, 3).await;
    let one = Consumer::new("orders", "billing", "one");
    backend.release(one, &[Release::counted(ids[0], 1)]).await.unwrap();
    let times = idle_times(&*backend, "orders", "billing").await.unwrap();
    assert_eq!((times.scanned, times.released, times.complete), (3, 1, true));
    assert_eq!(times.ranges.iter().map(|range| range.count).sum::<u64>(), 2);
    assert!(times.ranges.windows(2).all(|two| two[0].end == Some(two[1].min)));
    assert_eq!((times.ranges[0].min, times.ranges.last().unwrap().end), (Duration::ZERO, None));
}

#[tokio::test]
async fn the_life_of_an_entry_is_known_for_each_group() {
    let (backend, ids) = store(3, 2).await;
    backend.create_group("orders", "audit", Start::After(ids[0])).await.unwrap();
    let states = |id| {
        let backend = Arc::clone(&backend);
        async move {
            let states = states_of(&*backend, "orders", id).await.unwrap();
            states.iter().map(|of| (of.group.clone(), of.state.as_str())).collect::<Vec<_>>()
        }
    };
    let pair = |audit, billing| vec![("audit".to_owned(), audit), ("billing".to_owned(), billing)];
    assert_eq!(states(ids[0]).await, pair("read", "pending"));
    assert_eq!(states(ids[1]).await, pair("unread", "pending"));
    assert_eq!(states(ids[2]).await, pair("unread", "unread"));
    // After a reset, an entry after the position is still pending.
    backend.move_group("orders", "billing", Start::Beginning).await.unwrap();
    assert_eq!(states(ids[1]).await, pair("unread", "pending"));
}

/// Adds dead letters with these errors to the dead-letter stream of orders.
async fn die(backend: &Arc<dyn Admin>, origins: &[StreamId], error: impl Fn(usize) -> String) {
    let producer = Producer::new(backend.clone(), crate::names::dead_letters_of("orders"));
    for (at, origin) in origins.iter().enumerate() {
        let fields = [
            ("n", at.to_string()),
            ("dlq.stream", "orders".to_owned()),
            ("dlq.id", origin.to_string()),
            ("dlq.group", "billing".to_owned()),
            ("dlq.reason", if at % 2 == 0 { "timeout" } else { "failed" }.to_owned()),
            ("dlq.error", error(at)),
        ];
        producer.send(fields).await.unwrap();
    }
}

async fn source(backend: &Arc<dyn Admin>) -> DeadLetterSource {
    DeadLetterSource::find(&**backend, "orders", None).await.unwrap().unwrap()
}

#[tokio::test]
async fn dead_letters_are_counted_and_listed_newest_first() {
    let (backend, ids) = store(5, 0).await;
    die(&backend, &ids, |at| format!("no answer to {at}")).await;
    let (source, redaction) = (source(&backend).await, Redaction::default());
    let list = |filter: Filter, after, count, scan| {
        let (backend, source, redaction) = (Arc::clone(&backend), source.clone(), redaction.clone());
        async move {
            dead_letters::list(&*backend, &source, &filter, after, count, scan, &redaction).await.unwrap()
        }
    };
    let origins = |page: &dead_letters::DeadLetterPage| {
        page.dead_letters.iter().map(|dead_letter| dead_letter.origin.unwrap()).collect::<Vec<_>>()
    };
    let first = list(Filter::default(), None, 2, 100).await;
    assert_eq!((first.matched, first.exact, origins(&first)), (5, true, vec![ids[4], ids[3]]));
    assert_eq!(first.by_reason.top(), (vec![("timeout", 3), ("failed", 2)], 0));
    assert_eq!(first.by_error.top(), (vec![("no answer to #", 5)], 0));
    let second = list(Filter::default(), first.next, 3, 100).await;
    assert_eq!((second.matched, origins(&second)), (5, vec![ids[2], ids[1], ids[0]]));
    let end = list(Filter::default(), second.next, 3, 100).await;
    assert!(end.dead_letters.is_empty() && end.next.is_none());
    let timeouts = Filter { reason: Some(crate::Reason::Timeout), ..Filter::default() };
    let bounded = list(timeouts, None, 10, 2).await;
    assert_eq!((bounded.matched, bounded.exact, origins(&bounded)), (1, false, vec![ids[4]]));
    assert!(bounded.next.is_some());
}

#[tokio::test]
async fn a_purge_deletes_only_what_its_plan_counted() {
    let (backend, ids) = store(4, 0).await;
    die(&backend, &ids, |_| "no".to_owned()).await;
    let (source, filter) = (source(&backend).await, Filter { error: Some("no".into()), ..Filter::default() });
    let operation = PurgeDeadLetters { source, filter };
    let plan = operation.plan(&backend, None).await.unwrap();
    assert_eq!(plan.effect.ids.len(), 4);
    die(&backend, &ids[..1], |_| "no".to_owned()).await;
    let run = || apply(&operation, &backend, &plan.digest, false);
    assert!(matches!(run().await.unwrap(), Executed::Done(done) if done.deleted == 4));
    assert_eq!(length(&backend, &operation.source.name).await, 1);
    let Executed::Outdated(now) = run().await.unwrap() else { panic!() };
    assert_eq!(now.effect.ids.len(), 1);
}

#[tokio::test]
async fn a_plan_measures_ages_at_its_own_time() {
    let (backend, ids) = store(2, 0).await;
    die(&backend, &ids, |_| "no".to_owned()).await;
    let source = source(&backend).await;
    let hour = Duration::from_secs(3600);
    let now = SystemTime::now();
    for (asked, at) in [
        // These dead letters will not be new, and will be old, long after the plan was made.
        (Filter { newer_than: Some(hour), ..Filter::default() }, now),
        (Filter { older_than: Some(hour), ..Filter::default() }, now + 2 * hour),
    ] {
        let then = Filter { at: Some(at), ..asked.clone() };
        let later = Filter { at: Some(at + 9 * hour), ..asked.clone() };
        let purge = |filter| PurgeDeadLetters { source: source.clone(), filter };
        let plan = purge(then.clone()).plan(&backend, None).await.unwrap();
        assert_eq!(plan.effect.ids.len(), 2);
        let checked = check(&purge(later.clone()), &backend, &plan.digest, false).await.unwrap();
        let Executed::Done(checked) = checked else { panic!() };
        assert_eq!(checked.effect.ids, plan.effect.ids);
        let request = |filter| Redrive { filter, ..Redrive::default() };
        let redrive =
            |filter| RedriveDeadLetters { dead_letters: source.name.clone(), request: request(filter) };
        let plan = redrive(then).plan(&backend, None).await.unwrap();
        let checked = check(&redrive(later), &backend, &plan.digest, false).await.unwrap();
        assert!(matches!(checked, Executed::Done(_)), "{checked:?}");
    }
}

#[tokio::test]
async fn a_redrive_moves_only_what_its_plan_counted() {
    let (backend, ids) = store(4, 0).await;
    die(&backend, &ids[..2], |_| "no".to_owned()).await;
    let source = source(&backend).await;
    let operation = RedriveDeadLetters { dead_letters: source.name.clone(), request: Redrive::default() };
    let plan = operation.plan(&backend, None).await.unwrap();
    assert_eq!(plan.effect.progress.redrivable(), 2);
    die(&backend, &ids[2..3], |_| "no".to_owned()).await;
    let run = || apply(&operation, &backend, &plan.digest, false);
    let Executed::Done(done) = run().await.unwrap() else { panic!() };
    assert_eq!((done.progress.redriven, length(&backend, &source.name).await), (2, 1));
    assert!(matches!(run().await.unwrap(), Executed::Outdated(_)));
    let left = backend.range(&source.name, Range::starting_at(StreamId::MIN, 9)).await.unwrap();
    assert_eq!(source.find_by_id(&*backend, ids[2]).await.unwrap().unwrap().id, left[0].id);
    assert!(source.find_by_id(&*backend, ids[3]).await.unwrap().is_none());
}
