//! The server: it accepts connections, runs their commands and sends the replies.
//!
//! A [`Server`] is the state that all threads share. [`Server::start`] opens the sockets and starts the threads.
//! [`Running::run`] serves clients until the server is asked to stop. Each connection belongs to one thread, which
//! decodes requests, runs commands and sends replies itself. This crate contains no rules about streams: a command
//! calls the store and writes the result as RESP.
//!
//! A module imports only modules below it:
//!
//! ```text
//! server                            starts and stops everything
//! in_process   figures              connections from within the process, as a given user; figures for Prometheus
//! accept                            new connections; assigns each to a thread
//! connection                        bytes in, requests, bytes out
//! dispatch                          the steps every request goes through
//! table                             one row per command: its properties and the function that runs it
//! exec   admin   blocked            commands on data; commands on the server; clients in a blocking command
//! command   io_thread               CommandSpec, Call, Outcome; threads and their buffers
//! session   deferred_replies        state of a connection; replies held until the log is durable
//! turns   login_delays              turns of clients that have not logged in; waits after failed logins
//! snapshots   housekeeping          taking snapshots; periodic work
//! state                             Server: what all threads share
//! tls                               certificates and their reload, handshakes, encrypted sockets
//! registry                          connected clients
//! event_log                         lines on standard error
//! acl settings stats memory slowlog pause persistence shutdown …   parts of Server, independent of each other
//! ```
//!
//! ```no_run
//! use millstream_server::{Server, Settings};
//!
//! let running = Server::start(Settings::new())?;
//! println!("{:?}", running.addresses());
//! running.run()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod accept;
mod acl;
mod admin;
mod args;
mod blocked;
mod client_line;
mod command;
mod connection;
mod deferred_replies;
mod descriptors;
mod dispatch;
mod drift;
mod event_log;
mod exec;
mod figures;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod housekeeping;
mod in_process;
mod io_thread;
mod listen;
mod login_delays;
pub mod memory;
mod memory_monitor;
mod pause;
mod persistence;
mod policy_rights;
mod registry;
mod reload;
mod server;
mod session;
pub mod settings;
mod shutdown;
mod slowlog;
mod snapshots;
mod state;
mod stats;
mod table;
mod tls;
mod turns;
mod version;

pub use in_process::{InProcess, Login};
pub use listen::ListenError;
pub use server::{Running, StartError};
pub use settings::Settings;
pub use shutdown::Shutdown;
pub use state::Server;
pub use table::compat_markdown;
pub use tls::TlsError;
