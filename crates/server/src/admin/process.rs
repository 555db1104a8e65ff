//! Memory and processor time of this process, and information about the operating system.
//!
//! All of it is read from `/proc`, except the total processor time. Without `/proc`, the other numbers are 0.

use std::fs;

/// Memory of this process, in bytes.
pub(super) struct ProcessMemory {
    pub(super) resident: u64,
    /// Greatest resident memory since the process started.
    pub(super) peak: u64,
}

pub(super) fn memory() -> ProcessMemory {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kilobytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let bytes = |name| kilobytes(name).unwrap_or(0) * 1024;
    ProcessMemory { resident: bytes("VmRSS:"), peak: bytes("VmHWM:") }
}

/// Returns the machine's memory in bytes.
pub(super) fn system_memory() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    total.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Returns the processor seconds used in kernel mode and in user mode. Their sum is exact; their ratio comes from
/// counters in clock ticks.
pub(super) fn cpu_seconds() -> (f64, f64) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is the program's name in parentheses. It can contain spaces, so count the fields after it.
    let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks = |place: usize| {
        after_name.split(' ').nth(place).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0)
    };
    let (system, user) = (ticks(12), ticks(11));
    let in_kernel = if system + user > 0.0 { system / (system + user) } else { 0.0 };
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let used = used.tv_sec as f64 + used.tv_nsec as f64 / 1e9;
    (used * in_kernel, used * (1.0 - in_kernel))
}

/// Returns the kernel's name and release, and the machine's architecture.
pub(super) fn system_name() -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    format!("{} {} {}", read("ostype").trim(), read("osrelease").trim(), std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_has_memory_and_system_has_a_name() {
        let memory = memory();
        assert!(memory.resident > 0 && memory.peak >= memory.resident);
        assert!(system_memory() > memory.resident);
        assert!(system_name().starts_with("Linux "));
        assert!(cpu_seconds().1 >= 0.0);
    }
}
