//! Connections and transactions: AUTH to WATCH.

use super::{NONDETERMINISTIC, container, help};
use crate::admin::client;
use crate::command::Run::{self, Call, Data};
use crate::command::{Categories, CommandSpec, Flags, Group, command, key_range};
use crate::exec::{connection, transactions};
use crate::registry::flags;

const fn about_connection(name: &'static str, arity: i32, run: Run) -> CommandSpec {
    command(name, arity, run).group(Group::Connection).category(Categories::CONNECTION).since("1.0.0")
}

/// A subcommand of CLIENT that anyone may use.
const fn any_client(name: &'static str, arity: i32, run: Run) -> CommandSpec {
    about_connection(name, arity, run).flags(ANY_TIME)
}

/// A subcommand of CLIENT for operators.
const fn client_admin(name: &'static str, arity: i32, run: Run) -> CommandSpec {
    any_client(name, arity, run).flags(&[Flags::ADMIN])
}

const fn transaction(name: &'static str, arity: i32, run: Run) -> CommandSpec {
    command(name, arity, run).group(Group::Transactions).category(Categories::TRANSACTION).flags(ANY_TIME)
}

const ANY_TIME: &[Flags] = &[Flags::NOSCRIPT, Flags::LOADING, Flags::STALE];
const FAST_ANY_TIME: &[Flags] = &[Flags::LOADING, Flags::STALE, Flags::FAST];
const BEFORE_AUTH: &[Flags] =
    &[Flags::NOSCRIPT, Flags::LOADING, Flags::STALE, Flags::FAST, Flags::NO_AUTH, Flags::ALLOW_BUSY];
const PER_CLIENT: &str = "O(N), N being the clients";

pub(in crate::table) const CONNECTION: &[CommandSpec] = &[
    about_connection("auth", -2, Call(connection::auth))
        .flags(BEFORE_AUTH)
        .note("one user, `default`, whose password is `requirepass`")
        .text("AUTH [username] password", "Says who the client is."),
    container("client")
        .group(Group::Connection)
        .since("2.4.0")
        .text("CLIENT", "Tells about clients and controls them."),
    any_client("client|getname", 2, Call(client::getname))
        .since("2.6.9")
        .text("CLIENT GETNAME", "Returns the name of this connection."),
    any_client("client|getredir", 2, Data(client::getredir))
        .since("6.0.0")
        .note("always -1: there is no tracking")
        .text("CLIENT GETREDIR", "Says where invalidation messages go."),
    help("client|help", "CLIENT HELP")
        .group(Group::Connection)
        .category(Categories::CONNECTION)
        .since("5.0.0"),
    any_client("client|id", 2, Call(client::id))
        .since("5.0.0")
        .text("CLIENT ID", "Returns the number of this connection."),
    any_client("client|info", 2, Call(client::info))
        .since("6.2.0")
        .tips(NONDETERMINISTIC)
        .text("CLIENT INFO", "Tells about this connection."),
    client_admin("client|kill", -3, Call(client::kill)).since("2.4.0").complexity(PER_CLIENT).text(
        "CLIENT KILL ip:port | [ID client-id] [TYPE NORMAL|MASTER|REPLICA|PUBSUB] [USER username] \
             [ADDR ip:port] [LADDR ip:port] [SKIPME YES|NO] [MAXAGE seconds]",
        "Closes connections.",
    ),
    client_admin("client|list", -2, Call(client::list))
        .since("2.4.0")
        .complexity(PER_CLIENT)
        .tips(NONDETERMINISTIC)
        .text(
            "CLIENT LIST [TYPE NORMAL|MASTER|REPLICA|PUBSUB] [ID client-id [client-id ...]]",
            "Lists the connections.",
        ),
    client_admin("client|no-evict", 3, Call(|call, argv| client::switch(call, argv, flags::NO_EVICT)))
        .since("7.0.0")
        .note("accepted; no client is evicted")
        .text("CLIENT NO-EVICT ON|OFF", "Protects this connection when memory is short."),
    any_client("client|no-touch", 3, Call(|call, argv| client::switch(call, argv, flags::NO_TOUCH)))
        .since("7.2.0")
        .note("accepted, and changes nothing")
        .text("CLIENT NO-TOUCH ON|OFF", "Keeps this connection from refreshing the keys it uses."),
    client_admin("client|pause", -3, Call(client::pause))
        .since("2.9.50")
        .text("CLIENT PAUSE milliseconds [WRITE|ALL]", "Holds back the commands of all clients for a while."),
    any_client("client|reply", 3, Call(client::reply))
        .since("3.2.0")
        .text("CLIENT REPLY ON|OFF|SKIP", "Says whether this connection wants replies."),
    any_client("client|setinfo", 4, Call(client::setinfo))
        .since("7.2.0")
        .text("CLIENT SETINFO LIB-NAME|LIB-VER value", "Names the library that this client uses."),
    any_client("client|setname", 3, Call(client::setname))
        .since("2.6.9")
        .text("CLIENT SETNAME name", "Names this connection."),
    any_client("client|tracking", -3, Data(client::tracking))
        .since("6.0.0")
        .note("OFF only: there is no tracking")
        .text("CLIENT TRACKING ON|OFF", "Tells this connection when keys change that it read."),
    any_client("client|trackinginfo", 2, Data(client::trackinginfo))
        .since("6.2.0")
        .text("CLIENT TRACKINGINFO", "Tells about the tracking of this connection."),
    client_admin("client|unblock", -3, Call(client::unblock))
        .since("5.0.0")
        .text("CLIENT UNBLOCK client-id [TIMEOUT|ERROR]", "Ends the waiting of another client."),
    client_admin("client|unpause", 2, Call(client::unpause))
        .since("6.2.0")
        .complexity("O(N), N being the clients held back")
        .text("CLIENT UNPAUSE", "Ends a pause."),
    about_connection("echo", 2, Data(connection::echo))
        .flags(FAST_ANY_TIME)
        .text("ECHO message", "Returns the message."),
    about_connection("hello", -1, Call(connection::hello)).since("6.0.0").flags(BEFORE_AUTH).text(
        "HELLO [protover [AUTH username password] [SETNAME name]]",
        "Chooses the protocol, and says who client and server are.",
    ),
    about_connection("ping", -1, Data(connection::ping))
        .flags(&[Flags::FAST])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .text("PING [message]", "Answers, to show that the server lives."),
    about_connection("quit", -1, Call(connection::quit))
        .flags(BEFORE_AUTH)
        .text("QUIT", "Closes this connection."),
    about_connection("reset", 1, Call(connection::reset))
        .since("6.2.0")
        .flags(BEFORE_AUTH)
        .text("RESET", "Makes this connection as new."),
    about_connection("select", 2, Call(connection::select))
        .flags(FAST_ANY_TIME)
        .text("SELECT db", "Changes to another database."),
];

pub(in crate::table) const TRANSACTIONS: &[CommandSpec] = &[
    transaction("discard", 1, Call(transactions::run_discard))
        .since("2.0.0")
        .flags(&[Flags::FAST, Flags::ALLOW_BUSY])
        .complexity("O(N), N being the commands queued")
        .text("DISCARD", "Forgets a transaction."),
    transaction("exec", 1, Call(transactions::exec))
        .since("1.2.0")
        .flags(&[Flags::SKIP_SLOWLOG])
        .complexity("Depends on the commands queued.")
        .text("EXEC", "Runs a transaction as one step."),
    transaction("multi", 1, Call(transactions::multi))
        .since("1.2.0")
        .flags(&[Flags::FAST, Flags::ALLOW_BUSY])
        .text("MULTI", "Begins a transaction."),
    transaction("unwatch", 1, Call(transactions::unwatch))
        .since("2.2.0")
        .flags(&[Flags::FAST, Flags::ALLOW_BUSY])
        .complexity("O(N), N being the keys watched")
        .text("UNWATCH", "Forgets the keys that this connection watches."),
    transaction("watch", -2, Call(transactions::watch))
        .since("2.2.0")
        .flags(&[Flags::FAST, Flags::ALLOW_BUSY])
        .keys(&[key_range("RO", 1, -1, 1)])
        .complexity("O(N), N being the keys named")
        .text("WATCH key [key ...]", "Lets the next transaction run only if these keys stay as they are."),
];
