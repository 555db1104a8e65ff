//! Real clients against Millstream and against a real `redis-server`: both servers run the same suites and examples.
//!
//! This test installs nothing. `scripts/clients-setup` installs pinned versions of redis-py, node-redis and ioredis
//! under the target folder (or `MILLSTREAM_CLIENTS_DIR`). redis-rs is a dependency of this test.

mod examples;
mod newest;
mod partitions;
mod policies;
mod program;
mod recipes;
mod redis_rs;
mod suites;
#[expect(dead_code, reason = "other suites use the rest")]
#[path = "../support/mod.rs"]
mod support;
mod tls;

use support::process::Server;

/// Defines two tests for each `$run(&Server)`, one per server.
macro_rules! on_both_servers {
    ($($name:ident => $run:expr;)*) => {
        $(mod $name {
            #[test]
            fn redis() {
                if let Some(server) = $crate::Server::redis(&[]) {
                    $run(&server);
                }
            }

            #[test]
            fn millstream() {
                $run(&$crate::Server::millstream(&[]));
            }
        })*
    };
}

on_both_servers! {
    redis_py => crate::suites::redis_py;
    redis_py_asyncio => crate::suites::redis_py_asyncio;
    redis_py_newest => crate::suites::redis_py_newest;
    redis_py_users => crate::suites::redis_py_users;
    node_redis => crate::suites::node_redis;
    node_redis_newest => crate::suites::node_redis_newest;
    ioredis => crate::suites::ioredis;
    operators_tools => crate::suites::operators_tools;
    tutorials => crate::suites::tutorials;
    tutorials_with_older_redis_py => crate::suites::tutorials_with_older_redis_py;
    redis_rs_in_resp2 => crate::redis_rs::resp2;
    redis_rs_in_resp3 => crate::redis_rs::resp3;
    redis_rs_async => crate::redis_rs::asynchronous;
    redis_rs_newest => crate::newest::both_protocols;
    producer_of_five_lines => crate::partitions::python_producer;
    examples_in_python => crate::examples::python;
    examples_in_node => crate::examples::node;
    examples_in_rust => crate::examples::rust;
    examples_for_redis_cli => crate::examples::redis_cli;
}

/// Lag is computed by Redis' own rules here, so that every line of output can be equal.
#[test]
fn redis_cli_prints_the_same_as_on_redis() {
    let Some(reference) = Server::redis(&[]) else { return };
    suites::transcripts(&Server::millstream(&["--exact-lag", "no"]), &reference);
}
