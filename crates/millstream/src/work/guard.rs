//! Ends the commands of a worker that is killed.
//!
//! A worker that ends by itself ends its commands as well. Killed with SIGKILL it can do nothing any more: then its guard
//! does, a shell that is told of every process group and, when nobody is left to tell it anything, kills those at work.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use parking_lot::Mutex;
use rustix::process::Pid;
use tracing::warn;

/// `+ group` begins, `- group` ends. What asks the worker to end is not meant for its guard.
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

/// A guard at work.
#[derive(Debug)]
pub(super) struct Guard {
    /// Its standard input is closed by the system when this process is gone.
    shell: Mutex<Option<Child>>,
}

impl Guard {
    /// Starts a guard. Without one, commands outlive a worker that is killed.
    pub(super) fn start() -> Guard {
        let shell = shell().inspect_err(|error| {
            warn!(%error, "cannot start a guard: if this process is killed, its commands go on");
        });
        Guard { shell: Mutex::new(shell.ok()) }
    }

    /// A process group is at work.
    pub(super) fn begin(&self, group: Pid) {
        self.tell('+', group);
    }

    /// It is not any more.
    pub(super) fn end(&self, group: Pid) {
        self.tell('-', group);
    }

    fn tell(&self, sign: char, group: Pid) {
        let mut shell = self.shell.lock();
        if let Some(ears) = shell.as_mut().and_then(|shell| shell.stdin.as_mut()) {
            // It fails only when somebody has killed the guard.
            let _ = ears.write_all(format!("{sign} {group}\n").as_bytes());
        }
    }
}

fn shell() -> io::Result<Child> {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(SCRIPT).process_group(0);
    // Nobody must wait for the end of our output because a guard has it open.
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}
