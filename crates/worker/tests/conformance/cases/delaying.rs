//! Delayed entries: on stores that can delay entries, and on those that cannot.

use std::sync::Arc;
use std::time::Duration;

use millstream_worker::Admin;
use millstream_worker::backend::{AddOptions, Capability, Due, Idempotence, NewEntry, StreamId, Trim};
use millstream_worker::producer::Producer;

use super::{entry, wait_until};

/// The options of an add that delays its entries.
fn due(due: Due, trim: Option<Trim>) -> AddOptions {
    AddOptions { due: Some(due), trim, ..AddOptions::default() }
}

const HOUR_MS: u64 = 3_600_000;

pub(crate) async fn all(backend: &dyn Admin) {
    let stream = "delaying";
    let later = backend.add_with(stream, &[entry("n", "1")], due(Due::In(HOUR_MS), None)).await;
    if !backend.supports(Capability::DelayedEntries, stream).await.unwrap() {
        assert!(later.unwrap_err().to_string().contains("cannot delay messages"));
        for refused in [
            backend.delayed(stream, StreamId::MIN, 9).await.map(drop),
            backend.cancel_delayed(stream, &[StreamId::MIN]).await.map(drop),
            backend.promote_delayed(stream, &[StreamId::MIN]).await.map(drop),
        ] {
            assert!(refused.unwrap_err().to_string().contains("cannot delay messages"));
        }
        assert_eq!(backend.stream(stream).await.unwrap(), None);
        return;
    }
    let later = later.unwrap()[0];
    // Entries of one call get tickets in order.
    let at_ms = later.ms - HOUR_MS / 2;
    let more = [entry("n", "2"), entry("n", "3")];
    let tickets = backend.add_with(stream, &more, due(Due::At(at_ms), None)).await.unwrap();
    assert_eq!(tickets, [StreamId::new(at_ms, later.seq + 1), StreamId::new(at_ms, later.seq + 2)]);
    let listed = backend.delayed(stream, StreamId::MIN, 9).await.unwrap();
    assert_eq!(listed.iter().map(|entry| entry.id).collect::<Vec<_>>(), [tickets[0], tickets[1], later]);
    assert_eq!(listed[0].fields, more[0].fields);
    assert_eq!(backend.delayed(stream, tickets[1], 1).await.unwrap()[0].id, tickets[1]);
    assert_eq!(backend.stream(stream).await.unwrap().map(|info| info.length), Some(0));

    assert_eq!(backend.cancel_delayed(stream, &[tickets[0], StreamId::MAX]).await.unwrap(), 1);
    assert_eq!(backend.promote_delayed(stream, &[later, tickets[0], tickets[1]]).await.unwrap(), 2);
    let added = backend.all_entries(stream).await.unwrap();
    assert_eq!(added.iter().map(|entry| &entry.fields[0].1[..]).collect::<Vec<_>>(), [b"3", b"1"]);

    // A time that has come: the entry is added at once. The trim applies now.
    let now =
        backend.add_with(stream, &[entry("n", "4")], due(Due::At(1), Some(Trim::exactly(2)))).await.unwrap();
    assert_eq!(
        backend.stream(stream).await.unwrap().map(|info| (info.length, info.last_id)),
        Some((2, now[0]))
    );

    // The store adds it when it is due, and remembers the ticket of an idempotent entry.
    let once = Idempotence { producer: "p".to_owned(), iid: "i".to_owned() };
    let soon = [NewEntry { idempotence: Some(once), ..entry("n", "5") }];
    let ticket = backend.add_with(stream, &soon, due(Due::In(30), None)).await.unwrap();
    assert_eq!(backend.add_with(stream, &soon, due(Due::In(30), None)).await.unwrap(), ticket);
    wait_until(|| async { backend.stream(stream).await.unwrap().unwrap().length == 3 }).await;
    let last = backend.all_entries(stream).await.unwrap().pop().unwrap();
    assert!(last.id.ms >= ticket[0].ms, "{} was added before {}", last.id, ticket[0]);
    assert!(backend.delete_stream(stream).await.unwrap());
}

/// A producer that delays every entry.
pub(crate) async fn with_producer(backend: &Arc<dyn Admin>) {
    if !backend.supports(Capability::DelayedEntries, "delaying:producer").await.unwrap() {
        return;
    }
    let producer = Producer::new(backend.clone(), "delaying:producer").idempotent("p");
    let ticket = producer.clone().delay(Duration::from_secs(3600)).send([("n", "1")]).await.unwrap();
    let until = producer.delay_until(ticket.ms - 1000).send_all([[("n", "2")], [("n", "3")]]).await.unwrap();
    let listed = backend.delayed("delaying:producer", StreamId::MIN, 9).await.unwrap();
    assert_eq!(listed.iter().map(|entry| entry.id).collect::<Vec<_>>(), [until[0], until[1], ticket]);
    assert!(backend.delete_stream("delaying:producer").await.unwrap());
}
