//! Tests of the group manager on the embedded store.

use super::*;
use crate::backend::{Embedded, Read, Start};
use crate::monitor::LagAccuracy;
use crate::producer::Producer;

async fn with_entries(count: usize) -> (GroupManager, Arc<dyn Admin>, Vec<StreamId>) {
    let backend: Arc<dyn Admin> = Arc::new(Embedded::in_memory());
    let producer = Producer::new(backend.clone(), "orders");
    let ids = producer.send_all((0..count).map(|n| [("n", n.to_string())])).await.unwrap();
    (GroupManager::new(Arc::clone(&backend)), backend, ids)
}

async fn read(backend: &Arc<dyn Admin>, consumer: &str, count: usize) -> usize {
    let read = Read { stream: "orders", group: "billing", consumer, count, block: None, claim_idle: None };
    backend.read(&read).await.unwrap().len()
}

async fn position(backend: &Arc<dyn Admin>) -> StreamId {
    let groups = backend.groups("orders").await.unwrap();
    groups.iter().find(|group| group.name == "billing").unwrap().last_delivered
}

#[tokio::test]
async fn remove_consumer_moves_its_pending_entries_to_the_heir() {
    let (groups, backend, _) = with_entries(3).await;
    backend.create_group("orders", "billing", Start::Beginning).await.unwrap();
    assert_eq!(read(&backend, "gone", 3).await, 3);
    let only = groups.remove_consumer("orders", "billing", "gone", None).await.unwrap_err();
    assert!(only.to_string().contains("name an heir"), "{only}");
    assert_eq!(read(&backend, "alive", 1).await, 0);
    let removed = groups.remove_consumer("orders", "billing", "gone", None).await.unwrap();
    assert_eq!((removed.heir.as_deref(), removed.adopted), (Some("alive"), 3));
    let consumers = backend.consumers("orders", "billing").await.unwrap();
    assert_eq!(consumers.iter().map(|c| (c.name.as_str(), c.pending)).collect::<Vec<_>>(), [("alive", 3)]);
    let unknown = groups.remove_consumer("orders", "billing", "gone", None).await.unwrap_err();
    assert!(unknown.to_string().contains("no consumer gone"), "{unknown}");
}

#[tokio::test]
async fn preview_reset_shows_the_change_and_reset_executes_it() {
    let (groups, backend, ids) = with_entries(5).await;
    backend.create_group("orders", "billing", Start::Beginning).await.unwrap();
    assert_eq!(read(&backend, "one", 3).await, 3);
    let back = groups.preview_reset("orders", "billing", Position::Beginning).await.unwrap();
    assert_eq!((back.before.last_delivered, back.before.lag.count), (ids[2], 2));
    assert_eq!((back.after.last_delivered, back.after.lag.count), (StreamId::MIN, 5));
    assert_eq!((back.pending, back.active_consumers.as_slice()), (3, &["one".to_owned()][..]));
    assert_eq!(position(&backend).await, ids[2], "the preview moved the group");
    groups.reset(&back).await.unwrap();
    assert_eq!(position(&backend).await, StreamId::MIN);
}

#[tokio::test]
async fn reset_moves_the_group_to_every_kind_of_position() {
    let (groups, backend, ids) = with_entries(5).await;
    backend.create_group("orders", "billing", Start::After(ids[2])).await.unwrap();
    backend.create_group("orders", "other", Start::After(ids[0])).await.unwrap();
    let before_first = StreamId::new(ids[0].ms, 0).prev().unwrap();
    for (to, expected, lag) in [
        (Position::End, ids[4], 0),
        (Position::After(ids[1]), ids[1], 3),
        (Position::Shift(0), ids[2], 2),
        (Position::Shift(1), ids[3], 1),
        (Position::Shift(9), ids[4], 0),
        (Position::Shift(-1), ids[2].prev().unwrap(), 3),
        (Position::Shift(-3), ids[0].prev().unwrap(), 5),
        (Position::Shift(-4), StreamId::MIN, 5),
        (Position::Group("other".to_owned()), ids[0], 4),
        (Position::Time(UNIX_EPOCH + Duration::from_millis(ids[0].ms)), before_first, 5),
        (Position::Time(UNIX_EPOCH), StreamId::MIN, 5),
        (Position::Ago(Duration::MAX), StreamId::MIN, 5),
    ] {
        let reset = groups.preview_reset("orders", "billing", to.clone()).await.unwrap();
        assert_eq!((reset.after.last_delivered, reset.after.lag.count), (expected, lag), "{to:?}");
        assert!(reset.after.lag.is_exact());
        groups.reset(&reset).await.unwrap();
        assert_eq!(position(&backend).await, expected, "{to:?}");
        backend.move_group("orders", "billing", Start::After(ids[2])).await.unwrap();
    }
}

#[tokio::test]
async fn reset_rejects_missing_groups_and_long_shifts() {
    let (groups, backend, _) = with_entries(1).await;
    for (stream, group) in [("nowhere", "billing"), ("orders", "nobody")] {
        let error = groups.preview_reset(stream, group, Position::End).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoGroup, "{error}");
    }
    backend.create_group("orders", "billing", Start::End).await.unwrap();
    let far = groups.preview_reset("orders", "billing", Position::Shift(1_000_000)).await.unwrap_err();
    assert!(far.to_string().contains("give a time or an id"), "{far}");
    let other =
        groups.preview_reset("orders", "billing", Position::Group("nobody".to_owned())).await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::NoGroup);
}

#[tokio::test]
async fn count_after_stops_at_its_limit() {
    let (_, backend, ids) = with_entries(10).await;
    let info = backend.stream("orders").await.unwrap().unwrap();
    for (after, at_most, count, accuracy) in [
        (StreamId::MIN, 3, 10, LagAccuracy::Counted),
        (ids[0], 3, 3, LagAccuracy::LowerBound),
        (ids[0], 9, 9, LagAccuracy::Counted),
        (ids[0], 100, 9, LagAccuracy::Counted),
        (ids[9], 3, 0, LagAccuracy::Counted),
        (StreamId::MAX, 3, 0, LagAccuracy::Counted),
    ] {
        let lag = count_after(&*backend, "orders", &info, after, at_most).await.unwrap();
        assert_eq!(lag, Lag { count, accuracy }, "after {after}, at most {at_most}");
    }
}
