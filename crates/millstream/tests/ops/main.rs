//! The operator's commands as processes: what each writes as a table and as JSON, how each fails, and every example
//! of every `--help`.

mod dead_letters;
mod examples;
mod failures;
mod groups;
mod pending;
mod produce;
mod streams;
#[expect(dead_code, reason = "other suites use the rest")]
#[path = "../support/mod.rs"]
mod support;
mod watch;
mod world;
