//! Plays a sequence on a server: connections of its own, pipelined as the sequence says.

use crate::script::{Argv, Script};
use crate::support::process::{Kind, Server};
use crate::support::wire::{Client, Outcome, PATIENCE, Reply};

/// What a server answered to one command.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    /// The connection.
    pub connection: usize,
    /// What was sent.
    pub command: Argv,
    /// What came; `None` when the connection closed or fell silent.
    pub reply: Option<Reply>,
}

/// Settings every sequence begins with. The last one only Millstream knows.
const SETTINGS: [(&str, &str); 3] =
    [("stream-node-max-entries", "100"), ("stream-node-max-bytes", "4096"), ("exact-lag", "no")];

/// A server, emptied before each sequence, and started again after one that killed it.
pub(crate) struct Stage {
    kind: Kind,
    server: Server,
    control: Client,
}

impl Stage {
    /// A server of this kind.
    pub(crate) fn new(kind: Kind) -> Stage {
        let server = start(kind);
        let control = server.client();
        Stage { kind, server, control }
    }

    /// Changes a setting for one sequence: a difference on purpose.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.control.call(&["CONFIG", "SET", name, value]);
    }

    /// Settings back to the beginning; keys are gone since the last sequence ended.
    pub(crate) fn reset(&mut self) {
        for (name, value) in SETTINGS {
            self.set(name, value);
        }
    }

    /// Whether the server lived through the last sequence, and through freeing what it left behind. Where not, a new
    /// one takes its place.
    pub(crate) fn survived(&mut self) -> bool {
        self.control.send(&["FLUSHALL"]);
        let alive = matches!(self.control.next(PATIENCE), Outcome::Reply(_));
        if !alive {
            self.server = start(self.kind);
            self.control = self.server.client();
        }
        alive
    }

    /// All that the server answers to the sequence.
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
        match client.next(PATIENCE) {
            Outcome::Reply(reply) => exchange.reply = Some(reply),
            Outcome::Silence | Outcome::Closed => break,
        }
    }
    *awaited = 0;
}

fn start(kind: Kind) -> Server {
    match kind {
        Kind::Millstream => Server::millstream(&[]),
        Kind::Peer(peer) => Server::peer(peer),
    }
}
