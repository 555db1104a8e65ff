//! Fills the streams that workloads read; defines their keys and ids.
//!
//! Ids are explicit: `1000000000000-0`, then one per millisecond. So acknowledgements can name them, and
//! `redis-benchmark` can generate them at random: its `__rand_int__` has twelve digits. Every key begins with `bench:`,
//! so data that a running server already had stays untouched.

use crate::Failure;
use crate::load;
use crate::payload::Payload;
use crate::server::Server;
use crate::wire::encode;

/// Key of the stream that workloads read.
pub(crate) const FILLED: &str = "bench:filled";
/// Key of the stream that workloads append to.
pub(crate) const ADDED: &str = "bench:added";
pub(crate) const GROUP: &str = "g";
/// Template that `redis-benchmark` turns into a random id of the filled stream.
pub(crate) const RANDOM_ID: &str = "1__rand_int__-0";
/// Number of entries that each XREADGROUP delivers while a workload is prepared.
const DELIVERY: u64 = 1000;

/// Returns the id of the n-th entry of a filled stream.
pub(crate) fn id(n: u64) -> String {
    format!("1{n:012}-0")
}

/// Adds entries `from..to` with short fields.
pub(crate) fn fill(server: &Server, key: &str, from: u64, to: u64) -> Result<(), Failure> {
    load::send_in_order(server, to - from, 1000, |n, out| {
        let n = from + n;
        let (user, amount) = (format!("u{}", n % 1000), (n % 100).to_string());
        encode(out, &["XADD", key, &id(n), "user", &user, "action", "click", "amount", &amount]);
    })
}

/// Adds entries whose ids the server generates.
pub(crate) fn add(server: &Server, key: &str, count: u64, payload: Payload) -> Result<(), Failure> {
    load::send_in_order(server, count, 100, |n, out| {
        let mut command = vec!["XADD".to_owned(), key.to_owned(), "*".to_owned()];
        command.extend(payload.fields(n));
        encode(out, &command);
    })
}

/// Creates the group again, at the start of the stream.
pub(crate) fn begin_group(server: &Server, key: &str) -> Result<(), Failure> {
    let mut connection = server.connect()?;
    connection.call(&["XGROUP", "DESTROY", key, GROUP])?;
    connection.call(&["XGROUP", "CREATE", key, GROUP, "0"])?;
    Ok(())
}

/// Creates the group again and delivers at least `wanted` entries to ten consumers. Returns the number of pending
/// entries.
pub(crate) fn begin_group_and_deliver(server: &Server, key: &str, wanted: u64) -> Result<u64, Failure> {
    begin_group(server, key)?;
    deliver(server, key, wanted)?;
    let pending = server.connect()?.call_int(&["XPENDING", key, GROUP])?;
    match pending >= wanted {
        true => Ok(pending),
        false => Err(format!("{pending} entries of {key} are pending, expected {wanted}").into()),
    }
}

/// Delivers the next `wanted` entries, or a few more, to ten consumers in turn.
pub(crate) fn deliver(server: &Server, key: &str, wanted: u64) -> Result<(), Failure> {
    let count = DELIVERY.to_string();
    load::send_in_order(server, wanted.div_ceil(DELIVERY), 1, |n, out| {
        let consumer = format!("c{}", n % 10);
        encode(out, &["XREADGROUP", "GROUP", GROUP, &consumer, "COUNT", &count, "STREAMS", key, ">"]);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_match_those_of_redis_benchmark() {
        assert_eq!(id(42), "1000000000042-0");
        assert_eq!(RANDOM_ID.replace("__rand_int__", &format!("{:012}", 42)), id(42));
    }
}
