//! The dashboard: web pages and a JSON API over any store of streams.
//!
//! This crate has the HTTP server with its security rules, the API with live updates, the jobs, the record of actions
//! and the embedded pages. It works on an [`Admin`](millstream_worker::Admin) and on a sampler that looks at the store
//! for all viewers. It knows no protocol of a store, no server and no command line.
//!
//! [`serve()`] runs it on a listener of its own. [`router`] returns it as an axum router, to mount it in another
//! server.

pub mod access;
mod api;
mod app;
mod assets;
mod audit;
mod describe;
mod facts;
mod first_seen;
mod guard;
mod jobs;
mod listen;
pub mod options;
mod problem;
mod query;
mod rows;
mod session;
mod sse;
mod throttle;

pub use access::{Access, LoginError, LoginKind, OneStore, Visitor};
pub use listen::{check_address, router, serve};
pub use options::Options;

/// Compiles the Rust examples in this page.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/dashboard.md")]
    struct Dashboard;
}
