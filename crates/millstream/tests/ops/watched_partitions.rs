//! Commands that watch, on a stream with partitions: one row by default, and the parts with `--partitions`.

use millstream_worker::names::{fence_key, lease_key};
use millstream_worker::partitions::{Partitions, partitions_key};
use serde_json::{Value, json};

use crate::support::peers::{REDIS_6_2, REDIS_7_0};
use crate::test_store::TestStore;

/// Makes `orders` with three partitions and the group `billing`, which has 2, 5 and 0 unread entries. `worker-1` owns
/// partition 1, where one more entry is pending for it.
fn with_partitions() -> Vec<(TestStore, Partitions)> {
    let peers = [TestStore::peer(&REDIS_6_2), TestStore::peer(&REDIS_7_0)];
    let stores = peers.into_iter().flatten().chain([TestStore::empty(&[])]);
    stores.map(|store| (fill(&store), store)).map(|(partitions, store)| (store, partitions)).collect()
}

fn fill(store: &TestStore) -> Partitions {
    let partitions = Partitions::plan("orders", 3, Some("customer")).unwrap();
    let list = serde_json::to_string(&partitions.names()).unwrap();
    let key = partitions_key("orders");
    store.call(&["HSET", &key, "1", &list, "hash", "crc32-65521", "key", "customer", "generation", "1"]);
    for (name, unread) in partitions.names().into_iter().zip([2, 5, 0]) {
        store.call(&["XGROUP", "CREATE", name, "billing", "0", "MKSTREAM"]);
        for _ in 0..unread {
            store.call(&["XADD", name, "*", "customer", "ada"]);
        }
    }
    let hot = &**partitions.name(1).unwrap();
    store.call(&["XADD", hot, "*", "customer", "bob"]);
    store.call(&["XREADGROUP", "GROUP", "billing", "worker-1", "COUNT", "1", "STREAMS", hot, ">"]);
    store.call(&["SET", &lease_key(hot, "billing"), "7 host-1", "PX", "600000"]);
    store.call(&["SET", &fence_key(hot, "billing"), "7 host-1"]);
    partitions
}

#[test]
fn one_row_stands_for_all_partitions() {
    for (store, partitions) in with_partitions() {
        let cells = store.run(&["lag"]).ok().cells();
        assert_eq!(cells[0][6..], ["OLDEST-PENDING", "WORST", "STATE"]);
        assert_eq!(cells.len(), 2);
        assert_eq!([&cells[1][..3], &cells[1][4..5]].concat(), ["orders", "billing", "7", "1"]);
        assert_eq!(cells[1][7], "1");
        for arguments in [&["lag", "orders"][..], &["lag", "orders", "billing"], &["lag", "ord*s"]] {
            assert_eq!(store.run(arguments).ok().cells().len(), 2, "{arguments:?}");
        }
        store.run(&["lag", "orders", "billing", "--fail-lag", "6"]).exits(5);
        store.run(&["lag", "orders", "billing", "--fail-lag", "7"]).ok();
        let json = &store.run(&["lag", "orders", "--json"]).ok().json()[0];
        let named = |name: &str| json[name].clone();
        assert_eq!(
            (named("stream"), named("lag"), named("partition_count")),
            (json!("orders"), json!(7), json!(3))
        );
        assert_eq!((named("worst_partition"), named("partitions")), (json!(1), Value::Null));

        let cells = store.run(&["stream", "ls"]).ok().cells();
        assert_eq!((cells.len(), &cells[1][..3]), (2, &["orders", "8", "1"].map(str::to_owned)[..]));
        let cells = store.run(&["stream", "ls", "--partitions"]).ok().cells();
        let names: Vec<&str> = cells[1..].iter().map(|row| &*row[0]).collect();
        assert_eq!(names, ["orders", "orders/0", "orders/1", "orders/2"]);
        let info = store.run(&["stream", "info", "orders"]).ok();
        info.stdout_contains("partitions     3\n").stdout_contains("length         8\n");
        store
            .run(&["stream", "info", "orders", "--partitions"])
            .ok()
            .stdout_contains(partitions.name(2).unwrap());
        store.run(&["stream", "info", "orders/1"]).ok().stdout_contains("partition      1 of orders\n");

        let cells = store.run(&["group", "ls"]).ok().cells();
        assert_eq!(
            (cells.len(), &cells[1][..4]),
            (2, &["orders", "billing", "1", "7"].map(str::to_owned)[..])
        );
        store.run(&["group", "describe", "orders", "billing"]).ok().stdout_contains("billing: ok\n");
        store.run(&["consumer", "ls", "orders", "billing"]).ok().stdout_contains("worker-1");
        let once = store.run(&["top", "--once", "--interval", "100ms"]).ok();
        once.stdout_contains("1 stream, 1 group, 8 entries  lag 7  pending 1");
    }
}

#[test]
fn partitions_have_rows_of_their_own_on_request() {
    for (store, partitions) in with_partitions() {
        let cells = store.run(&["lag", "orders", "--partitions"]).ok().cells();
        assert_eq!(cells[0][..5], ["STREAM", "GROUP", "OWNER", "FENCE", "LAG"]);
        let rows: Vec<_> = cells[1..].iter().map(|row| (&*row[0], &*row[2], &*row[3], &*row[4])).collect();
        let expected = [
            ("orders", "-", "-", "7"),
            ("orders/0", "-", "-", "2"),
            ("orders/1", "host-1", "7", "5"),
            ("orders/2", "-", "-", "0"),
        ];
        assert_eq!(rows, expected);
        let json = &store.run(&["lag", "orders", "--partitions", "--json"]).ok().json()[0]["partitions"];
        assert_eq!(
            (&json[1]["partition"], &json[1]["fence"], &json[1]["lag"]),
            (&json!(1), &json!(7), &json!(5))
        );
        assert_eq!((&json[1]["stream"], &json[0]["owner"]), (&json!(partitions.names()[1]), &Value::Null));

        let describe = ["group", "describe", "orders", "billing", "--partitions"];
        store.run(&describe).ok().stdout_contains("PARTITION").stdout_contains("host-1");
        let ls = store.run(&["group", "ls", "--partitions"]).ok();
        assert_eq!(ls.cells().len(), 5);
        let consumers = store.run(&["consumer", "ls", "orders", "billing", "--partitions"]).ok();
        assert_eq!(consumers.cells()[0].last().unwrap(), "PARTITIONS");
        let once = store.run(&["top", "--once", "--interval", "100ms", "--partitions"]).ok();
        once.stdout_contains("orders/0").stdout_contains("orders/2");
    }
}

#[test]
fn a_partition_has_a_name() {
    for (store, partitions) in with_partitions() {
        for name in ["orders/1", partitions.name(1).unwrap()] {
            let cells = store.run(&["lag", name, "billing"]).ok().cells();
            assert_eq!(cells[1][..3], ["orders/1", "billing", "5"]);
            let json = &store.run(&["group", "describe", name, "billing", "--json"]).ok().json()[0];
            assert_eq!((&json["partition"], &json["partition_of"]), (&json!(1), &json!("orders")));
        }
        store.run(&["lag", "orders/3"]).exits(4).stderr_contains("numbers 0 to 2");
        store.run(&["lag", "orders", "none"]).exits(4).stderr_contains("existing groups: billing");
        store.run(&["lag", "none/1"]).exits(4).stderr_contains("stream none/1 does not exist");
        // A stream that has such a name itself comes first.
        store.call(&["XGROUP", "CREATE", "orders/1", "mail", "0", "MKSTREAM"]);
        assert_eq!(store.run(&["lag", "orders/1"]).ok().cells()[1][1], "mail");
    }
}
