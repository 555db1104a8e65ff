//! The format of dead letters, which the store and the worker runtime share: the names of the fields, the reasons, and
//! the default stream.
//!
//! A dead letter has the fields of the original entry, followed by those of [`FIELDS`]. Fields of the original entry
//! whose names start with [`PREFIX`] come from an earlier dead letter, or from a producer who made them up, and are
//! left out.

use millstream_engine::stream::EntryRef;

/// The start of the names of all fields that describe the failure.
pub const PREFIX: &[u8] = b"dlq.";
/// The stream of the original entry.
pub const STREAM: &str = "dlq.stream";
/// The id of the original entry.
pub const ID: &str = "dlq.id";
/// The group that gave up on the entry.
pub const GROUP: &str = "dlq.group";
/// The consumer that gave up on it, or had it last; empty if it was released.
pub const CONSUMER: &str = "dlq.consumer";
/// Number of deliveries.
pub const DELIVERIES: &str = "dlq.deliveries";
/// Why the entry was dead-lettered.
pub const REASON: &str = "dlq.reason";
/// The last error; empty if it is unknown.
pub const ERROR: &str = "dlq.error";
/// The type of the last error.
pub const ERROR_TYPE: &str = "dlq.error_type";
/// When the entry was added, in milliseconds since 1970.
pub const FIRST_SEEN: &str = "dlq.first_seen";
/// When it was dead-lettered, in milliseconds since 1970.
pub const DEAD_AT: &str = "dlq.dead_at";
/// Number of earlier redrives.
pub const REDRIVES: &str = "dlq.redrives";

/// The names of all fields that describe the failure, in their order.
pub const FIELDS: [&str; 11] =
    [STREAM, ID, GROUP, CONSUMER, DELIVERIES, REASON, ERROR, ERROR_TYPE, FIRST_SEEN, DEAD_AT, REDRIVES];

/// Reason: the entry was delivered as often as allowed, and no consumer acknowledged it.
pub const MAX_DELIVERIES: &str = "max_deliveries";
/// Reason: a consumer rejected the entry.
pub const REJECTED: &str = "rejected";
/// Reason: the entry was deleted or trimmed while it was pending.
pub const PAYLOAD_GONE: &str = "payload_gone";

/// Returns the default dead-letter stream of a stream: `{orders}:dlq` for `orders`.
pub fn default_stream(stream: &[u8]) -> Vec<u8> {
    key_in_same_slot(stream, "dlq")
}

/// Returns a key that is in the same cluster slot as the stream: it keeps the hash tag of the stream, or makes the
/// whole name of the stream the hash tag.
///
/// Exception: if the name of the stream contains a `}` but no hash tag, the key can be in another slot.
pub fn key_in_same_slot(stream: &[u8], suffix: &str) -> Vec<u8> {
    let end = [b":", suffix.as_bytes()].concat();
    match has_hash_tag(stream) {
        true => [stream, &end].concat(),
        false => [b"{", stream, b"}", &end].concat(),
    }
}

/// Whether a cluster hashes only a part of the name: the text between the first `{` and the next `}`, unless it is
/// empty.
fn has_hash_tag(name: &[u8]) -> bool {
    let after = name.iter().position(|byte| *byte == b'{').map(|start| &name[start + 1..]);
    after.and_then(|rest| rest.iter().position(|byte| *byte == b'}')).is_some_and(|end| end > 0)
}

/// At least as many bytes as the names in [`FIELDS`] and the numbers and the reason among their values have together.
const DESCRIPTION_BYTES: u64 = 256;

/// What the store knows about an entry that it dead-letters.
pub(crate) struct Failure<'a> {
    pub(crate) stream: &'a [u8],
    pub(crate) id: String,
    pub(crate) group: &'a [u8],
    pub(crate) consumer: &'a [u8],
    pub(crate) deliveries: u64,
    pub(crate) reason: &'static str,
    pub(crate) first_seen_ms: u64,
    pub(crate) dead_at_ms: u64,
}

impl Failure<'_> {
    /// Returns about how many bytes the dead letter has, never too few, without building it.
    pub(crate) fn bytes(&self, entry: Option<&EntryRef<'_>>) -> u64 {
        let names = [self.stream, self.group, self.consumer];
        let names = names.iter().map(|name| name.len() as u64).sum::<u64>();
        entry.map_or(0, EntryRef::text_bytes) + names + DESCRIPTION_BYTES
    }

    /// Builds the fields of the dead letter: name, value, name, value… `entry` is `None` if it no longer exists.
    pub(crate) fn fields(&self, entry: Option<&EntryRef<'_>>) -> Vec<Vec<u8>> {
        let mut fields = Vec::new();
        for (name, value) in entry.iter().flat_map(|entry| entry.fields()) {
            if !name.starts_with(PREFIX) {
                fields.extend([name.to_vec(), value.to_vec()]);
            }
        }
        let number = |number: u64| number.to_string().into_bytes();
        let values: [Vec<u8>; FIELDS.len()] = [
            self.stream.to_vec(),
            self.id.clone().into_bytes(),
            self.group.to_vec(),
            self.consumer.to_vec(),
            number(self.deliveries),
            self.reason.into(),
            Vec::new(),
            Vec::new(),
            number(self.first_seen_ms),
            number(self.dead_at_ms),
            // Any producer can write this field. So redrives are counted by keys that producers cannot write.
            number(0),
        ];
        fields.extend(FIELDS.iter().zip(values).flat_map(|(name, value)| [name.as_bytes().to_vec(), value]));
        fields
    }
}
