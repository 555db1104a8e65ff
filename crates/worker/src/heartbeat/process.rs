//! Identifies this process, so that another process on the same machine can find out whether it still runs.
//!
//! A process id alone does not suffice: the system reuses ids, and each container has ids of its own. So the identity
//! also has the boot of the machine, the namespace of process ids, and the start time of the process, as Linux reports
//! them in `/proc`. On other systems the identity is empty, and whether a process has ended is unknown.

use std::fs;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// Separates the parts of an identity.
const SEPARATOR: char = '/';

/// Returns the identity of this process: `BOOT/NAMESPACE/START`. Empty if it is unknown.
pub(crate) fn this_process() -> String {
    match (machine(), stat("self")) {
        (Some(machine), Some(stat)) => format!("{machine}{SEPARATOR}{}", stat.started),
        _ => String::new(),
    }
}

/// Whether a process with this id and identity ran on this machine and has ended. False if that is not known.
pub(super) fn has_ended(pid: u32, identity: &str) -> bool {
    let Some((of_process, started)) = identity.rsplit_once(SEPARATOR) else { return false };
    if machine().as_deref() != Some(of_process) {
        return false;
    }
    let Some(known) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    if test_kill_process(known) == Err(Errno::SRCH) {
        return true;
    }
    // If the process is hidden from this user, it may still run.
    stat(&pid.to_string()).is_some_and(|stat| stat.is_zombie || stat.started != started)
}

/// Returns the boot and the namespace in which process ids are unique, or `None` if they are unknown.
fn machine() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{}{SEPARATOR}{}", boot.trim(), namespace.display()))
}

/// What the system reports about a process.
struct Stat {
    /// It has ended, but its parent has not noticed yet.
    is_zombie: bool,
    /// When it started, in clock ticks since the boot.
    started: String,
}

fn stat(pid: &str) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field, the name of the program in parentheses, can contain spaces and parentheses.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let is_zombie = matches!(fields.next()?, "Z" | "X");
    // The state is the third field and the start time the twenty-second.
    let started = fields.nth(18)?.to_owned();
    Some(Stat { is_zombie, started })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::{Command, id};

    use super::*;

    #[test]
    fn a_killed_process_has_ended_and_a_running_one_has_not() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let started = stat(&child.id().to_string()).unwrap().started;
        let identity = format!("{}{SEPARATOR}{started}", machine().unwrap());
        assert!(!has_ended(child.id(), &identity));
        child.kill().unwrap();
        while !has_ended(child.id(), &identity) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(has_ended(child.id(), &identity));
    }

    #[test]
    fn a_process_with_a_reused_id_has_ended() {
        let identity = this_process();
        assert!(!has_ended(id(), &identity));
        assert!(has_ended(id(), &format!("{}{SEPARATOR}1", machine().unwrap())));
    }

    #[test]
    fn processes_of_other_machines_and_containers_are_unknown() {
        for identity in ["", "1", "boot/pid:[1]/1", "//"] {
            assert!(!has_ended(u32::MAX, identity) && !has_ended(1 << 22, identity), "{identity}");
        }
        assert!(has_ended(1 << 22, &this_process()), "no process has this id");
    }
}
