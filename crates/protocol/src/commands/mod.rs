//! Commands as typed values.
//!
//! A parser reads an argv (the command's name first) into a struct that borrows from it, and refuses what
//! Redis refuses, in Redis' order. Redis reads some arguments only after it has looked at the key; such
//! arguments stay as sent, and the struct has a method that reads them when their turn comes. Its
//! documentation says which.
//!
//! The number of arguments is checked before, by the table; a parser given too few answers with a syntax
//! error.

mod client;
mod connection;
mod delete_request;
mod expire;
mod float;
mod hashes;
mod introspection;
mod keys;
mod lists;
mod object;
mod references;
mod scan;
mod scripting;
mod server;
mod sets;
mod strings;
mod timeout;
mod transactions;
mod trim;
mod xack;
mod xackdel;
mod xadd;
mod xadopt;
mod xautoclaim;
mod xcfgset;
mod xclaim;
mod xdel;
mod xdelex;
mod xextend;
mod xgroup;
mod xidmprecord;
mod xinfo;
mod xlen;
mod xnack;
mod xpending;
mod xrange;
mod xread;
mod xsetid;
mod xtrim;

#[cfg(test)]
mod generated_tests;
#[cfg(test)]
mod testing;

pub use client::{
    ClientAttribute, ClientCommand, ClientKill, ClientSelection, ClientType, KillFilter, PauseMode,
    ReplyMode, Unblock,
};
pub use connection::{Auth, ConnectionCommand, Hello, Protocol};
pub use delete_request::DeleteRequest;
pub use expire::{Deadline, Expire, ExpireCondition, TimeToLive};
pub use hashes::HashCommand;
pub use introspection::{AclCommand, CommandCommand, CommandFilter, ConfigCommand};
pub use keys::{CopyKey, FlushMode, KeyCommand, Rename};
pub use lists::{BlockingPop, ListCommand};
pub use object::ObjectCommand;
pub use scan::Scan;
pub use scripting::ScriptingCommand;
pub use server::{ServerCommand, Shutdown};
pub use sets::SetCommand;
pub use strings::{GetEx, IncrByFloat, Set, SetCondition, SetExpiry, StringCommand};
pub use transactions::TransactionCommand;
pub use xack::Xack;
pub use xackdel::Xackdel;
pub use xadd::Xadd;
pub use xadopt::Xadopt;
pub use xautoclaim::Xautoclaim;
pub use xcfgset::{StreamSettings, Xcfgset};
pub use xclaim::{ClaimRequest, Delivered, Xclaim};
pub use xdel::Xdel;
pub use xdelex::Xdelex;
pub use xextend::Xextend;
pub use xgroup::{Xgroup, XgroupCreate, XgroupSetId};
pub use xidmprecord::Xidmprecord;
pub use xinfo::{StreamDetail, Xinfo, XinfoStream};
pub use xlen::Xlen;
pub use xnack::{NackRequest, Xnack};
pub use xpending::{PendingRows, Xpending};
pub use xrange::{Direction, Xrange};
pub use xread::{GroupReadFrom, ReadFrom, ReplyBounds, StreamList, Xread, Xreadgroup};
pub use xsetid::Xsetid;
pub use xtrim::Xtrim;

pub(crate) use client::{
    parse_client_getname, parse_client_getredir, parse_client_id, parse_client_info, parse_client_kill,
    parse_client_list, parse_client_no_evict, parse_client_no_touch, parse_client_pause, parse_client_reply,
    parse_client_setinfo, parse_client_setname, parse_client_tracking, parse_client_trackinginfo,
    parse_client_unblock, parse_client_unpause,
};
pub(crate) use connection::{
    parse_auth, parse_echo, parse_hello, parse_ping, parse_quit, parse_reset, parse_select,
};
pub(crate) use expire::{
    parse_expire, parse_expireat, parse_expiretime, parse_pexpire, parse_pexpireat, parse_pexpiretime,
    parse_pttl, parse_ttl,
};
pub(crate) use hashes::{
    parse_hdel, parse_hexists, parse_hget, parse_hgetall, parse_hincrby, parse_hincrbyfloat, parse_hkeys,
    parse_hlen, parse_hmget, parse_hmset, parse_hset, parse_hsetnx, parse_hvals,
};
pub(crate) use introspection::{
    parse_acl_cat, parse_acl_getuser, parse_acl_list, parse_acl_users, parse_acl_whoami, parse_command,
    parse_command_count, parse_command_docs, parse_command_getkeys, parse_command_getkeysandflags,
    parse_command_info, parse_command_list, parse_config_get, parse_config_resetstat, parse_config_rewrite,
    parse_config_set,
};
pub(crate) use keys::{
    parse_copy, parse_dbsize, parse_del, parse_exists, parse_flushall, parse_flushdb, parse_keys, parse_move,
    parse_persist, parse_randomkey, parse_rename, parse_renamenx, parse_swapdb, parse_touch, parse_type,
    parse_unlink,
};
pub(crate) use lists::{
    parse_blpop, parse_brpop, parse_llen, parse_lpop, parse_lpush, parse_lrange, parse_rpop, parse_rpush,
};
pub(crate) use object::{
    parse_memory_doctor, parse_memory_purge, parse_memory_stats, parse_memory_usage, parse_object_encoding,
    parse_object_freq, parse_object_idletime, parse_object_refcount,
};
pub(crate) use scan::parse_scan;
pub(crate) use scripting::{
    parse_eval, parse_eval_ro, parse_evalsha, parse_evalsha_ro, parse_fcall, parse_fcall_ro,
    parse_function_delete, parse_function_flush, parse_function_kill, parse_function_list,
    parse_function_load, parse_function_stats, parse_script_exists, parse_script_flush, parse_script_kill,
    parse_script_load,
};
pub(crate) use server::{
    parse_bgrewriteaof, parse_bgsave, parse_debug, parse_info, parse_lastsave, parse_latency_doctor,
    parse_latency_histogram, parse_latency_history, parse_latency_latest, parse_latency_reset,
    parse_module_list, parse_replicaof, parse_role, parse_save, parse_shutdown, parse_slowlog_get,
    parse_slowlog_len, parse_slowlog_reset, parse_time, parse_wait, parse_waitaof,
};
pub(crate) use sets::{parse_sadd, parse_scard, parse_sismember, parse_smembers, parse_srem};
pub(crate) use strings::{
    parse_append, parse_decr, parse_decrby, parse_get, parse_getdel, parse_getex, parse_getset, parse_incr,
    parse_incrby, parse_incrbyfloat, parse_mget, parse_mset, parse_msetnx, parse_psetex, parse_set,
    parse_setex, parse_setnx, parse_strlen,
};
pub(crate) use transactions::{parse_discard, parse_exec, parse_multi, parse_unwatch, parse_watch};
pub(crate) use xack::parse_xack;
pub(crate) use xackdel::parse_xackdel;
pub(crate) use xadd::parse_xadd;
pub(crate) use xadopt::parse_xadopt;
pub(crate) use xautoclaim::parse_xautoclaim;
pub(crate) use xcfgset::parse_xcfgset;
pub(crate) use xclaim::parse_xclaim;
pub(crate) use xdel::parse_xdel;
pub(crate) use xdelex::parse_xdelex;
pub(crate) use xextend::parse_xextend;
pub(crate) use xgroup::{
    parse_xgroup_create, parse_xgroup_createconsumer, parse_xgroup_delconsumer, parse_xgroup_destroy,
    parse_xgroup_setid,
};
pub(crate) use xidmprecord::parse_xidmprecord;
pub(crate) use xinfo::{parse_xinfo_consumers, parse_xinfo_groups, parse_xinfo_stream};
pub(crate) use xlen::parse_xlen;
pub(crate) use xnack::parse_xnack;
pub(crate) use xpending::parse_xpending;
pub(crate) use xrange::{parse_xrange, parse_xrevrange};
pub(crate) use xread::{parse_xread, parse_xreadgroup};
pub(crate) use xsetid::parse_xsetid;
pub(crate) use xtrim::parse_xtrim;
// One refusal for every subcommand of CLUSTER.
pub(crate) use server::{
    parse_cluster as parse_cluster_info, parse_cluster as parse_cluster_myid,
    parse_cluster as parse_cluster_nodes, parse_cluster as parse_cluster_shards,
    parse_cluster as parse_cluster_slots,
};

/// An argument as sent.
pub type Arg<'a> = &'a [u8];

/// Arguments as sent.
pub type ArgList<'a> = &'a [&'a [u8]];

/// A command as it was asked, understood as far as that is possible without its keys.
#[derive(Clone, Debug, PartialEq)]
pub enum Command<'a> {
    /// Append to a stream.
    Xadd(Xadd<'a>),
    /// Shorten a stream.
    Xtrim(Xtrim<'a>),
    /// Delete entries.
    Xdel(Xdel<'a>),
    /// Delete entries, and say of each what became of it.
    Xdelex(Xdelex<'a>),
    /// Count entries.
    Xlen(Xlen<'a>),
    /// XRANGE and XREVRANGE.
    Xrange(Xrange<'a>),
    /// Read streams.
    Xread(Xread<'a>),
    /// Read streams as a member of a group.
    Xreadgroup(Xreadgroup<'a>),
    /// Acknowledge entries.
    Xack(Xack<'a>),
    /// Acknowledge entries and delete them.
    Xackdel(Xackdel<'a>),
    /// Give pending entries back.
    Xnack(Xnack<'a>),
    /// Look at pending entries.
    Xpending(Xpending<'a>),
    /// Take pending entries over.
    Xclaim(Xclaim<'a>),
    /// Take idle pending entries over.
    Xautoclaim(Xautoclaim<'a>),
    /// Keep pending entries for longer.
    Xextend(Xextend<'a>),
    /// Take all over that is pending with a consumer.
    Xadopt(Xadopt<'a>),
    /// Groups and consumers.
    Xgroup(Xgroup<'a>),
    /// Look into a stream.
    Xinfo(Xinfo<'a>),
    /// Set a stream's counters.
    Xsetid(Xsetid<'a>),
    /// Set how a stream remembers what producers sent.
    Xcfgset(Xcfgset<'a>),
    /// Remember what a producer sent.
    Xidmprecord(Xidmprecord<'a>),
    /// Keys of any type.
    Key(KeyCommand<'a>),
    /// How values are kept: OBJECT, MEMORY.
    Object(ObjectCommand<'a>),
    /// Strings.
    String(StringCommand<'a>),
    /// Hashes.
    Hash(HashCommand<'a>),
    /// Lists.
    List(ListCommand<'a>),
    /// Sets.
    Set(SetCommand<'a>),
    /// Transactions.
    Transaction(TransactionCommand<'a>),
    /// The connection.
    Connection(ConnectionCommand<'a>),
    /// CLIENT
    Client(ClientCommand<'a>),
    /// CONFIG
    Config(ConfigCommand<'a>),
    /// COMMAND
    Command(CommandCommand<'a>),
    /// ACL
    Acl(AclCommand<'a>),
    /// The server.
    Server(ServerCommand<'a>),
    /// Scripts and functions.
    Scripting(ScriptingCommand<'a>),
}
