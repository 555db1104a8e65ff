//! redis-rs' own methods for the stream features of Redis 8.2 to 8.10. Options without a method are sent as plain
//! commands: RETRYCOUNT and FORCE of XNACK, MAXCOUNT and MAXSIZE.

use std::thread;
use std::time::{Duration, Instant};

use redis::streams::StreamDeletionPolicy::{Acked, DelRef, KeepRef};
use redis::streams::{
    StreamAddOptions, StreamClaimOptions, StreamConfigOptions, StreamId, StreamNackMode, StreamNackOptions,
    StreamReadOptions, StreamReadReply, StreamTrimOptions, StreamTrimStrategy, StreamTrimmingMode,
    XAckDelStatusCode, XDelExStatusCode,
};
use redis::{AsyncTypedCommands, Client, Connection, RedisResult, TypedCommands, Value};

use crate::redis_rs::{GROUP, client};
use crate::suites::is_older;
use crate::support::process::Server;

const OTHER_GROUP: &str = "audit";

pub(crate) fn both_protocols(server: &Server) {
    if is_older(server) {
        return;
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a tokio runtime");
    for protocol in ["resp2", "resp3"] {
        let client = client(server, protocol);
        let redis = client.get_connection().expect("connect");
        Newest { client: client.clone(), redis, protocol }.run();
        runtime.block_on(asynchronous(&client, protocol)).expect("the newest commands, asynchronously");
    }
}

/// The tests of one protocol. Each test has its own stream, named after it.
struct Newest {
    client: Client,
    redis: Connection,
    protocol: &'static str,
}

impl Newest {
    fn run(mut self) {
        self.delete().expect("delete");
        self.acknowledge_and_delete().expect("acknowledge and delete");
        self.trim().expect("trim");
        self.claim().expect("claim");
        self.block().expect("block");
        self.release().expect("release");
        self.produce_once().expect("produce once");
        self.bound().expect("bound");
    }

    fn delete(&mut self) -> RedisResult<()> {
        use XDelExStatusCode::{
            Deleted, IdNotFound, NotDeletedUnacknowledgedOrStillReferenced as Referenced,
        };
        let stream = self.filled("delete", 4)?;
        self.read_all(&stream)?;
        assert_eq!(self.redis.xdel_ex(&stream, &["1-0", "9-9"], KeepRef)?, [Deleted, IdNotFound]);
        assert_eq!(self.rows(&stream, GROUP)?.len(), 4);
        assert_eq!(self.redis.xdel_ex(&stream, &["1-0", "2-0"], DelRef)?, [IdNotFound, Deleted]);
        for (group, consumer) in [(GROUP, "anna"), (OTHER_GROUP, "zoe")] {
            assert_eq!(self.rows(&stream, group)?, [row("3-0", consumer, 1), row("4-0", consumer, 1)]);
        }
        self.redis.xack(&stream, GROUP, &["3-0"])?;
        assert_eq!(self.redis.xdel_ex(&stream, &["3-0"], Acked)?, [Referenced]);
        self.redis.xack(&stream, OTHER_GROUP, &["3-0"])?;
        assert_eq!(self.redis.xdel_ex(&stream, &["3-0", "4-0"], Acked)?, [Deleted, Referenced]);
        assert_eq!(self.redis.xdel_ex(self.key("none"), &["1-0"], Acked)?, [IdNotFound]);
        Ok(())
    }

    fn acknowledge_and_delete(&mut self) -> RedisResult<()> {
        use XAckDelStatusCode::{
            AcknowledgedAndDeleted as Deleted, AcknowledgedNotDeletedStillReferenced as Referenced,
            IdNotFound,
        };
        let stream = self.filled("ackdel", 3)?;
        self.read_all(&stream)?;
        assert_eq!(self.redis.xack_del(&stream, GROUP, &["1-0", "9-9"], KeepRef)?, [Deleted, IdNotFound]);
        assert_eq!(self.redis.xack_del(&stream, GROUP, &["2-0"], DelRef)?, [Deleted]);
        assert_eq!(self.redis.xack_del(&stream, GROUP, &["3-0"], Acked)?, [Referenced]);
        assert!(self.rows(&stream, GROUP)?.is_empty());
        assert_eq!(self.rows(&stream, OTHER_GROUP)?, [row("1-0", "zoe", 1), row("3-0", "zoe", 1)]);
        assert_eq!(self.redis.xack_del(&stream, OTHER_GROUP, &["3-0"], Acked)?, [Deleted]);
        assert_eq!(self.redis.xlen(&stream)?, 0);
        Ok(())
    }

    fn trim(&mut self) -> RedisResult<()> {
        let stream = self.filled("trim-references", 5)?;
        self.redis.xgroup_destroy(&stream, OTHER_GROUP)?;
        self.read_new(&stream, GROUP, "anna")?;
        let exactly = |length| StreamTrimOptions::maxlen(StreamTrimmingMode::Exact, length);
        assert_eq!(self.redis.xtrim_options(&stream, &exactly(4).set_deletion_policy(KeepRef))?, 1);
        assert_eq!(self.rows(&stream, GROUP)?.len(), 5);
        let from = StreamTrimOptions::minid(StreamTrimmingMode::Exact, "3-0").set_deletion_policy(DelRef);
        assert_eq!(self.redis.xtrim_options(&stream, &from)?, 1);
        assert_eq!(self.rows(&stream, GROUP)?.len(), 4);
        self.redis.xack(&stream, GROUP, &["4-0"])?;
        assert_eq!(self.redis.xtrim_options(&stream, &exactly(0).set_deletion_policy(Acked))?, 1);

        let two = || StreamTrimStrategy::maxlen(StreamTrimmingMode::Exact, 2);
        let delete_references = StreamAddOptions::default().trim(two()).set_deletion_policy(DelRef);
        self.redis.xadd_options(&stream, "6-0", &[("job", 6)], &delete_references)?;
        assert_eq!(self.rows(&stream, GROUP)?, [row("1-0", "anna", 1), row("5-0", "anna", 1)]);
        let only_acknowledged = StreamAddOptions::default().trim(two()).set_deletion_policy(Acked);
        self.redis.xadd_options(&stream, "7-0", &[("job", 7)], &only_acknowledged)?;
        assert_eq!(ids(&self.redis.xrange_all(&stream)?.ids), ["5-0", "6-0", "7-0"]);
        Ok(())
    }

    fn claim(&mut self) -> RedisResult<()> {
        let stream = self.filled("claim", 4)?;
        let three = StreamReadOptions::default().group(GROUP, "anna").count(3);
        self.redis.xread_options(&[&stream], &[">"], &three)?;
        for (id, idle) in [("1-0", 60_000), ("2-0", 90_000)] {
            let set_idle = StreamClaimOptions::default().idle(idle).with_justid();
            let _: Value = self.redis.xclaim_options(&stream, GROUP, "anna", 0, &[id], set_idle)?;
        }
        let options = StreamReadOptions::default().group(GROUP, "ben").claim(30_000).count(10);
        let reply = self.redis.xread_options(&[&stream], &[">"], &options)?.expect("a reply");
        let entries = &reply.keys[0].ids;
        assert_eq!(ids(entries), ["2-0", "1-0", "4-0"]);
        let counts: Vec<Option<usize>> = entries.iter().map(|entry| entry.delivered_count).collect();
        assert_eq!(counts, [Some(1), Some(1), Some(0)]);
        assert!(entries[0].milliseconds_elapsed_from_delivery.is_some_and(|idle| idle >= 90_000));
        assert_eq!(entries[2].milliseconds_elapsed_from_delivery, Some(0));
        assert_eq!(entries[0].get::<String>("job").as_deref(), Some("2"));
        assert_eq!(self.rows(&stream, GROUP)?[0], row("1-0", "ben", 2));
        assert!(self.redis.xread_options(&[&stream], &[">"], &options)?.is_none());
        Ok(())
    }

    fn block(&mut self) -> RedisResult<()> {
        let stream = self.filled("block-claim", 1)?;
        self.read_new(&stream, GROUP, "anna")?;
        let claim_idle = StreamReadOptions::default().group(GROUP, "ben").claim(200).block(15_000);
        let reply = self.redis.xread_options(&[&stream], &[">"], &claim_idle)?.expect("an idle entry");
        assert!(reply.keys[0].ids[0].milliseconds_elapsed_from_delivery.is_some_and(|idle| idle >= 200));

        let mut reader = self.client.get_connection()?;
        let key = stream.clone();
        let blocked = thread::spawn(move || {
            let options = StreamReadOptions::default().group(GROUP, "zoe").claim(600_000).block(15_000);
            reader.xread_options(&[&key], &[">"], &options)
        });
        self.wait_until_one_is_blocked();
        let failing = StreamNackOptions::new(StreamNackMode::Fail);
        assert_eq!(self.redis.xnack(&stream, GROUP, &["1-0"], &failing)?, 1);
        let reply = blocked.join().expect("the reader's thread")?.expect("the released entry");
        assert_eq!(reply.keys[0].ids[0].delivered_count, Some(2));
        assert_eq!(self.rows(&stream, GROUP)?, [row("1-0", "zoe", 3)]);
        Ok(())
    }

    fn release(&mut self) -> RedisResult<()> {
        let stream = self.filled("release", 5)?;
        let four = StreamReadOptions::default().group(GROUP, "anna").count(4);
        self.redis.xread_options(&[&stream], &[">"], &four)?;
        for (mode, id) in
            [(StreamNackMode::Silent, "1-0"), (StreamNackMode::Fail, "2-0"), (StreamNackMode::Fatal, "3-0")]
        {
            assert_eq!(self.redis.xnack(&stream, GROUP, &[id, "9-9"], &StreamNackOptions::new(mode))?, 1);
        }
        let forced: usize = redis::cmd("XNACK")
            .arg(&[&stream, GROUP, "FAIL", "RETRYCOUNT", "7", "FORCE", "IDS", "2", "4-0", "5-0"])
            .query(&mut self.redis)?;
        assert_eq!(forced, 2);
        assert_eq!(
            self.rows(&stream, GROUP)?,
            [
                row("1-0", "", 0),
                row("2-0", "", 1),
                row("3-0", "", i64::MAX as usize),
                row("4-0", "", 7),
                row("5-0", "", 7)
            ]
        );
        let claimed = self.redis.xclaim(&stream, GROUP, "ben", 600_000, &["3-0", "1-0"])?;
        assert_eq!(ids(&claimed.ids), ["3-0", "1-0"]);
        let failing = StreamNackOptions::new(StreamNackMode::Fail);
        let refused = self.redis.xnack(&stream, "none", &["1-0"], &failing).expect_err("no such group");
        assert_eq!(refused.code(), Some("NOGROUP"));
        Ok(())
    }

    fn produce_once(&mut self) -> RedisResult<()> {
        let stream = self.key("once");
        let named = StreamAddOptions::default().idmp("till", "a");
        let first = self.redis.xadd_options(&stream, "*", &[("job", 1)], &named)?;
        assert_eq!(self.redis.xadd_options(&stream, "*", &[("job", 2)], &named)?, first);
        let auto = StreamAddOptions::default().idmpauto("web");
        let second = self.redis.xadd_options(&stream, "*", &[("job", 1), ("kind", 2)], &auto)?;
        assert_ne!(second, first);
        assert_eq!(self.redis.xadd_options(&stream, "*", &[("kind", 2), ("job", 1)], &auto)?, second);

        let info = self.redis.xinfo_stream_with_idempotency(&stream)?;
        assert_eq!((info.base.length, info.idmp_duration, info.idmp_maxsize), (2, 100, 100));
        assert_eq!((info.pids_tracked, info.iids_tracked), (2, 2));
        assert_eq!((info.iids_added, info.iids_duplicates), (2, 2));
        assert_eq!(Some(info.base.first_entry.id), first);

        let window = StreamConfigOptions::with_idempotency_seconds(300)
            .and_then(|options| options.idempotency_maxsize(10))
            .expect("within the limits");
        assert_eq!(self.redis.xcfgset(&stream, &window)?, "OK");
        let info = self.redis.xinfo_stream_with_idempotency(&stream)?;
        assert_eq!((info.idmp_duration, info.idmp_maxsize, info.iids_tracked), (300, 10, 0));
        assert_ne!(self.redis.xadd_options(&stream, "*", &[("job", 1)], &named)?, first);
        let refused = self.redis.xcfgset(self.key("none"), &window).expect_err("there is no stream");
        assert!(refused.to_string().contains("no such key"), "{refused}");
        Ok(())
    }

    fn bound(&mut self) -> RedisResult<()> {
        let (left, right) = (self.filled("left", 3)?, self.filled("right", 3)?);
        let mut read = |arguments: &[&str]| -> RedisResult<Vec<(String, usize)>> {
            let reply: StreamReadReply = redis::cmd(arguments[0])
                .arg(&arguments[1..arguments.len() - 1])
                .arg(&["STREAMS", &left, &right])
                .arg(&[arguments[arguments.len() - 1]; 2])
                .query(&mut self.redis)?;
            Ok(reply.keys.into_iter().map(|stream| (stream.key, stream.ids.len())).collect())
        };
        let counts = |left_count: usize, right_count: usize| {
            let both = [(left.clone(), left_count), (right.clone(), right_count)];
            both.into_iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>()
        };
        assert_eq!(read(&["XREAD", "MAXCOUNT", "4", "0"])?, counts(3, 1));
        assert_eq!(read(&["XREAD", "COUNT", "2", "MAXCOUNT", "3", "0"])?, counts(2, 1));
        assert_eq!(read(&["XREAD", "MAXSIZE", "1", "0"])?, counts(1, 0));
        assert_eq!(read(&["XREADGROUP", "GROUP", GROUP, "anna", "MAXCOUNT", "2", ">"])?, counts(2, 0));
        assert_eq!(read(&["XREADGROUP", "GROUP", GROUP, "anna", "MAXSIZE", "1", ">"])?, counts(1, 0));
        let claiming = ["XREADGROUP", "GROUP", GROUP, "ben", "MAXCOUNT", "5", "CLAIM", "0", ">"];
        assert_eq!(read(&claiming)?, counts(3, 2));
        assert_eq!(self.rows(&right, GROUP)?, [row("1-0", "ben", 1), row("2-0", "ben", 1)]);
        Ok(())
    }

    fn key(&self, test: &str) -> String {
        format!("newest:{test}:{}", self.protocol)
    }

    /// Creates a stream with the entries 1-0 to `count`-0 and two groups that start at the beginning.
    fn filled(&mut self, test: &str, count: usize) -> RedisResult<String> {
        let stream = self.key(test);
        self.redis.xgroup_create_mkstream(&stream, GROUP, "0")?;
        self.redis.xgroup_create(&stream, OTHER_GROUP, "0")?;
        for number in 1..=count {
            self.redis.xadd(&stream, format!("{number}-0"), &[("job", number)])?;
        }
        Ok(stream)
    }

    /// Lets both groups read every entry: consumer anna of `crew`, and zoe of `audit`.
    fn read_all(&mut self, stream: &str) -> RedisResult<()> {
        self.read_new(stream, GROUP, "anna")?;
        self.read_new(stream, OTHER_GROUP, "zoe")
    }

    fn read_new(&mut self, stream: &str, group: &str, consumer: &str) -> RedisResult<()> {
        let options = StreamReadOptions::default().group(group, consumer);
        self.redis.xread_options(&[stream], &[">"], &options)?.expect("new entries");
        Ok(())
    }

    /// Returns id, consumer and delivery count of the pending entries.
    fn rows(&mut self, stream: &str, group: &str) -> RedisResult<Vec<(String, String, usize)>> {
        let reply = self.redis.xpending_count(stream, group, "-", "+", 100)?;
        Ok(reply.ids.into_iter().map(|row| (row.id, row.consumer, row.times_delivered)).collect())
    }

    fn wait_until_one_is_blocked(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let info: String = redis::cmd("INFO").arg("clients").query(&mut self.redis).expect("INFO");
            if info.contains("blocked_clients:1\r\n") {
                return;
            }
            assert!(Instant::now() < deadline, "no client blocked in time: {info}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// An entry is added idempotently, released, claimed, acknowledged and deleted.
async fn asynchronous(client: &Client, protocol: &str) -> RedisResult<()> {
    let mut redis = client.get_multiplexed_async_connection().await?;
    let stream = format!("newest:async:{protocol}");
    redis.xgroup_create_mkstream(&stream, GROUP, "0").await?;
    let once = StreamAddOptions::default().idmpauto("till");
    let id = redis.xadd_options(&stream, "*", &[("job", 1)], &once).await?.expect("an id");
    assert_eq!(redis.xadd_options(&stream, "*", &[("job", 1)], &once).await?.as_ref(), Some(&id));
    let anna = StreamReadOptions::default().group(GROUP, "anna");
    redis.xread_options(&[&stream], &[">"], &anna).await?.expect("the entry");
    let silent = StreamNackOptions::new(StreamNackMode::Silent);
    assert_eq!(redis.xnack(&stream, GROUP, &[&id], &silent).await?, 1);
    let ben = StreamReadOptions::default().group(GROUP, "ben").claim(600_000);
    let reply = redis.xread_options(&[&stream], &[">"], &ben).await?.expect("the released entry");
    assert_eq!(reply.keys[0].ids[0].delivered_count, Some(0));
    let done = redis.xack_del(&stream, GROUP, &[&id], Acked).await?;
    assert_eq!(done, [XAckDelStatusCode::AcknowledgedAndDeleted]);
    assert_eq!(redis.xdel_ex(&stream, &[&id], DelRef).await?, [XDelExStatusCode::IdNotFound]);
    Ok(())
}

fn ids(entries: &[StreamId]) -> Vec<&str> {
    entries.iter().map(|entry| entry.id.as_str()).collect()
}

fn row(id: &str, consumer: &str, deliveries: usize) -> (String, String, usize) {
    (id.to_owned(), consumer.to_owned(), deliveries)
}
