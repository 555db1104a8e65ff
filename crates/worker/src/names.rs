//! Names: of consumers, of dead-letter streams, and of the keys the runtime remembers things under.
//!
//! Everything that belongs to a stream must lie in the same slot of a cluster as the stream. [`beside`] makes
//! such names: it keeps a hash tag that is there and makes the whole name one where it is not.

use std::fmt;
use std::process;

/// How a worker is called in its group.
///
/// A name tells workers apart while they live. Whether it also survives a restart is a choice:
///
/// * [`unique`](WorkerName::unique), the default: what a process that died has left behind is taken over by the
///   others when its lease has run out. Safe anywhere, also where many processes start and end.
/// * [`stable`](WorkerName::stable) and [`given`](WorkerName::given): the next process of this name finds what the
///   last one left and begins with it at once. Such a name must belong to one process at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerName {
    name: String,
    survives_restart: bool,
}

impl WorkerName {
    /// `host-process-random`, a name that no other process has or will have.
    pub fn unique() -> WorkerName {
        let name = format!("{}-{}-{:06x}", host(), process::id(), fastrand::u32(..0x100_0000));
        WorkerName { name, survives_restart: false }
    }

    /// `host-index`, the same again after a restart on this host.
    pub fn stable(index: usize) -> WorkerName {
        WorkerName { name: format!("{}-{index}", host()), survives_restart: true }
    }

    /// A name of your own, the same again after a restart.
    pub fn given(name: impl Into<String>) -> WorkerName {
        WorkerName { name: name.into(), survives_restart: true }
    }

    /// The name as the store knows it.
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

/// The name of this host, or `host` where none is to be found.
fn host() -> String {
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

/// Where the dead letters of a stream go if nothing else is said: `{orders}:dlq` for `orders`.
pub fn dead_letters_of(stream: &str) -> String {
    beside(stream, "dlq")
}

/// The name under which a processed key is remembered.
pub(crate) fn seen_key(stream: &str, group: &str, key: &str) -> String {
    beside(stream, &format!("seen:{group}:{key}"))
}

/// The name under which the `n`-th redrive of an entry is remembered.
pub(crate) fn redrive_key(stream: &str, group: &str, id: &str, n: u64) -> String {
    beside(stream, &format!("redriven:{group}:{id}:{n}"))
}

/// A name in the same slot of a cluster as the stream.
pub fn beside(stream: &str, what: &str) -> String {
    if has_hash_tag(stream) { format!("{stream}:{what}") } else { format!("{{{stream}}}:{what}") }
}

/// Whether a cluster hashes only a part of the name: what is between the first `{` and the next `}`, unless empty.
fn has_hash_tag(name: &str) -> bool {
    name.split_once('{').and_then(|(_, rest)| rest.find('}')).is_some_and(|end| end > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unique_names_differ_and_tell_host_and_process() {
        let (one, two) = (WorkerName::unique(), WorkerName::unique());
        assert_ne!(one, two);
        assert!(one.as_str().starts_with(&format!("{}-{}-", host(), process::id())), "{one}");
        assert!(!one.survives_restart());
    }

    #[test]
    fn stable_names_are_the_same_again() {
        assert_eq!(WorkerName::stable(3), WorkerName::stable(3));
        assert!(WorkerName::stable(3).as_str().ends_with("-3"));
        assert!(WorkerName::from("billing-a").survives_restart());
    }

    #[test]
    fn what_belongs_to_a_stream_lies_in_its_slot() {
        assert_eq!(dead_letters_of("orders"), "{orders}:dlq");
        assert_eq!(dead_letters_of("{eu}orders"), "{eu}orders:dlq");
        // An empty tag is none: the whole name is hashed, so the whole name becomes the tag.
        assert_eq!(dead_letters_of("{}orders"), "{{}orders}:dlq");
        assert_eq!(seen_key("orders", "billing", "k"), "{orders}:seen:billing:k");
    }
}
