//! `millstream add`: messages from the command line, from lines of standard input, or many of a kind for load.

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use indicatif::ProgressBar;
use millstream_worker::Admin;
use millstream_worker::backend::{Fields, Idempotence, NewEntry, StreamId, Trim};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::connection::Common;
use super::failure::Failure;
use super::known;
use super::output::{note, print_json, print_line, progress_bar};
use super::until_ctrl_c;
use super::value::{count, counted};

/// How many entries travel together.
const BATCH: u64 = 1000;
/// The placeholder that becomes the number of the message.
const NUMBER: &str = "{i}";

const EXAMPLES: &str = "\
Examples:
  millstream add orders item=book qty=2
  millstream add orders --data '{\"item\":\"book\",\"qty\":2}'
  millstream add orders item=book --maxlen 100000
  millstream add orders item=book --producer shop-1 --iid order-17
  millstream add orders 'item=book {i}' --count 1000 --rate 5000
  echo '{\"item\":\"book\"}' | millstream add orders -

A line of standard input that is a JSON object becomes an entry with its members as fields; any other line becomes the
field `data`.";

/// Add messages to a stream
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Add {
    /// The stream, which comes to be with its first entry
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    stream: String,
    /// Fields of the entry; `-` reads an entry from each line of standard input
    #[arg(value_name = "FIELD=VALUE")]
    fields: Vec<String>,
    /// A JSON document, added as the field `data`
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
    /// Keep about so many entries; older ones go
    #[arg(long, value_name = "N")]
    maxlen: Option<u64>,
    /// Keep exactly so many entries at most
    #[arg(long, requires = "maxlen")]
    exact: bool,
    /// Who sends, for adding a message only once
    #[arg(long, value_name = "NAME", requires = "iid")]
    producer: Option<String>,
    /// The sender's name for the message: sent again, it is not added again
    #[arg(long, value_name = "ID", requires = "producer")]
    iid: Option<String>,
    /// Add the message so often; {i} in a value becomes the number of the message
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// The most messages in a second
    #[arg(long, value_name = "N", value_parser = parse_rate)]
    rate: Option<f64>,
    #[command(flatten)]
    common: Common,
}

impl Add {
    pub(crate) async fn run(&self) -> Result<(), Failure> {
        let from_lines = self.fields.iter().any(|field| field == "-");
        let fields = self.template()?;
        if fields.is_empty() && !from_lines {
            return Err(Failure::Usage(
                "an entry needs at least one field: give FIELD=VALUE, --data JSON, or - for lines of standard input"
                    .to_owned(),
            ));
        }
        if self.iid.is_some() && (from_lines || self.count != 1) {
            return Err(Failure::Usage("--iid names one message; leave out - and --count".to_owned()));
        }
        let backend = until_ctrl_c(self.common.connect_or_create()).await?;
        if self.iid.is_some() && !backend.capabilities().idempotent_adds {
            return Err(Failure::Other(format!(
                "{} cannot add a message only once\nleave out --producer and --iid and let workers skip repeats (millstream work --dedupe 1d --dedupe-field FIELD), or use Millstream or Redis 8.6",
                backend.place()
            )));
        }
        let mut load = Load::new(self, &*backend);
        let done = match from_lines {
            true => until_ctrl_c(load.add_lines(&fields)).await,
            false => until_ctrl_c(load.add_many(&fields)).await,
        };
        match done {
            Ok(()) => load.tell(from_lines),
            Err(failure) => Err(load.cut_off(failure)?),
        }
    }

    /// The fields that every entry has.
    fn template(&self) -> Result<Fields, Failure> {
        let mut fields = Fields::new();
        for field in self.fields.iter().filter(|field| *field != "-") {
            let Some((name, value)) = field.split_once('=') else {
                return Err(Failure::Usage(format!("{field:?} is no field; write it as name=value")));
            };
            if name.is_empty() {
                return Err(Failure::Usage(format!("{field:?} has no name; write it as name=value")));
            }
            fields.push((name.to_owned().into(), value.to_owned().into()));
        }
        if let Some(data) = &self.data {
            if let Err(error) = serde_json::from_str::<Value>(data) {
                return Err(Failure::Usage(format!("--data is no JSON: {error}")));
            }
            fields.push(("data".into(), data.clone().into()));
        }
        Ok(fields)
    }

    fn trim(&self) -> Option<Trim> {
        self.maxlen.map(|length| if self.exact { Trim::Exactly(length) } else { Trim::About(length) })
    }

    fn idempotence(&self) -> Option<Idempotence> {
        let (producer, iid) = (self.producer.clone()?, self.iid.clone()?);
        Some(Idempotence { producer, iid })
    }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "a rate is a number above 0, of messages in a second".to_owned())
}

/// Messages on their way, and how many there were.
struct Load<'a> {
    add: &'a Add,
    backend: &'a dyn Admin,
    began: Instant,
    added: u64,
    /// Those that were sent and not answered for.
    on_the_way: u64,
    /// Those that were there already.
    duplicates: u64,
    first: Option<StreamId>,
    last: Option<StreamId>,
}

impl<'a> Load<'a> {
    fn new(add: &'a Add, backend: &'a dyn Admin) -> Load<'a> {
        Load {
            add,
            backend,
            began: Instant::now(),
            added: 0,
            on_the_way: 0,
            duplicates: 0,
            first: None,
            last: None,
        }
    }

    /// The same message again and again.
    async fn add_many(&mut self, fields: &Fields) -> Result<(), Failure> {
        let bar = match self.add.count {
            ..=BATCH => ProgressBar::hidden(),
            count => progress_bar(count, "{bar:30} {human_pos}/{human_len} ({per_sec}, {eta} left)"),
        };
        while self.sent() < self.add.count {
            let batch = self.batch().min(self.add.count - self.sent());
            let entries: Vec<NewEntry> = (1..=batch)
                .map(|n| NewEntry {
                    fields: numbered(fields, self.sent() + n),
                    idempotence: self.add.idempotence(),
                })
                .collect();
            self.send(&entries).await?;
            bar.set_position(self.added);
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// A message for each line. What lies ready goes together; an entry never waits for the next line.
    async fn add_lines(&mut self, fields: &Fields) -> Result<(), Failure> {
        let mut lines = stdin_lines();
        let mut ready = Vec::new();
        let batch = usize::try_from(self.batch()).unwrap_or(usize::MAX);
        while lines.recv_many(&mut ready, batch).await > 0 {
            let mut entries = Vec::with_capacity(ready.len());
            for line in ready.drain(..) {
                let line =
                    line.map_err(|error| Failure::Other(format!("cannot read standard input: {error}")))?;
                let mut all = fields.clone();
                all.extend(fields_of_line(&line));
                if all.iter().any(|(name, _)| name.is_empty()) {
                    return Err(Failure::Usage(format!(
                        "a field of this line has no name: {}",
                        line.trim_end()
                    )));
                }
                if !all.is_empty() {
                    entries.push(NewEntry { fields: all, idempotence: None });
                }
            }
            let ids = self.send(&entries).await?;
            if !self.add.common.json {
                ids.iter().try_for_each(|id| print_line(&id.to_string()))?;
            }
        }
        Ok(())
    }

    async fn send(&mut self, entries: &[NewEntry]) -> Result<Vec<StreamId>, Failure> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        if let Some(rate) = self.add.rate {
            let due = self.began + Duration::from_secs_f64(self.added as f64 / rate);
            tokio::time::sleep_until(due.into()).await;
        }
        let stream = &self.add.stream;
        // What is added gets a greater id than everything before it.
        let newest = match self.add.iid {
            Some(_) => known::look(self.backend, stream).await?.map(|info| info.last_id),
            None => None,
        };
        self.on_the_way = entries.len() as u64;
        let added = self.backend.add(stream, entries, self.add.trim()).await;
        let ids = added.map_err(|error| known::about(stream, error))?;
        self.on_the_way = 0;
        let repeated = ids.iter().filter(|id| newest.is_some_and(|newest| **id <= newest)).count() as u64;
        self.duplicates += repeated;
        self.added += ids.len() as u64 - repeated;
        self.first = self.first.or(ids.first().copied());
        self.last = ids.last().copied().or(self.last);
        Ok(ids)
    }

    fn sent(&self) -> u64 {
        self.added + self.duplicates
    }

    /// How many go together: about ten batches a second where the rate is limited.
    fn batch(&self) -> u64 {
        // A float beyond the range of the integer becomes its greatest value, and `clamp` follows.
        self.add.rate.map_or(BATCH, |rate| ((rate / 10.0) as u64).clamp(1, BATCH))
    }

    /// What was added before it failed or was interrupted, so that the rest can be added later.
    fn cut_off(&self, failure: Failure) -> Result<Failure, Failure> {
        if matches!(failure, Failure::Output(_)) {
            return Ok(failure);
        }
        if self.add.common.json {
            let mut told = self.json();
            told["on_the_way"] = Value::from(self.on_the_way);
            told["error"] = Value::from(failure.to_string());
            print_json(&told)?;
        }
        let Some(line) = self.so_far(&failure) else { return Ok(failure) };
        if failure.is_silent() {
            note(&line);
        }
        Ok(failure.and(&line))
    }

    /// What is there, for people; nothing if it is plain that nothing is.
    fn so_far(&self, failure: &Failure) -> Option<String> {
        let entries = |number| counted(number, "entry", "entries");
        // A single entry that was refused is not there.
        let unknown = match failure {
            Failure::Other(_) | Failure::NotFound(_) if self.on_the_way == 1 => 0,
            _ => self.on_the_way,
        };
        match (self.last, unknown) {
            (None, 0) if !failure.is_silent() => None,
            (None, 0) => Some("nothing was added".to_owned()),
            (None, unknown) => Some(format!("on the way: {}, which may be there or not", entries(unknown))),
            (Some(last), 0) => Some(format!("added before: {}, the last is {last}", entries(self.added))),
            (Some(last), _) => Some(format!(
                "added before: {}, the last is {last}; what was on its way may be there too",
                entries(self.added)
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

    fn tell(&self, from_lines: bool) -> Result<(), Failure> {
        if self.add.common.json {
            return print_json(&self.json());
        }
        let seconds = self.began.elapsed().as_secs_f64();
        match (self.added, self.last) {
            _ if from_lines => Ok(()),
            (0, Some(id)) => {
                note("it was there already, and is not added again");
                print_line(&id.to_string())
            }
            (1, Some(id)) => print_line(&id.to_string()),
            (added, last) => print_line(&format!(
                "added {} entries in {seconds:.1} s ({} a second), the last is {}",
                count(added),
                count((added as f64 / seconds.max(0.001)) as u64),
                last.unwrap_or_default()
            )),
        }
    }
}

/// The lines of standard input, read by a thread of their own: reading them cannot be waited for otherwise.
fn stdin_lines() -> mpsc::Receiver<std::io::Result<String>> {
    let (sender, lines) = mpsc::channel(BATCH as usize);
    std::thread::spawn(move || {
        let mut input = BufReader::new(std::io::stdin());
        loop {
            let mut line = String::new();
            let told = match input.read_line(&mut line) {
                Ok(0) => return,
                Ok(_) => sender.blocking_send(Ok(line)),
                Err(error) => {
                    // Whether anyone still listens no longer matters.
                    let _ = sender.blocking_send(Err(error));
                    return;
                }
            };
            if told.is_err() {
                return;
            }
        }
    });
    lines
}

/// The fields of a line; none of an empty one.
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

/// The fields of the n-th message.
fn numbered(fields: &Fields, n: u64) -> Fields {
    let has_number = |value: &[u8]| value.windows(NUMBER.len()).any(|part| part == NUMBER.as_bytes());
    let number = n.to_string();
    let mut numbered = fields.clone();
    for (_, value) in numbered.iter_mut().filter(|(_, value)| has_number(value)) {
        // Arguments are text.
        *value = String::from_utf8_lossy(value).replace(NUMBER, &number).into();
    }
    numbered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_fields() {
        let line = |text| super::super::value::fields_line(&fields_of_line(text));
        assert_eq!(line("{\"a\":\"x\",\"b\":2,\"c\":[1]}\n"), "a=x b=2 c=[1]");
        assert_eq!(line("plain\r\n"), "data=plain");
        assert_eq!(line("17"), "data=17");
        assert_eq!(line(""), "");
    }

    #[test]
    fn messages_are_numbered() {
        let fields: Fields = vec![("a".into(), "x{i}-{i}".into()), ("b".into(), "y".into())];
        assert_eq!(super::super::value::fields_line(&numbered(&fields, 7)), "a=x7-7 b=y");
    }
}
