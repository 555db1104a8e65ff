//! Waits for a condition, for the examples.

use std::time::Duration;

/// Returns when the condition is true; checks it every 5 ms.
pub(crate) async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
