//! The server as a process: how it starts and stops, who may enter, what hostile clients cannot do to it, and
//! what it remembers.

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
