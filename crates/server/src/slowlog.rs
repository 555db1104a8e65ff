//! The slow log: recent commands that took at least `slowlog-log-slower-than` microseconds.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// Maximum number of arguments kept per command. If there are more, the last one kept states how many were left out.
const ARGUMENTS_MAX: usize = 32;
const ARGUMENT_BYTES_MAX: usize = 128;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlowEntry {
    /// Its id. Ids rise.
    pub(crate) id: u64,
    /// When it ran, in Unix seconds.
    pub(crate) at_s: u64,
    /// How long it ran, in microseconds.
    pub(crate) micros: u64,
    /// Its arguments, shortened by [`shorten`].
    pub(crate) args: Vec<Vec<u8>>,
    pub(crate) addr: String,
    pub(crate) name: String,
}

/// The last slow commands, newest first.
#[derive(Default)]
pub(crate) struct Slowlog {
    inner: Mutex<SlowEntries>,
}

#[derive(Default)]
struct SlowEntries {
    entries: VecDeque<SlowEntry>,
    next_id: u64,
}

impl Slowlog {
    /// Adds a command and sets its id. Removes the oldest ones if there are more than `max`.
    pub(crate) fn note(&self, entry: SlowEntry, max: usize) {
        let mut inner = self.inner.lock();
        let id = inner.next_id;
        inner.next_id += 1;
        inner.entries.push_front(SlowEntry { id, ..entry });
        inner.entries.truncate(max);
    }

    pub(crate) fn newest(&self, count: usize) -> Vec<SlowEntry> {
        self.inner.lock().entries.iter().take(count).cloned().collect()
    }

    pub(crate) fn recorded(&self) -> u64 {
        self.inner.lock().next_id
    }

    pub(crate) fn len(&self) -> usize {
        self.inner.lock().entries.len()
    }

    pub(crate) fn clear(&self) {
        self.inner.lock().entries.clear();
    }
}

/// Returns the arguments as the slow log keeps them: long ones cut, surplus ones left out. If `secret`, all but the
/// command's name are hidden.
pub(crate) fn shorten(argv: &[&[u8]], secret: bool) -> Vec<Vec<u8>> {
    let shown = if argv.len() > ARGUMENTS_MAX { ARGUMENTS_MAX - 1 } else { argv.len() };
    let mut args: Vec<Vec<u8>> = argv[..shown]
        .iter()
        .enumerate()
        .map(|(place, arg)| if secret && place > 0 { b"(redacted)".to_vec() } else { shorten_argument(arg) })
        .collect();
    if shown < argv.len() {
        args.push(format!("... ({} more arguments)", argv.len() - shown).into_bytes());
    }
    args
}

fn shorten_argument(arg: &[u8]) -> Vec<u8> {
    if arg.len() <= ARGUMENT_BYTES_MAX {
        return arg.to_vec();
    }
    let mut short = arg[..ARGUMENT_BYTES_MAX].to_vec();
    short.extend_from_slice(format!("... ({} more bytes)", arg.len() - ARGUMENT_BYTES_MAX).as_bytes());
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(micros: u64) -> SlowEntry {
        SlowEntry { id: 0, at_s: 1, micros, args: Vec::new(), addr: String::new(), name: String::new() }
    }

    #[test]
    fn newest_commands_are_kept_and_ids_continue_after_clear() {
        let log = Slowlog::default();
        for micros in 10..15 {
            log.note(entry(micros), 2);
        }
        let kept: Vec<_> = log.newest(10).iter().map(|entry| (entry.id, entry.micros)).collect();
        assert_eq!(kept, [(4, 14), (3, 13)]);
        log.clear();
        assert_eq!(log.len(), 0);
        log.note(entry(1), 2);
        assert_eq!(log.newest(1)[0].id, 5);
    }

    #[test]
    fn shorten_cuts_long_commands_and_hides_secrets() {
        let many = vec![&b"x"[..]; 40];
        let args = shorten(&many, false);
        assert_eq!(args.len(), 32);
        assert_eq!(args[31], b"... (9 more arguments)");
        let long = [b'y'; 200];
        assert_eq!(shorten(&[&long], false)[0].len(), 128 + "... (72 more bytes)".len());
        assert_eq!(shorten(&[b"AUTH", b"secret"], true), [b"AUTH".to_vec(), b"(redacted)".to_vec()]);
    }
}
