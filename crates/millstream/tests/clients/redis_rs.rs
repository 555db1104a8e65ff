//! redis-rs through all operations of a group: synchronous with RESP2 and RESP3, and asynchronous on tokio.

use std::thread;
use std::time::{Duration, Instant};

use redis::streams::{
    StreamAutoClaimOptions, StreamClaimOptions, StreamId, StreamMaxlen, StreamPendingReply,
    StreamReadOptions, StreamTrimOptions, StreamTrimmingMode,
};
use redis::{
    AsyncConnectionConfig, AsyncTypedCommands, Client, Connection, RedisResult, TypedCommands, Value,
};

use crate::support::process::Server;

pub(crate) const GROUP: &str = "crew";

pub(crate) fn resp2(server: &Server) {
    GroupTests::new(server, "resp2").run();
}

pub(crate) fn resp3(server: &Server) {
    GroupTests::new(server, "resp3").run();
}

pub(crate) fn asynchronous(server: &Server) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a tokio runtime");
    for protocol in ["resp2", "resp3"] {
        runtime
            .block_on(asynchronous_operations(&client(server, protocol)))
            .expect("the asynchronous operations");
    }
}

pub(crate) fn client(server: &Server, protocol: &str) -> Client {
    Client::open(format!("redis://127.0.0.1:{}/?protocol={protocol}", server.port)).expect("a valid address")
}

/// The tests of one protocol. Each test has its own stream, named after it.
struct GroupTests {
    client: Client,
    redis: Connection,
    protocol: &'static str,
}

impl GroupTests {
    fn new(server: &Server, protocol: &'static str) -> GroupTests {
        let client = client(server, protocol);
        let redis = client.get_connection().expect("connect");
        GroupTests { client, redis, protocol }
    }

    fn run(mut self) {
        self.create_and_produce().expect("create and produce");
        self.read().expect("read");
        self.block().expect("block");
        self.acknowledge().expect("acknowledge");
        self.crash_and_claim().expect("crash and claim");
        self.claim_automatically().expect("claim automatically");
        self.inspect().expect("inspect");
        self.trim_and_delete().expect("trim and delete");
        self.pipelines_and_transactions().expect("pipelines and transactions");
        self.destroy().expect("destroy");
    }

    fn create_and_produce(&mut self) -> RedisResult<()> {
        let stream = self.key("create");
        let refused = self.redis.xgroup_create(&stream, GROUP, "0").expect_err("there is no stream yet");
        assert!(refused.to_string().contains("requires the key to exist"), "{refused}");
        self.redis.xgroup_create_mkstream(&stream, GROUP, "$")?;
        let refused = self.redis.xgroup_create(&stream, GROUP, "$").expect_err("the group exists");
        assert_eq!(refused.code(), Some("BUSYGROUP"));

        let bytes: Vec<u8> = (0..=255).collect();
        let id = self.redis.xadd(&stream, "*", &[("bytes", &bytes)])?.expect("an id");
        let range = self.redis.xrange_all(&stream)?;
        assert_eq!(range.ids[0].id, id);
        assert_eq!(range.ids[0].get::<Vec<u8>>("bytes"), Some(bytes));
        assert_eq!(self.redis.xlen(&stream)?, 1);
        Ok(())
    }

    fn read(&mut self) -> RedisResult<()> {
        let stream = self.filled("read", 4)?;
        assert_eq!(self.read_new(&stream, "anna", 1)?, ["1-0"]);
        assert_eq!(self.read_new(&stream, "ben", 2)?, ["2-0", "3-0"]);
        assert_eq!(self.read_new(&stream, "anna", 9)?, ["4-0"]);
        assert!(self.read_new(&stream, "anna", 9)?.is_empty());
        let own = StreamReadOptions::default().group(GROUP, "anna");
        let history = self.redis.xread_options(&[&stream], &["0"], &own)?.expect("a reply");
        assert_eq!(ids(&history.keys[0].ids), ["1-0", "4-0"]);
        let all = self.redis.xread(&[&stream], &["2-0"])?.expect("a reply");
        assert_eq!(ids(&all.keys[0].ids), ["3-0", "4-0"]);
        assert_eq!(all.keys[0].ids[0].get::<String>("job").as_deref(), Some("3"));
        Ok(())
    }

    fn block(&mut self) -> RedisResult<()> {
        let stream = self.filled("block", 0)?;
        let began = Instant::now();
        let short = StreamReadOptions::default().group(GROUP, "anna").block(120);
        assert!(self.redis.xread_options(&[&stream], &[">"], &short)?.is_none());
        assert!(began.elapsed() >= Duration::from_millis(60));

        let mut reader = self.client.get_connection()?;
        let key = stream.clone();
        let blocked = thread::spawn(move || {
            let options = StreamReadOptions::default().group(GROUP, "anna").block(10_000);
            reader.xread_options(&[&key], &[">"], &options)
        });
        self.wait_until_blocked(1);
        self.redis.xadd(&stream, "1-0", &[("job", "1")])?;
        let reply = blocked.join().expect("the reader's thread")?.expect("an entry");
        assert_eq!(ids(&reply.keys[0].ids), ["1-0"]);
        Ok(())
    }

    fn acknowledge(&mut self) -> RedisResult<()> {
        let stream = self.filled("acknowledge", 3)?;
        assert!(matches!(self.redis.xpending(&stream, GROUP)?, StreamPendingReply::Empty));
        self.read_new(&stream, "anna", 3)?;
        assert_eq!(self.redis.xack(&stream, GROUP, &["1-0", "2-0", "9-9"])?, 2);
        assert_eq!(self.redis.xack(&stream, GROUP, &["1-0"])?, 0);
        let StreamPendingReply::Data(pending) = self.redis.xpending(&stream, GROUP)? else {
            panic!("expected one pending entry");
        };
        assert_eq!(
            (pending.count, pending.start_id, pending.end_id),
            (1, "3-0".to_owned(), "3-0".to_owned())
        );
        assert_eq!((pending.consumers[0].name.as_str(), pending.consumers[0].pending), ("anna", 1));
        Ok(())
    }

    fn crash_and_claim(&mut self) -> RedisResult<()> {
        let stream = self.filled("crash", 3)?;
        let mut crashing = self.client.get_connection()?;
        let id: i64 = redis::cmd("CLIENT").arg("ID").query(&mut crashing)?;
        let two = StreamReadOptions::default().group(GROUP, "anna").count(2);
        crashing.xread_options(&[&stream], &[">"], &two)?;
        let killed: i64 = redis::cmd("CLIENT").arg(&["KILL", "ID"]).arg(id).query(&mut self.redis)?;
        assert_eq!(killed, 1);
        crashing.xack(&stream, GROUP, &["1-0"]).expect_err("the connection was killed");
        assert_eq!(self.rows(&stream)?, [row("1-0", "anna", 1), row("2-0", "anna", 1)]);

        assert!(self.redis.xclaim(&stream, GROUP, "ben", 60_000, &["1-0"])?.ids.is_empty());
        let claimed = self.redis.xclaim(&stream, GROUP, "ben", 0, &["1-0", "9-9"])?;
        assert_eq!(ids(&claimed.ids), ["1-0"]);
        let again = StreamClaimOptions::default().retry(7).idle(60_000);
        let _: Value = self.redis.xclaim_options(&stream, GROUP, "ben", 0, &["2-0"], again)?;
        assert_eq!(self.rows(&stream)?, [row("1-0", "ben", 2), row("2-0", "ben", 7)]);
        let idle = self.redis.xpending_consumer_count(&stream, GROUP, "-", "+", 10, "ben")?;
        assert!(idle.ids[1].last_delivered_ms >= 59_000);
        Ok(())
    }

    fn claim_automatically(&mut self) -> RedisResult<()> {
        let stream = self.filled("autoclaim", 4)?;
        self.read_new(&stream, "anna", 4)?;
        self.redis.xdel(&stream, &["2-0"])?;
        let three = StreamAutoClaimOptions::default().count(3);
        let page = self.redis.xautoclaim_options(&stream, GROUP, "ben", 0, "0-0", three)?;
        assert_eq!((page.next_stream_id.as_str(), ids(&page.claimed)), ("4-0", vec!["1-0", "3-0"]));
        assert_eq!(page.deleted_ids, ["2-0"]);
        let rest = StreamAutoClaimOptions::default().with_justid();
        let page = self.redis.xautoclaim_options(&stream, GROUP, "ben", 0, "4-0", rest)?;
        assert_eq!((page.next_stream_id.as_str(), ids(&page.claimed)), ("0-0", vec!["4-0"]));
        Ok(())
    }

    fn inspect(&mut self) -> RedisResult<()> {
        let stream = self.filled("inspect", 3)?;
        self.read_new(&stream, "anna", 2)?;
        let info = self.redis.xinfo_stream(&stream)?;
        assert_eq!((info.length, info.groups, info.last_generated_id.as_str()), (3, 1, "3-0"));
        assert_eq!((info.first_entry.id.as_str(), info.last_entry.id.as_str()), ("1-0", "3-0"));
        let groups = self.redis.xinfo_groups(&stream)?.groups;
        assert_eq!((groups[0].name.as_str(), groups[0].consumers, groups[0].pending), (GROUP, 1, 2));
        assert_eq!((groups[0].entries_read, groups[0].lag), (Some(2), Some(1)));
        assert_eq!(groups[0].last_delivered_id, "2-0");
        let consumers = self.redis.xinfo_consumers(&stream, GROUP)?.consumers;
        assert_eq!((consumers[0].name.as_str(), consumers[0].pending), ("anna", 2));

        let full: Value = redis::cmd("XINFO").arg(&["STREAM", &stream, "FULL"]).query(&mut self.redis)?;
        let names: Vec<String> = match full {
            Value::Map(pairs) => pairs.into_iter().map(|(name, _)| text(&name)).collect(),
            Value::Array(flat) => flat.iter().step_by(2).map(text).collect(),
            other => panic!("neither a map nor an array: {other:?}"),
        };
        assert_eq!(names[names.len() - 2..], ["entries", "groups"]);
        Ok(())
    }

    fn trim_and_delete(&mut self) -> RedisResult<()> {
        let stream = self.filled("trim", 10)?;
        assert_eq!(self.redis.xtrim(&stream, StreamMaxlen::Equals(7))?, 3);
        let from = StreamTrimOptions::minid(StreamTrimmingMode::Exact, "6-0");
        assert_eq!(self.redis.xtrim_options(&stream, &from)?, 2);
        assert_eq!(self.redis.xtrim(&stream, StreamMaxlen::Approx(1))?, 0);
        assert_eq!(self.redis.xdel(&stream, &["6-0", "6-0", "1-0"])?, 1);
        self.redis.xadd_maxlen(&stream, StreamMaxlen::Equals(2), "11-0", &[("job", "11")])?;
        assert_eq!(ids(&self.redis.xrevrange_all(&stream)?.ids), ["11-0", "10-0"]);
        Ok(())
    }

    fn pipelines_and_transactions(&mut self) -> RedisResult<()> {
        let stream = self.key("pipeline");
        let mut pipeline = redis::pipe();
        for number in 1..=500 {
            pipeline.xadd(&stream, format!("{number}-0"), &[("job", number)]);
        }
        let added: Vec<String> = pipeline.query(&mut self.redis)?;
        assert_eq!(added.last().map(String::as_str), Some("500-0"));

        let (trimmed, length): (usize, usize) = redis::pipe()
            .atomic()
            .xtrim(&stream, StreamMaxlen::Equals(100))
            .xlen(&stream)
            .query(&mut self.redis)?;
        assert_eq!((trimmed, length), (400, 100));

        // Another connection changes the stream during the first attempt, so the function runs twice.
        let mut other = self.client.get_connection()?;
        let mut attempts = 0;
        let (id,): (String,) = redis::transaction(&mut self.redis, &[&stream], |redis, transaction| {
            attempts += 1;
            let length = redis.xlen(&stream)?;
            if attempts == 1 {
                other.xadd(&stream, "501-0", &[("job", "501")])?;
            }
            transaction.xadd(&stream, format!("{}-0", 1000 + length), &[("job", "last")]).query(redis)
        })?;
        assert_eq!((attempts, id.as_str()), (2, "1101-0"));
        Ok(())
    }

    fn destroy(&mut self) -> RedisResult<()> {
        let stream = self.filled("destroy", 3)?;
        self.read_new(&stream, "anna", 3)?;
        self.redis.xgroup_setid(&stream, GROUP, "2-0")?;
        assert_eq!(self.read_new(&stream, "ben", 9)?, ["3-0"]);
        assert_eq!(self.redis.xgroup_delconsumer(&stream, GROUP, "anna")?, 2);

        let mut reader = self.client.get_connection()?;
        let key = stream.clone();
        let blocked = thread::spawn(move || {
            let options = StreamReadOptions::default().group(GROUP, "ben").block(10_000);
            reader.xread_options(&[&key], &[">"], &options)
        });
        self.wait_until_blocked(1);
        assert!(self.redis.xgroup_destroy(&stream, GROUP)?);
        let ended = blocked.join().expect("the reader's thread").expect_err("the group is gone");
        assert_eq!(ended.code(), Some("NOGROUP"));
        assert!(!self.redis.xgroup_destroy(&stream, GROUP)?);
        assert!(self.redis.xinfo_groups(&stream)?.groups.is_empty());
        assert_eq!(self.redis.del(&stream)?, 1);
        Ok(())
    }

    fn key(&self, test: &str) -> String {
        format!("{test}:{}", self.protocol)
    }

    /// Creates a stream with the entries 1-0 to `count`-0 and a group that starts at the beginning.
    fn filled(&mut self, test: &str, count: usize) -> RedisResult<String> {
        let stream = self.key(test);
        self.redis.xgroup_create_mkstream(&stream, GROUP, "0")?;
        for number in 1..=count {
            self.redis.xadd(&stream, format!("{number}-0"), &[("job", number)])?;
        }
        Ok(stream)
    }

    fn read_new(&mut self, stream: &str, consumer: &str, count: usize) -> RedisResult<Vec<String>> {
        let options = StreamReadOptions::default().group(GROUP, consumer).count(count);
        let reply = self.redis.xread_options(&[stream], &[">"], &options)?;
        Ok(reply
            .map_or_else(Vec::new, |reply| ids(&reply.keys[0].ids).into_iter().map(str::to_owned).collect()))
    }

    /// Returns id, consumer and delivery count of the pending entries.
    fn rows(&mut self, stream: &str) -> RedisResult<Vec<(String, String, usize)>> {
        let reply = self.redis.xpending_count(stream, GROUP, "-", "+", 100)?;
        Ok(reply.ids.into_iter().map(|row| (row.id, row.consumer, row.times_delivered)).collect())
    }

    fn wait_until_blocked(&mut self, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(60);
        let line = format!("blocked_clients:{count}\r\n");
        loop {
            let info: String = redis::cmd("INFO").arg("clients").query(&mut self.redis).expect("INFO");
            if info.contains(&line) {
                return;
            }
            assert!(Instant::now() < deadline, "no {line} in time: {info}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// One producer wakes twenty readers on one thread. Then one consumer claims and acknowledges all entries.
async fn asynchronous_operations(client: &Client) -> RedisResult<()> {
    const READERS: usize = 20;
    // A blocking read can take any time. The default response timeout is half a second.
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let mut redis = client.get_multiplexed_async_connection_with_config(&config).await?;
    let stream = format!("async:{:?}", client.get_connection_info().redis_settings().protocol());
    redis.xgroup_create_mkstream(&stream, GROUP, "$").await?;

    let mut readers = Vec::new();
    for number in 0..READERS {
        // A blocking read delays all later commands of its connection, so each reader has its own.
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let stream = stream.clone();
        readers.push(tokio::task::spawn(async move {
            let options =
                StreamReadOptions::default().group(GROUP, format!("reader-{number}")).count(1).block(10_000);
            connection.xread_options(&[&stream], &[">"], &options).await
        }));
    }
    let line = format!("blocked_clients:{READERS}\r\n");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !redis::cmd("INFO").arg("clients").query_async::<String>(&mut redis).await?.contains(&line) {
        assert!(Instant::now() < deadline, "no {line} in time");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for number in 1..=READERS {
        redis.xadd(&stream, format!("{number}-0"), &[("job", number)]).await?;
    }
    let mut served = Vec::new();
    for reader in readers {
        let reply = reader.await.expect("the reader's task")?.expect("an entry");
        assert_eq!(reply.keys[0].ids.len(), 1);
        served.push(reply.keys[0].ids[0].id.clone());
    }
    served.sort_by_key(|id| id.trim_end_matches("-0").parse::<usize>().ok());
    assert_eq!(served, (1..=READERS).map(|number| format!("{number}-0")).collect::<Vec<_>>());

    // No reader acknowledged its entry. One consumer claims them all and acknowledges them.
    let all = StreamAutoClaimOptions::default().count(100);
    let page = redis.xautoclaim_options(&stream, GROUP, "rescuer", 0, "0-0", all).await?;
    assert_eq!((page.next_stream_id.as_str(), page.claimed.len()), ("0-0", READERS));
    assert_eq!(redis.xack(&stream, GROUP, &served).await?, READERS);
    let (pending, lag): (usize, Option<usize>) = {
        let groups = redis.xinfo_groups(&stream).await?.groups;
        (groups[0].pending, groups[0].lag)
    };
    assert_eq!((pending, lag), (0, Some(0)));
    assert!(redis.xgroup_destroy(&stream, GROUP).await?);
    Ok(())
}

fn ids(entries: &[StreamId]) -> Vec<&str> {
    entries.iter().map(|entry| entry.id.as_str()).collect()
}

fn row(id: &str, consumer: &str, deliveries: usize) -> (String, String, usize) {
    (id.to_owned(), consumer.to_owned(), deliveries)
}

fn text(value: &Value) -> String {
    redis::from_redis_value_ref(value).expect("a text")
}
