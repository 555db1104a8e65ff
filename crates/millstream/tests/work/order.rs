//! `--order-by`: messages of a key run in order, across failures, kill -9, restarts and a hand-over to a standby.
//! Handlers write a journal; the test checks that a message begins only when every earlier one of its key has ended
//! once.

use std::collections::{BTreeMap, BTreeSet};

use crate::test_store::{TestStore, wait_until};

const KEYS: u64 = 13;

/// Writes when it begins and how it ends. The fifth message of each key fails twice, and the eighth is rejected.
const HANDLER: &str = r#"
    line="$MILLSTREAM_ORDER_KEY $MILLSTREAM_ID $PPID"
    echo "begin $line" >> journal
    case $MILLSTREAM_FIELD_N:$MILLSTREAM_ATTEMPT in
        5:1|5:2) echo "fail $line" >> journal; exit 75;;
        8:*) echo "end $line" >> journal; exit 65;;
    esac
    echo "end $line" >> journal
"#;

/// Adds messages of each key, in several rounds so that the keys alternate.
fn add(store: &TestStore, rounds: u64) {
    for _ in 0..rounds {
        for key in 0..KEYS {
            store.run(&["add", "orders", &format!("customer=c{key}"), "n={i}", "--count", "10"]).ok();
        }
    }
}

fn parse_id(id: &str) -> (u64, u64) {
    let (ms, seq) = id.split_once('-').expect("an id");
    (ms.parse().expect("a number"), seq.parse().expect("a number"))
}

/// Returns the violations of the order in the lines of a journal.
fn violations(lines: &[String]) -> Vec<String> {
    let mut ids: BTreeMap<&str, BTreeSet<(u64, u64)>> = BTreeMap::new();
    let parsed: Vec<[&str; 4]> = lines
        .iter()
        .map(|line| line.split(' ').collect::<Vec<_>>().try_into().expect("four words"))
        .collect();
    for [_, key, id, _] in &parsed {
        ids.entry(key).or_default().insert(parse_id(id));
    }
    let (mut over, mut at_work, mut violations) = (BTreeSet::new(), BTreeMap::new(), Vec::new());
    for [what, key, id, worker] in parsed {
        let number = parse_id(id);
        if what != "begin" {
            at_work.remove(&(worker, key));
            if what == "end" {
                over.insert((key, number));
            }
            continue;
        }
        if let Some(other) = at_work.insert((worker, key), id) {
            violations.push(format!("{key}: {id} begins while {other} is at work"));
        }
        if let Some(earlier) = ids[key].range(..number).find(|earlier| !over.contains(&(key, **earlier))) {
            violations.push(format!("{key}: {id} begins before {earlier:?} has ended"));
        }
    }
    violations
}

#[test]
fn the_journal_notices_messages_that_begin_too_early() {
    let lines = |text: &str| text.split(", ").map(str::to_owned).collect::<Vec<_>>();
    assert!(violations(&lines("begin a 1-0 7, begin b 1-1 7, end a 1-0 7, begin a 1-2 7")).is_empty());
    assert_eq!(violations(&lines("begin a 1-0 7, fail a 1-0 7, begin a 1-2 7")).len(), 1);
    assert_eq!(violations(&lines("begin a 1-0 7, end a 1-0 7, begin a 1-0 7, begin a 1-2 7")).len(), 1);
}

/// Kills a worker again and again, and lets the last one finish.
fn keeps_the_order(store: &TestStore, options: &[&str]) {
    add(store, 3);
    let options = [&["--order-by", "customer", "--exec", HANDLER], options].concat();
    for signal in ["KILL", "TERM", "KILL"] {
        let before = store.lines("journal").len();
        let worker = store.start(&options);
        wait_until("some handlers to run", || store.lines("journal").len() > before + 80);
        worker.signal(signal);
        worker.wait();
    }
    let [dead] = store.work(&options).report(["dead"]);
    let lines = store.lines("journal");
    assert_eq!(violations(&lines), Vec::<String>::new(), "{}", store.url);
    let ended: BTreeSet<&str> =
        lines.iter().filter_map(|line| line.strip_prefix("end ")?.split(' ').nth(1)).collect();
    assert_eq!(ended.len() as u64, KEYS * 30);
    assert!(dead <= KEYS * 3);
    let dead_letters = store.dead_letters();
    assert_eq!(dead_letters.len() as u64, KEYS * 3);
    assert!(dead_letters.iter().all(|dead| dead["fields"]["n"] == "8"), "{dead_letters:?}");
    assert_eq!(store.lag_and_pending(), (0, 0));
}

#[test]
fn the_order_of_each_key_holds_when_workers_are_killed() {
    let stores = [Some(TestStore::server()), Some(TestStore::embedded()), TestStore::redis()];
    std::thread::scope(|scope| {
        for store in stores.into_iter().flatten() {
            scope.spawn(move || keeps_the_order(&store, &[]));
        }
    });
}

#[test]
fn a_standby_takes_over_in_order() {
    for store in TestStore::servers() {
        add(&store, 2);
        let options = ["--order-by", "customer", "--exec", HANDLER];
        let first = store.start(&options);
        wait_until("the first to work", || store.lines("journal").len() > 80);
        let second = store.start(&[&options[..], &["--until-empty", "--json"]].concat());
        first.signal("KILL");
        first.wait();
        let [dead] = second.wait().report(["dead"]);
        assert!(dead <= KEYS * 2);
        let lines = store.lines("journal");
        assert_eq!(violations(&lines), Vec::<String>::new(), "{}", store.url);
        assert_eq!(store.lag_and_pending(), (0, 0));
    }
}

/// A handler of batches that stops at the first failure of the batch, as a script would. It fails for the fifth message
/// of each key, until that is alone.
#[test]
fn a_failed_batch_keeps_the_order() {
    let store = TestStore::server();
    add(&store, 2);
    let handler = r#"
        while IFS= read -r message; do
            line=$(echo "$message" | sed 's/.*"id":"\([^"]*\)".*"key":"\([^"]*\)".*/\2 \1/')
            echo "begin $line $PPID" >> journal
            case $MILLSTREAM_COUNT:$message in
                1:*) ;;
                *'"n":"5"'*) echo "fail $line $PPID" >> journal; exit 75;;
            esac
            echo "end $line $PPID" >> journal
        done
    "#;
    let options =
        ["--order-by", "customer", "--exec", handler, "--batch", "8", "--batch-wait", "20ms", "-c", "3"];
    store.work(&options).ok();
    assert_eq!(violations(&store.lines("journal")), Vec::<String>::new());
}

#[test]
fn a_message_that_kills_its_worker_blocks_its_key_until_it_is_dead() {
    for store in [Some(TestStore::server()), TestStore::redis()].into_iter().flatten() {
        for key in ["a", "b"] {
            store.run(&["add", "orders", &format!("customer={key}"), "n={i}", "--count", "20"]).ok();
        }
        let handler = r#"
            line="$MILLSTREAM_ORDER_KEY $MILLSTREAM_ID $PPID"
            echo "begin $line" >> journal
            [ "$MILLSTREAM_ORDER_KEY$MILLSTREAM_FIELD_N" != a3 ] || { kill -9 $PPID; sleep 5; }
            echo "end $line" >> journal
        "#;
        let options = ["--order-by", "customer", "--exec", handler, "--max-deliveries", "3"];
        let killed =
            (0..10).find(|_| store.work(&options).code.is_some()).expect("the workers come to an end");
        assert_eq!(killed, 3);
        let dead = store.dead_letters();
        assert_eq!(dead.len(), 1, "{dead:?}");
        assert_eq!(dead[0]["fields"]["n"], "3");
        let lines = store.lines("journal");
        let ended: BTreeSet<&str> = lines.iter().filter_map(|line| line.strip_prefix("end ")).collect();
        let is_poison = |line: &String| line.strip_prefix("begin ").is_some_and(|run| !ended.contains(run));
        let last_poison = lines.iter().rposition(is_poison).expect("the poisonous message began");
        let after = lines.iter().skip(last_poison + 1);
        // All later messages of the key begin after the last life of the poisonous one.
        assert_eq!(after.filter(|line| line.starts_with("begin a ")).count(), 17, "{lines:?}");
        assert_eq!(store.lag_and_pending(), (0, 0));
    }
}
