//! The names of partitions, the function from keys to partitions, and the list in a store.

use std::collections::HashSet;

use super::*;
use crate::backend::{Embedded, InspectStore, NewEntry, ReadMessages, SettleMessages};
use crate::names::can_match_pattern;
use crate::slots::{SLOTS, slot_of};

/// The vectors that producers in other languages are tested with, too.
#[test]
fn keys_have_the_documented_partitions() {
    let vectors: [(&[u8], [usize; 5]); 8] = [
        (b"", [0, 0, 0, 0, 0]),
        (b"a", [2, 6, 6, 6, 78]),
        (b"123456789", [2, 6, 2, 14, 38]),
        (b"user-42", [1, 5, 9, 21, 69]),
        (b"order:1001", [3, 3, 11, 11, 59]),
        ("Zürich".as_bytes(), [2, 6, 2, 14, 38]),
        ("日本".as_bytes(), [1, 1, 1, 1, 25]),
        (b"\x00\xff", [0, 0, 0, 0, 48]),
    ];
    for (key, expected) in vectors {
        assert_eq!([4, 8, 12, 24, 96].map(|count| partition_of(key, count)), expected, "{key:?}");
    }
}

#[test]
fn the_slots_of_partitions_are_evenly_spaced() {
    let four = Partitions::plan("orders", 4, None).unwrap();
    assert_eq!(four.names(), ["orders:{ae}.1", "orders:{ad}.1", "orders:{6b}.1", "orders:{6c}.1"]);
    for count in [1, 2, 3, 24, 96, 384, 1023, 1024] {
        let partitions = Partitions::plan("orders", count, None).unwrap();
        let names: HashSet<&str> = partitions.names().into_iter().collect();
        assert_eq!(names.len(), count);
        for nodes in 1..=8 {
            let mut on_node = vec![0; nodes];
            let node_of = |slot: u16| usize::from(slot) * nodes / usize::from(SLOTS);
            names.iter().for_each(|name| on_node[node_of(slot_of(name))] += 1);
            let (most, fewest) = (on_node.iter().max().unwrap(), on_node.iter().min().unwrap());
            assert!(most - fewest <= 2, "{count} partitions on {nodes} nodes: {on_node:?}");
        }
    }
}

#[test]
fn names_of_partitions_are_recognized() {
    let partitions = Partitions::plan("shop:orders", 1024, None).unwrap();
    for name in partitions.names() {
        assert_eq!(logical_name(name), Some("shop:orders"), "{name}");
        assert!(!can_match_pattern(name), "{name}");
    }
    for other in ["orders", "orders:{ae}", "orders:{ae}.2", "orders:{xy}.1", ":{ae}.1", "orders:{ae}.1:dlq"] {
        assert_eq!(logical_name(other), None, "{other}");
    }
    assert_eq!(split_name("orders/3"), Some(("orders", 3)));
    assert_eq!(split_name("a/b/12"), Some(("a/b", 12)));
    for other in ["orders", "orders/", "/3", "orders/x", "orders/+3", "orders/99999999999999999999"] {
        assert_eq!(split_name(other), None, "{other}");
    }
}

#[test]
fn a_number_or_a_name_that_cannot_be_partitioned_is_refused() {
    for (stream, count) in [("orders", 0), ("orders", 1025), ("", 4), ("{eu}orders", 4), ("a/b", 4)] {
        let error = Partitions::plan(stream, count, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{stream} {count}");
    }
    assert_eq!(Partitions::plan("orders", 1024, None).unwrap().len(), 1024);
}

#[tokio::test]
async fn a_list_is_created_once() {
    let store = Embedded::in_memory();
    let plan = Partitions::plan("orders", 4, Some("customer")).unwrap();
    assert_eq!(Partitions::find(&store, "orders").await.unwrap(), None);
    assert!(plan.create(&store).await.unwrap());
    assert!(!plan.create(&store).await.unwrap());
    let found = Partitions::find(&store, "orders").await.unwrap().unwrap();
    assert_eq!((found.len(), found.key_field()), (4, Some("customer")));
    assert_eq!(found, plan);
    for name in found.names() {
        assert_eq!(store.stream(name).await.unwrap().unwrap().length, 0);
        assert_eq!(store.groups(name).await.unwrap(), []);
    }
    let other = Partitions::plan("orders", 8, Some("customer")).unwrap();
    let error = other.create(&store).await.unwrap_err().to_string();
    assert!(error.contains("has 4 partitions") && error.contains("cannot be changed"), "{error}");
}

#[tokio::test]
async fn damaged_and_newer_lists_are_refused() {
    let store = Embedded::in_memory();
    let set = |stream: &'static str, fields: &[(&str, &str)]| {
        let pairs: Vec<(String, Bytes)> = fields
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Bytes::copy_from_slice(value.as_bytes())))
            .collect();
        let store = store.clone();
        async move { store.hash_set(&partitions_key(stream), &pairs).await.unwrap() }
    };
    set("newer", &[("generation", "2"), ("2", "[]"), ("hash", HASH)]).await;
    set("other", &[("generation", "1"), ("1", r#"["a"]"#), ("hash", "murmur2")]).await;
    set("damaged", &[("generation", "1"), ("1", "{"), ("hash", HASH)]).await;
    set("empty", &[("generation", "1"), ("1", "[]"), ("hash", HASH)]).await;
    for (stream, part) in
        [("newer", "later version"), ("other", "later version"), ("damaged", "damaged"), ("empty", "damaged")]
    {
        let error = Partitions::find(&store, stream).await.unwrap_err().to_string();
        assert!(error.contains(part), "{stream}: {error}");
    }
    // A stream with entries keeps its name.
    let entry = NewEntry { fields: vec![(Bytes::from("a"), Bytes::from("1"))], idempotence: None };
    store.add("plain", &[entry], None).await.unwrap();
    let error = Partitions::plan("plain", 2, None).unwrap().create(&store).await.unwrap_err().to_string();
    assert!(error.contains("is a stream with 1 entries"), "{error}");
}
