//! `millstream add`: adds messages from the command line or from lines of standard input, or many similar ones as load.

use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use indicatif::ProgressBar;
use millstream_worker::Admin;
use millstream_worker::backend::{AddOutcome, Capability, Due, Fields, StreamId, Trim, TrimLimit};
use millstream_worker::partitions::Named;
use millstream_worker::producer::Producer;
use millstream_worker::trace::TraceContext;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::connection::CommonOptions;
use super::failure::Failure;
use super::lookup;
use super::output::{note, print_json, print_line, progress_bar};
use super::safe_text::printable;
use super::shell::suggest;
use super::time::{Position, parse_duration, parse_position, parse_time};
use super::trace::{parse_trace, trace_of_environment};
use super::until_ctrl_c;
use super::value::{count, counted, millis};

/// Maximum number of entries added in one call.
const CHUNK_MAX: u64 = 1000;
const NUMBER_PLACEHOLDER: &str = "{i}";

const EXAMPLES: &str = "\
Examples:
  millstream add orders item=book qty=2
  millstream add orders --data '{\"item\":\"book\",\"qty\":2}'
  millstream add orders item=book --maxlen 100000 --keep-unread
  millstream add orders item=book --producer shop-1 --iid order-17
  millstream add orders item=book --delay 10m
  millstream add payments amount=3 --order-key ada
  millstream add orders 'item=book {i}' --count 1000 --rate 5000
  millstream add orders 'item=book {i}' --count 1000 --producer shop-1
  echo '{\"item\":\"book\"}' | millstream add orders -

With -, every line of standard input becomes an entry. A JSON object becomes the fields of the entry; any other line \
becomes the field 'data'.
If the stream has partitions (millstream partition), each message goes to the partition of its key: the value of the field \
that 'partition create --order-by' named, or --order-key. Messages without the field are one key.";

/// Add messages to a stream
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Add {
    /// Stream name; the stream is created with its first entry. orders/3 is partition 3 of orders
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    stream: String,
    /// Fields of the entry, or '-' to add an entry for each line of standard input
    #[arg(value_name = "FIELD=VALUE")]
    fields: Vec<String>,
    /// Add this JSON document as the field 'data'
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
    /// Trim the stream to about the N newest entries
    #[arg(long, value_name = "N", group = "limit")]
    maxlen: Option<u64>,
    /// Trim entries before an id, a time, or a duration before now such as 7d
    #[arg(long, value_name = "POSITION", value_parser = parse_min_id, group = "limit")]
    minid: Option<StreamId>,
    /// Make the limit of --maxlen or --minid exact
    #[arg(long, requires = "limit")]
    exact: bool,
    /// Trim only entries that every group has acknowledged, even if the stream then exceeds the limit
    #[arg(long, requires = "limit")]
    keep_unread: bool,
    /// Producer name, unique per stream: if the connection breaks, messages are sent again, and the stream adds each
    /// only once
    #[arg(long, value_name = "NAME")]
    producer: Option<String>,
    /// Id of the message, unique per producer; if the stream already knows the id, it does not add the message again
    #[arg(long, value_name = "ID", requires = "producer")]
    iid: Option<String>,
    /// Key of the messages, if the stream has partitions [default: the value of the field that the list of partitions
    /// names]
    #[arg(long, value_name = "KEY")]
    order_key: Option<String>,
    /// Add the message after this time; prints its ticket for 'millstream delayed' (only on Millstream)
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, group = "due")]
    delay: Option<Duration>,
    /// Add the message at this time, such as 2026-11-15T10:30:00Z (only on Millstream)
    #[arg(long, value_name = "TIME", value_parser = parse_time, group = "due")]
    at: Option<u64>,
    /// Trace that the messages belong to: adds a field 'traceparent' [default: the environment variables TRACEPARENT
    /// and TRACESTATE]
    #[arg(long, value_name = "TRACEPARENT", value_parser = parse_trace)]
    traceparent: Option<TraceContext>,
    /// Number of messages to add; {i} in a value becomes the number of the message
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Maximum number of messages per second [default: no limit]
    #[arg(long, value_name = "N", value_parser = parse_rate)]
    rate: Option<f64>,
    #[command(flatten)]
    common: CommonOptions,
}

impl Add {
    pub(crate) async fn run(&self) -> Result<(), Failure> {
        let from_lines = self.fields.iter().any(|field| field == "-");
        let fields = self.template()?;
        if fields.is_empty() && !from_lines {
            return Err(Failure::Usage(
                "an entry needs at least one field: pass FIELD=VALUE, --data JSON, or - to read lines of standard input"
                    .to_owned(),
            ));
        }
        if self.iid.is_some() && (from_lines || self.count != 1) {
            return Err(Failure::Usage(
                "--iid identifies a single message: it cannot be combined with - or --count".to_owned(),
            ));
        }
        let backend = until_ctrl_c(self.common.connect_or_create()).await?;
        if self.producer.is_some() && !backend.supports(Capability::IdempotentAdds, &self.stream).await? {
            return Err(Failure::Other(format!(
                "{} does not support idempotent adds\nleave out --producer and --iid and let workers skip duplicates (millstream work --dedupe 1d --dedupe-field FIELD), or use Millstream or Redis 8.6",
                backend.location()
            )));
        }
        if self.due().is_some() && !backend.supports(Capability::DelayedEntries, &self.stream).await? {
            return Err(Failure::Other(format!(
                "{} cannot delay messages\nleave out --delay and --at, or use Millstream's server or a folder of it",
                backend.location()
            )));
        }
        if self.order_key.is_some() && self.is_one_stream(&*backend).await? {
            return Err(Failure::Usage(format!(
                "--order-key chooses a partition, but {} is one stream\nleave out --order-key, or create partitions under \
                 another name with: {}",
                printable(&self.stream),
                suggest("partition create", &["STREAM", "COUNT"], "")
            )));
        }
        let mut run = AddRun::new(self, &backend);
        let result = match from_lines {
            true => until_ctrl_c(run.add_lines(&fields)).await,
            false => until_ctrl_c(run.add_many(&fields)).await,
        };
        match result {
            Ok(()) => run.print_result(from_lines),
            Err(failure) => Err(run.print_partial_result(failure)?),
        }
    }

    async fn is_one_stream(&self, backend: &dyn Admin) -> Result<bool, Failure> {
        Ok(matches!(Named::find(backend, &self.stream).await?, Named::Stream(_)))
    }

    /// Returns the fields given on the command line, which every entry has.
    fn template(&self) -> Result<Fields, Failure> {
        let mut fields = Fields::new();
        for field in self.fields.iter().filter(|field| *field != "-") {
            let Some((name, value)) = field.split_once('=') else {
                return Err(Failure::Usage(format!("invalid field {field:?}: expected NAME=VALUE")));
            };
            if name.is_empty() {
                return Err(Failure::Usage(format!(
                    "invalid field {field:?}: the name is empty; expected NAME=VALUE"
                )));
            }
            fields.push((name.to_owned().into(), value.to_owned().into()));
        }
        if let Some(data) = &self.data {
            if let Err(error) = serde_json::from_str::<Value>(data) {
                return Err(Failure::Usage(format!("invalid JSON in --data: {error}")));
            }
            fields.push(("data".into(), data.clone().into()));
        }
        Ok(fields)
    }

    fn trim(&self) -> Option<Trim> {
        let limit = self.maxlen.map(TrimLimit::Length).or(self.minid.map(TrimLimit::MinId));
        limit.map(|limit| Trim { limit, exact: self.exact, keep_unread: self.keep_unread })
    }

    fn due(&self) -> Option<Due> {
        self.delay.map(|delay| Due::In(millis(delay))).or(self.at.map(Due::At))
    }

    fn producer(&self, backend: &Arc<dyn Admin>) -> Producer {
        let producer = Producer::new(backend.clone(), self.stream.as_str());
        let producer = self.producer.iter().fold(producer, Producer::idempotent);
        let producer = self.trim().into_iter().fold(producer, Producer::trim);
        let producer = self.order_key.iter().fold(producer, |producer, key| producer.key(key.as_str()));
        let producer = producer.trace(self.traceparent.clone().or_else(trace_of_environment));
        match self.due() {
            None => producer,
            Some(Due::In(delay_ms)) => producer.delay(Duration::from_millis(delay_ms)),
            Some(Due::At(due_ms)) => producer.delay_until(due_ms),
        }
    }
}

fn parse_min_id(text: &str) -> Result<StreamId, String> {
    match parse_position(text) {
        Ok(Position::At(id)) => Ok(id),
        _ => Err("expected an id, a time such as 2026-11-15T10:30:00Z, or a duration before now such as 7d"
            .to_owned()),
    }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "expected a number greater than 0".to_owned())
}

/// A running `add`, and what it has added so far.
struct AddRun<'a> {
    add: &'a Add,
    backend: &'a dyn Admin,
    began: Instant,
    added: u64,
    /// Entries that were sent, and that the store may or may not have added.
    unconfirmed: u64,
    /// Entries of the last call that the store did not add.
    not_added: u64,
    producer: Producer,
    /// Messages that the stream already contained.
    duplicates: u64,
    first: Option<StreamId>,
    last: Option<StreamId>,
}

impl<'a> AddRun<'a> {
    fn new(add: &'a Add, backend: &'a Arc<dyn Admin>) -> AddRun<'a> {
        AddRun {
            add,
            backend: &**backend,
            began: Instant::now(),
            added: 0,
            unconfirmed: 0,
            not_added: 0,
            producer: add.producer(backend),
            duplicates: 0,
            first: None,
            last: None,
        }
    }

    /// Adds the message of the command line `--count` times.
    async fn add_many(&mut self, fields: &Fields) -> Result<(), Failure> {
        let bar = match self.add.count {
            ..=CHUNK_MAX => ProgressBar::hidden(),
            count => progress_bar(count, "{bar:30} {human_pos}/{human_len} ({per_sec}, {eta} left)"),
        };
        while self.sent() < self.add.count {
            let chunk = self.chunk_size().min(self.add.count - self.sent());
            let entries: Vec<Fields> = (1..=chunk).map(|n| numbered(fields, self.sent() + n)).collect();
            self.send(entries).await?;
            bar.set_position(self.added);
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Adds an entry for each line of standard input.
    ///
    /// Lines that are already available are added in one call. An entry never waits for the next line.
    async fn add_lines(&mut self, fields: &Fields) -> Result<(), Failure> {
        let mut lines = stdin_lines();
        let mut ready = Vec::new();
        let chunk = usize::try_from(self.chunk_size()).unwrap_or(usize::MAX);
        while lines.recv_many(&mut ready, chunk).await > 0 {
            let mut entries = Vec::with_capacity(ready.len());
            for line in ready.drain(..) {
                let line =
                    line.map_err(|error| Failure::Other(format!("cannot read standard input: {error}")))?;
                let mut all = fields.clone();
                all.extend(fields_of_line(&line));
                if all.iter().any(|(name, _)| name.is_empty()) {
                    return Err(Failure::Usage(format!(
                        "invalid line, a field name is empty: {}",
                        line.trim_end()
                    )));
                }
                if !all.is_empty() {
                    entries.push(all);
                }
            }
            let ids = self.send(entries).await?;
            if !self.add.common.json {
                ids.iter().try_for_each(|id| print_line(&id.to_string()))?;
            }
        }
        Ok(())
    }

    async fn send(&mut self, entries: Vec<Fields>) -> Result<Vec<StreamId>, Failure> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        if let Some(rate) = self.add.rate {
            // At a tiny rate, the time can be longer than any duration.
            let due = Duration::try_from_secs_f64(self.added as f64 / rate).unwrap_or(Duration::MAX);
            tokio::time::sleep(due.saturating_sub(self.began.elapsed())).await;
        }
        let sent = entries.len();
        let newest = self.newest(&entries).await?;
        self.unconfirmed = sent as u64;
        let added = match (&self.add.iid, entries.first()) {
            (Some(iid), Some(entry)) => self.producer.send_once(iid, entry.clone()).await.map(|id| vec![id]),
            _ => self.producer.send_all(entries).await,
        };
        self.unconfirmed = 0;
        let ids = added.map_err(|mut error| {
            self.count_outcomes(sent, &error.take_outcomes());
            lookup::stream_error(&self.add.stream, error)
        })?;
        let duplicates = ids.iter().filter(|id| newest.is_some_and(|newest| **id <= newest)).count() as u64;
        self.duplicates += duplicates;
        self.added += ids.len() as u64 - duplicates;
        self.first = self.first.or(ids.first().copied());
        self.last = ids.last().copied().or(self.last);
        Ok(ids)
    }

    /// Returns the last id of the stream or the partition to which the message of `--iid` goes.
    ///
    /// A new entry gets a greater id. If the store returns a smaller or equal id, the message is a duplicate.
    async fn newest(&self, entries: &[Fields]) -> Result<Option<StreamId>, Failure> {
        let (Some(iid), Some(entry)) = (&self.add.iid, entries.first()) else { return Ok(None) };
        let stream = self.producer.stream_once(iid, entry.clone()).await?;
        Ok(lookup::find_stream(self.backend, &stream).await?.map(|info| info.last_id))
    }

    /// Counts the outcomes of the entries of a failed call.
    fn count_outcomes(&mut self, entries: usize, outcomes: &[AddOutcome]) {
        self.not_added = entries as u64;
        for outcome in outcomes {
            match outcome {
                AddOutcome::NotAdded => continue,
                AddOutcome::Unknown => self.unconfirmed += 1,
                AddOutcome::Added(id) => {
                    self.added += 1;
                    self.first = self.first.or(Some(*id));
                    self.last = Some(*id);
                }
            }
            self.not_added -= 1;
        }
    }

    fn sent(&self) -> u64 {
        self.added + self.duplicates
    }

    /// Number of entries per call. With `--rate`, there are about ten calls per second.
    fn chunk_size(&self) -> u64 {
        // The cast saturates, so `clamp` also handles rates beyond the range of `u64`.
        self.add.rate.map_or(CHUNK_MAX, |rate| ((rate / 10.0) as u64).clamp(1, CHUNK_MAX))
    }

    /// Reports what was added before a failure or Ctrl-C, so that the user can add the rest later.
    fn print_partial_result(&self, failure: Failure) -> Result<Failure, Failure> {
        if matches!(failure, Failure::Output(_)) {
            return Ok(failure);
        }
        if self.add.common.json {
            let mut json = self.json();
            json["on_the_way"] = Value::from(self.unconfirmed);
            json["not_added"] = Value::from(self.not_added);
            json["error"] = Value::from(failure.to_string());
            print_json(&json)?;
        }
        let Some(line) = self.progress_line(&failure) else { return Ok(failure) };
        if failure.is_silent() {
            note(&line);
        }
        Ok(failure.with_line(&line))
    }

    /// Describes what was added. `None` if the failure itself makes clear that nothing was.
    fn progress_line(&self, failure: &Failure) -> Option<String> {
        let entries = |number| counted(number, "entry", "entries");
        match (self.last, self.unconfirmed) {
            (None, 0) if !failure.is_silent() => None,
            (None, 0) => Some("nothing was added".to_owned()),
            (None, unconfirmed) => Some(format!(
                "sent but not confirmed: {}, which may or may not have been added",
                entries(unconfirmed)
            )),
            (Some(last), 0) => Some(format!("added so far: {}, last id {last}", entries(self.added))),
            (Some(last), unconfirmed) => Some(format!(
                "added so far: {}, last id {last}; {} more may have been added",
                entries(self.added),
                count(unconfirmed)
            )),
        }
    }

    fn json(&self) -> Value {
        json!({
            "stream": self.add.stream,
            "added": self.added,
            "duplicates": self.duplicates,
            "first_id": self.first.map(|id| id.to_string()),
            "last_id": self.last.map(|id| id.to_string()),
            "seconds": (self.began.elapsed().as_secs_f64() * 1000.0).round() / 1000.0,
        })
    }

    fn print_result(&self, from_lines: bool) -> Result<(), Failure> {
        if self.add.common.json {
            return print_json(&self.json());
        }
        let seconds = self.began.elapsed().as_secs_f64();
        match (self.added, self.last) {
            _ if from_lines => Ok(()),
            (0, Some(id)) => {
                note("the stream already contains this message: it was not added again");
                print_line(&id.to_string())
            }
            (1, Some(id)) => print_line(&id.to_string()),
            (added, last) => print_line(&format!(
                "added {} entries in {seconds:.1} s ({} per second), last id {}",
                count(added),
                count((added as f64 / seconds.max(0.001)) as u64),
                last.unwrap_or_default()
            )),
        }
    }
}

/// Reads the lines of standard input on a separate thread, because reading standard input blocks.
fn stdin_lines() -> mpsc::Receiver<std::io::Result<String>> {
    let (sender, lines) = mpsc::channel(CHUNK_MAX as usize);
    std::thread::spawn(move || {
        let mut input = BufReader::new(std::io::stdin());
        loop {
            let mut line = String::new();
            let sent = match input.read_line(&mut line) {
                Ok(0) => return,
                Ok(_) => sender.blocking_send(Ok(line)),
                Err(error) => {
                    // This fails only if the receiver is gone. The thread ends in any case.
                    let _ = sender.blocking_send(Err(error));
                    return;
                }
            };
            if sent.is_err() {
                return;
            }
        }
    });
    lines
}

/// Returns the fields of a line. An empty line has none.
fn fields_of_line(line: &str) -> Fields {
    let line = line.trim_end_matches(['\r', '\n']);
    match serde_json::from_str(line) {
        _ if line.is_empty() => Fields::new(),
        Ok(Value::Object(members)) => members
            .into_iter()
            .map(|(name, value)| match value {
                Value::String(text) => (name.into(), text.into()),
                other => (name.into(), other.to_string().into()),
            })
            .collect(),
        _ => vec![("data".into(), line.to_owned().into())],
    }
}

/// Returns the fields of the n-th message.
fn numbered(fields: &Fields, n: u64) -> Fields {
    let has_number = |value: &[u8]| {
        value.windows(NUMBER_PLACEHOLDER.len()).any(|part| part == NUMBER_PLACEHOLDER.as_bytes())
    };
    let number = n.to_string();
    let mut numbered = fields.clone();
    for (_, value) in numbered.iter_mut().filter(|(_, value)| has_number(value)) {
        // Command-line arguments are UTF-8, so the conversion is lossless.
        *value = String::from_utf8_lossy(value).replace(NUMBER_PLACEHOLDER, &number).into();
    }
    numbered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_into_fields() {
        let line = |text| super::super::value::fields_line(&fields_of_line(text));
        assert_eq!(line("{\"a\":\"x\",\"b\":2,\"c\":[1]}\n"), "a=x b=2 c=[1]");
        assert_eq!(line("plain\r\n"), "data=plain");
        assert_eq!(line("17"), "data=17");
        assert_eq!(line(""), "");
    }

    #[test]
    fn the_placeholder_becomes_the_number_of_the_message() {
        let fields: Fields = vec![("a".into(), "x{i}-{i}".into()), ("b".into(), "y".into())];
        assert_eq!(super::super::value::fields_line(&numbered(&fields, 7)), "a=x7-7 b=y");
    }
}
