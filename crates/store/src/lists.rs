//! Commands on lists: push, pop, range.

use std::ops::Range;

use millstream_engine::value::List;
use millstream_engine::{Effect, ListEffect, ListEnd, Refusal, Value};

use crate::keys::expect;
use crate::txn::Txn;

impl Txn<'_> {
    /// Returns the list at `key`; `None` if the key does not exist.
    pub fn list(&self, key: &[u8]) -> Result<Option<&List>, Refusal> {
        expect(self.get(key), |value| match value {
            Value::List(list) => Some(&**list),
            _ => None,
        })
    }

    /// Returns the number of values; 0 if the key does not exist.
    pub fn list_len(&self, key: &[u8]) -> Result<u64, Refusal> {
        Ok(self.list(key)?.map_or(0, List::len) as u64)
    }

    /// Returns the list and the positions of its values from index `first` to `last`, both included; `None` if the key
    /// does not exist. Negative indexes count from the tail.
    pub fn list_range(
        &self,
        key: &[u8],
        first: i64,
        last: i64,
    ) -> Result<Option<(&List, Range<usize>)>, Refusal> {
        let list = self.list(key)?;
        Ok(list.map(|list| (list, index_range(list.len(), first, last))))
    }

    /// Pushes values at one end, one after the other. Returns the new length.
    pub fn list_push(&mut self, key: &[u8], end: ListEnd, values: &[&[u8]]) -> Result<u64, Refusal> {
        let length = self.list_len(key)? + values.len() as u64;
        self.apply(key, &Effect::List(ListEffect::Push { end, values }));
        Ok(length)
    }

    /// Pops up to `count` values from one end. Before it removes them, it calls `visit` with the list and the number
    /// of values to pop. Returns `None` if the key does not exist.
    pub fn list_pop(
        &mut self,
        key: &[u8],
        end: ListEnd,
        count: u64,
        visit: impl FnOnce(&List, usize),
    ) -> Result<Option<()>, Refusal> {
        let Some(list) = self.list(key)? else { return Ok(None) };
        let count = count.min(list.len() as u64);
        visit(list, count as usize);
        if count > 0 {
            self.apply(key, &Effect::List(ListEffect::Pop { end, count }));
        }
        Ok(Some(()))
    }
}

/// Converts two inclusive indexes, which may be negative, to a range in a list of this length.
fn index_range(length: usize, first: i64, last: i64) -> Range<usize> {
    let length = length as i64;
    let from_head = |index: i64| if index < 0 { (length.saturating_add(index)).max(-1) } else { index };
    let start = from_head(first).clamp(0, length);
    let end = from_head(last).saturating_add(1).clamp(start, length);
    start as usize..end as usize
}

#[cfg(test)]
mod tests {
    use millstream_engine::StringEffect;

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
    fn index_range_is_inclusive_and_accepts_negative_indexes() {
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
            assert_eq!(index_range(5, first, last), expected, "{first} {last}");
        }
        assert!(index_range(0, 0, -1).is_empty());
    }

    #[test]
    fn pop_returns_pushed_values_and_removes_the_empty_list() {
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
    fn list_commands_refuse_other_types() {
        with_txn(|txn| {
            txn.apply(b"s", &Effect::String(StringEffect::Set { value: b"", expires_at_ms: None }));
            assert_eq!(txn.list_push(b"s", ListEnd::Head, &[b"v"]), Err(Refusal::WrongType));
            assert_eq!(txn.list_pop(b"s", ListEnd::Head, 1, |_, _| panic!()), Err(Refusal::WrongType));
        });
    }
}
