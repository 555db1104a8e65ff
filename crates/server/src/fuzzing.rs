//! What the fuzzer calls: a server without sockets that runs generated requests. Compiled only for tests and
//! with `--cfg fuzzing`.

use std::sync::{Arc, LazyLock};

use millstream_protocol::resp::Writer;
use millstream_store::Store;

use crate::acl::{Catalog, Users, normalized_line};
use crate::blocked::BlockedClient;
use crate::command::{Batch, CommandContext, CommandSpec, Group, LongReply, Run};
use crate::dispatch::AfterRequest;
use crate::registry::{ConnectionInfo, Transport};
use crate::session::Session;
use crate::settings::{Id, Settings};
use crate::state::Server;
use crate::table::generate::request;
use crate::table::{COMMANDS, catalog, find};

pub use crate::table::generate::Choices;

/// Commands that wait for another thread, sleep, or delay all clients.
const NOT_DISPATCHED: [&str; 10] = [
    "acl|save",
    "bgrewriteaof",
    "bgsave",
    "client|pause",
    "debug",
    "save",
    "shutdown",
    "wait",
    "waitaof",
    "client|kill",
];

/// Parses a line `user NAME rule…` of an ACL file and returns it as ACL SAVE would write it. Returns `None` if it is
/// invalid.
pub fn acl_line(line: &[u8]) -> Option<Vec<u8>> {
    static CATALOG: LazyLock<Catalog> = LazyLock::new(catalog);
    normalized_line(line, &CATALOG)
}

static OF_STREAMS: LazyLock<Vec<&CommandSpec>> =
    LazyLock::new(|| COMMANDS.iter().filter(|spec| spec.group == Group::Stream).collect());

static OF_DATA: LazyLock<Vec<&CommandSpec>> =
    LazyLock::new(|| COMMANDS.iter().filter(|spec| matches!(spec.run, Run::Data(_))).collect());

/// A server with a few clients, without sockets.
pub struct CommandRunner {
    server: Arc<Server>,
    clients: Vec<(Session, Option<Box<BlockedClient>>)>,
}

impl CommandRunner {
    /// Creates a server on this store, with this many clients.
    pub fn new(store: Arc<Store>, clients: usize) -> CommandRunner {
        static DEFAULTS: LazyLock<Settings> = LazyLock::new(Settings::new);
        let settings = DEFAULTS.copied();
        settings.set(Id::IoThreads, "1").expect("a server can have one thread");
        let users = Users::open(catalog(), "", "").expect("there is no file");
        let server = Arc::new(Server::new(settings, Vec::new(), None, store, users, COMMANDS.len()));
        let connect = |_| {
            let (addr, laddr) = (String::from("127.0.0.1:1"), String::from("127.0.0.1:2"));
            let info = ConnectionInfo { addr, laddr, fd: 0, transport: Transport::Tcp };
            let client = server.clients.add(info, 0, 16, false).expect("the limit is higher");
            (Session::new(client, &server), None)
        };
        CommandRunner { clients: (0..clients).map(connect).collect(), server }
    }

    /// Generates a request. Half of them are commands on streams, a quarter are commands on data of any type.
    pub fn request(choices: &mut Choices<'_>) -> Vec<Vec<u8>> {
        let spec: &CommandSpec = match choices.below(4) {
            0 | 1 => choices.pick::<&CommandSpec>(&OF_STREAMS),
            2 => choices.pick::<&CommandSpec>(&OF_DATA),
            _ => choices.pick(&COMMANDS),
        };
        if NOT_DISPATCHED.contains(&spec.name) { vec![b"PING".to_vec()] } else { request(choices, spec) }
    }

    /// Runs requests of one client as one batch. Returns the replies.
    ///
    /// If the client is blocked, its blocking command ends first. If a request blocks, the rest is not run.
    pub fn run(&mut self, client: usize, requests: &[Vec<Vec<u8>>]) -> Vec<u8> {
        let (session, blocked) = &mut self.clients[client];
        *blocked = None;
        let mut out = Writer::new(session.resp3);
        let mut batch = Batch::begin(&self.server);
        let mut open = None;
        let mut context = CommandContext {
            server: &self.server,
            stats: self.server.stats.of_thread(0),
            session,
            batch: &mut batch,
            commands: &COMMANDS,
            is_short: false,
            in_exec: false,
        };
        for request in requests {
            let argv: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
            if find(&argv).is_ok_and(|spec| NOT_DISPATCHED.contains(&spec.name)) {
                continue;
            }
            match context.run(&argv, &mut out, &mut open) {
                AfterRequest::Continue => {}
                AfterRequest::SendLongReply(rest) => {
                    let rest: LongReply = *rest;
                    rest.write_all(&mut out);
                }
                AfterRequest::Block(waiting) => {
                    *blocked = Some(waiting);
                    break;
                }
                AfterRequest::Pause { .. } => unreachable!("CLIENT PAUSE is not run"),
            }
        }
        drop(open);
        out.buf
    }
}
