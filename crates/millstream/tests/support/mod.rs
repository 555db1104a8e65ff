//! Shared by every suite that talks to a server: server processes (Millstream or a real Redis or Valkey), a blocking
//! client, and finished runs of the binary.
//!
//! A server listens on a free port and is stopped on drop. The client keeps the exact bytes of every reply.
//! This module does not know any command or its expected reply.

pub(crate) mod certificates;
pub(crate) mod peers;
pub(crate) mod process;
pub(crate) mod resp;
pub(crate) mod run;
pub(crate) mod wire;
