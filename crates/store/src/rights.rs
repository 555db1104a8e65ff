//! What the policies of a user may do.
//!
//! A policy acts later than its owner set it, on the timekeeper's thread. The owner may have lost rights since then.
//! The store knows names of users, but not their rights, so it asks [`PolicyRights`]. A store without it, such as an
//! embedded one, has no users: every policy acts with all rights.
//!
//! Only dead letters need this. Everything else that a policy does changes only the stream on which it was set.

/// Knows the rights of users. The store calls it under the locks of streams, so it must be fast and lock no stream.
pub trait PolicyRights: Send + Sync {
    /// Returns whether a policy of `owner` on `stream` may add entries to `dead_letters`.
    fn allow_dead_letters(&self, owner: &[u8], stream: &[u8], dead_letters: &[u8]) -> bool;

    /// Notes that a policy of `owner` on `stream` could not add an entry to `dead_letters`.
    fn note_denied(&self, owner: &[u8], stream: &[u8], dead_letters: &[u8]);
}
