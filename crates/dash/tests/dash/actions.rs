//! The actions: a plan, its preview, what has changed since, the job, and the record.

use millstream_dash::Options;
use millstream_worker::backend::{Release, Start, StreamId};
use serde_json::{Value, json};

use crate::stores::{self, Store};
use crate::support::{Dash, Reply, eventually, over};

impl Dash {
    /// Runs an action.
    async fn act(&self, path: &str, body: &Value) -> Reply {
        self.post(&format!("/api/v1/{path}"), body).await
    }

    /// Asks for a plan, checks what it is about, and returns its preview.
    async fn plan(&self, path: &str, body: &Value, matched: u64) -> Value {
        let mut body = body.clone();
        body["dry_run"] = json!(true);
        let reply = self.act(path, &body).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        let plan = reply.json();
        assert_eq!((&plan["matched"], &plan["dry_run"]), (&json!(matched), &json!(true)), "{path}: {plan}");
        plan["preview"].clone()
    }

    /// Asks for a plan and executes it.
    async fn execute(&self, path: &str, body: &Value, matched: u64) -> Reply {
        let mut confirmed = body.clone();
        confirmed["preview"] = self.plan(path, body, matched).await;
        let reply = self.act(path, &confirmed).await;
        assert!(reply.status < 300, "{path}: {}", reply.text());
        reply
    }

    /// Waits until a job has ended.
    async fn ended(&self, reply: &Reply) -> Value {
        assert_eq!(reply.status, 202, "{}", reply.text());
        let id = reply.json()["job"].as_str().unwrap().to_owned();
        eventually("the job ends", async || {
            let job = self.api(&format!("job?id={id}")).await;
            (job["state"] != "running").then_some(job)
        })
        .await
    }

    /// Returns the last record of an action.
    async fn record(&self, action: &str) -> Value {
        let records = self.api("audit").await;
        let found = records.as_array().unwrap().iter().find(|record| record["action"] == action).cloned();
        found.unwrap_or_else(|| panic!("no record of {action}: {records}"))
    }
}

async fn filled() -> Vec<(Store, Dash)> {
    let mut all = Vec::new();
    for store in stores::all().await {
        store.fill().await;
        let dash = over(store.admin.clone(), Options::default()).await;
        all.push((store, dash));
    }
    all
}

#[tokio::test]
async fn entries_are_added_deleted_and_trimmed() {
    for (store, dash) in filled().await {
        let secret = json!({"stream": "orders", "fields": [["item", "s3cret"], ["item", "2"]]});
        let id = dash.act("entries", &secret).await.json()["id"].clone();
        assert_eq!(store.admin.stream("orders").await.unwrap().unwrap().length, 4);
        let record = dash.record("entries/add").await;
        assert_eq!(
            (&record["stream"], &record["id"], &record["from"]),
            (&json!("orders"), &id, &json!("127.0.0.1"))
        );
        assert!(!dash.api("audit").await.to_string().contains("s3cret"));
        let delete = json!({"stream": "orders", "ids": [id, "1-1"]});
        assert_eq!(dash.act("entries/delete", &delete).await.code(), "preview_required");
        let deleted = dash.execute("entries/delete", &delete, 1).await.json();
        assert_eq!(deleted["deleted"], 1);
        let trim = json!({"stream": "orders", "max_length": 1});
        let preview = dash.plan("stream/trim", &trim, 2).await;
        let mut confirmed = trim.clone();
        confirmed["preview"] = preview;
        assert_eq!(dash.act("stream/trim", &confirmed).await.json()["removed"], 2);
        assert_eq!(store.admin.stream("orders").await.unwrap().unwrap().length, 1, "{}", store.name);
        for wrong in
            [json!({"stream": "orders"}), json!({"stream": "orders", "max_length": 1, "min_id": "1-1"})]
        {
            let mut wrong = wrong;
            wrong["dry_run"] = json!(true);
            assert_eq!(dash.act("stream/trim", &wrong).await.status, 400);
        }
    }
}

#[tokio::test]
async fn groups_are_created_moved_and_removed() {
    for (store, dash) in filled().await {
        let group = json!({"stream": "orders", "group": "audit", "start": "earliest"});
        assert_eq!(dash.act("groups", &group).await.status, 200);
        assert_eq!(dash.act("groups", &group).await.code(), "exists");
        let reset = json!({"stream": "orders", "group": "audit", "to": {"latest": true}});
        let preview = dash.plan("group/reset", &reset, 1).await;
        store.admin.move_group("orders", "audit", Start::After(StreamId::new(1, 1))).await.unwrap();
        let mut confirmed = reset.clone();
        confirmed["preview"] = preview;
        let refused = dash.act("group/reset", &confirmed).await;
        assert_eq!((refused.status, refused.code().as_str()), (409, "preview_outdated"));
        confirmed["preview"] = refused.json()["plan"]["preview"].clone();
        assert_eq!(dash.act("group/reset", &confirmed).await.json()["executed"], true);
        assert_eq!(store.admin.groups("orders").await.unwrap()[0].lag.unwrap_or(0), 0);
        // The consumer of the other group has just read.
        let remove = json!({"stream": "orders", "group": "billing"});
        let mut confirmed = remove.clone();
        confirmed["preview"] = dash.plan("group/remove", &remove, 1).await;
        assert_eq!(dash.act("group/remove", &confirmed).await.code(), "in_use");
        confirmed["force"] = json!(true);
        assert_eq!(dash.act("group/remove", &confirmed).await.json()["removed"], true);
        assert_eq!(store.admin.groups("orders").await.unwrap().len(), 1, "{}", store.name);
        for (id, last_delivered) in [("2-1", "2-0"), ("0-0", "0-0")] {
            let body = json!({"stream": "orders", "group": "audit", "to": {"id": id}, "dry_run": true});
            let plan = dash.act("group/reset", &body).await.json();
            assert_eq!(plan["after"]["last_delivered"], last_delivered, "{}: {plan}", store.name);
        }
        // The group reads on at the entry with the id, as with --to-id.
        let first = store.admin.stream("orders").await.unwrap().unwrap().first_entry.unwrap();
        let to_first = json!({"stream": "orders", "group": "audit", "to": {"id": first.to_string()}});
        let done = dash.execute("group/reset", &to_first, 1).await.json();
        assert_eq!(done["after"]["last_delivered"], first.prev().unwrap().to_string(), "{done}");
        let create = json!({"stream": "orders", "group": "late", "start": {"id": first.to_string()}});
        assert_eq!(dash.act("groups", &create).await.status, 200);
        for group in ["audit", "late"] {
            let groups = store.admin.groups("orders").await.unwrap();
            let found = groups.iter().find(|found| found.name == group).unwrap();
            assert_eq!(found.last_delivered, first.prev().unwrap(), "{} {group}", store.name);
        }
        let to_start = json!({"stream": "orders", "group": "audit", "to": {"id": "0-0"}});
        assert_eq!(dash.execute("group/reset", &to_start, 1).await.status, 200);
        for to in [json!({}), json!({"latest": true, "id": "1-1"}), json!({"none": 1}), json!({"id": "x"})] {
            let body = json!({"stream": "orders", "group": "audit", "to": to, "dry_run": true});
            assert_eq!(dash.act("group/reset", &body).await.status, 400, "{to}");
        }
    }
}

#[tokio::test]
async fn pending_entries_are_given_to_others() {
    for (store, dash) in filled().await {
        let all = json!({"stream": "orders", "group": "billing", "filter": {"deliveries_min": 1}});
        let listed = dash.api("pending?stream=orders&group=billing&deliveries_min=1").await;
        assert_eq!((&listed["matched"], &listed["exact"]), (&json!(2), &json!(true)));
        let row = &listed["rows"][0];
        assert_eq!((&row["consumer"], &row["fields"][0][1]["text"]), (&json!("worker-1"), &json!("book")));
        assert!(!listed.to_string().contains("hunter22"));
        let mut claim = all.clone();
        claim["consumer"] = json!("worker-2");
        let claimed = dash.execute("pending/claim", &claim, 2).await.json();
        assert_eq!(
            (&claimed["asked"], &claimed["done"], &claimed["changed_hands"]),
            (&json!(2), &json!(2), &json!(0)),
            "{claimed}"
        );
        assert_eq!(dash.execute("pending/extend", &all, 2).await.json()["done"], 2);
        // Somebody takes one away between the plan and the action.
        let id = row["id"].as_str().unwrap();
        let one = json!({"stream": "orders", "group": "billing", "ids": [id]});
        let preview = dash.plan("pending/nack", &all, 2).await;
        let (ms, seq) = id.split_once('-').unwrap();
        let taken = StreamId::new(ms.parse().unwrap(), seq.parse().unwrap());
        let rows = store.admin.all_pending("orders", "billing").await.unwrap();
        let worker = millstream_worker::backend::Consumer::new("orders", "billing", "worker-2");
        store.admin.release(worker, &[Release::counted(taken, rows[0].deliveries)]).await.unwrap();
        let mut confirmed = all.clone();
        confirmed["preview"] = preview;
        assert_eq!(dash.act("pending/nack", &confirmed).await.code(), "preview_outdated", "{}", store.name);
        assert_eq!(dash.execute("pending/ack", &one, 1).await.json()["done"], 1);
        assert_eq!(dash.record("pending_ack").await["done"], 1);
        let heir =
            json!({"stream": "orders", "group": "billing", "consumer": "worker-2", "heir": "worker-3"});
        assert_eq!(dash.execute("consumer/remove", &heir, 1).await.json()["moved"], 1);
        assert_eq!(
            store.admin.pending_summary("orders", "billing").await.unwrap().consumers,
            [("worker-3".to_owned(), 1)]
        );
        let both = json!({"stream": "orders", "group": "billing", "ids": [], "filter": {}, "dry_run": true});
        assert_eq!(dash.act("pending/ack", &both).await.status, 400);
    }
}

impl Store {
    /// Adds dead letters of `orders`, as a worker writes them: `timeouts` with one reason and one with another.
    async fn bury(&self, timeouts: usize) {
        for number in 0..=timeouts {
            let reason: &[u8] = if number < timeouts { b"timeout" } else { b"panic" };
            let origin = self.add("orders", &[(b"item", b"dead")]).await;
            let fields: [(&[u8], &[u8]); 8] = [
                (b"item", b"dead"),
                (b"password", b"hunter22"),
                (b"dlq.stream", b"orders"),
                (b"dlq.id", origin.as_bytes()),
                (b"dlq.group", b"billing"),
                (b"dlq.reason", reason),
                (b"dlq.error", b"login with hunter22 failed"),
                (b"dlq.dead_at", b"1700000000000"),
            ];
            self.add("{orders}:dlq", &fields).await;
        }
    }
}

#[tokio::test]
async fn a_consumer_stays_if_the_server_cannot_move_its_deleted_entries() {
    for (store, dash) in filled().await {
        let first = store.admin.stream("orders").await.unwrap().unwrap().first_entry.unwrap();
        let delete = json!({"stream": "orders", "ids": [first.to_string()]});
        dash.execute("entries/delete", &delete, 1).await;
        let remove =
            json!({"stream": "orders", "group": "billing", "consumer": "worker-1", "heir": "worker-2"});
        let removed = dash.execute("consumer/remove", &remove, 2).await.json();
        let consumers = store.admin.consumers("orders", "billing").await.unwrap();
        let names: Vec<_> = consumers.iter().map(|consumer| (&*consumer.name, consumer.pending)).collect();
        match store.name {
            "embedded" => {
                assert_eq!((&removed["removed"], &removed["left"]), (&json!("worker-1"), &json!(0)));
                assert_eq!(names, [("worker-2", 2)]);
            }
            _ => {
                assert_eq!((&removed["removed"], &removed["left"]), (&Value::Null, &json!(1)), "{removed}");
                assert_eq!(names, [("worker-1", 1), ("worker-2", 1)]);
            }
        }
    }
}

#[tokio::test]
async fn dead_letters_are_redriven_and_deleted_by_filter() {
    for (store, dash) in filled().await {
        store.bury(3).await;
        let letters = dash.api("dlq/letters?stream=orders&reason=timeout&count=2").await;
        assert_eq!((&letters["matched"], letters["items"].as_array().unwrap().len()), (&json!(3), 2));
        assert_eq!(
            letters["by_reason"],
            json!([{"reason": "timeout", "count": 3}, {"reason": "panic", "count": 1}])
        );
        assert!(!letters.to_string().contains("hunter22"), "{letters}");
        let next = letters["next"].as_str().unwrap();
        let rest = dash.api(&format!("dlq/letters?stream=orders&reason=timeout&after={next}")).await;
        assert_eq!(rest["items"].as_array().unwrap().len(), 1);
        // A filter tells nothing about what it may not show.
        assert_eq!(dash.api("dlq/letters?stream=orders&error=hunter").await["matched"], 0);
        assert_eq!(dash.api("dlq/letters?stream=orders&error=login").await["matched"], 4);
        let timeouts = json!({"stream": "orders", "filter": {"reason": "timeout"}});
        let job = dash.execute("dlq/redrive", &timeouts, 3).await;
        let job = dash.ended(&job).await;
        assert_eq!(
            (&job["state"], &job["done"], &job["total"]),
            (&json!("done"), &json!(3), &json!(3)),
            "{job}"
        );
        assert_eq!(
            store.admin.pending_summary("orders", "billing").await.unwrap().total,
            5,
            "{}",
            store.name
        );
        let rest = json!({"stream": "orders"});
        let job = dash.ended(&dash.execute("dlq/purge", &rest, 1).await).await;
        assert_eq!((&job["state"], &job["progress"]["deleted"]), (&json!("done"), &json!(1)));
        assert_eq!(dash.api("jobs").await.as_array().unwrap().len(), 2);
        let wrong = json!({"stream": "orders", "filter": {"reason": "none"}, "dry_run": true});
        assert_eq!(dash.act("dlq/redrive", &wrong).await.status, 400);
    }
}

/// Dead letters that come in after the preview are not part of the plan, and do not make it out of date.
#[tokio::test]
async fn a_plan_holds_while_more_dead_letters_come_in() {
    for (store, dash) in filled().await {
        store.bury(2).await;
        for (filter, path) in [
            (json!({"error": "login"}), "dlq/redrive"),
            (json!({"error": "login", "older_ms": 60_000}), "dlq/purge"),
        ] {
            let body = json!({"stream": "orders", "filter": filter});
            let mut confirmed = body.clone();
            confirmed["preview"] = dash.plan(path, &body, 3).await;
            store.bury(2).await;
            let reply = dash.act(path, &confirmed).await;
            assert_eq!(reply.status, 202, "{} {path}: {}", store.name, reply.text());
            let job = dash.ended(&reply).await;
            assert_eq!((&job["state"], &job["total"]), (&json!("done"), &json!(3)), "{job}");
            assert_eq!(store.admin.stream("{orders}:dlq").await.unwrap().unwrap().length, 3);
        }
    }
}

#[tokio::test]
async fn a_slow_redrive_can_be_stopped() {
    let (store, dash) = filled().await.remove(0);
    store.bury(20).await;
    let slow = json!({"stream": "orders", "rate": 2.0});
    let job = dash.execute("dlq/redrive", &slow, 21).await;
    let id = job.json()["job"].as_str().unwrap().to_owned();
    eventually("one is redriven", async || {
        (dash.api(&format!("job?id={id}")).await["done"].as_u64() > Some(0)).then_some(())
    })
    .await;
    let stopped = dash.send("DELETE", &format!("/api/v1/job?id={id}"), &dash.action_headers(), "").await;
    assert_eq!(stopped.status, 204);
    let job = dash.ended(&job).await;
    assert_eq!(job["state"], "stopped");
    assert!(job["done"].as_u64().unwrap() < 21, "{job}");
    assert_eq!(dash.send("DELETE", "/api/v1/job?id=99", &dash.action_headers(), "").await.status, 404);
}

#[tokio::test]
async fn the_server_takes_snapshots_and_changes_few_settings() {
    let Some(store) = stores::redis().await else { return };
    let dash = over(store.admin.clone(), Options::default()).await;
    let set = json!({"name": "slowlog-log-slower-than", "value": "5"});
    let changed = dash.execute("server/config", &set, 1).await.json();
    assert_eq!((&changed["before"], &changed["after"]), (&json!("10000"), &json!("5")));
    let refused = json!({"name": "dir", "value": "/etc", "dry_run": true});
    assert_eq!(dash.act("server/config", &refused).await.code(), "refused");
    assert_eq!(dash.execute("server/snapshot", &json!({}), 1).await.json()["state"], "started");
    let reset = json!({"dry_run": false, "preview": "slowlog"});
    assert_eq!(dash.act("server/slowlog-reset", &reset).await.json()["reset"], true);
}
