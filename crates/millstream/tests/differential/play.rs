//! Runs a sequence on a server, on two new connections, with the pipelining that the sequence defines.

use crate::script::{Argv, Script};
use crate::support::process::{Server, ServerKind};
use crate::support::wire::{Client, Outcome, Reply, TIMEOUT};

/// A command and its reply.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    /// Number of the connection.
    pub connection: usize,
    /// The command.
    pub command: Argv,
    /// The reply. `None` if the connection was closed or the reply did not arrive in time.
    pub reply: Option<Reply>,
}

/// Settings at the start of every sequence. Only Millstream has the last one.
const SETTINGS: [(&str, &str); 3] =
    [("stream-node-max-entries", "100"), ("stream-node-max-bytes", "4096"), ("exact-lag", "no")];

/// A server that is emptied after each sequence, and restarted if a sequence crashed it.
pub(crate) struct Target {
    kind: ServerKind,
    server: Server,
    control: Client,
}

impl Target {
    /// Starts a server of this kind.
    pub(crate) fn new(kind: ServerKind) -> Target {
        let server = start(kind);
        let control = server.client();
        Target { kind, server, control }
    }

    /// Changes a setting until the next reset.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.control.call(&["CONFIG", "SET", name, value]);
    }

    /// Restores the settings.
    pub(crate) fn reset(&mut self) {
        for (name, value) in SETTINGS {
            self.set(name, value);
        }
    }

    /// Empties the server, and returns whether it survived the last sequence and FLUSHALL. If not, starts a new one.
    pub(crate) fn survived(&mut self) -> bool {
        self.control.send(&["FLUSHALL"]);
        let alive = matches!(self.control.next(TIMEOUT), Outcome::Reply(_));
        if !alive {
            self.server = start(self.kind);
            self.control = self.server.client();
        }
        alive
    }

    /// Runs the sequence and returns all commands with their replies.
    pub(crate) fn play(&mut self, script: &Script) -> Vec<Exchange> {
        let mut connections: Vec<Client> = (0..2).map(|_| self.connect(script.resp3)).collect();
        let mut exchanges = Vec::new();
        let mut awaited = 0;
        let mut current = 0;
        for step in &script.steps {
            if step.connection != current {
                collect(&mut connections[current], &mut exchanges, &mut awaited);
                current = step.connection;
            }
            for command in &step.commands {
                connections[current].send(command);
                exchanges.push(Exchange { connection: current, command: command.clone(), reply: None });
                awaited += 1;
            }
            if step.flush {
                collect(&mut connections[current], &mut exchanges, &mut awaited);
            }
        }
        collect(&mut connections[current], &mut exchanges, &mut awaited);
        exchanges
    }

    fn connect(&self, resp3: bool) -> Client {
        let mut client = self.server.client();
        if resp3 {
            client.call(&["HELLO", "3"]);
        }
        client
    }
}

/// Reads the replies of the last `awaited` commands.
fn collect(client: &mut Client, exchanges: &mut [Exchange], awaited: &mut usize) {
    let begin = exchanges.len() - *awaited;
    for exchange in &mut exchanges[begin..] {
        match client.next(TIMEOUT) {
            Outcome::Reply(reply) => exchange.reply = Some(reply),
            Outcome::TimedOut | Outcome::Closed => break,
        }
    }
    *awaited = 0;
}

fn start(kind: ServerKind) -> Server {
    match kind {
        ServerKind::Millstream => Server::millstream(&[]),
        ServerKind::Peer(peer) => Server::peer(peer),
    }
}
