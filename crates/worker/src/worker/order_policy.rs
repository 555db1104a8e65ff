//! What the builder sets about order by key.

/// What happens with the key of a message when the message fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// The key waits until the message succeeds or is dead-lettered. Then it goes on.
    #[default]
    Block,
    /// The key goes on at once. The message is retried later, out of order.
    Skip,
}
