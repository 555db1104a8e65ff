//! The server as a process: how it starts and stops, who may enter, and what hostile clients cannot do to it.

mod access;
mod hostile;
mod process;
mod sessions;
mod start;
