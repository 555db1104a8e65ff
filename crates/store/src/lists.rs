//! Commands on lists: push, pop, look.

use std::ops::Range;

use millstream_engine::value::List;
use millstream_engine::{Effect, ListEnd, Refusal, Value};

use crate::keys::expect;
use crate::txn::Txn;

impl Txn<'_> {
    /// The list under `key`, if there is one.
    pub fn list(&self, key: &[u8]) -> Result<Option<&List>, Refusal> {
        expect(self.get(key), |value| match value {
            Value::List(list) => Some(&**list),
            _ => None,
        })
    }

    /// How many values there are.
    pub fn list_len(&self, key: &[u8]) -> Result<u64, Refusal> {
        Ok(self.list(key)?.map_or(0, List::len) as u64)
    }

    /// The values from position `first` to `last`, both included; negative positions count from the tail.
    pub fn list_range(
        &self,
        key: &[u8],
        first: i64,
        last: i64,
    ) -> Result<Option<(&List, Range<usize>)>, Refusal> {
        let list = self.list(key)?;
        Ok(list.map(|list| (list, positions(list.len(), first, last))))
    }

    /// Values join at one end, one after the other. Gives back the length.
    pub fn list_push(&mut self, key: &[u8], end: ListEnd, values: &[&[u8]]) -> Result<u64, Refusal> {
        let length = self.list_len(key)? + values.len() as u64;
        self.apply(key, &Effect::ListPush { end, values });
        Ok(length)
    }

    /// Up to `count` values leave at one end. `show` gets how many before they go and can hand on what it saw
    /// of the list; `None` if there is no list.
    pub fn list_pop(
        &mut self,
        key: &[u8],
        end: ListEnd,
        count: u64,
        show: impl FnOnce(&List, usize),
    ) -> Result<Option<()>, Refusal> {
        let Some(list) = self.list(key)? else { return Ok(None) };
        let count = count.min(list.len() as u64);
        show(list, count as usize);
        if count > 0 {
            self.apply(key, &Effect::ListPop { end, count });
        }
        Ok(Some(()))
    }
}

/// The range of positions that two inclusive, possibly negative ones mean in a list of this length.
fn positions(length: usize, first: i64, last: i64) -> Range<usize> {
    let length = length as i64;
    let from_head =
        |position: i64| if position < 0 { (length.saturating_add(position)).max(-1) } else { position };
    let start = from_head(first).clamp(0, length);
    let end = from_head(last).saturating_add(1).clamp(start, length);
    start as usize..end as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Store, StoreOptions};

    fn with_txn(test: impl FnOnce(&mut Txn<'_>)) {
        let store = Store::new(StoreOptions::default());
        test(&mut store.lock(0, [&b"l"[..], b"s"], 0));
    }

    fn popped(txn: &mut Txn<'_>, end: ListEnd, count: u64) -> Option<Vec<Vec<u8>>> {
        let mut values = Vec::new();
        txn.list_pop(b"l", end, count, |list, count| {
            values.extend(list.from_end(end, count).map(<[u8]>::to_vec));
        })
        .unwrap()
        .map(|()| values)
    }

    #[test]
    fn positions_are_inclusive_and_may_be_negative() {
        let cases = [
            (0, -1, 0..5),
            (1, 2, 1..3),
            (-2, -1, 3..5),
            (-100, 0, 0..1),
            (3, 1, 3..3),
            (7, 9, 5..5),
            (0, -6, 0..0),
            (0, -100, 0..0),
            (i64::MIN, i64::MAX, 0..5),
            (-100, -5, 0..1),
        ];
        for (first, last, expected) in cases {
            assert_eq!(positions(5, first, last), expected, "{first} {last}");
        }
        assert!(positions(0, 0, -1).is_empty());
    }

    #[test]
    fn what_is_pushed_is_popped_and_the_empty_list_goes() {
        with_txn(|txn| {
            assert_eq!(popped(txn, ListEnd::Head, 1), None);
            assert_eq!(txn.list_push(b"l", ListEnd::Tail, &[b"b", b"c"]), Ok(2));
            assert_eq!(txn.list_push(b"l", ListEnd::Head, &[b"a"]), Ok(3));
            assert_eq!(popped(txn, ListEnd::Head, 0), Some(vec![]));
            assert_eq!(popped(txn, ListEnd::Tail, 2), Some(vec![b"c".to_vec(), b"b".to_vec()]));
            assert_eq!(popped(txn, ListEnd::Head, 9), Some(vec![b"a".to_vec()]));
            assert!(!txn.exists(b"l"));
        });
    }

    #[test]
    fn other_types_are_refused() {
        with_txn(|txn| {
            txn.apply(b"s", &Effect::StringSet { value: b"", expires_at_ms: None });
            assert_eq!(txn.list_push(b"s", ListEnd::Head, &[b"v"]), Err(Refusal::WrongType));
            assert_eq!(txn.list_pop(b"s", ListEnd::Head, 1, |_, _| panic!()), Err(Refusal::WrongType));
        });
    }
}
