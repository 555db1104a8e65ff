//! Entries that producers add to a stream one after the other: of what is like the entry before, nothing is written again.
//!
//! ```text
//! entry := 33  db:number  key:text  id  count:number  (name:text value:text)…
//! next  := 55  value:text…        the key, the names, and the id that follows: those of the entry before it in the record
//! ```

use millstream_engine::StreamId;
use millstream_engine::bytes::{Draft, short};
use smallvec::SmallVec;

use super::effect::tag;

/// A piece of the record: from, to.
type Span = (usize, usize);

/// The entry that was written last, by where it is in the record.
pub(crate) struct LastEntry {
    db: u32,
    key: Span,
    id: StreamId,
    names: SmallVec<[Span; 8]>,
}

/// Appends an entry, all of it or what is not like the last one in `out`; it is the last then.
#[inline]
pub(crate) fn put_entry(
    last: &mut Option<LastEntry>,
    out: &mut Vec<u8>,
    (db, key): (u32, &[u8]),
    id: StreamId,
    fields: &[&[u8]],
) {
    let is_next = last.as_mut().is_some_and(|last| last.put_next(out, (db, key), id, fields));
    if !is_next {
        *last = Some(LastEntry::put(out, (db, key), id, fields));
    }
}

impl LastEntry {
    #[inline(never)]
    fn put(out: &mut Vec<u8>, (db, key): (u32, &[u8]), id: StreamId, fields: &[&[u8]]) -> LastEntry {
        let mut draft = Draft::new(out);
        draft.byte(tag::APPEND);
        draft.number(u64::from(db));
        let key = put_text(&mut draft, key);
        draft.number(id.ms);
        draft.number(id.seq);
        draft.number(fields.len() as u64 / 2);
        let mut names = SmallVec::new();
        for [name, value] in fields.as_chunks::<2>().0 {
            names.push(put_text(&mut draft, name));
            draft.text(value);
        }
        draft.finish();
        LastEntry { db, key, id, names }
    }

    /// Appends an entry if it is like this one but for its values.
    #[inline]
    fn put_next(
        &mut self,
        out: &mut Vec<u8>,
        (db, key): (u32, &[u8]),
        id: StreamId,
        fields: &[&[u8]],
    ) -> bool {
        let pairs = fields.as_chunks::<2>().0;
        let is_at = |&(from, to): &Span, text: &[u8]| short::equal(&out[from..to], text);
        if db != self.db
            || self.id.next() != Some(id)
            || pairs.len() != self.names.len()
            || !is_at(&self.key, key)
        {
            return false;
        }
        for (span, [name, _]) in self.names.iter().zip(pairs) {
            if !is_at(span, name) {
                return false;
            }
        }
        let mut draft = Draft::new(out);
        draft.byte(tag::APPEND_NEXT);
        for [_, value] in pairs {
            draft.text(value);
        }
        draft.finish();
        self.id = id;
        true
    }
}

/// Adds a text, and says where it is.
#[inline(always)]
fn put_text(draft: &mut Draft<'_>, text: &[u8]) -> Span {
    draft.text(text);
    let end = draft.position();
    (end - text.len(), end)
}
