//! Tests of the codec: round trips, damaged input, and the stability of the encoding.

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

/// Decodes all changes of a payload and encodes them again. An entry in the short form is encoded in the short form.
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

/// Adds entries to a stream and to a record, like a transaction does.
#[derive(Default)]
struct Entries {
    stream: Stream,
    last: Option<super::LastEntry>,
}

impl Entries {
    fn put(&mut self, out: &mut Vec<u8>, place: (u32, &[u8]), entry: (StreamId, &[&[u8]])) {
        let (id, fields) = entry;
        // A stream would reject an id that is not greater, but a record can contain it.
        let is_greater = id > self.stream.last_id();
        let limits = BlockLimits { max_bytes: 0, max_entries: 0 };
        let encoded = is_greater.then(|| self.stream.append(id, fields, limits)).flatten();
        put_entry(&mut self.last, out, place, entry, encoded);
    }
}
