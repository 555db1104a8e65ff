//! NATS JetStream as a [`Broker`], over NATS' text protocol.
//!
//! Streams are stored in files. A push consumer shares a stream's messages among its subscribers. Publishers wait for
//! the server's acknowledgement of every message, and consumers for the server's answer to every acknowledgement.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::Failure;
use crate::data::GROUP;
use crate::flow::{Broker, Consumer, Producer, Replies, Sender};
use crate::streams::{DIGITS, digits};
use crate::wire;

/// Maximum number of messages that a consumer acknowledges at once; the same as in `streams`.
const BATCH: usize = 100;
/// Subscription ids: messages of a stream, and answers to requests.
const MESSAGES: u64 = 1;
const ANSWERS: u64 = 2;

/// The nats-server of this machine.
pub(crate) struct Installed {
    pub(crate) path: PathBuf,
    /// As it prints it: `nats-server: v2.9.10`.
    pub(crate) version: String,
}

impl Installed {
    /// Returns `None` if nats-server is neither on the PATH nor where Debian installs it.
    pub(crate) fn find() -> Option<Installed> {
        ["nats-server", "/usr/sbin/nats-server"].into_iter().find_map(|path| {
            let output = Command::new(path).arg("--version").output().ok()?;
            let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            Some(Installed { path: path.into(), version })
        })
    }

    /// Whether this version can sync every message before it acknowledges it.
    pub(crate) fn can_sync_always(&self) -> bool {
        can_sync_always(&self.version)
    }
}

/// `sync_interval: always` came with 2.10.
fn can_sync_always(version: &str) -> bool {
    let number = version.split_once(": v").map_or("", |(_, number)| number);
    let mut parts = number.split('.').flat_map(str::parse);
    (parts.next(), parts.next()) >= (Some(2_u64), Some(10_u64))
}

/// Writes a configuration file into the server's folder. Returns the server's arguments.
pub(crate) fn arguments(port: u16, folder: &Path, sync_always: bool) -> io::Result<Vec<String>> {
    let file = folder.join("nats.conf");
    let sync = if sync_always { "sync_interval: always" } else { "" };
    let store = folder.join("jetstream");
    std::fs::write(&file, format!("jetstream {{\n  store_dir: \"{}\"\n  {sync}\n}}\n", store.display()))?;
    let (port, file) = (port.to_string(), file.to_string_lossy());
    Ok(["-a", "127.0.0.1", "-p", &port, "-c", &file].map(str::to_owned).to_vec())
}

/// Returns an error unless a server answers at this address.
pub(crate) fn check(address: &str) -> Result<(), Failure> {
    Client::open(address, "check").map(drop)
}

/// A nats-server with JetStream.
pub(crate) struct JetStream<'a> {
    /// `host:port`.
    pub(crate) address: &'a str,
}

impl Broker for JetStream<'_> {
    fn prepare(&self, streams: usize) -> Result<(), Failure> {
        let mut client = Client::open(self.address, "prepare")?;
        for stream in 0..streams {
            let name = stream_name(stream);
            // Fails if there is no such stream.
            let _ = client.request(&format!("$JS.API.STREAM.DELETE.{name}"), "");
            client.request(
                &format!("$JS.API.STREAM.CREATE.{name}"),
                &format!(r#"{{"name":"{name}","subjects":["{}"],"storage":"file"}}"#, subject(stream)),
            )?;
            let deliver =
                format!(r#""deliver_subject":"{}","deliver_group":"{GROUP}""#, deliver_subject(stream));
            let config = format!(r#"{{"durable_name":"{GROUP}",{deliver},"ack_policy":"explicit"}}"#);
            client.request(
                &format!("$JS.API.CONSUMER.DURABLE.CREATE.{name}.{GROUP}"),
                &format!(r#"{{"stream_name":"{name}","config":{config}}}"#),
            )?;
        }
        Ok(())
    }

    fn delete(&self, streams: usize) -> Result<(), Failure> {
        let mut client = Client::open(self.address, "delete")?;
        let delete = |stream| format!("$JS.API.STREAM.DELETE.{}", stream_name(stream));
        (0..streams).try_for_each(|stream| client.request(&delete(stream), "").map(drop))
    }

    fn producer(&self, stream: usize) -> Result<Producer, Failure> {
        let client = Client::open(self.address, "producer")?;
        let publisher = Publisher {
            socket: client.reader.get_ref().try_clone()?,
            head: format!("PUB {} {}", subject(stream), client.answers),
        };
        Ok((Box::new(publisher), Box::new(client)))
    }

    fn consumer(&self, stream: usize, name: usize) -> Result<Box<dyn Consumer>, Failure> {
        let mut client = Client::open(self.address, &format!("consumer{name}"))?;
        client.send(&format!("SUB {} {GROUP} {MESSAGES}\r\n", deliver_subject(stream)))?;
        client.round_trip()?;
        Ok(Box::new(Subscriber { client, waiting: VecDeque::new(), acknowledge: Vec::new() }))
    }
}

fn stream_name(stream: usize) -> String {
    format!("FLOW{stream}")
}

fn subject(stream: usize) -> String {
    format!("bench.flow.{stream}")
}

fn deliver_subject(stream: usize) -> String {
    format!("bench.deliver.{stream}")
}

/// A connection that has subscribed to answers to its own requests.
struct Client {
    reader: BufReader<TcpStream>,
    /// The subject of answers, without its last part: the number of the message or request.
    answers: String,
}

impl Client {
    fn open(address: &str, name: &str) -> Result<Client, Failure> {
        let reader = BufReader::new(wire::connect(address)?);
        // The port of this end makes the subject unique.
        let answers = format!("_INBOX.{name}.{}.", reader.get_ref().local_addr()?.port());
        let mut client = Client { reader, answers };
        client.send(&format!(
            "CONNECT {{\"verbose\":false,\"pedantic\":false,\"lang\":\"rust\",\"version\":\"0\"}}\r\n\
             SUB {}* {ANSWERS}\r\n",
            client.answers
        ))?;
        client.round_trip()?;
        Ok(client)
    }

    fn send(&mut self, text: &str) -> io::Result<()> {
        self.reader.get_mut().write_all(text.as_bytes())
    }

    /// Waits until the server has processed everything sent so far.
    fn round_trip(&mut self) -> Result<(), Failure> {
        self.send("PING\r\n")?;
        while event(&mut self.reader)? != Event::Pong {}
        Ok(())
    }

    /// Sends a request to JetStream and returns the answer; fails if it is an error.
    fn request(&mut self, subject: &str, body: &str) -> Result<String, Failure> {
        self.send(&format!("PUB {subject} {}0 {}\r\n{body}\r\n", self.answers, body.len()))?;
        self.next_message().and_then(|message| without_error(message.payload))
    }

    /// Waits for the next message of any subscription.
    ///
    /// Does not answer the server's PING: the server closes a connection only after minutes without an answer.
    fn next_message(&mut self) -> Result<Message, Failure> {
        loop {
            if let Event::Message(message) = event(&mut self.reader)? {
                return Ok(message);
            }
        }
    }
}

fn without_error(answer: String) -> Result<String, Failure> {
    match answer.contains("\"error\"") {
        true => Err(format!("JetStream answered: {answer}").into()),
        false => Ok(answer),
    }
}

struct Publisher {
    socket: TcpStream,
    /// The command up to the last part of the subject of its answer.
    head: String,
}

impl Sender for Publisher {
    fn send(&mut self, number: u64) -> Result<(), Failure> {
        let number = digits(number);
        Ok(self.socket.write_all(format!("{}{number} {DIGITS}\r\n{number}\r\n", self.head).as_bytes())?)
    }
}

impl Replies for Client {
    fn wait_for(&mut self, number: u64) -> Result<(), Failure> {
        let answer = self.next_message()?;
        if !answer.subject.ends_with(&digits(number)) {
            return Err(format!("expected the answer to message {number}, got {}", answer.subject).into());
        }
        without_error(answer.payload).map(drop)
    }
}

struct Subscriber {
    client: Client,
    /// Messages that arrived while this consumer waited for answers.
    waiting: VecDeque<(Message, Instant)>,
    /// Subjects for acknowledging the messages of the last `receive`.
    acknowledge: Vec<String>,
}

impl Subscriber {
    fn take(&mut self, message: Message, at: Instant, into: &mut Vec<(u64, Instant)>) -> Result<(), Failure> {
        into.push((message.payload.parse()?, at));
        self.acknowledge.push(message.reply.ok_or("a message without a subject for its acknowledgement")?);
        Ok(())
    }
}

impl Consumer for Subscriber {
    fn receive(&mut self, into: &mut Vec<(u64, Instant)>) -> Result<(), Failure> {
        self.acknowledge.clear();
        while self.acknowledge.len() < BATCH {
            if let Some((message, at)) = self.waiting.pop_front() {
                self.take(message, at, into)?;
                continue;
            }
            // After the first message, only those that have arrived.
            if !self.acknowledge.is_empty() && self.client.reader.buffer().is_empty() {
                break;
            }
            if let Event::Message(message) = event(&mut self.client.reader)? {
                self.take(message, Instant::now(), into)?;
            }
        }
        Ok(())
    }

    fn acknowledge(&mut self) -> Result<(), Failure> {
        let acknowledged: String = self
            .acknowledge
            .iter()
            .map(|subject| format!("PUB {subject} {}0 4\r\n+ACK\r\n", self.client.answers))
            .collect();
        self.client.send(&acknowledged)?;
        let mut missing = self.acknowledge.len();
        while missing > 0 {
            let message = self.client.next_message()?;
            match message.subscription {
                ANSWERS => missing -= 1,
                _ => self.waiting.push_back((message, Instant::now())),
            }
        }
        Ok(())
    }

    fn socket(&self) -> io::Result<TcpStream> {
        self.client.reader.get_ref().try_clone()
    }
}

/// Something that the server sent.
#[derive(Debug, PartialEq)]
enum Event {
    Message(Message),
    Pong,
    /// INFO and PING.
    Other,
}

#[derive(Debug, PartialEq)]
struct Message {
    subject: String,
    subscription: u64,
    /// The subject for an answer.
    reply: Option<String>,
    payload: String,
}

fn event(reader: &mut impl BufRead) -> Result<Event, Failure> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let line = line.strip_suffix("\r\n").ok_or("the server closed the connection")?;
    let words: Vec<_> = line.split(' ').collect();
    let (subject, subscription, reply, len) = match words[..] {
        ["MSG", subject, subscription, len] => (subject, subscription, None, len),
        ["MSG", subject, subscription, reply, len] => (subject, subscription, Some(reply), len),
        ["PONG"] => return Ok(Event::Pong),
        ["-ERR", ..] => return Err(format!("nats-server replied: {line}").into()),
        _ => return Ok(Event::Other),
    };
    let mut payload = vec![0; len.parse::<usize>()? + 2];
    reader.read_exact(&mut payload)?;
    payload.truncate(payload.len() - 2);
    Ok(Event::Message(Message {
        subject: subject.into(),
        subscription: subscription.parse()?,
        reply: reply.map(str::to_owned),
        payload: String::from_utf8(payload)?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_parsed() {
        let message = |reply: Option<&str>, payload: &str| {
            let (subject, reply) = ("a.b".to_owned(), reply.map(str::to_owned));
            Event::Message(Message { subject, subscription: 1, reply, payload: payload.into() })
        };
        for (text, expected) in [
            ("MSG a.b 1 $JS.ACK.x 5\r\n0\r\n07\r\n", message(Some("$JS.ACK.x"), "0\r\n07")),
            ("MSG a.b 1 0\r\n\r\n", message(None, "")),
            ("PONG\r\n", Event::Pong),
            ("PING\r\n", Event::Other),
        ] {
            let mut bytes = text.as_bytes();
            assert_eq!(event(&mut bytes).unwrap(), expected);
            assert!(bytes.is_empty() && event(&mut bytes).is_err());
        }
        assert!(event(&mut &b"-ERR 'Unknown Protocol Operation'\r\n"[..]).is_err());
    }

    #[test]
    fn errors_of_jetstream_are_errors() {
        assert!(without_error(r#"{"stream":"FLOW0","seq":1}"#.into()).is_ok());
        assert!(without_error(r#"{"error":{"code":503},"stream":"FLOW0"}"#.into()).is_err());
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let versions =
            ["nats-server: v2.9.10", "nats-server: v2.10.0", "nats-server: v3.0.1", "nats-server: v2.2.9"];
        assert_eq!(versions.map(can_sync_always), [false, true, true, false]);
    }
}
