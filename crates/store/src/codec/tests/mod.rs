//! The codec: what goes in comes out, what is damaged is refused, and the form stays as it is.

mod changes;
mod fixtures;
mod values;

use millstream_engine::value::Hashing;

use super::effect::{Change, put_change, put_rearrangement, replay};
use super::wire::CodecError;

fn hashing() -> Hashing {
    Hashing::new(7)
}

/// The bytes of all changes of a payload, written anew.
fn rewritten(payload: &[u8]) -> Result<Vec<u8>, CodecError> {
    let mut out = Vec::new();
    replay(payload, &mut |change| match change {
        Change::Key { db, key, effect } => put_change(&mut out, db, key, &effect),
        Change::Rearrange(change) => put_rearrangement(&mut out, &change),
    })?;
    Ok(out)
}
