//! Reading new entries, own pending entries, and entries of other consumers.

use std::time::Duration;

use millstream_worker::Admin;
use millstream_worker::backend::{Capability, ErrorKind, NewEntry, Read, Release, Start, StreamId};

use super::{consumer, dead_letter, done, entry, fields, ids_of, kind, pending, reader};

pub(super) async fn all(backend: &dyn Admin) {
    read_new_entries(backend).await;
    calls_on_missing_groups_fail(backend).await;
    read_own_pending_entries(backend).await;
    claim_idle_entries(backend).await;
    claim_idle_entries_in_pages(backend).await;
    claim_released_entries(backend).await;
    claim_reports_deleted_entries(backend).await;
    claiming_reads(backend).await;
}

/// Creates a stream with this number of entries and a group `g` that has not read any.
pub(crate) async fn make_stream(backend: &dyn Admin, stream: &str, count: usize) -> Vec<StreamId> {
    backend.delete_stream(stream).await.unwrap();
    assert!(backend.create_group(stream, "g", Start::Beginning).await.unwrap());
    let batch: Vec<NewEntry> = (0..count).map(|n| entry("n", &n.to_string())).collect();
    backend.add(stream, &batch, None).await.unwrap()
}

async fn read_new_entries(backend: &dyn Admin) {
    let stream = "reading:new";
    let ids = make_stream(backend, stream, 3).await;
    assert_eq!(backend.read(&reader(stream, "a", 0)).await.unwrap(), []);
    let first = backend.read(&reader(stream, "a", 2)).await.unwrap();
    assert_eq!(ids_of(&first), ids[..2]);
    assert!(first.iter().all(|delivery| delivery.deliveries == 1));
    assert_eq!(first[1].fields, Some(fields("n", "1")));
    assert_eq!(ids_of(&backend.read(&reader(stream, "b", 5)).await.unwrap()), ids[2..]);
    assert_eq!(backend.read(&reader(stream, "b", 5)).await.unwrap(), []);
    let owners: Vec<Option<String>> =
        pending(backend, stream).await.into_iter().map(|row| row.consumer).collect();
    assert_eq!(owners, [Some("a".to_owned()), Some("a".to_owned()), Some("b".to_owned())]);
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn calls_on_missing_groups_fail(backend: &dyn Admin) {
    let none = "reading:none";
    let soon = Read { block: Some(Duration::from_secs(30)), ..reader(none, "a", 1) };
    let zero = StreamId::MIN;
    for _ in 0..2 {
        assert_eq!(kind(backend.read(&reader(none, "a", 1)).await), Some(ErrorKind::NoGroup));
        assert_eq!(kind(backend.read(&soon).await), Some(ErrorKind::NoGroup));
        assert_eq!(kind(backend.own_pending(consumer(none, "a"), zero, 1).await), Some(ErrorKind::NoGroup));
        let claimed = backend.autoclaim(consumer(none, "a"), Duration::ZERO, zero, 1).await;
        assert_eq!(kind(claimed), Some(ErrorKind::NoGroup));
        // The second round has the stream, but not the group.
        backend.add(none, &[entry("n", "1")], None).await.unwrap();
    }
    assert!(backend.delete_stream(none).await.unwrap());
}

async fn read_own_pending_entries(backend: &dyn Admin) {
    let stream = "reading:own";
    let ids = make_stream(backend, stream, 5).await;
    backend.read(&reader(stream, "a", 4)).await.unwrap();
    backend.read(&reader(stream, "b", 1)).await.unwrap();
    assert_eq!(backend.acknowledge(stream, "g", &done(&ids[1..2])).await.unwrap(), 1);
    assert_eq!(backend.delete_entries(stream, &ids[2..3]).await.unwrap(), 1);
    for _ in 0..3 {
        let own = backend.own_pending(consumer(stream, "a"), StreamId::MIN, 10).await.unwrap();
        assert_eq!(ids_of(&own), [ids[0], ids[2], ids[3]]);
        assert!(own.iter().all(|delivery| delivery.deliveries == 1), "listing counted as a delivery");
        assert_eq!((&own[1].fields, &own[2].fields), (&None, &Some(fields("n", "3"))));
    }
    let beyond = backend.own_pending(consumer(stream, "a"), ids[0], 1).await.unwrap();
    assert_eq!(ids_of(&beyond), [ids[2]]);
    assert_eq!(backend.own_pending(consumer(stream, "a"), StreamId::MAX, 10).await.unwrap(), []);
    assert_eq!(backend.own_pending(consumer(stream, "nobody"), StreamId::MIN, 10).await.unwrap(), []);
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn claim_idle_entries(backend: &dyn Admin) {
    let stream = "reading:idle";
    let ids = make_stream(backend, stream, 3).await;
    backend.read(&reader(stream, "a", 2)).await.unwrap();
    let long = Duration::from_secs(3600);
    let none = backend.autoclaim(consumer(stream, "b"), long, StreamId::MIN, 10).await.unwrap();
    assert_eq!((none.deliveries, none.next), (Vec::new(), StreamId::MIN));
    for deliveries in 2..5 {
        let all = backend.autoclaim(consumer(stream, "b"), Duration::ZERO, StreamId::MIN, 10).await.unwrap();
        assert_eq!((ids_of(&all.deliveries), all.next), (ids[..2].to_vec(), StreamId::MIN));
        assert!(all.deliveries.iter().all(|delivery| delivery.deliveries == deliveries));
        assert_eq!(all.deliveries[0].fields, Some(fields("n", "0")));
    }
    let rows = pending(backend, stream).await;
    assert!(rows.iter().all(|row| row.consumer.as_deref() == Some("b") && row.deliveries == 4));
    // A claim resets the idle time.
    let short = backend.autoclaim(consumer(stream, "a"), Duration::from_secs(60), StreamId::MIN, 10).await;
    assert_eq!(short.unwrap().deliveries, []);
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn claim_idle_entries_in_pages(backend: &dyn Admin) {
    let stream = "reading:pages";
    let ids = make_stream(backend, stream, 7).await;
    backend.read(&reader(stream, "a", 7)).await.unwrap();
    let (mut claimed, mut from, mut pages) = (Vec::new(), StreamId::MIN, 0);
    loop {
        let page = backend.autoclaim(consumer(stream, "b"), Duration::ZERO, from, 3).await.unwrap();
        assert!(page.deliveries.len() <= 3);
        claimed.extend(ids_of(&page.deliveries));
        (from, pages) = (page.next, pages + 1);
        if from == StreamId::MIN {
            break;
        }
        assert!(pages < 10, "the autoclaim does not end");
    }
    assert_eq!(claimed, ids);
    assert!(backend.delete_stream(stream).await.unwrap());
}

async fn claim_released_entries(backend: &dyn Admin) {
    let stream = "reading:released";
    let ids = make_stream(backend, stream, 2).await;
    backend.read(&reader(stream, "a", 2)).await.unwrap();
    let back = [Release::uncounted(ids[1], 1)];
    assert_eq!(backend.release(consumer(stream, "a"), &back).await.unwrap(), 1);
    let long = Duration::from_secs(3600);
    let taken = backend.autoclaim(consumer(stream, "b"), long, StreamId::MIN, 10).await.unwrap();
    assert_eq!(ids_of(&taken.deliveries), [ids[1]]);
    assert_eq!((taken.deliveries[0].deliveries, taken.next), (1, StreamId::MIN));
    let again = backend.autoclaim(consumer(stream, "c"), long, StreamId::MIN, 10).await.unwrap();
    assert_eq!(again.deliveries, []);
    assert!(backend.delete_stream(stream).await.unwrap());
}

/// An entry that was deleted or trimmed while it was pending is reported.
async fn claim_reports_deleted_entries(backend: &dyn Admin) {
    let (stream, dead) = ("{reading:gone}", "{reading:gone}:dlq");
    let ids = make_stream(backend, stream, 3).await;
    backend.read(&reader(stream, "a", 3)).await.unwrap();
    assert_eq!(backend.delete_entries(stream, &ids[..2]).await.unwrap(), 2);
    let taken = backend.autoclaim(consumer(stream, "b"), Duration::ZERO, StreamId::MIN, 10).await.unwrap();
    let shown: Vec<_> =
        taken.deliveries.iter().map(|row| (row.id, row.fields.is_some(), row.deliveries)).collect();
    assert_eq!(shown, [(ids[0], false, 1), (ids[1], false, 1), (ids[2], true, 2)]);
    let owners: Vec<_> =
        pending(backend, stream).await.into_iter().map(|row| row.consumer.unwrap()).collect();
    assert_eq!(owners, ["a", "a", "b"], "rows of deleted entries must stay with their owner");
    let moved = backend.dead_letter(consumer(stream, "b"), &[dead_letter(ids[0], dead)]).await.unwrap();
    assert_eq!(moved, ids[..1]);
    assert_eq!(backend.acknowledge(stream, "g", &done(&ids[1..2])).await.unwrap(), 1);
    assert_eq!(pending(backend, stream).await.len(), 1);
    assert_eq!(backend.stream(dead).await.unwrap().unwrap().length, 1);
    assert!(backend.delete_stream(stream).await.unwrap() && backend.delete_stream(dead).await.unwrap());
}

async fn claiming_reads(backend: &dyn Admin) {
    let stream = "reading:claims";
    let ids = make_stream(backend, stream, 3).await;
    backend.read(&reader(stream, "a", 2)).await.unwrap();
    let claiming = |idle| Read { claim_idle: Some(idle), ..reader(stream, "b", 10) };
    let both = backend.read(&claiming(Duration::ZERO)).await.unwrap();
    if !backend.supports(Capability::ReadClaims, "orders").await.unwrap() {
        assert_eq!(ids_of(&both), ids[2..]);
        assert!(backend.delete_stream(stream).await.unwrap());
        return;
    }
    let shown: Vec<_> = both.iter().map(|delivery| (delivery.id, delivery.deliveries)).collect();
    assert_eq!(shown, [(ids[0], 2), (ids[1], 2), (ids[2], 1)]);
    assert_eq!(backend.read(&claiming(Duration::from_secs(3600))).await.unwrap(), []);
    // A blocked claiming read gets an entry that is released.
    let blocking = Read { block: Some(super::TIMEOUT), ..claiming(Duration::from_secs(3600)) };
    let back = [Release { deliveries: 7, ..Release::counted(ids[1], 2) }];
    let (read, released) = tokio::join!(backend.read(&blocking), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        backend.release(consumer(stream, "b"), &back).await.unwrap()
    });
    let read = read.unwrap();
    assert_eq!((released, ids_of(&read), read[0].deliveries), (1, vec![ids[1]], 8));
    assert!(backend.delete_stream(stream).await.unwrap());
}
