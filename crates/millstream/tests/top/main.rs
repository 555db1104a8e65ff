//! `millstream top` as a process: one frame as text, and the live view in a real terminal.

mod live;
mod once;
#[expect(dead_code, reason = "other suites use the rest")]
#[path = "../support/mod.rs"]
mod support;
mod terminal;
#[expect(dead_code, reason = "other suites use the rest")]
#[path = "../ops/test_store.rs"]
mod test_store;
