//! The arguments of commands as typed values.
//!
//! A parser turns an argv (the command's name first) into a struct that borrows from it. It rejects the requests that
//! Redis rejects, and makes the checks in Redis' order. Redis parses some arguments only after it has looked up the
//! key. The struct keeps these arguments as sent, and has a method that parses them later.
//!
//! The caller checks the number of arguments first. With too few arguments, a parser returns a syntax error. Commands
//! whose arguments are only keys and values have no type here; the server reads them with [`Args`](crate::args::Args).

mod client;
mod command_filter;
mod connection;
mod delete_request;
mod expire;
mod float;
mod keys;
mod lists;
mod references;
mod scan;
mod server;
mod strings;
mod timeout;
mod trim;
mod xack;
mod xackdel;
mod xadd;
mod xadopt;
mod xautoclaim;
mod xcfgset;
mod xclaim;
mod xdel;
mod xdelay;
mod xdelex;
mod xextend;
mod xgroup;
mod xidmprecord;
mod xinfo;
mod xnack;
mod xpending;
mod xpolicy;
mod xrange;
mod xread;
mod xsetid;
mod xtrim;

#[cfg(test)]
mod testing;

pub use client::{
    ClientAttribute, ClientKill, ClientSelection, ClientType, KillFilter, PauseMode, ReplyMode,
    UnblockReason, check_tracking, parse_client_name, parse_on_or_off,
};
pub use command_filter::CommandFilter;
pub use connection::{Auth, Hello, Protocol};
pub use delete_request::DeleteRequest;
pub use expire::{Deadline, Expire, ExpireCondition, TimeBase, TimeUnit};
pub use keys::{CopyKey, check_flush_mode, parse_db, parse_swapdb};
pub use lists::{BlockingPop, Pop};
pub use scan::Scan;
pub use server::{
    DebugCommand, Shutdown, ShutdownCommand, WaitAof, check_replicaof, check_wait, parse_bgsave,
    parse_slowlog_get,
};
pub use strings::{GetEx, Set, SetCondition, SetExpiry};
pub use xack::Xack;
pub use xackdel::Xackdel;
pub use xadd::Xadd;
pub use xadopt::Xadopt;
pub use xautoclaim::Xautoclaim;
pub use xcfgset::{StreamSettings, Xcfgset};
pub use xclaim::{ClaimRequest, DeliveryTime, Xclaim};
pub use xdel::Xdel;
pub use xdelay::{XdelayRange, XdelayTickets};
pub use xdelex::Xdelex;
pub use xextend::Xextend;
pub use xgroup::{XgroupCreate, XgroupSetId};
pub use xidmprecord::Xidmprecord;
pub use xinfo::{StreamDetail, XinfoStream};
pub use xnack::{NackRequest, Xnack};
pub use xpending::{PendingRange, Xpending};
pub use xpolicy::{PolicyOwner, XpolicySet, dead_letters_at};
pub use xrange::{Direction, Xrange};
pub use xread::{GroupReadFrom, ReplyBounds, StreamList, Xread, Xreadgroup};
pub use xsetid::Xsetid;
pub use xtrim::Xtrim;

/// An argument as sent.
pub type Arg<'a> = &'a [u8];

/// Arguments as sent.
pub type ArgList<'a> = &'a [&'a [u8]];
