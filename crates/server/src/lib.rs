//! Sockets to commands to replies.
//!
//! A [`Server`] is what all threads share. [`Server::start`] opens sockets and threads, [`Running::run`]
//! serves until it is asked to stop. Each connection is owned by one thread, which decodes, executes and
//! answers inline. No rule about streams is written here: executors call the store and say what came of it
//! in RESP.
//!
//! Modules use only those below them:
//!
//! ```text
//! server                            starts and stops everything
//! accept                            new connections, each handed to a thread
//! connection    housekeeping        bytes in, requests, bytes out    what is done by the clock
//! dispatch                          what every request passes through
//! table                             the rows: what is known of a command and which function runs it
//! exec   admin   waiting            what commands do                 a connection in a blocking command
//! command   io_thread               CommandSpec, Call, Outcome       threads and their buffers
//! session   held   snapshots        what a connection remembers      replies held until they are safe
//! state                             Server: what all threads share
//! settings stats registry slowlog pause persistence shutdown …      its parts, which know nothing of each other
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
mod admin;
mod args;
mod command;
mod connection;
mod descriptors;
mod dispatch;
mod drift;
mod exec;
mod held;
mod housekeeping;
mod io_thread;
mod listen;
mod pause;
mod persistence;
mod registry;
mod server;
mod session;
pub mod settings;
mod shutdown;
mod slowlog;
mod snapshots;
mod state;
mod stats;
mod table;
mod version;
mod waiting;

pub use listen::ListenError;
pub use server::{Running, StartError};
pub use settings::Settings;
pub use shutdown::Shutdown;
pub use state::Server;
pub use table::compat_markdown;
