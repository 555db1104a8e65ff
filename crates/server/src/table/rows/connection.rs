//! Rows of the commands about connections and transactions: AUTH to WATCH.

use super::{ANY_TIME, NONDETERMINISTIC, container, help};
use crate::admin::client;
use crate::command::Run::{self, Call, Data};
use crate::command::{Categories, CommandSpec, Flags, Group, command, key_range};
use crate::exec::{connection, transactions};
use crate::registry::flags;

const fn about_connection(
    name: &'static str,
    since: &'static str,
    arity: i32,
    flags: Flags,
    run: Run,
) -> CommandSpec {
    command(name, since, arity, flags, run).group(Group::Connection).category(Categories::CONNECTION)
}

/// Returns the row of a subcommand of CLIENT that every client can use.
const fn any_client(name: &'static str, since: &'static str, arity: i32, run: Run) -> CommandSpec {
    about_connection(name, since, arity, UNSCRIPTED, run)
}

/// Returns the row of a subcommand of CLIENT that is for operators.
const fn client_admin(name: &'static str, since: &'static str, arity: i32, run: Run) -> CommandSpec {
    any_client(name, since, arity, run).flags(Flags::ADMIN)
}

const fn transaction(name: &'static str, since: &'static str, arity: i32, run: Run) -> CommandSpec {
    command(name, since, arity, UNSCRIPTED, run).group(Group::Transactions).category(Categories::TRANSACTION)
}

const UNSCRIPTED: Flags = ANY_TIME.with(Flags::NOSCRIPT);
const BEFORE_AUTH: Flags = UNSCRIPTED.with(Flags::FAST).with(Flags::NO_AUTH).with(Flags::ALLOW_BUSY);
const PER_CLIENT: &str = "O(N), N being the clients";

pub(in crate::table) const CONNECTION: &[CommandSpec] = &[
    about_connection("auth", "1.0.0", -2, BEFORE_AUTH, Call(connection::auth))
        .text("AUTH [username] password", "Authenticates the client."),
    container("client", "2.4.0")
        .group(Group::Connection)
        .text("CLIENT", "Returns information about clients and controls them."),
    any_client("client|getname", "2.6.9", 2, Call(client::getname))
        .text("CLIENT GETNAME", "Returns the name of this connection."),
    any_client("client|getredir", "6.0.0", 2, Data(client::getredir))
        .note("always -1: tracking is not supported")
        .text(
            "CLIENT GETREDIR",
            "Returns the client that gets the invalidation messages of this connection.",
        ),
    help("client|help", "5.0.0", "CLIENT HELP").group(Group::Connection).category(Categories::CONNECTION),
    any_client("client|id", "5.0.0", 2, Call(client::id))
        .text("CLIENT ID", "Returns the id of this connection."),
    any_client("client|info", "6.2.0", 2, Call(client::info))
        .tips(NONDETERMINISTIC)
        .text("CLIENT INFO", "Returns information about this connection."),
    client_admin("client|kill", "2.4.0", -3, Call(client::kill)).complexity(PER_CLIENT).text(
        "CLIENT KILL ip:port | [ID client-id] [TYPE NORMAL|MASTER|REPLICA|PUBSUB] [USER username] \
             [ADDR ip:port] [LADDR ip:port] [SKIPME YES|NO] [MAXAGE seconds]",
        "Closes client connections.",
    ),
    client_admin("client|list", "2.4.0", -2, Call(client::list))
        .complexity(PER_CLIENT)
        .tips(NONDETERMINISTIC)
        .text(
            "CLIENT LIST [TYPE NORMAL|MASTER|REPLICA|PUBSUB] [ID client-id [client-id ...]]",
            "Lists the client connections.",
        ),
    client_admin(
        "client|no-evict",
        "7.0.0",
        3,
        Call(|call, argv| client::switch(call, argv, flags::NO_EVICT)),
    )
    .note("has no effect: clients are never evicted")
    .text("CLIENT NO-EVICT ON|OFF", "Protects this connection from eviction when memory is short."),
    any_client("client|no-touch", "7.2.0", 3, Call(|call, argv| client::switch(call, argv, flags::NO_TOUCH)))
        .note("has no effect")
        .text("CLIENT NO-TOUCH ON|OFF", "Keeps this connection from updating the last access time of keys."),
    client_admin("client|pause", "2.9.50", -3, Call(client::pause))
        .text("CLIENT PAUSE milliseconds [WRITE|ALL]", "Delays the commands of all clients for a time."),
    any_client("client|reply", "3.2.0", 3, Call(client::reply))
        .text("CLIENT REPLY ON|OFF|SKIP", "Sets whether the server sends replies to this connection."),
    any_client("client|setinfo", "7.2.0", 4, Call(client::setinfo))
        .text("CLIENT SETINFO LIB-NAME|LIB-VER value", "Sets the name or version of the client's library."),
    any_client("client|setname", "2.6.9", 3, Call(client::setname))
        .text("CLIENT SETNAME name", "Sets the name of this connection."),
    any_client("client|tracking", "6.0.0", -3, Data(client::tracking))
        .note("only OFF: tracking is not supported")
        .text("CLIENT TRACKING ON|OFF", "Notifies this connection when a key that it has read changes."),
    any_client("client|trackinginfo", "6.2.0", 2, Data(client::trackinginfo))
        .text("CLIENT TRACKINGINFO", "Returns information about the tracking of this connection."),
    client_admin("client|unblock", "5.0.0", -3, Call(client::unblock))
        .text("CLIENT UNBLOCK client-id [TIMEOUT|ERROR]", "Ends the blocking command of another client."),
    client_admin("client|unpause", "6.2.0", 2, Call(client::unpause))
        .complexity("O(N), N being the clients that are delayed")
        .text("CLIENT UNPAUSE", "Ends CLIENT PAUSE."),
    about_connection("echo", "1.0.0", 2, ANY_TIME.with(Flags::FAST), Data(connection::echo))
        .text("ECHO message", "Returns the message."),
    about_connection("hello", "6.0.0", -1, BEFORE_AUTH, Call(connection::hello)).text(
        "HELLO [protover [AUTH username password] [SETNAME name]]",
        "Chooses the protocol version and returns information about the server.",
    ),
    about_connection("ping", "1.0.0", -1, Flags::FAST, Data(connection::ping))
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .text("PING [message]", "Returns PONG or the message."),
    about_connection("quit", "1.0.0", -1, BEFORE_AUTH, Call(connection::quit))
        .text("QUIT", "Closes this connection."),
    about_connection("reset", "6.2.0", 1, BEFORE_AUTH, Call(connection::reset))
        .text("RESET", "Resets the state of this connection."),
    about_connection("select", "1.0.0", 2, ANY_TIME.with(Flags::FAST), Call(connection::select))
        .text("SELECT db", "Selects the database of this connection."),
];

pub(in crate::table) const TRANSACTIONS: &[CommandSpec] = &[
    transaction("discard", "2.0.0", 1, Call(transactions::run_discard))
        .flags(Flags::FAST.with(Flags::ALLOW_BUSY))
        .complexity("O(N), N being the commands queued")
        .text("DISCARD", "Discards the queued commands of a transaction."),
    transaction("exec", "1.2.0", 1, Call(transactions::exec))
        .flags(Flags::SKIP_SLOWLOG)
        .complexity("Depends on the commands queued.")
        .text("EXEC", "Runs the queued commands of a transaction atomically."),
    transaction("multi", "1.2.0", 1, Call(transactions::multi))
        .flags(Flags::FAST.with(Flags::ALLOW_BUSY))
        .text("MULTI", "Begins a transaction."),
    transaction("unwatch", "2.2.0", 1, Call(transactions::unwatch))
        .flags(Flags::FAST.with(Flags::ALLOW_BUSY))
        .complexity("O(N), N being the keys watched")
        .text("UNWATCH", "Stops watching all keys that this connection watches."),
    transaction("watch", "2.2.0", -2, Call(transactions::watch))
        .flags(Flags::FAST.with(Flags::ALLOW_BUSY))
        .keys(&[key_range("RO", 1, -1, 1)])
        .complexity("O(N), N being the keys given")
        .text(
            "WATCH key [key ...]",
            "Makes the next transaction fail if one of these keys changes before EXEC.",
        ),
];
