//! Commands about the server itself: who is connected, how it is set, what it has counted.

pub(crate) mod acl;
pub(crate) mod client;
pub(crate) mod config;
pub(crate) mod control;
pub(crate) mod info;
mod persistence;
mod process;
pub(crate) mod saving;
pub(crate) mod scripting;
