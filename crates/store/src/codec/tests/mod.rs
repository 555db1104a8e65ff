//! The codec: what goes in comes out, what is damaged is refused, and the form stays as it is.

mod changes;
mod fixtures;
mod values;

use millstream_engine::value::Hashing;
use millstream_engine::{BlockLimits, Effect, Stream, StreamEffect, StreamId};

use super::effect::{RecordedChange, put_change, put_rearrangement, replay};
use super::entries::put_entry;
use super::wire::CodecError;

fn hashing() -> Hashing {
    Hashing::new(7)
}

/// The bytes of all changes of a payload, written anew. An entry that lay in the block of the one before it does so again.
fn rewritten(payload: &[u8]) -> Result<Vec<u8>, CodecError> {
    let (mut out, mut entries) = (Vec::new(), Entries::default());
    replay(payload, &mut |change| {
        if let RecordedChange::Key { db, key, effect: Effect::Stream(StreamEffect::Append { id, fields }) } =
            change
        {
            let before = out.len();
            entries.put(&mut out, (db, key), (id, fields));
            if !payload.starts_with(&out) {
                out.truncate(before);
                entries = Entries::default();
                entries.put(&mut out, (db, key), (id, fields));
            }
            return;
        }
        entries = Entries::default();
        match change {
            RecordedChange::Key { db, key, effect } => put_change(&mut out, db, key, &effect),
            RecordedChange::Rearrange(change) => put_rearrangement(&mut out, &change),
        }
    })?;
    Ok(out)
}

/// Entries as they go to a stream and into a record.
#[derive(Default)]
struct Entries {
    stream: Stream,
    last: Option<super::LastEntry>,
}

impl Entries {
    fn put(&mut self, out: &mut Vec<u8>, place: (u32, &[u8]), entry: (StreamId, &[&[u8]])) {
        let (id, fields) = entry;
        // No stream would take others, but a record may have them.
        let is_greater = id > self.stream.last_id();
        let limits = BlockLimits { max_bytes: 0, max_entries: 0 };
        let laid = is_greater.then(|| self.stream.append(id, fields, limits)).flatten();
        put_entry(&mut self.last, out, place, entry, laid);
    }
}
