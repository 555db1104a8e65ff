//! Processor time of this process, and information about the operating system.
//!
//! All of it is read from `/proc`, except the total processor time. Without `/proc`, the other numbers are 0.

use std::fs;

/// Returns the processor seconds used in kernel mode and in user mode. Their sum is exact; their ratio comes from
/// counters in clock ticks.
pub(crate) fn cpu_seconds() -> (f64, f64) {
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
    fn system_has_a_name() {
        assert!(system_name().starts_with("Linux "));
        assert!(cpu_seconds().1 >= 0.0);
    }
}
