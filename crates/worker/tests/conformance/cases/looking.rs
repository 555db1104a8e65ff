//! Looks at many streams at once, and walks over the names of streams.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use millstream_worker::Admin;
use millstream_worker::backend::{
    Acknowledgement, Consumer, ErrorKind, LookDetail, Release, Retry, Start, StreamCursor, StreamLook,
};
use millstream_worker::names::workers_key;
use millstream_worker::retry_record::RetryRecord;

use super::reading::make_stream;
use super::{entry, reader};

pub(crate) async fn all(backend: &dyn Admin) {
    streams_are_described_in_their_order(backend).await;
    details_are_read_of_the_wanted_groups(backend).await;
    a_look_changes_nothing(backend).await;
    large_entries_are_asked_for_rarely(backend).await;
    many_streams(backend).await;
}

async fn look(backend: &dyn Admin, stream: &str, detail: &LookDetail) -> StreamLook {
    let mut looks = backend.look(&[stream.to_owned()], detail).await.unwrap();
    looks.remove(0).unwrap().unwrap_or_else(|| panic!("{stream} is missing"))
}

async fn streams_are_described_in_their_order(backend: &dyn Admin) {
    let ids = make_stream(backend, "look:a", 3).await;
    backend.create_group("look:a", "late", Start::End).await.unwrap();
    backend.add("look:b", &[entry("n", "1")], None).await.unwrap();
    backend.hash_set("look:hash", &[("f".to_owned(), Bytes::from("v"))]).await.unwrap();
    let names = ["look:b", "look:none", "look:hash", "look:a"].map(str::to_owned);
    let mut looks = backend.look(&names, &LookDetail::none()).await.unwrap();
    assert_eq!(looks.len(), 4);
    let a = looks.pop().unwrap().unwrap().unwrap();
    assert_eq!(looks.pop().unwrap().unwrap_err().kind(), ErrorKind::WrongType);
    assert!(looks.pop().unwrap().unwrap().is_none());
    let b = looks.pop().unwrap().unwrap().unwrap();
    assert_eq!((b.length, b.groups.len()), (1, 0));
    assert_eq!((a.length, a.info.length, a.info_age), (3, 3, Duration::ZERO));
    assert_eq!((a.info.first_entry, a.info.last_entry), (Some(ids[0]), Some(ids[2])));
    assert_eq!(a.entries_added, a.info.entries_added);
    let described = backend.stream("look:a").await.unwrap().unwrap();
    assert_eq!(a.info, described);
    let groups: Vec<_> = a.groups.iter().map(|group| (&*group.info.name, group.detail.is_some())).collect();
    assert_eq!(groups, [("g", false), ("late", false)]);
    let listed = backend.groups("look:a").await.unwrap();
    assert_eq!(a.groups.into_iter().map(|group| group.info).collect::<Vec<_>>(), listed);
    assert_eq!(
        backend.lengths(&names[..2]).await.unwrap().into_iter().map(Result::unwrap).collect::<Vec<_>>(),
        [1, 0]
    );
    assert_eq!(
        backend.lengths(&names[2..3]).await.unwrap().remove(0).unwrap_err().kind(),
        ErrorKind::WrongType
    );
    assert!(backend.look(&[], &LookDetail::all(1)).await.unwrap().is_empty());
    for stream in ["look:a", "look:b"] {
        assert!(backend.delete_stream(stream).await.unwrap());
    }
}

async fn details_are_read_of_the_wanted_groups(backend: &dyn Admin) {
    let ids = make_stream(backend, "look:detail", 6).await;
    backend.create_group("look:detail", "other", Start::Beginning).await.unwrap();
    let consumer = Consumer::new("look:detail", "g", "a");
    backend.read(&reader("look:detail", "a", 4)).await.unwrap();
    let done = Acknowledgement { ids: vec![ids[0]], ..Acknowledgement::default() };
    backend.acknowledge("look:detail", "g", &done).await.unwrap();
    let retry = Retry { after: Duration::from_secs(600), record: RetryRecord::default() };
    let failed = Release { retry: Some(retry), ..Release::counted(ids[2], 1) };
    assert_eq!(backend.release(consumer, &[failed]).await.unwrap(), 1);
    let beat = ("instance".to_owned(), Bytes::from(r#"{"consumer":"a"}"#));
    backend.hash_set(&workers_key("look:detail", "g"), std::slice::from_ref(&beat)).await.unwrap();

    let found = look(backend, "look:detail", &LookDetail::of([("look:detail", "g")], 2)).await;
    assert!(found.groups[1].detail.is_none(), "nobody asked for the details of the other group");
    let group = &found.groups[0];
    let detail = group.detail.as_ref().unwrap().as_ref().unwrap();
    let names: Vec<_> = detail.consumers.iter().map(|consumer| (&*consumer.name, consumer.pending)).collect();
    assert_eq!(names, [("a", 2)]);
    assert_eq!((group.info.consumers, group.info.pending), (1, 3));
    let rows: Vec<_> = detail.pending.iter().map(|row| (row.id, row.consumer.as_deref())).collect();
    assert_eq!(rows, [(ids[1], Some("a")), (ids[2], None)]);
    assert_eq!(detail.unread, Some(vec![ids[4]]));
    assert_eq!(detail.heartbeats, [beat]);
    let [(id, record)] = &detail.retries[..] else { panic!("{:?}", detail.retries) };
    assert_eq!(*id, ids[2]);
    assert!(record.due_at_ms > detail.now_ms && detail.now_ms > 0, "{record:?} {}", detail.now_ms);

    let all = look(backend, "look:detail", &LookDetail::all(10)).await;
    let detail = |at: usize| all.groups[at].detail.as_ref().unwrap().as_ref().unwrap();
    assert_eq!((detail(0).pending.len(), detail(1).pending.len()), (3, 0));
    assert_eq!((detail(1).consumers.len(), &detail(1).unread), (0, &Some(vec![ids[0]])));
    let missed = backend.missed("look:detail").await.unwrap();
    assert_eq!(detail(0).missed.is_some(), !missed.is_empty());
    assert_eq!(all.policy.is_some(), backend.policy("look:detail", None).await.unwrap().is_some());
    backend.delete_stream("look:detail").await.unwrap();
}

async fn a_look_changes_nothing(backend: &dyn Admin) {
    make_stream(backend, "look:same", 2).await;
    let before = (backend.stream("look:same").await.unwrap(), backend.groups("look:same").await.unwrap());
    look(backend, "look:same", &LookDetail::all(100)).await;
    look(backend, "look:same", &LookDetail::none()).await;
    let after = (backend.stream("look:same").await.unwrap(), backend.groups("look:same").await.unwrap());
    assert_eq!(before, after);
    assert_eq!(after.1[0].consumers, 0);
    assert!(backend.delete_stream("look:same").await.unwrap());
}

async fn large_entries_are_asked_for_rarely(backend: &dyn Admin) {
    let large = "x".repeat(20_000);
    backend.add("look:large", &[entry("n", &large)], None).await.unwrap();
    backend.create_group("look:large", "g", Start::Beginning).await.unwrap();
    assert_eq!(look(backend, "look:large", &LookDetail::none()).await.info_age, Duration::ZERO);
    backend.add("look:large", &[entry("n", &large)], None).await.unwrap();
    let again = look(backend, "look:large", &LookDetail::none()).await;
    assert_eq!(again.length, 2, "the length is always that of now");
    let detail = look(backend, "look:large", &LookDetail::of([("look:large", "g")], 1)).await;
    let is_old = !detail.info_age.is_zero();
    assert_eq!(detail.groups[0].detail.as_ref().unwrap().as_ref().unwrap().unread.is_none(), is_old);
    let complete = look(backend, "look:large", &LookDetail::all(1)).await;
    assert_eq!((complete.info_age, complete.info.length), (Duration::ZERO, 2));
    assert!(complete.groups[0].detail.as_ref().unwrap().as_ref().unwrap().unread.is_some());
    assert!(backend.delete_stream("look:large").await.unwrap());
}

/// More streams than fit into a pipeline, or into one step of a walk.
async fn many_streams(backend: &dyn Admin) {
    let names: Vec<String> = (0..450).map(|n| format!("look:many:{n:03}")).collect();
    for (at, name) in names.iter().enumerate() {
        let entries = vec![entry("n", "1"); at % 3 + 1];
        backend.add(name, &entries, None).await.unwrap();
    }
    let looks = backend.look(&names, &LookDetail::all(1)).await.unwrap();
    let lengths: Vec<u64> = looks.into_iter().map(|look| look.unwrap().unwrap().length).collect();
    assert_eq!(lengths, (0..450).map(|n| n % 3 + 1).collect::<Vec<u64>>());
    let mut found = BTreeSet::new();
    let mut next = Some(StreamCursor::default());
    let mut calls = 0;
    while let Some(from) = next {
        let page = backend.walk_streams("look:many:*", &from, 1).await.unwrap();
        found.extend(page.names.iter().map(|name| String::from_utf8(name.to_vec()).unwrap()));
        next = page.next;
        calls += 1;
        assert!(calls < 1000, "the walk does not end");
    }
    assert_eq!(found.into_iter().collect::<Vec<_>>(), names);
    for name in &names {
        assert!(backend.delete_stream(name).await.unwrap());
    }
}
