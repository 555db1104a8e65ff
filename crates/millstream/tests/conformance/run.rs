//! Runs a case on a server: acts as its clients, and compares every reply with the expected one.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use super::case::{Action, Case, Expectation, Step};
use super::pattern::{self, Protocol};
use super::text::{Bindings, arguments, quoted, substitute};
use crate::support::peers::Peer;
use crate::support::process::{Server, ServerKind};
use crate::support::resp::{Value, escape};
use crate::support::wire::{Client, Outcome};

/// `waiting` passes if no reply arrives for this long.
const NO_REPLY: Duration = Duration::from_millis(30);
/// Default time limit of a reply.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The first difference found in a case.
pub(crate) struct Failure {
    /// Line number of the expectation.
    pub line: usize,
    /// The difference.
    pub message: String,
}

/// Runs cases on one server. Has a control connection that the cases do not see.
pub(crate) struct Runner {
    server: Server,
    control: Client,
    protocol: Protocol,
    /// Time limit of a reply. Longer than every timeout that a case waits for.
    pub reply_timeout: Duration,
}

impl Runner {
    /// Takes over a newly started server.
    pub(crate) fn new(server: Server, protocol: Protocol) -> Runner {
        let control = server.client();
        Runner { server, control, protocol, reply_timeout: TIMEOUT }
    }

    /// Whether the case applies to this server and protocol.
    pub(crate) fn runs(&self, case: &Case) -> bool {
        let number = if self.protocol == Protocol::Resp2 { 2 } else { 3 };
        case.resp.is_none_or(|resp| resp == number) && self.peer().is_none_or(|peer| case.runs_on(peer))
    }

    /// Name of the server for messages.
    pub(crate) fn title(&self) -> &'static str {
        self.peer().map_or("Millstream", |peer| peer.title)
    }

    /// The real server, or `None` for Millstream.
    fn peer(&self) -> Option<&'static Peer> {
        match self.server.kind {
            ServerKind::Peer(peer) => Some(peer),
            ServerKind::Millstream => None,
        }
    }

    /// Runs the case on the emptied server, and restores the settings afterwards.
    pub(crate) fn run(&mut self, case: &Case) -> Result<(), Failure> {
        let before = self.prepare(case).map_err(|message| Failure { line: case.line, message })?;
        let mut run =
            CaseRun { runner: self, clients: HashMap::new(), bindings: Bindings::new(), replies: Vec::new() };
        let result = case.steps.iter().try_for_each(|step| run.step(step));
        drop(run);
        self.restore(before);
        self.remove_users(case);
        result
    }

    /// Runs the case and returns the replies by line number of the expectation.
    pub(crate) fn record(&mut self, case: &Case) -> BTreeMap<usize, Value> {
        let before = self.prepare(case).unwrap_or_else(|problem| panic!("line {}: {problem}", case.line));
        let mut run =
            CaseRun { runner: self, clients: HashMap::new(), bindings: Bindings::new(), replies: Vec::new() };
        for step in &case.steps {
            // Blank replies never match. A failed step still binds the names that later steps need.
            let _ = run.step(step);
        }
        let replies = run.replies.into_iter().collect();
        self.restore(before);
        self.remove_users(case);
        replies
    }

    /// Empties the server and applies the case's settings. Returns the old values of all settings that the case
    /// changes.
    fn prepare(&mut self, case: &Case) -> Result<Vec<(String, String)>, String> {
        self.control.send(&["FLUSHALL"]);
        match self.control.next(TIMEOUT) {
            Outcome::Reply(_) => {}
            other => return Err(format!("the server did not reply before the case: {other:?}")),
        }
        // Blocked clients of the previous case have disconnected, but the server may take a moment to notice.
        let deadline = Instant::now() + TIMEOUT;
        while self.blocked_clients() != Some(0) {
            if Instant::now() >= deadline {
                return Err("clients of the previous case are still blocked".to_string());
            }
        }
        let ours = self.server.kind == ServerKind::Millstream;
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
            self.control.next(TIMEOUT);
        }
    }

    /// Removes the users that the case created.
    fn remove_users(&mut self, case: &Case) {
        for name in case.steps.iter().filter_map(user_changed) {
            self.control.send(&["ACL", "DELUSER", &name]);
            self.control.next(TIMEOUT);
        }
    }

    fn blocked_clients(&mut self) -> Option<u64> {
        let Value::Bulk(info) = self.control.call(&["INFO", "clients"]) else { return None };
        let info = String::from_utf8_lossy(&info).into_owned();
        info.lines().find_map(|line| line.strip_prefix("blocked_clients:")?.trim().parse().ok())
    }
}

/// Returns the setting that a step changes with CONFIG SET.
fn setting_changed(step: &Step) -> Option<String> {
    argument_of(step, "config", "set").map(|name| name.to_ascii_lowercase())
}

/// Returns the user that a step changes with ACL SETUSER.
fn user_changed(step: &Step) -> Option<String> {
    argument_of(step, "acl", "setuser")
}

/// Returns the first argument of this subcommand, if the step calls it.
fn argument_of(step: &Step, command: &str, subcommand: &str) -> Option<String> {
    let Action::Call { command: line, .. } = &step.action else { return None };
    let words: Vec<&str> = line.split(' ').collect();
    let is_call = words.len() > 2
        && words[0].eq_ignore_ascii_case(command)
        && words[1].eq_ignore_ascii_case(subcommand);
    is_call.then(|| words[2].to_owned())
}

/// One run of a case.
struct CaseRun<'a> {
    runner: &'a mut Runner,
    clients: HashMap<String, Client>,
    bindings: Bindings,
    replies: Vec<(usize, Value)>,
}

impl CaseRun<'_> {
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
                        self.check_reply(client, expect)?;
                    }
                    None => self.block(client, &argv).map_err(at)?,
                }
            }
            Action::Await { client, expect } => self.check_reply(client, expect)?,
            Action::Until { command, reply } => self.until(command, reply).map_err(at)?,
        }
        Ok(())
    }

    fn client(&mut self, name: &str) -> &mut Client {
        let (server, protocol) = (&self.runner.server, self.runner.protocol);
        self.clients.entry(name.to_string()).or_insert_with(|| {
            let mut client = server.client();
            if protocol == Protocol::Resp3 {
                client.call(&["HELLO", "3"]);
            }
            client
        })
    }

    /// Sends a command that must block, and returns when the server counts the client as blocked.
    fn block(&mut self, client: &str, argv: &[Vec<u8>]) -> Result<(), String> {
        self.client(client);
        let before = self.runner.blocked_clients();
        self.client(client).send(argv);
        let deadline = Instant::now() + self.runner.reply_timeout;
        while Instant::now() < deadline {
            if self.runner.blocked_clients() > before {
                return Ok(());
            }
            if self.client(client).has_input() {
                return Err("the command did not block".to_string());
            }
        }
        Err("INFO does not count the client as blocked".to_string())
    }

    /// Repeats a command until its reply is the expected one.
    fn until(&mut self, command: &str, reply: &str) -> Result<(), String> {
        let argv = arguments(&substitute(command, &self.bindings))?;
        let expected = substitute(reply, &self.bindings);
        let pattern = pattern::parse(&expected)?;
        let deadline = Instant::now() + self.runner.reply_timeout;
        loop {
            let answer = self.client("").call(&argv);
            let matched = pattern.matches(&answer, self.runner.protocol, &mut self.bindings);
            if matched || Instant::now() >= deadline {
                return differ(matched, &expected, &pattern::render(&answer));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn check_reply(&mut self, client: &str, expect: &Expectation) -> Result<(), Failure> {
        let at = |message: String| Failure { line: expect.line, message };
        let expected = substitute(self.variant(expect), &self.bindings);
        if let Some(bytes) = expected.strip_prefix("raw") {
            let (bytes, _) = quoted(bytes).map_err(at)?;
            let reply_timeout = self.runner.reply_timeout;
            let received = self.client(client).bytes(bytes.len(), reply_timeout);
            return differ(bytes == received, &expected, &escape(&received)).map_err(at);
        }
        let within = if expected == "waiting" { NO_REPLY } else { self.runner.reply_timeout };
        let outcome = self.client(client).next(within);
        match (expected.as_str(), outcome) {
            ("waiting", Outcome::TimedOut) | ("closed", Outcome::Closed) => Ok(()),
            (_, Outcome::Reply(reply)) => {
                self.replies.push((expect.line, reply.value.clone()));
                let is_word = ["waiting", "closed", "?"].contains(&expected.as_str());
                let matched = !is_word && {
                    let pattern = pattern::parse(&expected).map_err(at)?;
                    pattern.matches(&reply.value, self.runner.protocol, &mut self.bindings)
                };
                differ(matched, &expected, &pattern::render(&reply.value)).map_err(at)?;
                self.check_variant(expect, &reply.value).map_err(at)
            }
            (_, other) => differ(false, &expected, &format!("{other:?}")).map_err(at),
        }
    }

    /// Rejects a line with this server's own reply if Millstream gives the same reply: the line is not needed.
    fn check_variant(&mut self, expect: &Expectation, reply: &Value) -> Result<(), String> {
        if self.own_reply(expect).is_none() {
            return Ok(());
        }
        let ours = substitute(self.reply_of_millstream(expect), &self.bindings);
        let is_same = pattern::parse(&ours)?.matches(reply, self.runner.protocol, &mut self.bindings.clone());
        let problem = format!("\n  {} gives Millstream's reply; remove its own line", self.runner.title());
        if is_same { Err(problem) } else { Ok(()) }
    }

    /// Returns the expected reply of this server in this protocol.
    fn variant<'e>(&self, expect: &'e Expectation) -> &'e str {
        self.own_reply(expect).unwrap_or_else(|| self.reply_of_millstream(expect))
    }

    /// Returns the reply of a real server if it differs from Millstream's.
    fn own_reply<'e>(&self, expect: &'e Expectation) -> Option<&'e str> {
        self.runner.peer().and_then(|peer| expect.of_peer(peer))
    }

    fn reply_of_millstream<'e>(&self, expect: &'e Expectation) -> &'e str {
        let special = match self.runner.protocol {
            Protocol::Resp2 => &expect.resp2,
            Protocol::Resp3 => &expect.resp3,
        };
        special.as_ref().unwrap_or(&expect.always)
    }
}

fn differ(same: bool, expected: &str, actual: &str) -> Result<(), String> {
    if same { Ok(()) } else { Err(format!("\n  expected  {expected}\n  actual    {actual}")) }
}
