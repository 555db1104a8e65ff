//! `/livez` and `/readyz`, for whoever restarts processes. They need no login and tell nothing about the store.

/// The process answers.
pub(super) async fn live() -> &'static str {
    "ok\n"
}

/// The store answers.
pub(super) async fn ready() -> &'static str {
    "ok\n"
}
