//! Runs a case on a server: plays its clients, and holds every reply against what is expected.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use super::case::{Action, Case, Expectation, Step};
use super::pattern::{self, Protocol};
use super::text::{Bindings, arguments, quoted, substitute};
use crate::support::peers::Peer;
use crate::support::process::{Kind, Server};
use crate::support::resp::{Value, escape};
use crate::support::wire::{Client, Outcome};

/// How long `waiting` listens before it believes the silence.
const SILENCE: Duration = Duration::from_millis(30);
/// How long a reply may take unless a test says otherwise.
const PATIENCE: Duration = Duration::from_secs(30);

/// The first thing in a case that was not as expected.
pub(crate) struct Failure {
    /// Where the expectation stands.
    pub line: usize,
    /// What differed.
    pub message: String,
}

/// A server and a connection that no case sees.
pub(crate) struct Stage {
    server: Server,
    control: Client,
    protocol: Protocol,
    /// How long a reply may take. Above every timeout that a case waits for.
    pub patience: Duration,
}

impl Stage {
    /// Takes over a server that was just started.
    pub(crate) fn new(server: Server, protocol: Protocol) -> Stage {
        let control = server.client();
        Stage { server, control, protocol, patience: PATIENCE }
    }

    /// Whether the case says anything about this server and protocol.
    pub(crate) fn concerns(&self, case: &Case) -> bool {
        let number = if self.protocol == Protocol::Resp2 { 2 } else { 3 };
        case.resp.is_none_or(|resp| resp == number) && self.peer().is_none_or(|peer| case.asks(peer))
    }

    /// What people call the server.
    pub(crate) fn title(&self) -> &'static str {
        self.peer().map_or("Millstream", |peer| peer.title)
    }

    /// The server, if it is not ours.
    fn peer(&self) -> Option<&'static Peer> {
        match self.server.kind {
            Kind::Peer(peer) => Some(peer),
            Kind::Millstream => None,
        }
    }

    /// Plays the case from an empty server on, and leaves the settings as they were.
    pub(crate) fn run(&mut self, case: &Case) -> Result<(), Failure> {
        let before = self.prepare(case).map_err(|message| Failure { line: case.line, message })?;
        let mut play =
            Play { stage: self, clients: HashMap::new(), bindings: Bindings::new(), heard: Vec::new() };
        let result = case.steps.iter().try_for_each(|step| play.step(step));
        drop(play);
        self.restore(before);
        result
    }

    /// Plays the case and tells what came, by line of the expectation.
    pub(crate) fn record(&mut self, case: &Case) -> BTreeMap<usize, Value> {
        let before = self.prepare(case).unwrap_or_else(|problem| panic!("line {}: {problem}", case.line));
        let mut play =
            Play { stage: self, clients: HashMap::new(), bindings: Bindings::new(), heard: Vec::new() };
        for step in &case.steps {
            // Blanks fail by their nature; the names that later steps need are bound all the same.
            let _ = play.step(step);
        }
        let heard = play.heard.into_iter().collect();
        self.restore(before);
        heard
    }

    /// Empties the server, applies the case's settings, and remembers what they and the case itself will change.
    fn prepare(&mut self, case: &Case) -> Result<Vec<(String, String)>, String> {
        self.control.send(&["FLUSHALL"]);
        match self.control.next(PATIENCE) {
            Outcome::Reply(_) => {}
            other => return Err(format!("the server is gone before the case: {other:?}")),
        }
        // Whoever still waited has hung up with the case before; the server may be a moment in noticing.
        let deadline = Instant::now() + PATIENCE;
        while self.blocked_clients() != Some(0) {
            if Instant::now() >= deadline {
                return Err("clients of the case before are still blocked".to_string());
            }
        }
        let ours = self.server.kind == Kind::Millstream;
        let settings: &[(String, String)] = if ours { &case.settings } else { &[] };
        let changed = case
            .steps
            .iter()
            .filter_map(setting_changed)
            .chain(settings.iter().map(|(name, _)| name.clone()));
        let before: Vec<_> = changed.map(|name| (name.clone(), self.setting(&name))).collect();
        for (name, value) in settings {
            if let Value::Error(text) = self.control.call(&["CONFIG", "SET", name, value]) {
                return Err(format!("@set {name} {value}: {}", escape(&text)));
            }
        }
        Ok(before)
    }

    fn setting(&mut self, name: &str) -> String {
        match self.control.call(&["CONFIG", "GET", name]) {
            Value::Array(items) => match items.get(1) {
                Some(Value::Bulk(value)) => String::from_utf8_lossy(value).into_owned(),
                _ => String::new(),
            },
            _ => String::new(),
        }
    }

    fn restore(&mut self, before: Vec<(String, String)>) {
        for (name, value) in before {
            self.control.send(&["CONFIG", "SET", &name, &value]);
            self.control.next(PATIENCE);
        }
    }

    fn blocked_clients(&mut self) -> Option<u64> {
        let Value::Bulk(info) = self.control.call(&["INFO", "clients"]) else { return None };
        let info = String::from_utf8_lossy(&info).into_owned();
        info.lines().find_map(|line| line.strip_prefix("blocked_clients:")?.trim().parse().ok())
    }
}

/// The setting that a step changes with CONFIG SET.
fn setting_changed(step: &Step) -> Option<String> {
    let Action::Call { command, .. } = &step.action else { return None };
    let words: Vec<&str> = command.split(' ').collect();
    let is_set =
        words.len() > 2 && words[0].eq_ignore_ascii_case("config") && words[1].eq_ignore_ascii_case("set");
    is_set.then(|| words[2].to_ascii_lowercase())
}

/// One performance of a case.
struct Play<'a> {
    stage: &'a mut Stage,
    clients: HashMap<String, Client>,
    bindings: Bindings,
    heard: Vec<(usize, Value)>,
}

impl Play<'_> {
    fn step(&mut self, step: &Step) -> Result<(), Failure> {
        let Some((name, first, last)) = &step.each else { return self.act(step) };
        for count in *first..=*last {
            self.bindings.insert(name.clone(), count.to_string());
            self.act(step)?;
        }
        Ok(())
    }

    fn act(&mut self, step: &Step) -> Result<(), Failure> {
        let at = |message: String| Failure { line: step.line, message };
        match &step.action {
            Action::Sleep(ms) => std::thread::sleep(Duration::from_millis(*ms)),
            Action::Close { client } => {
                self.clients.remove(client);
            }
            Action::Raw { client, bytes } => {
                let (bytes, _) = quoted(&substitute(bytes, &self.bindings)).map_err(at)?;
                self.client(client).send_raw(&bytes);
            }
            Action::Call { client, command, expect } => {
                let argv = arguments(&substitute(command, &self.bindings)).map_err(at)?;
                match expect {
                    Some(expect) => {
                        self.client(client).send(&argv);
                        self.hear(client, expect)?;
                    }
                    None => self.block(client, &argv).map_err(at)?,
                }
            }
            Action::Await { client, expect } => self.hear(client, expect)?,
            Action::Until { command, reply } => self.until(command, reply).map_err(at)?,
        }
        Ok(())
    }

    fn client(&mut self, name: &str) -> &mut Client {
        let (server, protocol) = (&self.stage.server, self.stage.protocol);
        self.clients.entry(name.to_string()).or_insert_with(|| {
            let mut client = server.client();
            if protocol == Protocol::Resp3 {
                client.call(&["HELLO", "3"]);
            }
            client
        })
    }

    /// Sends a command that must leave its client waiting, and goes on only when it does.
    fn block(&mut self, client: &str, argv: &[Vec<u8>]) -> Result<(), String> {
        self.client(client);
        let before = self.stage.blocked_clients();
        self.client(client).send(argv);
        let deadline = Instant::now() + self.stage.patience;
        while Instant::now() < deadline {
            if self.stage.blocked_clients() > before {
                return Ok(());
            }
            if self.client(client).has_input() {
                return Err("the command was to block and was answered".to_string());
            }
        }
        Err("INFO does not count the client as blocked".to_string())
    }

    /// Asks until the answer is the one expected.
    fn until(&mut self, command: &str, reply: &str) -> Result<(), String> {
        let argv = arguments(&substitute(command, &self.bindings))?;
        let expected = substitute(reply, &self.bindings);
        let pattern = pattern::parse(&expected)?;
        let deadline = Instant::now() + self.stage.patience;
        loop {
            let answer = self.client("").call(&argv);
            let matched = pattern.matches(&answer, self.stage.protocol, &mut self.bindings);
            if matched || Instant::now() >= deadline {
                return differ(matched, &expected, &pattern::render(&answer));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn hear(&mut self, client: &str, expect: &Expectation) -> Result<(), Failure> {
        let at = |message: String| Failure { line: expect.line, message };
        let expected = substitute(self.variant(expect), &self.bindings);
        if let Some(bytes) = expected.strip_prefix("raw") {
            let (bytes, _) = quoted(bytes).map_err(at)?;
            let patience = self.stage.patience;
            let came = self.client(client).bytes(bytes.len(), patience);
            return differ(bytes == came, &expected, &escape(&came)).map_err(at);
        }
        let within = if expected == "waiting" { SILENCE } else { self.stage.patience };
        let outcome = self.client(client).next(within);
        match (expected.as_str(), outcome) {
            ("waiting", Outcome::Silence) | ("closed", Outcome::Closed) => Ok(()),
            (_, Outcome::Reply(reply)) => {
                self.heard.push((expect.line, reply.value.clone()));
                let is_word = ["waiting", "closed", "?"].contains(&expected.as_str());
                let matched = !is_word && {
                    let pattern = pattern::parse(&expected).map_err(at)?;
                    pattern.matches(&reply.value, self.stage.protocol, &mut self.bindings)
                };
                differ(matched, &expected, &pattern::render(&reply.value)).map_err(at)?;
                self.check_variant(expect, &reply.value).map_err(at)
            }
            (_, other) => differ(false, &expected, &format!("{other:?}")).map_err(at),
        }
    }

    /// Refuses a reply of this server's own that Millstream gives too: the case needs no such line.
    fn check_variant(&mut self, expect: &Expectation, reply: &Value) -> Result<(), String> {
        if self.own_reply(expect).is_none() {
            return Ok(());
        }
        let ours = substitute(self.reply_of_millstream(expect), &self.bindings);
        let is_same = pattern::parse(&ours)?.matches(reply, self.stage.protocol, &mut self.bindings.clone());
        let problem = format!("\n  {} needs no reply of its own: it gives ours", self.stage.title());
        if is_same { Err(problem) } else { Ok(()) }
    }

    /// What this server, in this protocol, should answer.
    fn variant<'e>(&self, expect: &'e Expectation) -> &'e str {
        self.own_reply(expect).unwrap_or_else(|| self.reply_of_millstream(expect))
    }

    /// What a real server answers instead of what Millstream answers.
    fn own_reply<'e>(&self, expect: &'e Expectation) -> Option<&'e str> {
        self.stage.peer().and_then(|peer| expect.of_peer(peer))
    }

    fn reply_of_millstream<'e>(&self, expect: &'e Expectation) -> &'e str {
        let special = match self.stage.protocol {
            Protocol::Resp2 => &expect.resp2,
            Protocol::Resp3 => &expect.resp3,
        };
        special.as_ref().unwrap_or(&expect.always)
    }
}

fn differ(same: bool, expected: &str, actual: &str) -> Result<(), String> {
    if same { Ok(()) } else { Err(format!("\n  expected  {expected}\n  actual    {actual}")) }
}
