//! MEMORY STATS and MEMORY DOCTOR, and the figures that INFO shows too.

use std::fmt::Write as _;

use millstream_protocol::commands::ArgList;

use crate::command::{Call, DONE, Reply};
use crate::memory::{self, human};
use crate::state::Server;

/// Below this many bytes in use, a ratio of resident memory means nothing.
const FRAGMENTATION_FROM_BYTES: u64 = 64 << 20;
/// MEMORY DOCTOR reports fragmentation above this ratio.
const FRAGMENTATION_MAX: f64 = 1.4;
/// MEMORY DOCTOR reports that memory is nearly used up from this share of `maxmemory`.
const NEARLY_FULL_PERCENT: u64 = 90;

pub(super) struct MemoryUsage {
    pub(super) used: u64,
    pub(super) peak: u64,
    /// Bytes in use before the data was loaded.
    pub(super) startup: u64,
    pub(super) clients: u64,
    pub(super) resident: u64,
}

impl MemoryUsage {
    pub(super) fn now(server: &Server) -> MemoryUsage {
        memory::refresh();
        MemoryUsage {
            used: memory::used_bytes(),
            peak: memory::peak_bytes(),
            startup: server.startup_bytes,
            clients: server.clients.memory_bytes(),
            resident: memory::resident_bytes(),
        }
    }

    pub(super) fn overhead(&self) -> u64 {
        self.startup + self.clients
    }

    pub(super) fn dataset(&self) -> u64 {
        self.used.saturating_sub(self.overhead())
    }

    /// Returns the share of the data in everything that was added since the start.
    pub(super) fn dataset_percent(&self) -> f64 {
        percent(self.dataset(), self.used.saturating_sub(self.startup))
    }

    pub(super) fn peak_percent(&self) -> f64 {
        percent(self.used, self.peak)
    }

    /// Returns how many bytes are resident for each byte in use.
    pub(super) fn fragmentation(&self) -> f64 {
        self.resident as f64 / self.used.max(1) as f64
    }

    pub(super) fn fragmentation_bytes(&self) -> i64 {
        self.resident as i64 - self.used as i64
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// The row in the command table makes the command lock everything, because it counts keys.
pub(crate) fn stats(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    let usage = MemoryUsage::now(call.context.server);
    let keys = call.txn.total_key_count();
    let numbers = [
        ("peak.allocated", usage.peak),
        ("total.allocated", usage.used),
        ("startup.allocated", usage.startup),
        ("replication.backlog", 0),
        ("clients.slaves", 0),
        ("clients.normal", usage.clients),
        ("cluster.links", 0),
        ("lua.caches", 0),
        ("functions.caches", 0),
        ("overhead.total", usage.overhead()),
        ("keys.count", keys),
        ("keys.bytes-per-key", usage.dataset().checked_div(keys).unwrap_or(0)),
        ("dataset.bytes", usage.dataset()),
    ];
    let ratios = [
        ("dataset.percentage", usage.dataset_percent()),
        ("peak.percentage", usage.peak_percent()),
        ("fragmentation", usage.fragmentation()),
    ];
    call.out.map(numbers.len() + ratios.len() + 1);
    for (name, number) in numbers {
        call.out.bulk(name);
        call.out.uint(number);
    }
    for (name, ratio) in ratios {
        call.out.bulk(name);
        call.out.double(ratio);
    }
    call.out.bulk("fragmentation.bytes");
    call.out.int(usage.fragmentation_bytes());
    DONE
}

pub(crate) fn doctor(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    let server = call.context.server;
    let usage = MemoryUsage::now(server);
    let limit = server.maxmemory();
    call.out.verbatim(diagnosis(&usage, limit, server.client_bytes_max()));
    DONE
}

fn diagnosis(usage: &MemoryUsage, limit: u64, client_bytes_max: Option<u64>) -> String {
    let mut text = String::new();
    let used = human(usage.used);
    if limit != 0 && usage.used > limit {
        let limit = human(limit);
        let _ = writeln!(
            text,
            "Memory is full: {used} are in use, more than maxmemory ({limit}), and commands that add data are \
             refused. Trim or delete streams, or raise maxmemory."
        );
    } else if limit != 0 && usage.used > limit / 100 * NEARLY_FULL_PERCENT {
        let limit = human(limit);
        let _ = writeln!(text, "Memory is nearly full: {used} of {limit} (maxmemory) are in use.");
    } else if limit == 0 {
        let _ = writeln!(text, "There is no memory limit: maxmemory is 0.");
    }
    if usage.used >= FRAGMENTATION_FROM_BYTES && usage.fragmentation() > FRAGMENTATION_MAX {
        let resident = human(usage.resident);
        let _ = writeln!(
            text,
            "Memory is fragmented: {used} are in use, but {resident} are resident. New data will use the difference; a \
             restart frees it."
        );
    }
    if usage.clients > usage.dataset() && usage.clients >= FRAGMENTATION_FROM_BYTES {
        let clients = human(usage.clients);
        let advice = match client_bytes_max {
            None => "CLIENT LIST shows them in tot-mem; maxmemory-clients limits them.",
            Some(_) => "CLIENT LIST shows them in tot-mem.",
        };
        let _ = writeln!(text, "Clients use more memory than the data: {clients}. {advice}");
    }
    if text.is_empty() {
        let limit = human(limit);
        let _ = writeln!(text, "No problems found: {used} of {limit} (maxmemory) are in use.");
    }
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn usage(used: u64) -> MemoryUsage {
        MemoryUsage { used, peak: 2 * used, startup: MIB, clients: MIB, resident: used + MIB }
    }

    #[test]
    fn data_is_what_is_neither_there_at_start_nor_of_clients() {
        let usage = usage(10 * MIB);
        assert_eq!((usage.overhead(), usage.dataset()), (2 * MIB, 8 * MIB));
        assert!((usage.dataset_percent() - 88.88).abs() < 0.01);
        assert!((usage.peak_percent() - 50.0).abs() < 0.01);
        assert!((usage.fragmentation() - 1.1).abs() < 0.01);
        assert_eq!(usage.fragmentation_bytes(), MIB as i64);
        let empty = MemoryUsage { used: 0, peak: 0, startup: MIB, clients: 0, resident: 0 };
        assert_eq!((empty.dataset(), empty.dataset_percent(), empty.fragmentation()), (0, 0.0, 0.0));
    }

    #[test]
    fn each_problem_has_a_line() {
        let found = |usage: &MemoryUsage, limit| diagnosis(usage, limit, None);
        assert_eq!(
            found(&usage(10 * MIB), 100 * MIB),
            "No problems found: 10.00M of 100.00M (maxmemory) are in use."
        );
        assert!(found(&usage(10 * MIB), 0).starts_with("There is no memory limit"));
        assert!(found(&usage(95 * MIB), 100 * MIB).starts_with("Memory is nearly full: 95.00M of 100.00M"));
        assert!(found(&usage(101 * MIB), 100 * MIB).starts_with("Memory is full: 101.00M are in use"));
        let fragmented = MemoryUsage { resident: 200 * MIB, ..usage(100 * MIB) };
        assert!(found(&fragmented, 1000 * MIB).starts_with("Memory is fragmented"));
        let greedy = MemoryUsage { clients: 80 * MIB, ..usage(100 * MIB) };
        assert!(found(&greedy, 1000 * MIB).ends_with("maxmemory-clients limits them."));
        assert!(diagnosis(&greedy, 1000 * MIB, Some(1)).ends_with("tot-mem."));
    }
}
