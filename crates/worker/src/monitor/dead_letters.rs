//! Finds the dead-letter streams of a stream, and counts their entries.

use crate::backend::{Admin, Error, ErrorKind, PolicyInfo};
use crate::names::dead_letters_of;

/// Returns the names of a stream's dead-letter streams, without duplicates: those that the policies of its groups and
/// of the stream name, then the default. `policy` is the policy of the stream, if it has one.
pub fn dead_letter_streams(stream: &str, policy: Option<&PolicyInfo>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let by_groups = policy.into_iter().flat_map(|policy| &policy.group_dead_letters);
    let by_groups = by_groups.map(|(_, name)| name.clone());
    let by_stream = policy.and_then(PolicyInfo::dead_letters);
    for name in by_groups.chain(by_stream).chain([dead_letters_of(stream)]) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The dead-letter streams of a stream, with the number of entries of each. The default is the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeadLetters {
    pub(crate) streams: Vec<(String, u64)>,
    by_group: Vec<(String, String)>,
}

impl DeadLetters {
    /// Counts the dead letters of several streams with these policies, in one call.
    pub(super) async fn count(
        backend: &dyn Admin,
        streams: &[(&str, Option<&PolicyInfo>)],
    ) -> Result<Vec<DeadLetters>, Error> {
        let names = |(stream, policy): &(&str, Option<&PolicyInfo>)| dead_letter_streams(stream, *policy);
        let all: Vec<String> = streams.iter().flat_map(names).collect();
        let mut lengths = backend.lengths(&all).await?.into_iter();
        let mut counted = Vec::with_capacity(streams.len());
        for (stream, policy) in streams {
            let mut found = Vec::new();
            for name in dead_letter_streams(stream, *policy) {
                let length = lengths.next().unwrap_or(Ok(0));
                let is_default = name == dead_letters_of(stream);
                found.push((name, known_length(length, is_default)?));
            }
            counted.push(DeadLetters::known(found, *policy));
        }
        Ok(counted)
    }

    pub(crate) fn known(streams: Vec<(String, u64)>, policy: Option<&PolicyInfo>) -> DeadLetters {
        let by_group = policy.map(|policy| policy.group_dead_letters.clone()).unwrap_or_default();
        DeadLetters { streams, by_group }
    }

    /// Returns the dead-letter stream of a group, and its length.
    pub(crate) fn of_group(&self, group: &str) -> (String, u64) {
        let named = self.by_group.iter().find(|(named, _)| named == group).map(|(_, name)| name);
        let found = named.and_then(|name| self.streams.iter().find(|(found, _)| found == name));
        found.or(self.streams.last()).cloned().unwrap_or_default()
    }

    /// Returns the first stream with entries, or else the first one.
    pub(crate) fn first(&self) -> String {
        let with_entries = self.streams.iter().find(|(_, length)| *length > 0);
        with_entries.or(self.streams.first()).map(|(name, _)| name.clone()).unwrap_or_default()
    }

    /// Returns the number of entries of all streams.
    pub(crate) fn total(&self) -> u64 {
        self.streams.iter().map(|(_, length)| *length).fold(0, u64::saturating_add)
    }
}

/// Returns the length of a dead-letter stream, or an error. The user can choose a policy's dead-letter stream without
/// permission to read it, and the key can hold another type of value: the length is then 0.
fn known_length(length: Result<u64, Error>, is_default: bool) -> Result<u64, Error> {
    match length {
        Err(error) if !is_default && matches!(error.kind(), ErrorKind::Denied | ErrorKind::WrongType) => {
            Ok(0)
        }
        length => length,
    }
}
