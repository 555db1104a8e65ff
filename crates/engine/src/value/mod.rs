//! The value of a key: a stream, or a string, hash, list or set.
//!
//! Values do not know keys, expiry or databases, which belong to the keyspace. They do not know the type
//! names that clients see either. Queries take `&self`; the content changes only when the keyspace applies an
//! effect.

mod float80;
mod hash;
mod list;
mod packed;
mod set;
mod table;
mod text;

pub use float80::Float80;
pub use hash::Hash;
pub use list::List;
pub use set::Set;
pub use table::Hashing;
pub use text::Text;

use crate::memory::allocation_bytes;
use crate::{BlockLimits, Effect, HashEffect, ListEffect, SetEffect, Stream, StringEffect};

/// The value of a key. It has 24 bytes: everything but a string is boxed.
#[derive(Clone)]
pub enum Value {
    /// Entries, groups and their pending entries.
    Stream(Box<Stream>),
    /// Bytes.
    String(Text),
    /// Fields and their values.
    Hash(Box<Hash>),
    /// Values in order, with pushes and pops at both ends.
    List(Box<List>),
    /// Distinct members.
    Set(Box<Set>),
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// [`Value::Stream`]
    Stream,
    /// [`Value::String`]
    String,
    /// [`Value::Hash`]
    Hash,
    /// [`Value::List`]
    List,
    /// [`Value::Set`]
    Set,
}

/// How a value is stored in memory, in the classes that OBJECT ENCODING shows to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A string that is the canonical text of an integer.
    Integer,
    /// A string that Redis would store in one allocation with its header.
    ShortString,
    /// Any other string.
    LongString,
    /// A few short items in one allocation.
    Packed,
    /// A sorted array of integers.
    SortedIntegers,
    /// A hash table.
    Table,
    /// A list too large for one packed node.
    LongList,
    /// The blocks of a stream.
    Blocks,
}

impl Value {
    /// Returns the empty value that `effect` starts from if its key does not exist; `None` if the effect then
    /// changes nothing.
    pub(crate) fn created_by(effect: &Effect<'_>) -> Option<Value> {
        match effect {
            Effect::String(_) => Some(Value::String(Text::default())),
            Effect::Hash(HashEffect::Set { .. }) => Some(Value::Hash(Box::default())),
            Effect::List(ListEffect::Push { .. }) => Some(Value::List(Box::default())),
            Effect::Set(SetEffect::Add { .. }) => Some(Value::Set(Box::default())),
            Effect::Stream(_) => Some(Value::Stream(Box::new(Stream::new()))),
            Effect::Hash(HashEffect::Delete { .. })
            | Effect::List(ListEffect::Pop { .. })
            | Effect::Set(SetEffect::Remove { .. }) => None,
            Effect::Delete | Effect::ExpireAt { .. } | Effect::Persist => None,
        }
    }

    /// Changes the content. Effects on the key itself (delete, expiry) are applied by the keyspace and do
    /// nothing here.
    ///
    /// # Panics
    /// If the effect is for another type of value. This is a bug in the caller: it decided the effect from a
    /// different value.
    #[inline(always)]
    pub(crate) fn apply(&mut self, effect: &Effect<'_>, limits: BlockLimits, hashing: &Hashing) {
        match (self, *effect) {
            (Value::Stream(stream), Effect::Stream(change)) => stream.apply(&change, limits),
            (Value::String(text), Effect::String(StringEffect::Set { value, .. })) => text.apply_set(value),
            (other, Effect::String(StringEffect::Set { value, .. })) => {
                *other = Value::String(Text::new(value))
            }
            (Value::String(text), Effect::String(StringEffect::Append { tail })) => text.apply_append(tail),
            (Value::Hash(hash), Effect::Hash(HashEffect::Set { pairs })) => hash.apply_set(pairs, hashing),
            (Value::Hash(hash), Effect::Hash(HashEffect::Delete { fields })) => hash.apply_delete(fields),
            (Value::List(list), Effect::List(ListEffect::Push { end, values })) => {
                list.apply_push(end, values)
            }
            (Value::List(list), Effect::List(ListEffect::Pop { end, count })) => list.apply_pop(end, count),
            (Value::Set(set), Effect::Set(SetEffect::Add { members })) => set.apply_add(members, hashing),
            (Value::Set(set), Effect::Set(SetEffect::Remove { members })) => set.apply_remove(members),
            (_, Effect::Delete | Effect::ExpireAt { .. } | Effect::Persist) => {}
            (value, effect) => panic!("{effect:?} cannot change a {:?}", value.kind()),
        }
    }

    /// Returns the type.
    pub fn kind(&self) -> Kind {
        match self {
            Value::Stream(_) => Kind::Stream,
            Value::String(_) => Kind::String,
            Value::Hash(_) => Kind::Hash,
            Value::List(_) => Kind::List,
            Value::Set(_) => Kind::Set,
        }
    }

    /// Returns the memory layout.
    pub fn layout(&self) -> Layout {
        match self {
            Value::Stream(_) => Layout::Blocks,
            Value::String(text) => text.layout(),
            Value::Hash(hash) => hash.layout(),
            Value::List(list) => list.layout(),
            Value::Set(set) => set.layout(),
        }
    }

    /// Returns whether the key has to be removed because its value is empty. Strings and streams can be
    /// empty.
    #[inline]
    pub(crate) fn is_empty_collection(&self) -> bool {
        match self {
            Value::Stream(_) | Value::String(_) => false,
            Value::Hash(hash) => hash.is_empty(),
            Value::List(list) => list.is_empty(),
            Value::Set(set) => set.is_empty(),
        }
    }

    /// Returns whether freeing this value takes so long that it should be deferred.
    pub fn is_large(&self) -> bool {
        /// Up to this many items or bytes, freeing a value is faster than handing it to another thread.
        const FEW_ITEMS: usize = 1024;
        const FEW_BYTES: usize = 1 << 20;
        match self {
            Value::Stream(stream) => stream.is_large(),
            Value::String(text) => text.as_bytes().len() > FEW_BYTES,
            Value::Hash(hash) => hash.len() > FEW_ITEMS,
            Value::List(list) => list.len() > FEW_ITEMS,
            Value::Set(set) => set.len() > FEW_ITEMS,
        }
    }

    /// If `effect` would remove a large part of the value, removes that part now and returns it, so that it
    /// can be freed later. The caller must then apply `effect`.
    #[inline(always)]
    pub(crate) fn take_deferred(&mut self, effect: &Effect<'_>) -> Option<Value> {
        match (self, effect) {
            (Value::Stream(stream), Effect::Stream(change)) => {
                Some(Value::Stream(Box::new(stream.take_deferred(change)?)))
            }
            (value, Effect::String(StringEffect::Set { .. })) if value.is_large() => {
                Some(std::mem::replace(value, Value::String(Text::default())))
            }
            _ => None,
        }
    }

    /// Frees up to `blocks` blocks or one group of a stream, or the whole value of any other type. Returns
    /// whether there may be more to free. After this call, the value can only be freed further.
    pub fn free_some(&mut self, blocks: usize) -> bool {
        match self {
            Value::Stream(stream) => stream.free_some(blocks),
            other => {
                *other = Value::String(Text::default());
                false
            }
        }
    }

    /// Returns the bytes allocated for this value, including the overhead of the allocator.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Value::Stream(stream) => boxed::<Stream>() + stream.memory_bytes(),
            Value::String(text) => text.memory_bytes(),
            Value::Hash(hash) => boxed::<Hash>() + hash.memory_bytes(),
            Value::List(list) => boxed::<List>() + list.memory_bytes(),
            Value::Set(set) => boxed::<Set>() + set.memory_bytes(),
        }
    }

    /// Verifies every invariant of the value.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Value::Stream(stream) => stream.check(),
            Value::String(_) => Ok(()),
            Value::Hash(hash) => hash.check(),
            Value::List(list) => list.check(),
            Value::Set(set) => set.check(),
        }
    }
}

fn boxed<T>() -> usize {
    allocation_bytes(size_of::<T>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_has_24_bytes() {
        assert_eq!(size_of::<Value>(), 24);
    }

    #[test]
    fn string_set_replaces_a_value_of_any_type() {
        let mut value = Value::created_by(&Effect::Set(SetEffect::Add { members: &[] })).unwrap();
        let effect = Effect::String(StringEffect::Set { value: b"text", expires_at_ms: None });
        value.apply(&effect, BlockLimits::default(), &Hashing::new(1));
        assert_eq!(value.kind(), Kind::String);
    }

    #[test]
    #[should_panic(expected = "cannot change a String")]
    fn apply_panics_for_an_effect_of_another_type() {
        let mut value = Value::String(Text::new(b"text"));
        value.apply(
            &Effect::Set(SetEffect::Add { members: &[b"m"] }),
            BlockLimits::default(),
            &Hashing::new(1),
        );
    }
}
