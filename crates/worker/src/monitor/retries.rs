//! The retry records of pending messages, for operators.

use crate::backend::{Backend, Error, ErrorKind, StreamId};
use crate::names::retry_key;
use crate::retry_record::RetryRecord;

/// Like [`retry_records`]. But operators need records only for information: if the user may not read them, no message
/// has one.
pub async fn known_records(
    backend: &dyn Backend,
    stream: &str,
    group: &str,
    ids: &[StreamId],
) -> Result<(Vec<Option<RetryRecord>>, u64), Error> {
    match retry_records(backend, stream, group, ids).await {
        Err(error) if matches!(error.kind(), ErrorKind::Denied | ErrorKind::WrongType) => {
            Ok((vec![None; ids.len()], 0))
        }
        known => known,
    }
}

/// Returns the records of these messages, and the time of the store in milliseconds since 1970. A message that has not
/// failed has no record.
pub async fn retry_records(
    backend: &dyn Backend,
    stream: &str,
    group: &str,
    ids: &[StreamId],
) -> Result<(Vec<Option<RetryRecord>>, u64), Error> {
    let fields: Vec<String> = ids.iter().map(StreamId::to_string).collect();
    let values = backend.hash_get(&retry_key(stream, group), &fields).await?;
    let records = values.into_iter().map(|value| value.map(|json| RetryRecord::parse(&json))).collect();
    Ok((records, backend.now_ms(stream).await?))
}
