//! The Redis version that the server reports to clients.

/// The Redis version whose stream commands are all implemented.
pub(crate) const REDIS_VERSION: &str = "8.10.0";
