//! The server as a process: start and stop, access control, hostile clients, sessions, and durability.

mod access;
mod clock;
mod durable;
mod hostile;
mod process;
#[path = "../differential/random.rs"]
mod random;
mod restarts;
mod sessions;
mod shared;
mod start;
