//! Tests of producers for streams with partitions, on the embedded store.

use std::collections::BTreeMap;

use super::*;
use crate::Admin;
use crate::backend::{Embedded, Entry};
use crate::partitions::{Partitions, partitions_key};

async fn partitioned(count: usize, key_field: Option<&str>) -> (Arc<dyn Admin>, Partitions) {
    let backend: Arc<dyn Admin> = Arc::new(Embedded::in_memory());
    let partitions = Partitions::plan("orders", count, key_field).unwrap();
    assert!(partitions.create(&*backend).await.unwrap());
    (backend, partitions)
}

async fn entries_of(backend: &Arc<dyn Admin>, partitions: &Partitions) -> Vec<Vec<Entry>> {
    let mut all = Vec::new();
    for name in partitions.names() {
        all.push(backend.all_entries(name).await.unwrap());
    }
    assert_eq!(backend.stream("orders").await.unwrap(), None, "messages were added to a plain stream");
    all
}

fn order(customer: usize, n: usize) -> [(&'static str, String); 2] {
    [("customer", format!("c{customer}")), ("n", n.to_string())]
}

#[tokio::test]
async fn messages_go_to_the_partitions_of_their_keys_and_stay_in_order() {
    let (backend, partitions) = partitioned(4, Some("customer")).await;
    let producer = Producer::new(backend.clone(), "orders");
    for n in 0..10 {
        producer.send(order(n % 7, n)).await.unwrap();
    }
    let ids = producer.send_all((10..500).map(|n| order(n % 7, n))).await.unwrap();
    let pipeline = producer.clone().idempotent("shop").pipelined(PipelineOptions::default());
    let mut queued = Vec::new();
    for n in 500..1000 {
        queued.push(pipeline.enqueue(order(n % 7, n)).await.unwrap());
    }
    pipeline.flush().await.unwrap();
    let mut found = 0;
    for (number, entries) in entries_of(&backend, &partitions).await.iter().enumerate() {
        let mut last = BTreeMap::new();
        for entry in entries {
            let [(_, key), (_, n)] = &entry.fields[..] else { panic!("{entry:?}") };
            assert_eq!(partitions.of_key(key), number);
            let n: usize = std::str::from_utf8(n).unwrap().parse().unwrap();
            assert!(last.insert(key.clone(), n).is_none_or(|earlier| earlier < n), "{n} overtook");
            // Ids come back in the order of the messages.
            if (10..500).contains(&n) {
                assert_eq!(ids[n - 10], entry.id);
            }
            found += 1;
        }
    }
    assert_eq!((found, queued.len()), (1000, 500));
}

#[tokio::test]
async fn a_message_without_the_field_goes_to_the_partition_of_all_such_messages() {
    let (backend, partitions) = partitioned(4, Some("customer")).await;
    let producer = Producer::new(backend.clone(), "orders");
    producer.send_all((0..5).map(|n| [("n", n.to_string())])).await.unwrap();
    producer.send_json(&7).await.unwrap();
    producer.clone().key("user-42").send_json(&8).await.unwrap();
    let pipeline = producer.pipelined(PipelineOptions::default());
    pipeline.enqueue_keyed("user-42", [("customer", "a")]).await.unwrap().await.unwrap();
    let lengths: Vec<usize> = entries_of(&backend, &partitions).await.iter().map(Vec::len).collect();
    assert_eq!(lengths, [6, 2, 0, 0]);
}

#[tokio::test]
async fn without_a_key_each_call_takes_the_next_partition() {
    let (backend, partitions) = partitioned(3, None).await;
    let producer = Producer::new(backend.clone(), "orders");
    for _ in 0..4 {
        producer.send_all((0..5).map(|n| [("n", n.to_string())])).await.unwrap();
    }
    let lengths: Vec<usize> = entries_of(&backend, &partitions).await.iter().map(Vec::len).collect();
    assert_eq!(lengths, [10, 5, 5]);
    // The same idempotence id leads to the same partition.
    let once = producer.idempotent("shop");
    let first = once.send_once("order-17", [("n", "17")]).await.unwrap();
    assert_eq!(once.send_once("order-17", [("n", "17")]).await.unwrap(), first);
    let stream = once.stream_once("order-17", [("n", "17")]).await.unwrap();
    assert_eq!(*stream, *partitions.names()[partitions.of_key(b"order-17")]);
    assert_eq!(entries_of(&backend, &partitions).await.iter().map(Vec::len).sum::<usize>(), 21);
}

#[tokio::test]
async fn a_producer_for_one_partition_adds_to_it_only() {
    let (backend, partitions) = partitioned(4, Some("customer")).await;
    Producer::new(backend.clone(), "orders/3").send(order(1, 1)).await.unwrap();
    let lengths: Vec<usize> = entries_of(&backend, &partitions).await.iter().map(Vec::len).collect();
    assert_eq!(lengths, [0, 0, 0, 1]);
    let error = Producer::new(backend.clone(), "orders/4").send(order(1, 1)).await.unwrap_err();
    assert!(error.to_string().contains("the numbers 0 to 3"), "{error}");
    // A stream of this name comes first, and other names with a number are ordinary streams.
    backend
        .add("orders/4", &[NewEntry { fields: order(1, 1).into_fields(), idempotence: None }], None)
        .await
        .unwrap();
    for stream in ["orders/4", "payments/4"] {
        Producer::new(backend.clone(), stream).send(order(1, 1)).await.unwrap();
    }
    assert_eq!(backend.all_entries("orders/4").await.unwrap().len(), 2);
    assert_eq!(backend.all_entries("payments/4").await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_producer_reads_the_list_again_when_a_partition_is_gone() {
    let (backend, partitions) = partitioned(2, Some("customer")).await;
    let producer = Producer::new(backend.clone(), "orders").idempotent("shop");
    producer.send(order(1, 1)).await.unwrap();
    // Somebody deletes the streams, and the list stays: the messages are added nevertheless.
    for name in partitions.names() {
        backend.delete_stream(name).await.unwrap();
    }
    assert_eq!(producer.send_all((0..10).map(|n| order(n, n))).await.unwrap().len(), 10);
    assert_eq!(entries_of(&backend, &partitions).await.iter().map(Vec::len).sum::<usize>(), 10);
    // All is removed: nothing is added anywhere.
    for name in partitions.names() {
        backend.delete_stream(name).await.unwrap();
    }
    let list = partitions_key("orders");
    backend.hash_delete(&list, &backend.hash_fields(&list).await.unwrap()).await.unwrap();
    for _ in 0..2 {
        let error = producer.send(order(1, 1)).await.unwrap_err();
        assert!(error.to_string().contains("were removed"), "{error}");
        assert_eq!(backend.streams("*").await.unwrap(), Vec::<String>::new());
    }
    // There are other partitions now.
    let more = Partitions::plan("orders", 7, None).unwrap();
    more.create(&*backend).await.unwrap();
    producer.send_all((0..10).map(|n| order(n, n))).await.unwrap();
    assert_eq!(entries_of(&backend, &more).await.iter().map(Vec::len).sum::<usize>(), 10);
}

#[tokio::test]
async fn adds_of_a_key_keep_their_order_even_if_nobody_waits_for_them() {
    let (backend, partitions) = partitioned(2, Some("customer")).await;
    let producer = Producer::new(backend.clone(), "orders");
    for n in 0..200 {
        let send = producer.send(order(1, n));
        let mut send = std::pin::pin!(send);
        // The caller gives up after the first poll or later.
        poll_fn(|cx| Poll::Ready(send.as_mut().poll(cx).is_ready())).await;
        if n % 3 == 0 {
            tokio::task::yield_now().await;
        }
    }
    producer.send(order(1, 1000)).await.unwrap();
    let all = entries_of(&backend, &partitions).await;
    let numbers: Vec<u64> = all[partitions.of_key(b"c1")]
        .iter()
        .map(|entry| std::str::from_utf8(&entry.fields[1].1).unwrap().parse().unwrap())
        .collect();
    assert!(numbers.is_sorted() && numbers.last() == Some(&1000), "{numbers:?}");
}
