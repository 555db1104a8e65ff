//! Commands about the server itself: clients, settings, statistics, snapshots.

pub(crate) mod acl;
pub(crate) mod client;
pub(crate) mod config;
pub(crate) mod control;
pub(crate) mod info;
pub(crate) mod memory;
pub(crate) mod persistence;
pub(crate) mod process;
pub(crate) mod saving;
pub(crate) mod scripting;
