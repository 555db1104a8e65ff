//! How long an entry waits between deliveries, as a function of the entry and its delivery count.
//!
//! Nothing here knows who sets a back-off or when an entry was delivered.

use crate::StreamId;

/// How long an entry waits after a delivery that failed: at first `first_ms`, each time twice as long, at most
/// `longest_ms`. Both are 0 if entries do not wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    /// The wait after the first delivery, in milliseconds.
    pub first_ms: u64,
    /// The longest wait, in milliseconds.
    pub longest_ms: u64,
}

impl Backoff {
    /// Returns how long an entry waits after this delivery, in milliseconds. Adds up to a tenth, which depends on the
    /// entry and the delivery, so that entries that failed together are not all delivered at the same moment.
    pub fn wait_ms(self, id: StreamId, delivery: u64) -> u64 {
        let wait_ms = self.least_wait_ms(delivery);
        wait_ms + spread(id, delivery) % (wait_ms / 10 + 1)
    }

    /// Returns the shortest time that an entry waits after this delivery, in milliseconds. Later deliveries are not
    /// followed by shorter waits.
    pub fn least_wait_ms(self, delivery: u64) -> u64 {
        let doublings = delivery.saturating_sub(1).min(63) as u32;
        self.first_ms.saturating_mul(1 << doublings).min(self.longest_ms)
    }

    /// Returns the longest time that an entry waits, in milliseconds.
    pub fn longest_wait_ms(self) -> u64 {
        self.longest_ms.saturating_add(self.longest_ms / 10)
    }
}

/// Returns a number that looks random and is always the same for an entry and a delivery.
fn spread(id: StreamId, delivery: u64) -> u64 {
    let seed = id.ms.rotate_left(32) ^ id.seq.rotate_left(16) ^ delivery;
    let mixed = (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (seed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed ^ mixed >> 32
}
