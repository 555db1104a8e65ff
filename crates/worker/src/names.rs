//! Names: of consumers, of dead-letter streams, and of keys that workers use in the store.
//!
//! In a cluster, all keys that belong to a stream must be in the slot of the stream. [`key_in_same_slot`] makes
//! such names: it keeps the hash tag of the stream, or makes the whole name of the stream the hash tag.

use std::fmt;
use std::process;

use millstream_store::dead_letter;

/// The consumer name of a worker.
///
/// A name identifies a worker in its group. There are two kinds of names, which differ in what happens after a restart:
///
/// * [`unique`](WorkerName::unique), the default: if a process dies, other workers take over its messages when their
///   leases have run out. Safe everywhere, even if many processes start and end.
/// * [`stable`](WorkerName::stable) and [`given`](WorkerName::given): the next process with this name releases what
///   the previous one left pending, without waiting for leases. Only one live worker can use such a name; a second one
///   waits, and then fails with [`NameInUse`](crate::backend::ErrorKind::NameInUse).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerName {
    name: String,
    survives_restart: bool,
}

impl WorkerName {
    /// Returns `HOST-PROCESS-RANDOM`, a name that no other process has or will have.
    pub fn unique() -> WorkerName {
        let name = format!("{}-{}-{:06x}", host(), process::id(), fastrand::u32(..0x100_0000));
        WorkerName { name, survives_restart: false }
    }

    /// Returns `HOST-INDEX`, which is the same after a restart on this host.
    pub fn stable(index: usize) -> WorkerName {
        WorkerName { name: format!("{}-{index}", host()), survives_restart: true }
    }

    /// Returns a name of your choice, which is the same after a restart.
    pub fn given(name: impl Into<String>) -> WorkerName {
        WorkerName { name: name.into(), survives_restart: true }
    }

    /// Returns the name as the store knows it.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// Whether the next process will have the same name.
    pub fn survives_restart(&self) -> bool {
        self.survives_restart
    }
}

impl Default for WorkerName {
    fn default() -> WorkerName {
        WorkerName::unique()
    }
}

impl fmt::Display for WorkerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl From<&str> for WorkerName {
    fn from(name: &str) -> WorkerName {
        WorkerName::given(name)
    }
}

impl From<String> for WorkerName {
    fn from(name: String) -> WorkerName {
        WorkerName::given(name)
    }
}

/// Returns the name of this host, or `host` if it is unknown.
pub(crate) fn host() -> String {
    let from_files = || {
        ["/proc/sys/kernel/hostname", "/etc/hostname"]
            .into_iter()
            .filter_map(|path| std::fs::read_to_string(path).ok())
            .map(|name| name.trim().to_owned())
            .find(|name| !name.is_empty())
    };
    let from_environment = || std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    from_files().or_else(from_environment).unwrap_or_else(|| "host".to_owned())
}

/// Returns the default dead-letter stream of a stream: `{orders}:dlq` for `orders`.
pub fn dead_letters_of(stream: &str) -> String {
    key_in_same_slot(stream, "dlq")
}

/// The end of the name of a dead-letter stream.
pub const DEAD_LETTERS_SUFFIX: &str = ":dlq";

/// Returns the stream that a dead-letter stream belongs to by its name: `orders` for `{orders}:dlq` and for
/// `orders:dlq`, which other programs use. `None` if the name does not end in [`DEAD_LETTERS_SUFFIX`].
pub fn origin_of(dead_letters: &str) -> Option<&str> {
    let stream = dead_letters.strip_suffix(DEAD_LETTERS_SUFFIX)?;
    let untagged = stream.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    Some(untagged.filter(|name| dead_letters_of(name) == dead_letters).unwrap_or(stream))
}

/// Returns whether a pattern of streams can match this name. Dead-letter streams, partitions
/// (`orders:{TAG}.GENERATION`) and control streams (`{orders}:control:GROUP`) never match: workers do not read them as
/// streams of their own.
pub fn can_match_pattern(name: &str) -> bool {
    let is_partition = name.rsplit_once("}.").is_some_and(|(before, generation)| {
        let tag = before.rsplit_once('{').map_or("", |(_, tag)| tag);
        let is_hexadecimal = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_hexdigit());
        is_hexadecimal(tag) && !generation.is_empty() && generation.bytes().all(|c| c.is_ascii_digit())
    });
    !name.ends_with(":dlq") && !is_partition && !is_control_stream(name)
}

/// Returns the key under which the store remembers a processed deduplication key.
pub(crate) fn seen_key(stream: &str, group: &str, key: &str) -> String {
    key_in_same_slot(stream, &format!("seen:{group}:{key}"))
}

/// Returns the hash that holds the [`RetryRecord`](crate::retry_record::RetryRecord)s of a group.
pub fn retry_key(stream: &str, group: &str) -> String {
    key_in_same_slot(stream, &format!("retry:{group}"))
}

/// Returns the hash that holds the heartbeats of a group's workers.
pub fn workers_key(stream: &str, group: &str) -> String {
    key_in_same_slot(stream, &format!("workers:{group}"))
}

/// Returns the string that says which worker of a group owns a stream now. It expires.
pub fn lease_key(stream: &str, group: &str) -> String {
    key_in_same_slot(stream, &format!("lease:{group}"))
}

/// Returns the string with the number of the last owner of a stream in a group. It does not expire.
pub fn fence_key(stream: &str, group: &str) -> String {
    key_in_same_slot(stream, &format!("fence:{group}"))
}

/// Returns the hash in which the workers of a group say which partitions of a stream they own.
pub fn members_key(stream: &str, group: &str) -> String {
    key_in_same_slot(stream, &format!("members:{group}"))
}

/// Returns the stream that tells the workers of a group when one of them joins, leaves, or gives up a partition.
pub fn control_stream(stream: &str, group: &str) -> String {
    key_in_same_slot(stream, &format!("control:{group}"))
}

/// Returns the key under which the store remembers the `n`-th redrive of an entry. `group` is empty if the entry itself
/// was added by a redrive to all groups.
pub(crate) fn redrive_key(stream: &str, group: &str, id: &str, n: u64) -> String {
    key_in_same_slot(stream, &format!("redriven:{group}:{id}:{n}"))
}

/// Returns whether a stream has the name of a [control stream](control_stream). Tools do not list these streams.
pub fn is_control_stream(name: &str) -> bool {
    let before = name.split_once(":control:").map_or("", |(before, _)| before);
    before.split_once('{').is_some_and(|(_, tagged)| tagged.contains('}'))
}

/// Returns a key that is in the same cluster slot as the stream.
///
/// Exception: if the name of the stream contains a `}` but no hash tag, the key can be in another slot.
pub fn key_in_same_slot(stream: &str, suffix: &str) -> String {
    let key = dead_letter::key_in_same_slot(stream.as_bytes(), suffix);
    String::from_utf8(key).expect("it is made of two texts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unique_names_differ_and_contain_host_and_process() {
        let (one, two) = (WorkerName::unique(), WorkerName::unique());
        assert_ne!(one, two);
        assert!(one.as_str().starts_with(&format!("{}-{}-", host(), process::id())), "{one}");
        assert!(!one.survives_restart());
    }

    #[test]
    fn stable_names_stay_the_same() {
        assert_eq!(WorkerName::stable(3), WorkerName::stable(3));
        assert!(WorkerName::stable(3).as_str().ends_with("-3"));
        assert!(WorkerName::from("billing-a").survives_restart());
    }

    #[test]
    fn patterns_match_no_dead_letters_partitions_and_control_streams() {
        for name in [
            "orders",
            "orders:1",
            "fleet:control:g",
            "shop:{7}",
            "{eu}orders",
            "orders:{ae}",
            "v1.2",
            "a}.b",
            "{x}:y",
        ] {
            assert!(can_match_pattern(name), "{name}");
        }
        let others = ["{orders}:dlq", "shop:{7}:dlq", "events:orders:dlq", "orders:{ae}.1", "orders:{6b}.12"];
        for name in others.into_iter().chain([
            "{orders}:control:g",
            "orders:{ae}.1:dlq",
            "shop:{7}:control:g",
            "{eu}orders:control:g",
        ]) {
            assert!(!can_match_pattern(name), "{name}");
        }
    }

    #[test]
    fn keys_of_a_stream_are_in_its_slot() {
        assert_eq!(dead_letters_of("orders"), "{orders}:dlq");
        assert_eq!(dead_letters_of("{eu}orders"), "{eu}orders:dlq");
        // An empty tag does not count. The `}` in the name ends the new tag early, so the slots of both keys differ.
        assert_eq!(dead_letters_of("{}orders"), "{{}orders}:dlq");
        for (dead_letters, stream) in [
            ("{orders}:dlq", Some("orders")),
            ("orders:dlq", Some("orders")),
            ("{eu}orders:dlq", Some("{eu}orders")),
            ("orders", None),
        ] {
            assert_eq!(origin_of(dead_letters), stream);
        }
        assert_eq!(seen_key("orders", "billing", "k"), "{orders}:seen:billing:k");
        assert_eq!(retry_key("orders", "billing"), "{orders}:retry:billing");
        assert_eq!(workers_key("{eu}orders", "billing"), "{eu}orders:workers:billing");
    }
}
