//! What every suite over the wire needs: a server process of our own or a real server of another make, started on a free
//! port and gone when dropped, a blocking client that keeps the exact bytes of every reply, and a run of the binary that has ended.
//!
//! Knows nothing of commands or of what they should answer.

pub(crate) mod peers;
pub(crate) mod process;
pub(crate) mod resp;
pub(crate) mod run;
pub(crate) mod wire;
