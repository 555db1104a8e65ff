//! One worker owns a stream at a time: leases expire, fences grow, and a read of an earlier owner is refused.

use std::time::Duration;

use millstream_worker::backend::{Admin, Claimant, Delivery, Start, StreamOwner};

use super::{consumer, entry, reader, reading, wait_until};

/// Longer than any step takes.
const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(50);

pub(super) async fn all(backend: &dyn Admin) {
    one_worker_owns_a_stream_at_a_time(backend).await;
    a_lease_expires(backend).await;
    reads_of_an_earlier_owner_are_refused(backend).await;
    other_values_in_the_keys_own_nothing(backend).await;
    an_owner_repairs_the_lag_of_its_group(backend).await;
}

fn claimant<'a>(stream: &'a str, instance: &'a str) -> Claimant<'a> {
    Claimant { stream, group: "g", instance }
}

/// Returns the name of a new stream. Fences stay, and some servers run the suite twice.
async fn unique(backend: &dyn Admin, name: &str) -> String {
    format!("{name}:{}", backend.now_ms(name).await.unwrap())
}

async fn read(backend: &dyn Admin, stream: &str, owner: &StreamOwner) -> Option<Vec<Delivery>> {
    let read = reader(stream, &owner.instance, 1);
    backend.read_owned(&read, claimant(stream, &owner.instance), owner.fence).await.unwrap()
}

async fn one_worker_owns_a_stream_at_a_time(backend: &dyn Admin) {
    let stream = &unique(backend, "owning:one").await;
    assert_eq!(backend.owner(stream, "g").await.unwrap(), None);
    let first = backend.acquire(claimant(stream, "a"), LONG).await.unwrap();
    assert_eq!((&*first.instance, first.lease_left), ("a", LONG));
    assert!(first.fence >= 1_600_000_000_000, "{first:?}");
    let refused = backend.acquire(claimant(stream, "b"), LONG).await.unwrap();
    assert_eq!((&*refused.instance, refused.fence), ("a", first.fence));
    assert!(refused.lease_left > LONG / 2 && refused.lease_left <= LONG, "{refused:?}");
    // The owner itself begins anew: a read that it sent before is refused.
    let again = backend.acquire(claimant(stream, "a"), LONG).await.unwrap();
    assert!(again.instance == "a" && again.fence > first.fence, "{again:?} {first:?}");
    assert!(!backend.renew(claimant(stream, "a"), first.fence, LONG).await.unwrap());
    assert_eq!(read(backend, stream, &first).await, None);
    let first = again;
    let found = backend.owner(stream, "g").await.unwrap().unwrap();
    assert_eq!((&*found.instance, found.fence), ("a", first.fence));
    assert!(found.lease_left > LONG / 2);
    // Another group has another owner.
    let other = Claimant { group: "h", ..claimant(stream, "b") };
    assert_eq!(backend.acquire(other, LONG).await.unwrap().instance, "b");
    // Only the owner can renew the lease and give it up.
    assert!(backend.renew(claimant(stream, "a"), first.fence, LONG).await.unwrap());
    assert!(!backend.renew(claimant(stream, "b"), first.fence, LONG).await.unwrap());
    assert!(!backend.renew(claimant(stream, "a"), first.fence - 1, LONG).await.unwrap());
    assert!(!backend.give_up(claimant(stream, "b"), first.fence).await.unwrap());
    assert!(!backend.give_up(claimant(stream, "a"), first.fence - 1).await.unwrap());
    assert!(backend.give_up(claimant(stream, "a"), first.fence).await.unwrap());
    assert!(!backend.give_up(claimant(stream, "a"), first.fence).await.unwrap());
    assert!(!backend.renew(claimant(stream, "a"), first.fence, LONG).await.unwrap());
    let last = backend.owner(stream, "g").await.unwrap().unwrap();
    assert_eq!((&*last.instance, last.fence, last.lease_left), ("a", first.fence, Duration::ZERO));
    let second = backend.acquire(claimant(stream, "b"), LONG).await.unwrap();
    assert_eq!(&*second.instance, "b");
    assert!(second.fence > first.fence, "{second:?}");
}

async fn a_lease_expires(backend: &dyn Admin) {
    let stream = &unique(backend, "owning:expiry").await;
    let first = backend.acquire(claimant(stream, "a"), SHORT).await.unwrap();
    wait_until(|| async { backend.acquire(claimant(stream, "b"), LONG).await.unwrap().instance == "b" })
        .await;
    let second = backend.owner(stream, "g").await.unwrap().unwrap();
    assert!(second.fence > first.fence && second.instance == "b", "{second:?}");
    assert!(!backend.renew(claimant(stream, "a"), first.fence, LONG).await.unwrap());
}

async fn reads_of_an_earlier_owner_are_refused(backend: &dyn Admin) {
    let stream = &unique(backend, "owning:fence").await;
    let ids = reading::make_stream(backend, stream, 3).await;
    let first = backend.acquire(claimant(stream, "a"), SHORT).await.unwrap();
    assert_eq!(read(backend, stream, &first).await.unwrap()[0].id, ids[0]);
    // The lease alone decides nothing: until another worker acquires the stream, this one can read.
    wait_until(|| async { backend.owner(stream, "g").await.unwrap().unwrap().lease_left.is_zero() }).await;
    assert_eq!(read(backend, stream, &first).await.unwrap()[0].id, ids[1]);
    // A lease with less than a millisecond left seems to be over, and is not.
    wait_until(|| async { backend.acquire(claimant(stream, "b"), LONG).await.unwrap().instance == "b" })
        .await;
    let second = backend.owner(stream, "g").await.unwrap().unwrap();
    for _ in 0..2 {
        assert_eq!(read(backend, stream, &first).await, None);
    }
    // Nothing was delivered to the first one.
    assert_eq!(backend.own_pending(consumer(stream, "a"), ids[1], 10).await.unwrap(), []);
    assert_eq!(read(backend, stream, &second).await.unwrap()[0].id, ids[2]);
    assert_eq!(read(backend, stream, &second).await.unwrap(), []);
    let next = backend.add(stream, &[entry("n", "next")], None).await.unwrap();
    assert_eq!(read(backend, stream, &second).await.unwrap()[0].id, next[0]);
    // A stale owner does not come back with its own fence, and an entry is followed without a group.
    let followed = backend.follow(stream, ids[2], 10, LONG).await.unwrap();
    assert_eq!(followed.iter().map(|entry| entry.id).collect::<Vec<_>>(), next);
    assert_eq!(read(backend, stream, &first).await, None);
}

/// Keys that somebody has deleted, or that hold something else, have no owner. The next one still has a greater fence.
async fn other_values_in_the_keys_own_nothing(backend: &dyn Admin) {
    let stream = &unique(backend, "owning:foreign").await;
    super::make_a_string(backend, &format!("{{{stream}}}:lease:g")).await;
    assert_eq!(backend.owner(stream, "g").await.unwrap(), None);
    let owner = backend.acquire(claimant(stream, "a"), LONG).await.unwrap();
    assert_eq!(&*owner.instance, "a");
    assert!(backend.renew(claimant(stream, "a"), owner.fence, LONG).await.unwrap());
}

/// After a failover, some servers no longer know the lag of a group. A group that was moved into the middle of a stream
/// is the same.
async fn an_owner_repairs_the_lag_of_its_group(backend: &dyn Admin) {
    let stream = &unique(backend, "owning:lag").await;
    let ids = reading::make_stream(backend, stream, 7).await;
    backend.delete_entries(stream, &ids[..1]).await.unwrap();
    let owner = backend.acquire(claimant(stream, "a"), LONG).await.unwrap();
    backend.move_group(stream, "g", Start::After(ids[3])).await.unwrap();
    let lag = async || backend.groups(stream).await.unwrap()[0].lag;
    let added = backend.stream(stream).await.unwrap().unwrap().entries_added;
    let (is_known, can_tell) = (lag().await.is_some(), added.is_some());
    let wrong = owner.fence - 1;
    assert!(!backend.repair_lag(claimant(stream, "a"), wrong).await.unwrap());
    let repaired = backend.repair_lag(claimant(stream, "a"), owner.fence).await.unwrap();
    assert_eq!(repaired, !is_known && can_tell);
    if can_tell {
        assert_eq!(lag().await, Some(3));
    }
    // The position did not change.
    assert_eq!(read(backend, stream, &owner).await.unwrap()[0].id, ids[4]);
    if can_tell {
        assert_eq!(lag().await, Some(2));
    }
}
