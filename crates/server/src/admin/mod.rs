//! Commands about the server itself: who is connected, how it is set, what it has counted.

mod client;
mod config;
mod control;
mod info;
mod introspection;
mod persistence;
mod process;
mod saving;
mod scripting;

pub(crate) use client::client;
pub(crate) use config::config;
pub(crate) use control::server;
pub(crate) use info::counts_keys;
pub(crate) use introspection::{acl, command};
pub(crate) use scripting::scripting;
