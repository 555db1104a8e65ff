//! The streams that workloads read: their keys, their ids, and how they are filled.
//!
//! Ids are explicit, `1000000000000-0` and on, one a millisecond, so that acknowledgements can name them and
//! `redis-benchmark` can draw them (its `__rand_int__` is twelve digits). Every key begins with `bench:`, so that a
//! server which runs already loses nothing of its own.

use crate::Failure;
use crate::load;
use crate::payload::Payload;
use crate::server::Server;
use crate::wire::encode;

/// The stream that is read.
pub(crate) const FILLED: &str = "bench:filled";
/// The stream that is written.
pub(crate) const ADDED: &str = "bench:added";
pub(crate) const GROUP: &str = "g";
/// What `redis-benchmark` makes an id of the filled stream of.
pub(crate) const RANDOM_ID: &str = "1__rand_int__-0";
/// Deliveries of this many entries at a time prepare pending entries.
const DELIVERY: u64 = 1000;

/// The id of the n-th entry of a filled stream.
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

/// Adds entries with ids of the server's making.
pub(crate) fn add(server: &Server, key: &str, count: u64, payload: Payload) -> Result<(), Failure> {
    load::send_in_order(server, count, 100, |n, out| {
        let mut command = vec!["XADD".to_owned(), key.to_owned(), "*".to_owned()];
        command.extend(payload.fields(n));
        encode(out, &command);
    })
}

/// The group anew, at the start of the stream.
pub(crate) fn begin_group(server: &Server, key: &str) -> Result<(), Failure> {
    let mut connection = server.connect()?;
    connection.call(&["XGROUP", "DESTROY", key, GROUP])?;
    connection.call(&["XGROUP", "CREATE", key, GROUP, "0"])?;
    Ok(())
}

/// The group anew with the first `wanted` entries pending, or a few more, spread over ten consumers; returns how many.
pub(crate) fn begin_group_and_deliver(server: &Server, key: &str, wanted: u64) -> Result<u64, Failure> {
    begin_group(server, key)?;
    deliver(server, key, wanted)?;
    let pending = server.connect()?.call_int(&["XPENDING", key, GROUP])?;
    match pending >= wanted {
        true => Ok(pending),
        false => Err(format!("{pending} entries of {key} are pending, expected {wanted}").into()),
    }
}

/// The next `wanted` entries, or a few more, go to ten consumers in turn.
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
    fn ids_are_those_that_redis_benchmark_draws() {
        assert_eq!(id(42), "1000000000042-0");
        assert_eq!(RANDOM_ID.replace("__rand_int__", &format!("{:012}", 42)), id(42));
    }
}
