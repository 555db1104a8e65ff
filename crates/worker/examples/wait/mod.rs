//! For the examples: waiting until something is so.

use std::time::Duration;

/// Returns when it is so.
pub(crate) async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
