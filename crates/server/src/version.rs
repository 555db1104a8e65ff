//! What the server says about itself to clients that ask which Redis it is.

/// The version of Redis whose streams family is complete here.
pub(crate) const REDIS_VERSION: &str = "8.10.0";
