//! Connections and transactions: AUTH to WATCH.

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

/// A subcommand of CLIENT that anyone may use.
const fn any_client(name: &'static str, since: &'static str, arity: i32, run: Run) -> CommandSpec {
    about_connection(name, since, arity, UNSCRIPTED, run)
}

/// A subcommand of CLIENT for operators.
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
        .note("one user, `default`, whose password is `requirepass`")
        .text("AUTH [username] password", "Says who the client is."),
    container("client", "2.4.0")
        .group(Group::Connection)
        .text("CLIENT", "Tells about clients and controls them."),
    any_client("client|getname", "2.6.9", 2, Call(client::getname))
        .text("CLIENT GETNAME", "Returns the name of this connection."),
    any_client("client|getredir", "6.0.0", 2, Data(client::getredir))
        .note("always -1: there is no tracking")
        .text("CLIENT GETREDIR", "Says where invalidation messages go."),
    help("client|help", "5.0.0", "CLIENT HELP").group(Group::Connection).category(Categories::CONNECTION),
    any_client("client|id", "5.0.0", 2, Call(client::id))
        .text("CLIENT ID", "Returns the number of this connection."),
    any_client("client|info", "6.2.0", 2, Call(client::info))
        .tips(NONDETERMINISTIC)
        .text("CLIENT INFO", "Tells about this connection."),
    client_admin("client|kill", "2.4.0", -3, Call(client::kill)).complexity(PER_CLIENT).text(
        "CLIENT KILL ip:port | [ID client-id] [TYPE NORMAL|MASTER|REPLICA|PUBSUB] [USER username] \
             [ADDR ip:port] [LADDR ip:port] [SKIPME YES|NO] [MAXAGE seconds]",
        "Closes connections.",
    ),
    client_admin("client|list", "2.4.0", -2, Call(client::list))
        .complexity(PER_CLIENT)
        .tips(NONDETERMINISTIC)
        .text(
            "CLIENT LIST [TYPE NORMAL|MASTER|REPLICA|PUBSUB] [ID client-id [client-id ...]]",
            "Lists the connections.",
        ),
    client_admin(
        "client|no-evict",
        "7.0.0",
        3,
        Call(|call, argv| client::switch(call, argv, flags::NO_EVICT)),
    )
    .note("accepted; no client is evicted")
    .text("CLIENT NO-EVICT ON|OFF", "Protects this connection when memory is short."),
    any_client("client|no-touch", "7.2.0", 3, Call(|call, argv| client::switch(call, argv, flags::NO_TOUCH)))
        .note("accepted, and changes nothing")
        .text("CLIENT NO-TOUCH ON|OFF", "Keeps this connection from refreshing the keys it uses."),
    client_admin("client|pause", "2.9.50", -3, Call(client::pause))
        .text("CLIENT PAUSE milliseconds [WRITE|ALL]", "Holds back the commands of all clients for a while."),
    any_client("client|reply", "3.2.0", 3, Call(client::reply))
        .text("CLIENT REPLY ON|OFF|SKIP", "Says whether this connection wants replies."),
    any_client("client|setinfo", "7.2.0", 4, Call(client::setinfo))
        .text("CLIENT SETINFO LIB-NAME|LIB-VER value", "Names the library that this client uses."),
    any_client("client|setname", "2.6.9", 3, Call(client::setname))
        .text("CLIENT SETNAME name", "Names this connection."),
    any_client("client|tracking", "6.0.0", -3, Data(client::tracking))
        .note("OFF only: there is no tracking")
        .text("CLIENT TRACKING ON|OFF", "Tells this connection when keys change that it read."),
    any_client("client|trackinginfo", "6.2.0", 2, Data(client::trackinginfo))
        .text("CLIENT TRACKINGINFO", "Tells about the tracking of this connection."),
    client_admin("client|unblock", "5.0.0", -3, Call(client::unblock))
        .text("CLIENT UNBLOCK client-id [TIMEOUT|ERROR]", "Ends the waiting of another client."),
    client_admin("client|unpause", "6.2.0", 2, Call(client::unpause))
        .complexity("O(N), N being the clients held back")
        .text("CLIENT UNPAUSE", "Ends a pause."),
    about_connection("echo", "1.0.0", 2, ANY_TIME.with(Flags::FAST), Data(connection::echo))
        .text("ECHO message", "Returns the message."),
    about_connection("hello", "6.0.0", -1, BEFORE_AUTH, Call(connection::hello)).text(
        "HELLO [protover [AUTH username password] [SETNAME name]]",
        "Chooses the protocol, and says who client and server are.",
    ),
    about_connection("ping", "1.0.0", -1, Flags::FAST, Data(connection::ping))
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .text("PING [message]", "Answers, to show that the server lives."),
    about_connection("quit", "1.0.0", -1, BEFORE_AUTH, Call(connection::quit))
        .text("QUIT", "Closes this connection."),
    about_connection("reset", "6.2.0", 1, BEFORE_AUTH, Call(connection::reset))
        .text("RESET", "Makes this connection as new."),
    about_connection("select", "1.0.0", 2, ANY_TIME.with(Flags::FAST), Call(connection::select))
        .text("SELECT db", "Changes to another database."),
];

pub(in crate::table) const TRANSACTIONS: &[CommandSpec] = &[
    transaction("discard", "2.0.0", 1, Call(transactions::run_discard))
        .flags(Flags::FAST.with(Flags::ALLOW_BUSY))
        .complexity("O(N), N being the commands queued")
        .text("DISCARD", "Forgets a transaction."),
    transaction("exec", "1.2.0", 1, Call(transactions::exec))
        .flags(Flags::SKIP_SLOWLOG)
        .complexity("Depends on the commands queued.")
        .text("EXEC", "Runs a transaction as one step."),
    transaction("multi", "1.2.0", 1, Call(transactions::multi))
        .flags(Flags::FAST.with(Flags::ALLOW_BUSY))
        .text("MULTI", "Begins a transaction."),
    transaction("unwatch", "2.2.0", 1, Call(transactions::unwatch))
        .flags(Flags::FAST.with(Flags::ALLOW_BUSY))
        .complexity("O(N), N being the keys watched")
        .text("UNWATCH", "Forgets the keys that this connection watches."),
    transaction("watch", "2.2.0", -2, Call(transactions::watch))
        .flags(Flags::FAST.with(Flags::ALLOW_BUSY))
        .keys(&[key_range("RO", 1, -1, 1)])
        .complexity("O(N), N being the keys named")
        .text("WATCH key [key ...]", "Lets the next transaction run only if these keys stay as they are."),
];
