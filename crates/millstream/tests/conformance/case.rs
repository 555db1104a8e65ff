//! Parser for the text format of conformance cases. `conformance/README.md` explains the format with examples.
//!
//! ```text
//! @since 8.2 why             above the first case: applies to every case without a @since of its own
//! # name                     begins a case, on an empty server with default settings
//! @since 7.2 why             older servers skip this case
//! @not valkey-9.1 why        this server skips the case; names are those of `support/peers.rs`
//! @also valkey-9.1 why       this server runs the case although its version is older
//! @differs why               Millstream differs on purpose: only Millstream runs the case
//! @resp 2                    only in this protocol
//! @set exact-lag no          a setting that only Millstream has, for this case
//! > XADD s 1-1 a b           a command of the main client …
//! "1-1"                      … and its expected reply (see `pattern`), over several lines while brackets are open
//! resp3: …                   the reply in RESP3, if one notation does not fit both protocols
//! before 7.2: …              the reply of an older Redis; several such lines may follow each other
//! valkey-9.1: …              the reply of this server
//! c2> XREAD BLOCK 0 …        a command of another client; without a reply it must block
//! c2< streams{…}             waits for its reply; also `waiting`, `closed`, `raw"bytes"`
//! >> "PING\r\n"              sends raw bytes
//! c2 closes                  disconnects the client
//! @sleep 20                  milliseconds
//! @until DBSIZE | 1          repeats the main client's command until this is the reply
//! @each i 1..50              runs the next command fifty times; {i} is the counter
//! // remark
//! ```

use std::path::{Path, PathBuf};

use crate::support::peers::{PEERS, Peer};

/// A version of Redis, major and minor.
pub(crate) type Version = (u32, u32);

/// One file of cases.
pub(crate) struct CaseFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Its cases, in order.
    pub cases: Vec<Case>,
}

/// One case: a conversation that begins on an empty server.
#[derive(Clone, Default)]
pub(crate) struct Case {
    /// The behaviour that it tests, as a sentence.
    pub name: String,
    /// Line number of its name.
    pub line: usize,
    /// First version of Redis that replies this way, and the feature or change of that version.
    pub since: Option<(Version, String)>,
    /// Exceptions to the version rule: the server, whether it runs the case, and why.
    pub exceptions: Vec<(&'static Peer, bool, String)>,
    /// Why Millstream differs on purpose.
    pub differs: Option<String>,
    /// The only protocol to run it in, 2 or 3.
    pub resp: Option<u32>,
    /// Settings that only Millstream has.
    pub settings: Vec<(String, String)>,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

impl Case {
    /// Whether this server runs the case.
    pub(crate) fn runs_on(&self, peer: &Peer) -> bool {
        let is_old = self.since.as_ref().is_some_and(|(since, _)| peer.redis_version < *since);
        let exception = self.exceptions.iter().find(|(other, ..)| *other == peer);
        exception.map_or(!is_old, |(_, runs, _)| *runs) && self.differs.is_none()
    }

    /// Whether this server gives every reply that Millstream gives.
    pub(crate) fn is_confirmed_by(&self, peer: &Peer) -> bool {
        self.runs_on(peer) && self.expectations().all(|expect| expect.of_peer(peer).is_none())
    }

    /// The expected replies, in order.
    pub(crate) fn expectations(&self) -> impl Iterator<Item = &Expectation> {
        self.steps.iter().filter_map(|step| match &step.action {
            Action::Call { expect, .. } => expect.as_ref(),
            Action::Await { expect, .. } => Some(expect),
            _ => None,
        })
    }
}

/// One step of a case.
#[derive(Clone)]
pub(crate) struct Step {
    /// Line number.
    pub line: usize,
    /// Name, first value and last value of a counter.
    pub each: Option<(String, u64, u64)>,
    /// The action to perform.
    pub action: Action,
}

/// Action of a step. Texts are templates: `{…}` is replaced when the step runs.
#[derive(Clone)]
pub(crate) enum Action {
    /// Sends a command. With an expectation, waits for the reply.
    Call { client: String, command: String, expect: Option<Expectation> },
    /// Sends raw bytes.
    Raw { client: String, bytes: String },
    /// Waits for a reply to an earlier command.
    Await { client: String, expect: Expectation },
    /// Disconnects.
    Close { client: String },
    /// Waits this many milliseconds.
    Sleep(u64),
    /// Repeats a command of the main client until this is the reply.
    Until { command: String, reply: String },
}

/// The expected reply, with its variants.
#[derive(Clone, Default)]
pub(crate) struct Expectation {
    /// Line number.
    pub line: usize,
    /// The reply unless a variant applies.
    pub always: String,
    /// The reply in RESP2, if it differs.
    pub resp2: Option<String>,
    /// The reply in RESP3, if it differs.
    pub resp3: Option<String>,
    /// Replies of a Redis older than the version, the oldest version first.
    pub before: Vec<(Version, String)>,
    /// Replies of single servers.
    pub of_peers: Vec<(&'static Peer, String)>,
}

impl Expectation {
    /// Returns the reply of this server if it differs from Millstream's.
    pub(crate) fn of_peer(&self, peer: &Peer) -> Option<&str> {
        let own = self.of_peers.iter().find(|(other, _)| *other == peer).map(|(_, reply)| reply);
        let older = self.before.iter().find(|(version, _)| peer.redis_version < *version);
        own.or(older.map(|(_, reply)| reply)).map(String::as_str)
    }
}

/// Reads every `.txt` file of the folder, sorted by name.
///
/// # Panics
/// If a file does not follow the format. The message names file and line.
pub(crate) fn read_all(folder: &Path) -> Vec<CaseFile> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    paths.sort();
    paths.into_iter().map(read).collect()
}

fn read(path: PathBuf) -> CaseFile {
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    match parse(&text) {
        Ok(cases) => CaseFile { path, cases },
        Err((line, problem)) => panic!("{}:{line}: {problem}", path.display()),
    }
}

/// A line number and what is wrong with it.
type Problem = (usize, String);

/// Parses the cases of one text.
pub(crate) fn parse(text: &str) -> Result<Vec<Case>, Problem> {
    let mut reader = Reader::default();
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim_end()));
    while let Some((number, line)) = lines.next() {
        let mut whole = line.to_string();
        while depth(&whole) > 0 {
            let (_, more) = lines.next().ok_or((number, "a bracket is never closed".to_string()))?;
            whole.push(' ');
            whole.push_str(more.trim());
        }
        reader.line(number, &whole).map_err(|problem| (number, problem))?;
    }
    Ok(reader.cases)
}

/// Number of brackets that an expectation leaves open. Commands and remarks never continue on the next line.
fn depth(line: &str) -> usize {
    if line.starts_with(['#', '@', '/']) || command_of(line).is_some() {
        return 0;
    }
    let (mut depth, mut in_quotes, mut escaped) = (0usize, false, false);
    for character in line.chars() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => in_quotes = !in_quotes,
            '[' | '{' | '(' if !in_quotes => depth += 1,
            ']' | '}' | ')' if !in_quotes => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    // The text of an error can contain any bracket and ends with its line.
    let is_error =
        line.starts_with('-') || line.split_once(": -").is_some() || line.split_once("< -").is_some();
    if is_error { 0 } else { depth }
}

#[derive(Default)]
struct Reader {
    /// Defaults of every case, from directives above the first case.
    defaults: Case,
    cases: Vec<Case>,
    each: Option<(String, u64, u64)>,
}

impl Reader {
    fn line(&mut self, number: usize, line: &str) -> Result<(), String> {
        if line.is_empty() || line.starts_with("//") {
            return Ok(());
        }
        if let Some(name) = line.strip_prefix("# ") {
            self.cases.push(Case { name: name.to_string(), line: number, ..self.defaults.clone() });
            return Ok(());
        }
        if let Some(directive) = line.strip_prefix('@') {
            return self.directive(number, directive);
        }
        if let Some(client) = line.strip_suffix(" closes") {
            return self.step(number, Action::Close { client: client.to_string() });
        }
        if let Some((client, bytes)) = split_client(line, ">>") {
            return self.step(number, Action::Raw { client, bytes });
        }
        if let Some((client, command)) = command_of(line) {
            return self.step(number, Action::Call { client, command, expect: None });
        }
        if let Some((client, reply)) = split_client(line, "<") {
            let expect = Expectation { line: number, always: reply, ..Expectation::default() };
            return self.step(number, Action::Await { client, expect });
        }
        self.expectation(number, line)
    }

    fn directive(&mut self, number: usize, directive: &str) -> Result<(), String> {
        let (word, rest) = directive.split_once(' ').ok_or("a directive needs a value")?;
        match word {
            "sleep" => {
                return self.step(number, Action::Sleep(rest.parse().map_err(|_| "milliseconds expected")?));
            }
            "until" => {
                let (command, reply) = rest.split_once(" | ").ok_or("@until command | reply")?;
                let action = Action::Until { command: command.to_string(), reply: reply.to_string() };
                return self.step(number, action);
            }
            "each" => {
                let (name, range) = rest.split_once(' ').ok_or("@each name first..last")?;
                let (first, last) = range.split_once("..").ok_or("@each name first..last")?;
                let bounds = first.parse().ok().zip(last.parse().ok());
                let (first, last) = bounds.ok_or("@each needs two numbers")?;
                self.each = Some((name.to_string(), first, last));
                return Ok(());
            }
            _ => {}
        }
        let case = self.cases.last_mut().unwrap_or(&mut self.defaults);
        match word {
            "since" => {
                let (since, why) = rest.split_once(' ').ok_or("@since version why")?;
                case.since = Some((version(since)?, why.to_string()));
            }
            "not" | "also" => {
                let (name, why) = rest.split_once(' ').ok_or("@not server why")?;
                let peer = peer(name).ok_or_else(|| format!("unknown server {name}"))?;
                case.exceptions.push((peer, word == "also", why.to_string()));
            }
            "differs" => case.differs = Some(rest.to_string()),
            "resp" => case.resp = Some(rest.parse().map_err(|_| "@resp 2 or @resp 3")?),
            "set" => {
                let (name, value) = rest.split_once(' ').ok_or("@set name value")?;
                case.settings.push((name.to_string(), value.to_string()));
            }
            other => return Err(format!("unknown directive @{other}")),
        }
        Ok(())
    }

    fn step(&mut self, line: usize, action: Action) -> Result<(), String> {
        let each = self.each.take();
        let case = self.cases.last_mut().ok_or("a step before the first case")?;
        case.steps.push(Step { line, each, action });
        Ok(())
    }

    fn expectation(&mut self, number: usize, line: &str) -> Result<(), String> {
        let step = self.cases.last_mut().and_then(|case| case.steps.last_mut());
        let expect = match step.map(|step| &mut step.action) {
            Some(Action::Call { expect, .. }) => expect.get_or_insert_with(Expectation::default),
            Some(Action::Await { expect, .. }) => expect,
            _ => return Err(format!("no command before the reply: {line}")),
        };
        if expect.line == 0 {
            expect.line = number;
        }
        if let Some(reply) = line.strip_prefix("resp2: ") {
            expect.resp2 = Some(reply.to_string());
        } else if let Some(reply) = line.strip_prefix("resp3: ") {
            expect.resp3 = Some(reply.to_string());
        } else if let Some((before, reply)) =
            line.strip_prefix("before ").and_then(|rest| rest.split_once(": "))
        {
            let before = version(before)?;
            if expect.before.last().is_some_and(|(older, _)| *older >= before) {
                return Err("the oldest version comes first".to_string());
            }
            expect.before.push((before, reply.to_string()));
        } else if let Some((peer, reply)) =
            line.split_once(": ").and_then(|(name, reply)| Some((peer(name)?, reply)))
        {
            expect.of_peers.push((peer, reply.to_string()));
        } else if expect.always.is_empty() {
            expect.always = line.to_string();
        } else {
            return Err(format!("a second reply to one command: {line}"));
        }
        Ok(())
    }
}

/// Splits a line `> …` or `name> …` into the client and the command.
fn command_of(line: &str) -> Option<(String, String)> {
    split_client(line, ">")
}

fn split_client(line: &str, arrow: &str) -> Option<(String, String)> {
    let (client, rest) = line.split_once(arrow)?;
    let is_name = client.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let rest = if rest.is_empty() { Some("") } else { rest.strip_prefix(' ') };
    (is_name && client.len() < 8).then_some(())?;
    Some((client.to_string(), rest?.to_string()))
}

fn peer(name: &str) -> Option<&'static Peer> {
    PEERS.into_iter().find(|peer| peer.name == name)
}

fn version(text: &str) -> Result<Version, String> {
    let parts =
        text.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    parts.ok_or_else(|| format!("invalid version: {text}"))
}
