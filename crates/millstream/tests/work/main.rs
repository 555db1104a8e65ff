//! `millstream work` and `millstream demo` as processes: what becomes of messages by exit codes, lines and answers, how
//! workers end, what they tell, and every example of their `--help`.

mod child;
mod demo;
mod ending;
mod endpoint;
mod examples;
mod exec;
mod http;
mod options;
mod place;
#[expect(dead_code, reason = "other suites use the rest")]
#[path = "../support/mod.rs"]
mod support;
