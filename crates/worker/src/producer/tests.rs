//! Tests of producers, on the embedded store.

use std::collections::BTreeSet;

use super::*;
use crate::Admin;
use crate::backend::{Embedded, IdOrder, Range};
use crate::handler::{FromMessage, Json, Shared};
use crate::message::sample;

fn memory() -> Arc<dyn Admin> {
    Arc::new(Embedded::in_memory())
}

async fn all(backend: &Arc<dyn Admin>, stream: &str) -> Vec<crate::backend::Entry> {
    let range =
        Range { first: StreamId::MIN, last: StreamId::MAX, order: IdOrder::Ascending, count: 100_000 };
    backend.range(stream, range).await.unwrap()
}

#[tokio::test]
async fn entries_are_added_in_order() {
    let backend = memory();
    let producer = Producer::new(backend.clone(), "orders");
    let mut ids = vec![producer.send([("n", "0")]).await.unwrap()];
    ids.extend(producer.send_all((1..5).map(|n| vec![("n".to_owned(), n.to_string())])).await.unwrap());
    assert_eq!(producer.send_all(Vec::<Fields>::new()).await.unwrap(), []);
    let entries = all(&backend, "orders").await;
    assert_eq!(entries.iter().map(|entry| entry.id).collect::<Vec<_>>(), ids);
    let values: Vec<&[u8]> = entries.iter().map(|entry| &entry.fields[0].1[..]).collect();
    assert_eq!(values, [b"0", b"1", b"2", b"3", b"4"]);
}

#[tokio::test]
async fn json_is_sent_in_the_field_that_handlers_read() {
    let backend = memory();
    Producer::new(backend.clone(), "orders").send_json(&vec![1, 2]).await.unwrap();
    let mut message = sample(&[]);
    message.fields = Arc::new(all(&backend, "orders").await[0].fields.clone());
    assert_eq!(Json::<Vec<u8>>::from_message(&message, &Shared::default()).unwrap().0, [1, 2]);
}

#[tokio::test]
async fn a_producer_trims_its_stream() {
    let backend = memory();
    let producer = Producer::new(backend.clone(), "orders").trim(Trim::exactly(2));
    producer.send_all((0..5).map(|n| [("n", n.to_string())])).await.unwrap();
    assert_eq!(all(&backend, "orders").await.len(), 2);
}

#[tokio::test]
async fn an_entry_with_an_idempotence_id_is_added_once() {
    let backend = memory();
    let plain = Producer::new(backend.clone(), "orders");
    let nameless = plain.send_once("seven", [("n", "7")]).await.unwrap_err();
    assert!(nameless.to_string().contains("idempotent"), "{nameless}");
    let producer = plain.idempotent("shop");
    if !backend.supports(Capability::IdempotentAdds, "orders").await.unwrap() {
        assert!(producer.send_once("seven", [("n", "7")]).await.is_err());
        return;
    }
    let first = producer.send_once("seven", [("n", "7")]).await.unwrap();
    assert_eq!(producer.send_once("seven", [("n", "7")]).await.unwrap(), first);
    assert_ne!(producer.send_once("eight", [("n", "8")]).await.unwrap(), first);
    assert_eq!(all(&backend, "orders").await.len(), 2);
}

#[tokio::test]
async fn an_idempotent_producer_gives_each_entry_its_own_id() {
    let backend = memory();
    let producer = Producer::new(backend.clone(), "orders").idempotent("shop");
    let ids = producer.send_all((0..250).map(|_| [("same", "fields")])).await.unwrap();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 250);
    assert_eq!(all(&backend, "orders").await.len(), 250);
}

#[tokio::test]
async fn a_pipeline_adds_the_entries_of_many_tasks() {
    let backend = memory();
    let options = PipelineOptions { batch: 7, capacity: 3, ..PipelineOptions::default() };
    let pipeline = Producer::new(backend.clone(), "orders").pipelined(options);
    let mut senders = tokio::task::JoinSet::new();
    for sender in 0..5 {
        let pipeline = pipeline.clone();
        senders.spawn(async move {
            let mut ids = Vec::new();
            for n in 0..20 {
                ids.push(pipeline.send([("n", format!("{sender}-{n}"))]).await.unwrap());
            }
            ids
        });
    }
    let ids = senders.join_all().await;
    assert!(ids.iter().all(|ids| ids.is_sorted()), "the entries of a sender are not in its order");
    let found: BTreeSet<StreamId> = all(&backend, "orders").await.iter().map(|entry| entry.id).collect();
    assert_eq!(found, ids.into_iter().flatten().collect());
    assert_eq!(found.len(), 100);
}

#[tokio::test]
async fn a_flush_adds_all_enqueued_entries() {
    let backend = memory();
    let options = PipelineOptions { linger: Duration::from_secs(3600), ..PipelineOptions::default() };
    let pipeline = Producer::new(backend.clone(), "orders").pipelined(options);
    for n in 0..50 {
        drop(pipeline.enqueue([("n", n.to_string())]).await.unwrap());
    }
    pipeline.flush().await.unwrap();
    assert_eq!(all(&backend, "orders").await.len(), 50);
}

#[tokio::test]
async fn a_dropped_pipeline_adds_its_entries() {
    let backend = memory();
    let options = PipelineOptions { linger: Duration::from_secs(3600), ..PipelineOptions::default() };
    let pipeline = Producer::new(backend.clone(), "orders").pipelined(options);
    let id = pipeline.enqueue([("n", "1")]).await.unwrap();
    drop(pipeline);
    let id = id.await.unwrap();
    assert_eq!(all(&backend, "orders").await[0].id, id);
}

#[tokio::test]
async fn a_pipeline_reports_failures() {
    let backend = memory();
    let pipeline = Producer::new(backend.clone(), "orders").pipelined(PipelineOptions::default());
    let empty = pipeline.send(Fields::new()).await.unwrap_err();
    assert_eq!(empty.kind(), ErrorKind::Refused, "{empty}");
    assert_eq!(pipeline.failed(), 1);
    assert_eq!(pipeline.flush().await.unwrap_err().kind(), ErrorKind::Refused);
    pipeline.flush().await.unwrap();
    pipeline.send([("n", "1")]).await.unwrap();
    assert_eq!(all(&backend, "orders").await.len(), 1);
}

#[tokio::test]
async fn entries_get_the_trace_of_their_producer_unless_they_have_one() {
    let backend = memory();
    let context: TraceContext = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse().unwrap();
    let other = context.clone().with_span(crate::trace::SpanId::random());
    let producer = Producer::new(backend.clone(), "orders");
    producer.send([("n", "0")]).await.unwrap();
    let traced = producer.clone().trace(context.clone());
    traced.send([("n", "1")]).await.unwrap();
    traced.send_json(&2).await.unwrap();
    traced.send([("n", "3"), ("traceparent", &other.to_string())]).await.unwrap();
    assert!(traced.send(Fields::new()).await.is_err(), "an entry with nothing but a trace");
    traced.clone().trace(None).send([("n", "4")]).await.unwrap();
    let pipeline = producer.trace_from({
        let context = context.clone();
        move || Some(context.clone())
    });
    pipeline.pipelined(PipelineOptions::default()).send([("n", "5")]).await.unwrap();
    let found: Vec<Option<TraceContext>> =
        all(&backend, "orders").await.iter().map(|entry| TraceContext::of(&entry.fields)).collect();
    let traced = || Some(context.clone());
    assert_eq!(found, [None, traced(), traced(), Some(other), None, traced()]);
}

#[test]
fn a_later_attempt_does_not_hide_that_an_entry_may_have_been_added() {
    use AddOutcome::{Added, NotAdded, Unknown};
    let added = Added(StreamId::new(1, 1));
    let mut known = [NotAdded, NotAdded, NotAdded];
    note_outcomes(&mut known, &[Unknown, Unknown, NotAdded]);
    note_outcomes(&mut known, &[added, NotAdded, NotAdded]);
    note_outcomes(&mut known, &[]);
    assert_eq!(known, [added, Unknown, NotAdded]);
}
