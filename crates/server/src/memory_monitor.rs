//! Decides when the server logs that memory exceeds `maxmemory`: once when this begins and once when it ends, not for
//! every refused command.

use std::mem;

use crate::event_log::Level;
use crate::memory::human;

/// After this many seconds at or below the limit, the server logs that it accepts data again.
const BELOW_SECONDS: u32 = 10;

/// Maximum bytes of requests and replies of all clients together that have not logged in. Anybody can be such a client,
/// so they must not be able to use up the memory.
pub(crate) const LOGGED_OUT_BYTES_MAX: u64 = 64 << 20;

#[derive(Default)]
pub(crate) struct MemoryMonitor {
    /// Whether the last line said that the server refuses commands.
    is_refusing: bool,
    /// Number of consecutive checks since then that found memory at or below the limit, and no refused command.
    below: u32,
    /// Number of commands refused since the start, at the last check.
    refused_total: u64,
    /// Number of commands refused since the last line.
    refused: u64,
}

impl MemoryMonitor {
    /// Called once a second. Returns a line to log if the state has changed. A limit of 0 is no limit. `refused_total`
    /// is the number of commands that were refused since the start: memory can exceed the limit only between two
    /// checks.
    pub(crate) fn check(&mut self, used: u64, limit: u64, refused_total: u64) -> Option<(Level, String)> {
        let refused = refused_total - mem::replace(&mut self.refused_total, refused_total);
        self.refused += refused;
        let is_above = limit != 0 && used > limit;
        if is_above || refused > 0 {
            self.below = 0;
            if mem::replace(&mut self.is_refusing, true) {
                return None;
            }
            let advice = "trim or delete streams, or raise maxmemory";
            let limit = human(limit);
            let message = match is_above {
                true => format!(
                    "{} of memory are in use, more than maxmemory ({limit}): the server refuses commands that add data; {advice}",
                    human(used),
                ),
                false => format!(
                    "for a moment, more memory was in use than maxmemory ({limit}), and the server refused {refused} commands; \
                     now {} are in use; {advice}",
                    human(used),
                ),
            };
            return Some((Level::Warning, message));
        }
        self.below += u32::from(self.is_refusing);
        if self.below < BELOW_SECONDS {
            return None;
        }
        let MemoryMonitor { refused, .. } =
            mem::replace(self, MemoryMonitor { refused_total, ..MemoryMonitor::default() });
        let message = format!(
            "{} of memory are in use: the server accepts commands that add data again; it refused {refused} meanwhile",
            human(used)
        );
        Some((Level::Notice, message))
    }
}

/// The clients that were closed because clients used too much memory, since the last line about them.
#[derive(Default)]
pub(crate) struct Evicted {
    clients: u64,
    bytes: u64,
}

impl Evicted {
    pub(crate) fn add(&mut self, (clients, bytes): (u64, u64)) {
        self.clients += clients;
        self.bytes += bytes;
    }

    /// Called once a second. Returns a line to log if clients were closed.
    pub(crate) fn report(&mut self) -> Option<String> {
        let Evicted { clients, bytes } = mem::take(self);
        (clients > 0).then(|| {
            format!(
                "the server closed {clients} clients that used {} of memory, because all clients together used more \
                 than maxmemory-clients, or those that have not logged in more than {}",
                human(bytes),
                human(LOGGED_OUT_BYTES_MAX)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_of_state_is_logged_once() {
        let mut monitor = MemoryMonitor::default();
        assert_eq!(monitor.check(100, 100, 0), None);
        assert_eq!(monitor.check(100, 0, 0), None);
        let (level, line) = monitor.check(3 << 20, 2 << 20, 5).unwrap();
        assert_eq!(level, Level::Warning);
        assert!(line.starts_with("3.00M of memory are in use, more than maxmemory (2.00M)"), "{line}");
        assert_eq!(monitor.check(4 << 20, 2 << 20, 7), None);
        // Memory that is below the limit for a moment only is no change.
        for _ in 0..BELOW_SECONDS - 1 {
            assert_eq!(monitor.check(1 << 20, 2 << 20, 7), None);
        }
        assert_eq!(monitor.check(3 << 20, 2 << 20, 7), None);
        let lines: Vec<_> = (0..3 * BELOW_SECONDS).filter_map(|_| monitor.check(1 << 20, 0, 7)).collect();
        let expected = "1.00M of memory are in use: the server accepts commands that add data again; it refused 7 meanwhile";
        assert_eq!(lines, [(Level::Notice, expected.to_owned())]);
    }

    #[test]
    fn refusals_between_two_checks_are_logged() {
        let mut monitor = MemoryMonitor::default();
        let (level, line) = monitor.check(1 << 20, 2 << 20, 3).unwrap();
        let expected = "for a moment, more memory was in use than maxmemory (2.00M), and the server refused 3 commands; now \
                        1.00M are in use; trim or delete streams, or raise maxmemory";
        assert_eq!((level, &*line), (Level::Warning, expected));
        // Bursts within ten seconds belong together.
        assert_eq!(monitor.check(1 << 20, 2 << 20, 4), None);
        let lines: Vec<_> = (0..BELOW_SECONDS).filter_map(|_| monitor.check(1 << 20, 2 << 20, 4)).collect();
        assert!(lines.len() == 1 && lines[0].1.ends_with("it refused 4 meanwhile"), "{lines:?}");
        assert_eq!(monitor.check(1 << 20, 2 << 20, 4), None);
    }

    #[test]
    fn evicted_clients_are_reported_together() {
        let mut evicted = Evicted::default();
        assert_eq!(evicted.report(), None);
        evicted.add((1, 1 << 20));
        evicted.add((2, 1 << 20));
        assert!(
            evicted.report().unwrap().starts_with("the server closed 3 clients that used 2.00M of memory")
        );
        assert_eq!(evicted.report(), None);
    }
}
