//! Starts the suites of `clients/`, each with its own client library. The checks are in those files.

use std::process::Command;

use crate::program;
use crate::support::process::Server;

pub(crate) fn redis_py(server: &Server) {
    python_suite("python", "test_sync.py", server);
}

pub(crate) fn redis_py_asyncio(server: &Server) {
    python_suite("python", "test_asyncio.py", server);
}

/// The commands of Redis 8.2 and later through redis-py's own methods.
pub(crate) fn redis_py_newest(server: &Server) {
    let printed = python_suite("python", "test_newest.py", server);
    assert!(is_older(server) || !printed.contains("skipped="), "tests were skipped:\n{printed}");
}

/// Users and permissions through redis-py's own methods.
pub(crate) fn redis_py_users(server: &Server) {
    python_suite("python", "test_users.py", server);
}

/// A group with a policy, which only Millstream has.
pub(crate) fn redis_py_policies(server: &Server) {
    python_suite("python", "test_policies.py", server);
}

/// The same with node-redis and ioredis.
pub(crate) fn node_policies(server: &Server) {
    node_suite("policies.test.mjs", server);
}

pub(crate) fn operators_tools(server: &Server) {
    python_suite("python", "test_probes.py", server);
}

pub(crate) fn tutorials(server: &Server) {
    python_suite("python", "test_seeds.py", server);
}

/// Most tutorials were written for a redis-py that uses RESP2 by default.
pub(crate) fn tutorials_with_older_redis_py(server: &Server) {
    python_suite("python-5", "test_seeds.py", server);
}

pub(crate) fn node_redis(server: &Server) {
    node_suite("node-redis.test.mjs", server);
}

/// The commands of Redis 8.2 and later through node-redis' own methods. Not started on an older server, because
/// `node_suite` fails if no test passes.
pub(crate) fn node_redis_newest(server: &Server) {
    if !is_older(server) {
        node_suite("newest.test.mjs", server);
    }
}

pub(crate) fn ioredis(server: &Server) {
    node_suite("ioredis.test.mjs", server);
}

/// Compares the output of redis-cli on both servers.
pub(crate) fn transcripts(server: &Server, reference: &Server) {
    let mut suite = program::python("python", server);
    suite.arg("clients/python/test_transcripts.py");
    suite.env("MILLSTREAM_REFERENCE_PORT", reference.port.to_string());
    let printed = program::run(&mut suite);
    assert!(!printed.contains("skipped=2"), "nothing was compared:\n{printed}");
}

/// Whether the server is too old for the newest commands.
pub(crate) fn is_older(server: &Server) -> bool {
    server.version() < (8, 10)
}

fn python_suite(environment: &str, file: &str, server: &Server) -> String {
    run_python(&mut python(environment, file, server))
}

/// The command that runs a suite in Python.
pub(crate) fn python(environment: &str, file: &str, server: &Server) -> Command {
    let mut suite = program::python(environment, server);
    suite.arg(format!("clients/python/{file}"));
    suite
}

pub(crate) fn run_python(suite: &mut Command) -> String {
    let printed = program::run(suite);
    assert!(!printed.contains("Ran 0 tests"), "no test ran:\n{printed}");
    printed
}

fn node_suite(file: &str, server: &Server) {
    run_node(&mut node(file, server));
}

/// The command that runs a suite in Node.js.
pub(crate) fn node(file: &str, server: &Server) -> Command {
    let mut suite = program::node(server);
    suite.args(["--test", "--test-reporter=tap"]).arg(program::node_folder().join("suites").join(file));
    suite
}

pub(crate) fn run_node(suite: &mut Command) {
    let printed = program::run(suite);
    assert!(printed.contains("# fail 0") && !printed.contains("# pass 0"), "no test ran:\n{printed}");
}
