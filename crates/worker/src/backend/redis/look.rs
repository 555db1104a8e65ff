//! Looks at many streams in few round trips: pipelines of commands for many streams, to each node of a cluster at once.
//!
//! ```text
//! 1  XINFO STREAM (or XLEN), XINFO GROUPS      for each stream; XINFO MISSED and XPOLICY GET if the server has them
//! 2  XINFO CONSUMERS, XPENDING, XRANGE, HGETALL    for each group whose details are wanted, if it can have any
//! 3  HMGET, TIME                               retry records of released entries, and the time of the store
//! ```
//!
//! XINFO STREAM returns the first and the last entry whole. If they are large, later looks ask for them only now and
//! then.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::{Cmd, Value};

use super::super::{
    Error, ErrorKind, GroupDetail, GroupInfo, GroupLook, GroupMissed, LookDetail, PendingFilter, PolicyInfo,
    Range, StreamId, StreamInfo, StreamLook,
};
use super::Redis;
use super::admin::parse_consumers;
use super::commands::{self, command};
use super::connection::{Link, NoReply, pipeline_of};
use super::errors::{from_redis, is_missing_key};
use super::policies::policy_info;
use super::probe::Feature;
use super::reply::{
    array, bytes, count, entries, group_info, group_missed, pairs, pending_row, stream_info, text, tuple,
};
use crate::names::{retry_key, workers_key};
use crate::retry_record::RetryRecord;

/// Number of streams in a pipeline.
const STREAMS_PER_PIPELINE: usize = 200;
/// Maximum number of commands about groups in a pipeline.
const COMMANDS_PER_PIPELINE: usize = 1_000;
/// The first and the last entry of a stream are large if the reply with them is larger than this.
const LARGE_REPLY_BYTES: usize = 16 * 1024;
/// How long the large entries of a stream are not asked for again.
const LARGE_KEPT_FOR: Duration = Duration::from_secs(30);
/// Number of streams with large entries that one look asks for their entries again.
const LARGE_PER_LOOK: usize = 8;

/// The streams with large entries, as they were last described.
#[derive(Default)]
pub(super) struct LargeStreams {
    described: Mutex<HashMap<String, (Instant, StreamInfo)>>,
    /// Whether the server has denied XLEN, which spares it the entries.
    xlen_denied: AtomicBool,
}

impl LargeStreams {
    fn may_use_xlen(&self) -> bool {
        !self.xlen_denied.load(Ordering::Relaxed)
    }

    /// Whether the user may not run XLEN. It is then not sent again: the server logs denied commands.
    fn is_xlen_denied<T>(&self, reply: &Result<T, Error>) -> bool {
        let is_command = |error: &Error| error.to_string().to_ascii_lowercase().contains("'xlen' command");
        let denied =
            reply.as_ref().is_err_and(|error| error.kind() == ErrorKind::Denied && is_command(error));
        if denied {
            self.xlen_denied.store(true, Ordering::Relaxed);
        }
        denied
    }
}

/// A command for a stream, which says to which node of a cluster it goes.
type Question = (Arc<str>, Cmd);

impl Redis {
    pub(super) async fn look_at(
        &self,
        streams: &[String],
        detail: &LookDetail,
    ) -> Result<Vec<Result<Option<StreamLook>, Error>>, Error> {
        let mut plan = LookPlan::new(self, streams, detail).await?;
        let mut looks = Vec::with_capacity(streams.len());
        for part in streams.chunks(STREAMS_PER_PIPELINE) {
            plan.describe(part, &mut looks).await?;
        }
        plan.add_details(streams, &mut looks).await?;
        Ok(looks)
    }

    /// Returns the lengths of streams: with XLEN, or with XINFO STREAM if the user may not run XLEN.
    pub(super) async fn lengths_of(&self, streams: &[String]) -> Result<Vec<Result<u64, Error>>, Error> {
        if self.large.may_use_xlen() {
            let question = |stream: &String| (Arc::from(&**stream), command!("XLEN", stream));
            let replies = self.ask(streams.iter().map(question).collect()).await?;
            let lengths: Vec<_> = replies.into_iter().map(|reply| reply.and_then(count)).collect();
            if !lengths.iter().any(|length| self.large.is_xlen_denied(length)) {
                return Ok(lengths);
            }
        }
        let question = |stream: &String| (Arc::from(&**stream), command!("XINFO", "STREAM", stream));
        let replies = self.ask(streams.iter().map(question).collect()).await?;
        let length = |reply: Result<Value, Error>| match reply.and_then(stream_info) {
            Ok(info) => Ok(info.length),
            Err(error) if is_missing_key(&error) => Ok(0),
            Err(error) => Err(error),
        };
        Ok(replies.into_iter().map(length).collect())
    }

    /// Sends commands to the nodes that own their streams. Returns a reply for each. Fails if the server does not
    /// answer.
    async fn ask(&self, questions: Vec<Question>) -> Result<Vec<Result<Value, Error>>, Error> {
        let mut replies = Vec::with_capacity(questions.len());
        let mut questions = questions.into_iter();
        loop {
            let (keys, commands): (Vec<_>, Vec<_>) = questions.by_ref().take(COMMANDS_PER_PIPELINE).unzip();
            if commands.is_empty() {
                return Ok(replies);
            }
            match &self.connection.link {
                Link::Server(server) => {
                    let pipeline = pipeline_of(commands);
                    let sent = server.pipeline(&pipeline).await;
                    let sent = sent.map_err(NoReply::into_error).map_err(from_redis)?;
                    let explained = |(command, reply)| self.connection.explained(command, Ok(reply));
                    replies.extend(pipeline.cmd_iter().zip(sent).map(explained));
                }
                Link::Cluster(nodes) => {
                    let sent = nodes.send_each(&keys, |at| commands[at].clone()).await;
                    for ((key, command), reply) in keys.iter().zip(&commands).zip(sent) {
                        replies.push(match reply {
                            // None of these commands returns nil: the slot has moved.
                            Ok(Value::Nil) => self.connection.command(key, command.clone()).await,
                            reply => self.connection.explained(command, reply),
                        });
                    }
                }
            }
        }
    }
}

/// What a look knows about the server and asks for.
struct LookPlan<'a> {
    redis: &'a Redis,
    detail: &'a LookDetail,
    has_missed: bool,
    has_policies: bool,
    /// How many streams with large entries may still be described.
    large_left: usize,
}

impl<'a> LookPlan<'a> {
    async fn new(
        redis: &'a Redis,
        streams: &[String],
        detail: &'a LookDetail,
    ) -> Result<LookPlan<'a>, Error> {
        let mut plan =
            LookPlan { redis, detail, has_missed: false, has_policies: false, large_left: LARGE_PER_LOOK };
        if let Some(stream) = streams.iter().find(|stream| detail.wants_stream(stream)) {
            plan.has_missed = redis.has_unless_denied(Feature::Missed, stream).await?;
            plan.has_policies = redis.has_unless_denied(Feature::Policies, stream).await?;
        }
        Ok(plan)
    }

    /// Describes streams and their groups in one pipeline.
    async fn describe(
        &mut self,
        streams: &[String],
        looks: &mut Vec<Result<Option<StreamLook>, Error>>,
    ) -> Result<(), Error> {
        let mut questions: Vec<Question> = Vec::with_capacity(streams.len() * 2);
        let mut known = Vec::with_capacity(streams.len());
        for stream in streams {
            let (key, is_wanted) = (Arc::<str>::from(&**stream), self.detail.wants_stream(stream));
            let mut ask = |command| questions.push((Arc::clone(&key), command));
            let described = self.described_before(stream);
            // The groups last: see `StreamLook::info`.
            ask(match described {
                Some(_) => command!("XLEN", stream),
                None => command!("XINFO", "STREAM", stream),
            });
            known.push(described);
            if self.has_missed && is_wanted {
                ask(command!("XINFO", "MISSED", stream));
            }
            if self.has_policies && is_wanted {
                ask(command!("XPOLICY", "GET", stream));
            }
            ask(command!("XINFO", "GROUPS", stream));
        }
        let mut replies = self.redis.ask(questions).await?.into_iter();
        let mut next = || replies.next().unwrap_or(Ok(Value::Nil));
        for (stream, known) in streams.iter().zip(known) {
            let is_wanted = self.detail.wants_stream(stream);
            let described = next();
            let missed = (self.has_missed && is_wanted).then(&mut next);
            let policy = (self.has_policies && is_wanted).then(&mut next);
            let look = self.stream_look(stream, known, described, missed, policy, next());
            looks.push(match look {
                Err(error) if is_missing_key(&error) => Ok(None),
                look => look.map(Some),
            });
        }
        Ok(())
    }

    /// Returns how a stream with large entries was described less than 30 seconds ago, or longer ago if this look has
    /// described enough of them.
    fn described_before(&mut self, stream: &str) -> Option<(Instant, StreamInfo)> {
        if self.detail.is_complete() || !self.redis.large.may_use_xlen() {
            return None;
        }
        let large = self.redis.large.described.lock().get(stream).cloned()?;
        if large.0.elapsed() < LARGE_KEPT_FOR || self.large_left == 0 {
            return Some(large);
        }
        self.large_left -= 1;
        None
    }

    fn stream_look(
        &self,
        stream: &str,
        known: Option<(Instant, StreamInfo)>,
        described: Result<Value, Error>,
        missed: Option<Result<Value, Error>>,
        policy: Option<Result<Value, Error>>,
        groups: Result<Value, Error>,
    ) -> Result<StreamLook, Error> {
        let groups = array(groups?)?.into_iter().map(group_info).collect::<Result<Vec<_>, _>>()?;
        let (info, info_age, length) = match known {
            Some((at, info)) if self.redis.large.is_xlen_denied(&described) => {
                let length = info.length;
                (info, at.elapsed(), length)
            }
            Some((at, info)) => (info, at.elapsed(), count(described?)?),
            None => {
                let info = self.describe_afresh(stream, described?)?;
                (info.clone(), Duration::ZERO, info.length)
            }
        };
        let missed = missed.map_or(Ok(Vec::new()), unless_denied)?;
        let missed: Vec<GroupMissed> = missed.into_iter().map(group_missed).collect::<Result<_, _>>()?;
        let policy = policy.and_then(|reply| known_policy(reply).transpose()).transpose()?;
        let entries_added = if info_age.is_zero() { info.entries_added } else { self.added_by(&groups) };
        let group = |info: GroupInfo| {
            let missed = missed.iter().find(|missed| missed.group == info.name).cloned();
            let wanted = self.detail.wants(stream, &info.name);
            // Stays empty if the group has nothing unread.
            let unread = info_age.is_zero().then(Vec::new);
            let detail = wanted.then(|| Ok(GroupDetail { missed, unread, ..GroupDetail::default() }));
            GroupLook { info, detail }
        };
        let groups = groups.into_iter().map(group).collect();
        Ok(StreamLook { info, info_age, length, entries_added, policy, groups })
    }

    /// Parses the reply of XINFO STREAM. Remembers the stream if its entries are large.
    fn describe_afresh(&self, stream: &str, reply: Value) -> Result<StreamInfo, Error> {
        let is_large = size_of(&reply) > LARGE_REPLY_BYTES;
        let info = stream_info(reply)?;
        let mut large = self.redis.large.described.lock();
        if is_large {
            large.insert(stream.to_owned(), (Instant::now(), info.clone()));
        } else {
            large.remove(stream);
        }
        Ok(info)
    }

    /// Returns the number of entries ever added, from what a group has read and its lag. Redis computes the lag from
    /// it.
    fn added_by(&self, groups: &[GroupInfo]) -> Option<u64> {
        if self.redis.probe.known(Feature::Missed) == Some(true) {
            // The lag of Millstream does not include entries that were removed.
            return None;
        }
        groups.iter().filter_map(|group| Some(group.entries_read? + group.lag?)).max()
    }

    /// Reads the details of the wanted groups.
    async fn add_details(
        &self,
        streams: &[String],
        looks: &mut [Result<Option<StreamLook>, Error>],
    ) -> Result<(), Error> {
        let mut questions = Vec::new();
        let mut targets = Vec::new();
        for (at, (stream, look)) in streams.iter().zip(&*looks).enumerate() {
            let Ok(Some(look)) = look else { continue };
            let key = Arc::<str>::from(&**stream);
            let wanted = look.groups.iter().enumerate().filter(|(_, group)| group.detail.is_some());
            for (of, group) in wanted {
                for (part, command) in self.questions_about(stream, look, &group.info) {
                    targets.push((at, of, part));
                    questions.push((Arc::clone(&key), command));
                }
            }
        }
        let replies = self.redis.ask(questions).await?;
        for ((at, of, part), reply) in targets.into_iter().zip(replies) {
            if let Some(group) = group_at(looks, at, of) {
                add_part(group, part, reply);
            }
        }
        self.add_retries(streams, looks).await
    }

    /// Returns the commands for the details that a group can have.
    fn questions_about(&self, stream: &str, look: &StreamLook, group: &GroupInfo) -> Vec<(LookPart, Cmd)> {
        let mut questions = Vec::with_capacity(4);
        if group.consumers > 0 {
            questions.push((LookPart::Consumers, command!("XINFO", "CONSUMERS", stream, &group.name)));
        }
        if group.pending > 0 && self.detail.pending_rows > 0 {
            let filter = PendingFilter::starting_at(StreamId::MIN, self.detail.pending_rows);
            questions.push((LookPart::Pending, commands::pending(stream, &group.name, &filter)));
        }
        let has_unread = look.info.last_entry.is_some_and(|last| last > group.last_delivered);
        if let Some(first) = group.last_delivered.next()
            && look.info_age.is_zero()
            && has_unread
        {
            let most = if group.lag.is_some() { 1 } else { self.detail.unread_entries.max(1) };
            questions.push((LookPart::Unread, commands::range(stream, Range::starting_at(first, most))));
        }
        questions.push((LookPart::Workers, command!("HGETALL", workers_key(stream, &group.name))));
        questions
    }

    /// Reads the retry records of released entries, and the time of the store where it is needed.
    async fn add_retries(
        &self,
        streams: &[String],
        looks: &mut [Result<Option<StreamLook>, Error>],
    ) -> Result<(), Error> {
        let (mut questions, mut targets) = (Vec::new(), Vec::new());
        for (at, (stream, look)) in streams.iter().zip(&*looks).enumerate() {
            let Ok(Some(look)) = look else { continue };
            let key = Arc::<str>::from(&**stream);
            let mut needs_time = false;
            for (of, group) in look.groups.iter().enumerate() {
                let Some(Ok(detail)) = &group.detail else { continue };
                let released = detail.pending.iter().filter(|row| row.consumer.is_none()).map(|row| row.id);
                let released: Vec<StreamId> = released.collect();
                needs_time |= !detail.heartbeats.is_empty() || !released.is_empty();
                if !released.is_empty() {
                    let mut records = command!("HMGET", retry_key(stream, &group.info.name));
                    records.arg(commands::Ids(&released));
                    questions.push((Arc::clone(&key), records));
                    targets.push((at, Some((of, released))));
                }
            }
            if needs_time {
                questions.push((key, redis::cmd("TIME")));
                targets.push((at, None));
            }
        }
        let replies = self.redis.ask(questions).await?;
        for ((at, records), reply) in targets.into_iter().zip(replies) {
            match records {
                Some((of, ids)) => {
                    let Some(group) = group_at(looks, at, of) else { continue };
                    change(group, |detail| {
                        let values = unless_denied(reply)?;
                        for (id, value) in
                            ids.into_iter().zip(values).filter(|(_, value)| *value != Value::Nil)
                        {
                            detail.retries.push((id, RetryRecord::parse(&bytes(value)?)));
                        }
                        Ok(())
                    });
                }
                None => {
                    let now_ms = reply.and_then(time_ms).unwrap_or_default();
                    let Ok(Some(look)) = &mut looks[at] else { continue };
                    let details =
                        look.groups.iter_mut().filter_map(|group| group.detail.as_mut()?.as_mut().ok());
                    details.for_each(|detail| detail.now_ms = now_ms);
                }
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum LookPart {
    Consumers,
    Pending,
    Unread,
    Workers,
}

fn add_part(group: &mut GroupLook, part: LookPart, reply: Result<Value, Error>) {
    let mut consumers = None;
    change(group, |detail| {
        match part {
            LookPart::Consumers => {
                detail.consumers = parse_consumers(reply?)?;
                consumers = Some(detail.consumers.len() as u64);
            }
            LookPart::Pending => {
                detail.pending = array(reply?)?.into_iter().map(pending_row).collect::<Result<_, _>>()?;
            }
            LookPart::Unread => {
                detail.unread = Some(entries(reply?)?.into_iter().map(|entry| entry.id).collect());
            }
            LookPart::Workers => {
                let fields = match reply {
                    Err(error) if is_unknown(&error) => Vec::new(),
                    reply => pairs(reply?)?,
                };
                let field = |(name, value)| Ok((text(name)?, bytes(value)?));
                detail.heartbeats = fields.into_iter().map(field).collect::<Result<_, Error>>()?;
            }
        }
        Ok(())
    });
    if let Some(consumers) = consumers {
        // Without the consumer that holds released entries.
        group.info.consumers = consumers;
    }
}

/// Changes the details of a group. A group that was deleted meanwhile has none; another error takes their place.
fn change(group: &mut GroupLook, change: impl FnOnce(&mut GroupDetail) -> Result<(), Error>) {
    let Some(Ok(detail)) = &mut group.detail else { return };
    match change(detail) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NoGroup || is_missing_key(&error) => group.detail = None,
        Err(error) => group.detail = Some(Err(error)),
    }
}

fn group_at(looks: &mut [Result<Option<StreamLook>, Error>], at: usize, of: usize) -> Option<&mut GroupLook> {
    looks.get_mut(at)?.as_mut().ok()?.as_mut()?.groups.get_mut(of)
}

/// Whether the error of a reply means that the value is unknown: the user may not read it, or the key holds something
/// else.
fn is_unknown(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Denied | ErrorKind::WrongType)
}

/// Returns the elements of a reply, none if the user may not ask or the key does not hold such a value.
fn unless_denied(reply: Result<Value, Error>) -> Result<Vec<Value>, Error> {
    match reply {
        Err(error) if is_unknown(&error) || is_missing_key(&error) => Ok(Vec::new()),
        reply => array(reply?),
    }
}

fn known_policy(reply: Result<Value, Error>) -> Result<Option<PolicyInfo>, Error> {
    match reply {
        Err(error) if is_unknown(&error) || is_missing_key(&error) => Ok(None),
        reply => policy_info(reply?).map(Some),
    }
}

pub(super) fn time_ms(reply: Value) -> Result<u64, Error> {
    let [seconds, micros] = tuple(reply)?;
    Ok(count(seconds)?.saturating_mul(1000).saturating_add(count(micros)? / 1000))
}

/// Returns the number of bytes of the strings in a reply.
fn size_of(reply: &Value) -> usize {
    match reply {
        Value::BulkString(bytes) => bytes.len(),
        Value::Array(items) | Value::Set(items) => items.iter().map(size_of).sum(),
        Value::Map(pairs) => pairs.iter().map(|(name, value)| size_of(name) + size_of(value)).sum(),
        _ => 0,
    }
}
