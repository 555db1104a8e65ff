//! Partitions: a logical stream that is cut into several streams, so that a cluster can spread them over its nodes.
//!
//! A partition is an ordinary stream. The hash `{orders}:partitions` lists the partitions of `orders`:
//!
//! ```text
//! generation  1
//! 1           ["orders:{ae}.1","orders:{ad}.1","orders:{6b}.1","orders:{6c}.1"]
//! hash        crc32-65521
//! key         customer                  the field that holds the key; absent if the list names none
//! ```
//!
//! A producer in any language reads the list once and adds a message to the stream with the number
//! `crc32(key) mod 65521 mod P`, so that all messages of a key are in one partition. Names are data: nobody computes
//! them. The number of partitions is fixed when they are created.
//!
//! Each name has a hash tag of its own, chosen so that the slots of the partitions are evenly spaced (`tags.rs`). So a
//! cluster of any size has about the same number of partitions on each node, also after it has been rebalanced.

mod named;
mod tags;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;

pub use named::Named;

use crate::backend::{Admin, Backend, Error, ErrorKind, Start};
use crate::names::key_in_same_slot;

/// The greatest prime below 2¹⁶. It makes CRC-32, which is linear, spread keys of similar form evenly.
const PRIME: u32 = 65_521;
/// The name of the function from keys to partitions, as the list states it.
const HASH: &str = "crc32-65521";
/// The number in the names of partitions. A list with another one was written by a later version.
const GENERATION: &str = "1";
/// The group that exists while an empty partition is created: the stream family has no command that only creates a
/// stream.
const FIRST_GROUP: &str = "millstream:partition";

/// The partitions of a logical stream. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partitions {
    stream: Arc<str>,
    names: Arc<[Arc<str>]>,
    key_field: Option<Arc<str>>,
}

/// Returns the number of the partition, from 0, that has the messages of a key.
pub fn partition_of(key: &[u8], partitions: usize) -> usize {
    let hash = crc32fast::hash(key) % PRIME;
    hash as usize % partitions.max(1)
}

/// Returns the hash that lists the partitions of a stream.
pub fn partitions_key(stream: &str) -> String {
    key_in_same_slot(stream, "partitions")
}

/// Splits the name of one partition, such as `orders/3`, into the logical stream and the number. `None` for any other
/// name.
pub fn split_name(name: &str) -> Option<(&str, usize)> {
    let (stream, number) = name.rsplit_once('/')?;
    let is_number = !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit());
    Some((stream, number.parse().ok().filter(|_| is_number && !stream.is_empty())?))
}

/// Returns the logical stream to which a stream with the name of a partition belongs: `orders` for `orders:{ae}.1`.
pub fn logical_name(name: &str) -> Option<&str> {
    let (before, generation) = name.rsplit_once("}.")?;
    let (stream, tag) = before.rsplit_once(":{")?;
    let is_tag = !tag.is_empty() && tag.bytes().all(|c| c.is_ascii_hexdigit());
    (is_tag && generation == GENERATION && !stream.is_empty()).then_some(stream)
}

/// Returns the glob pattern of the partitions of all logical streams whose names match a glob pattern.
pub(crate) fn partitions_matching(pattern: &str) -> String {
    format!("{pattern}:{{*}}.{GENERATION}")
}

impl Partitions {
    /// Maximum number of partitions of a stream.
    pub const MAX: usize = 1024;

    /// Chooses the names of `count` partitions. `key_field` is the field that holds the key.
    pub fn plan(stream: &str, count: usize, key_field: Option<&str>) -> Result<Partitions, Error> {
        if count == 0 || count > Partitions::MAX {
            let max = Partitions::MAX;
            return Err(refused(format!(
                "{count} partitions of {stream}: the number must be from 1 to {max}"
            )));
        }
        if stream.is_empty() || stream.contains(['{', '}', '/']) {
            return Err(refused(format!(
                "cannot partition '{stream}': the name must not be empty and must not contain {{, }} or /, because names of \
                 partitions have a hash tag of their own"
            )));
        }
        let tags = tags::evenly_spaced(count).into_iter();
        let names = tags.map(|tag| format!("{stream}:{{{tag}}}.{GENERATION}").into()).collect();
        Ok(Partitions { stream: stream.into(), names, key_field: key_field.map(Arc::from) })
    }

    /// Reads the list of the partitions of a stream. `None` if the stream has no partitions.
    pub async fn find(backend: &dyn Backend, stream: &str) -> Result<Option<Partitions>, Error> {
        let fields = ["generation", GENERATION, "hash", "key"].map(str::to_owned);
        let found = match backend.hash_get(&partitions_key(stream), &fields).await {
            // Something else has this name, or the user may not know: then the stream is an ordinary one.
            Err(error) if matches!(error.kind(), ErrorKind::WrongType | ErrorKind::Denied) => {
                return Ok(None);
            }
            found => found?,
        };
        let [Some(generation), list, hash, key] = &found[..] else { return Ok(None) };
        Partitions::parse(stream, generation, list.as_ref(), hash.as_ref(), key.as_ref()).map(Some)
    }

    fn parse(
        stream: &str,
        generation: &[u8],
        list: Option<&Bytes>,
        hash: Option<&Bytes>,
        key: Option<&Bytes>,
    ) -> Result<Partitions, Error> {
        let invalid = |what: &str| {
            refused(format!("the list of partitions of {stream} in {} {what}", partitions_key(stream)))
        };
        if generation != GENERATION.as_bytes() || hash.is_none_or(|hash| hash != HASH.as_bytes()) {
            return Err(invalid("was written by a later version of Millstream: update this program"));
        }
        let names: Vec<String> = list
            .and_then(|list| serde_json::from_slice(list).ok())
            .filter(|names: &Vec<String>| !names.is_empty() && names.len() <= Partitions::MAX)
            .ok_or_else(|| invalid("is damaged: its field 1 must be a JSON array of stream names"))?;
        let key_field = match key.map(|key| std::str::from_utf8(key)) {
            None => None,
            Some(Ok(field)) => Some(Arc::from(field)),
            Some(Err(_)) => return Err(invalid("is damaged: its field key is not text")),
        };
        Ok(Partitions { stream: stream.into(), names: names.into_iter().map(Arc::from).collect(), key_field })
    }

    /// Creates the streams, and then the list. Returns false, without any change, if this list exists.
    ///
    /// Fails if the stream has another list, or if a stream with the name of the logical one has entries.
    pub async fn create(&self, admin: &dyn Admin) -> Result<bool, Error> {
        let stream = &*self.stream;
        if let Some(found) = Partitions::find(admin, stream).await? {
            return if found == *self { Ok(false) } else { Err(self.differs_from(&found)) };
        }
        if let Some(info) = admin.stream(stream).await?
            && info.length > 0
        {
            return Err(refused(format!(
                "{stream} is a stream with {} entries: partitions need a name that no stream has; choose another one, or \
                 move the entries and delete the stream",
                info.length
            )));
        }
        for name in self.names.iter() {
            admin.create_group(name, FIRST_GROUP, Start::Beginning).await?;
            admin.delete_group(name, FIRST_GROUP).await?;
        }
        let mut list: Vec<(String, Bytes)> = vec![
            (GENERATION.to_owned(), serde_json::to_vec(&self.names()).unwrap_or_default().into()),
            ("hash".to_owned(), HASH.into()),
        ];
        list.extend(
            self.key_field().map(|field| ("key".to_owned(), Bytes::copy_from_slice(field.as_bytes()))),
        );
        // All fields are set in one step, so no reader sees a part of the list.
        list.push(("generation".to_owned(), GENERATION.into()));
        admin.hash_set(&partitions_key(stream), &list).await?;
        Ok(true)
    }

    fn differs_from(&self, found: &Partitions) -> Error {
        let key = |partitions: &Partitions| match partitions.key_field() {
            Some(field) => format!("the key in the field {field}"),
            None => "no key".to_owned(),
        };
        refused(format!(
            "{} has {} partitions with {} already: their number and their key cannot be changed",
            self.stream,
            found.len(),
            key(found)
        ))
    }

    /// Returns the name of the logical stream.
    pub fn stream(&self) -> &Arc<str> {
        &self.stream
    }

    /// Returns the names of the partitions in the order of their numbers.
    pub fn names(&self) -> Vec<&str> {
        self.names.iter().map(|name| &**name).collect()
    }

    /// Returns the name of a partition, or `None` if there is none with this number.
    pub fn name(&self, number: usize) -> Option<&Arc<str>> {
        self.names.get(number)
    }

    /// Returns the number of partitions, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a list is never empty")]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns the field that holds the key, if the list names one.
    pub fn key_field(&self) -> Option<&str> {
        self.key_field.as_deref()
    }

    /// Returns the number of the partition that has the messages of a key.
    pub fn of_key(&self, key: &[u8]) -> usize {
        partition_of(key, self.len())
    }

    /// Returns the number of the partition with this name.
    pub fn number_of(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|found| **found == *name)
    }
}

fn refused(message: String) -> Error {
    Error::new(ErrorKind::Refused, message)
}
