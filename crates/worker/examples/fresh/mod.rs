//! Opens the store of an example: the one that `MILLSTREAM_URL` names, or one in memory.

use std::sync::Arc;

use millstream_worker::{Admin, Error, connect};

/// Opens the store and deletes this stream and its dead letters, which an earlier run may have left.
pub(crate) async fn store(stream: &str) -> Result<Arc<dyn Admin>, Error> {
    let url = std::env::var("MILLSTREAM_URL").unwrap_or_else(|_| "memory:".to_owned());
    let backend = connect(&url).await?;
    backend.delete_stream(stream).await?;
    backend.delete_stream(&millstream_worker::names::dead_letters_of(stream)).await?;
    Ok(backend)
}
