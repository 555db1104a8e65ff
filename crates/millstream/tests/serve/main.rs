//! The server as a process: start and stop, access control, TLS, hostile clients, sessions, and durability.

mod access;
#[path = "../support/certificates.rs"]
mod certificates;
mod clock;
mod cve;
mod dashboard;
mod durable;
mod hostile;
mod logs;
mod memory;
mod policy_rights;
mod process;
#[path = "../differential/random.rs"]
mod random;
mod reload;
mod restarts;
mod service;
mod sessions;
mod shared;
mod start;
mod tls;
mod users;
