//! Resident memory per client, for clients that are idle, blocked or hostile, and how many of them stay connected.
//!
//! Each figure comes from a fresh server.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use crate::Failure;
use crate::hostile::{connect, connect_and_log_in};
use crate::options::Options;
use crate::server::{Server, Setup};
use crate::table::{Compare, Layout, Sample, Table, column};
use crate::topics::{Case, Group, Repetitions, settled};
use crate::wire::encoded as command;

pub(crate) static TABLE: Table = Table {
    topic: "attacks",
    heading: "Memory per client",
    intro: "Growth of the server's resident memory, as the system reports it, divided by the number of clients \
            that caused it, and how many of these clients are still connected then. Each figure is measured \
            once, on a fresh server with persistence off and a password. The buffers of sockets in the kernel \
            do not count. \"Replies not read\": the clients send 1,000 times GET of a value of 10,000 bytes \
            and read nothing. \"Not logged in\": they send 20,000 PINGs without logging in and read nothing. \
            A server that closes such a client needs no memory for it.",
    layout: Layout::ByPeer,
    columns: &[
        column("bytes", "bytes, B", Compare::Less),
        column("clients", "clients", Compare::No),
        column("connected", "still connected", Compare::No),
    ],
};

/// One row: clients of one kind.
struct Kind {
    name: &'static str,
    title: &'static str,
    /// Number of clients: in a full run, and with `--quick`.
    count: (usize, usize),
    logs_in: bool,
    /// Returns what the client with this number sends.
    request: fn(usize) -> Vec<u8>,
    is_blocked: bool,
}

/// A client gives up sending if the server reads nothing for this time.
const SEND_WITHIN: Duration = Duration::from_millis(10);
const VALUE: &str = "value";
const STREAM: &str = "stream";
const GROUP: &str = "group";

const KINDS: &[Kind] = &[
    Kind {
        name: "memory-idle",
        title: "idle, logged in, has sent PING",
        count: (8_000, 200),
        logs_in: true,
        request: |_| command(&["PING"]),
        is_blocked: false,
    },
    Kind {
        name: "memory-blocked",
        title: "blocked in XREADGROUP",
        count: (8_000, 200),
        logs_in: true,
        request: |_| {
            command(&["XREADGROUP", "GROUP", GROUP, "consumer", "BLOCK", "0", "STREAMS", STREAM, ">"])
        },
        is_blocked: true,
    },
    Kind {
        name: "memory-blocked-keys",
        title: "blocked in XREAD on 1,000 keys of its own",
        count: (100, 5),
        logs_in: true,
        request: |client| read_blocking(client, 1_000),
        is_blocked: true,
    },
    Kind {
        name: "memory-half",
        title: "half a request sent",
        count: (2_000, 50),
        logs_in: true,
        request: |_| b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$100\r\nhalf".to_vec(),
        is_blocked: false,
    },
    Kind {
        name: "memory-announced",
        title: "10 MiB announced, 100 bytes sent",
        count: (2_000, 50),
        logs_in: true,
        request: |_| [b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$10485760\r\n".to_vec(), vec![b'x'; 100]].concat(),
        is_blocked: false,
    },
    Kind {
        name: "memory-unread",
        title: "replies not read",
        count: (100, 5),
        logs_in: true,
        request: |_| command(&["GET", VALUE]).repeat(1_000),
        is_blocked: false,
    },
    Kind {
        name: "memory-stranger",
        title: "not logged in, has sent PING",
        count: (2_000, 50),
        logs_in: false,
        request: |_| command(&["PING"]),
        is_blocked: false,
    },
    Kind {
        name: "memory-stranger-unread",
        title: "not logged in, replies not read",
        count: (400, 10),
        logs_in: false,
        request: |_| command(&["PING"]).repeat(20_000),
        is_blocked: false,
    },
];

/// Encodes XREAD BLOCK on keys that no other client uses.
pub(crate) fn read_blocking(client: usize, keys: usize) -> Vec<u8> {
    let mut arguments = ["XREAD", "BLOCK", "0", "STREAMS"].map(str::to_owned).to_vec();
    arguments.extend((0..keys).map(|key| waited_key(client, key)));
    arguments.extend((0..keys).map(|_| "$".to_owned()));
    command(&arguments)
}

/// Returns the name of a key that `read_blocking` blocks on.
pub(crate) fn waited_key(client: usize, key: usize) -> String {
    format!("waited:{client}:{key}")
}

pub(crate) fn groups() -> Vec<Group> {
    let setup = Setup { is_exposed: true, ..Setup::default() };
    let case = |kind: &'static Kind| {
        let measured =
            Case::new(&TABLE, kind.name, kind.title, |server, options| measure(server, kind, options));
        measured.repeated(Repetitions::Once).with_setup(setup)
    };
    vec![Group::fresh(|options| options.startable(), KINDS.iter().map(case).collect())]
}

fn measure(server: &Server, kind: &Kind, options: &Options) -> Result<Sample, Failure> {
    let mut admin = server.connect()?;
    admin.call(&["SET", VALUE, &"x".repeat(10_000)])?;
    admin.call(&["XGROUP", "CREATE", STREAM, GROUP, "$", "MKSTREAM"])?;
    let count = options.sized(kind.count.0, kind.count.1);
    // The first clients allocate tables that do not grow with their number.
    let _first = (0..20).map(|_| connect_and_log_in(server)).collect::<Result<Vec<_>, _>>()?;
    let (before, connected_before) = (settled(server, options)?, connected(server)?);
    let clients = (0..count).map(|client| attach(server, kind, client)).collect::<Result<Vec<_>, _>>()?;
    if kind.is_blocked {
        server.wait_until_blocked(count)?;
    }
    let bytes = settled(server, options)?.saturating_sub(before) as f64 / count as f64;
    let connected = connected(server)? - connected_before;
    drop(clients);
    Ok(vec![Some(bytes), Some(count as f64), Some(connected)])
}

/// Connects a client, which sends its request and reads no reply but that of AUTH.
fn attach(server: &Server, kind: &Kind, client: usize) -> Result<TcpStream, Failure> {
    let mut socket = if kind.logs_in { connect_and_log_in(server)? } else { connect(server)? };
    socket.set_write_timeout(Some(SEND_WITHIN))?;
    // If the server has stopped reading or has closed the connection, the rest is not sent.
    let _ = socket.write_all(&(kind.request)(client));
    Ok(socket)
}

fn connected(server: &Server) -> Result<f64, Failure> {
    Ok(server.info("clients", "connected_clients")?.parse()?)
}
