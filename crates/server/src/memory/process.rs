//! The memory of this process, as the operating system sees it.

use std::fs;

/// Returns the resident memory of this process in bytes, or 0 if the system does not report it.
pub(crate) fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    kilobytes(&status, "VmRSS:").unwrap_or(0) * 1024
}

/// Returns the number in the line `NAME   123 kB` of a file in `/proc`.
pub(super) fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_has_resident_memory() {
        assert!(resident_bytes() > 1 << 20);
        assert_eq!(kilobytes("Name:\tx\nVmRSS:\t  512 kB\n", "VmRSS:"), Some(512));
        assert_eq!(kilobytes("VmRSS:\tmuch\n", "VmRSS:"), None);
        assert_eq!(kilobytes("", "VmRSS:"), None);
    }
}
