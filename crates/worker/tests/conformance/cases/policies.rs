//! Policies: on stores that have them, and on those that do not.

use millstream_worker::Admin;
use millstream_worker::backend::policy::{Backoff, Policy, PolicyField};
use millstream_worker::backend::{Capability, Start};

pub(crate) async fn all(backend: &dyn Admin) {
    let stream = "policies";
    backend.create_group(stream, "g", Start::Beginning).await.unwrap();
    let policy = Policy {
        lease_ms: Some(30_000),
        dead_letters: Some(Box::from(*b"dead")),
        backoff: Some(Backoff { first_ms: 1000, longest_ms: 60_000 }),
        ..Policy::default()
    };
    let set = backend.set_policy(stream, Some("g"), &policy, &[]).await;
    if !backend.supports(Capability::Policies, stream).await.unwrap() {
        assert!(set.is_err());
        assert_eq!(backend.policy(stream, Some("g")).await.unwrap(), None);
        return;
    }
    set.unwrap();
    let of_stream =
        Policy { lease_ms: Some(500), max_pending: Some(7), acked_age_ms: Some(0), ..Policy::default() };
    backend.set_policy(stream, None, &of_stream, &[]).await.unwrap();
    let info = backend.policy(stream, Some("g")).await.unwrap().unwrap();
    assert_eq!(info.in_force, Policy { max_pending: Some(7), ..policy });
    assert_eq!(info.own, [PolicyField::Lease, PolicyField::DeadLetters, PolicyField::Backoff]);
    assert!(info.counters.contains(&("in-hand".to_owned(), 0)), "{:?}", info.counters);
    assert_eq!(backend.policy(stream, None).await.unwrap().unwrap().in_force, of_stream);
    // Fields are switched off one by one; on a stream they are then not set.
    let off = [PolicyField::MaxPending, PolicyField::AckedAge];
    backend.set_policy(stream, None, &Policy::default(), &off).await.unwrap();
    let of_stream = Policy { lease_ms: Some(500), ..Policy::default() };
    assert_eq!(backend.policy(stream, None).await.unwrap().unwrap().in_force, of_stream);
    let off = [PolicyField::Backoff, PolicyField::DeadLetters];
    backend.set_policy(stream, Some("g"), &Policy::default(), &off).await.unwrap();
    let info = backend.policy(stream, Some("g")).await.unwrap().unwrap();
    assert_eq!(info.in_force, Policy { lease_ms: Some(30_000), ..Policy::default() });
    backend.reset_policy(stream, Some("g")).await.unwrap();
    assert_eq!(backend.policy(stream, Some("g")).await.unwrap().unwrap().in_force, of_stream);
    // What does not exist has no policy.
    assert_eq!(backend.policy(stream, Some("none")).await.unwrap(), None);
    assert_eq!(backend.policy("none", None).await.unwrap(), None);
    let needs_lease = Policy { max_deliveries: Some(3), ..Policy::default() };
    backend.reset_policy(stream, None).await.unwrap();
    let error = backend.set_policy(stream, None, &needs_lease, &[]).await.unwrap_err();
    assert!(error.to_string().contains("LEASE"), "{error}");
}
