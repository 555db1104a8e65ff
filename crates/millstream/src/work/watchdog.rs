//! Kills the commands of a worker that is itself killed.
//!
//! A worker that ends normally stops its commands. After SIGKILL it cannot, so a watchdog does: a shell process that
//! reads the process groups of all running commands from a pipe. When the worker is gone, the pipe is closed, and the
//! shell kills the groups that still run.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use parking_lot::Mutex;
use rustix::process::Pid;
use tracing::warn;

/// Reads lines: `+ group` adds a process group, `- group` removes it. Ignores the signals that ask the worker to stop.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
while read -r sign group; do
  case $sign in
    +) groups="$groups $group" ;;
    -) left=; for each in $groups; do [ "$each" = "$group" ] || left="$left $each"; done; groups=$left ;;
  esac
done
for group in $groups; do kill -s KILL -- "-$group"; done
"#;

#[derive(Debug)]
pub(super) struct Watchdog {
    /// `None` if the shell could not be started. The system closes its standard input when this process ends.
    shell: Mutex<Option<Child>>,
}

impl Watchdog {
    /// Starts the watchdog process. If that fails, the worker logs a warning and runs without it.
    pub(super) fn start() -> Watchdog {
        let shell = shell().inspect_err(|error| {
            warn!(%error, "cannot start the watchdog process: if this worker is killed, its commands keep running");
        });
        Watchdog { shell: Mutex::new(shell.ok()) }
    }

    /// Adds a process group to those that the watchdog kills.
    pub(super) fn add(&self, group: Pid) {
        self.send('+', group);
    }

    pub(super) fn remove(&self, group: Pid) {
        self.send('-', group);
    }

    fn send(&self, sign: char, group: Pid) {
        let mut shell = self.shell.lock();
        if let Some(stdin) = shell.as_mut().and_then(|shell| shell.stdin.as_mut()) {
            // Fails only if the watchdog process was killed.
            let _ = stdin.write_all(format!("{sign} {group}\n").as_bytes());
        }
    }
}

fn shell() -> io::Result<Child> {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(SCRIPT).process_group(0);
    // The watchdog must not keep the worker's output open: readers would wait for its end.
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}
