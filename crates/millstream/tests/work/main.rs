//! `millstream work` and `millstream demo` as processes: outcomes of messages by exit code, line and HTTP status, how
//! workers end, their output, and every example of their `--help`.

mod breaker;
mod broken;
mod child;
mod demo;
mod ending;
mod endpoint;
mod examples;
mod exec;
mod handover;
mod http;
mod logs;
mod names;
mod options;
mod order;
mod patterns;
mod pipeline;
mod poison;
mod retries;
#[expect(dead_code, reason = "other suites use the rest")]
#[path = "../support/mod.rs"]
mod support;
mod test_store;
mod tracing;
