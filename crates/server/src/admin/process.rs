//! What the system knows of this process: memory, processor time, file descriptors.
//!
//! Read from `/proc`; where there is none, the answer is zero.

use std::fs;

/// Resident memory and its highest mark, in bytes.
pub(super) struct Memory {
    pub(super) resident: u64,
    pub(super) peak: u64,
}

pub(super) fn memory() -> Memory {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kilobytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let bytes = |name| kilobytes(name).unwrap_or(0) * 1024;
    Memory { resident: bytes("VmRSS:"), peak: bytes("VmHWM:") }
}

/// The machine's memory in bytes.
pub(super) fn system_memory() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    total.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Processor seconds, in the kernel and outside it. Their sum is exact; how it is shared out is known in ticks.
pub(super) fn cpu_seconds() -> (f64, f64) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is the program's name in parentheses and may hold anything; count from its end.
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

/// Kernel name, release and machine.
pub(super) fn system_name() -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    format!("{} {} {}", read("ostype").trim(), read("osrelease").trim(), std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_process_has_memory_and_a_name() {
        let memory = memory();
        assert!(memory.resident > 0 && memory.peak >= memory.resident);
        assert!(system_memory() > memory.resident);
        assert!(system_name().starts_with("Linux "));
        assert!(cpu_seconds().1 >= 0.0);
    }
}
