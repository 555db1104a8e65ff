//! The codec: what goes in comes out, what is damaged is refused, and the form stays as it is.

mod changes;
mod fixtures;
mod values;

use millstream_engine::value::Hashing;
use millstream_engine::{Effect, StreamEffect};

use super::effect::{Change, put_change, put_rearrangement, replay};
use super::entries::put_entry;
use super::wire::CodecError;

fn hashing() -> Hashing {
    Hashing::new(7)
}

/// The bytes of all changes of a payload, written anew.
fn rewritten(payload: &[u8]) -> Result<Vec<u8>, CodecError> {
    let (mut out, mut last) = (Vec::new(), None);
    replay(payload, &mut |change| {
        if let Change::Key { db, key, effect: Effect::Stream(StreamEffect::Append { id, fields }) } = change {
            return put_entry(&mut last, &mut out, (db, key), id, fields);
        }
        last = None;
        match change {
            Change::Key { db, key, effect } => put_change(&mut out, db, key, &effect),
            Change::Rearrange(change) => put_rearrangement(&mut out, &change),
        }
    })?;
    Ok(out)
}
