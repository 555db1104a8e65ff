//! The processes of a campaign, as their supervisor sees them: started, watched, signalled, started again.

use std::fs::{File, OpenOptions};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::journal::Journal;
use crate::role::{GROUP, Role, STREAM, VARIABLE};

/// The test of this program that plays a role.
const PLAYER: &str = "process_of_a_campaign";
/// How long a process may take to drain before it is killed.
const DRAIN_PATIENCE: Duration = Duration::from_secs(60);

/// Which program a worker is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// This test program, on the worker crate.
    Crate,
    /// The same with a mistake: it acknowledges what it reads at once.
    Hasty,
    /// `millstream work --exec` with this script.
    Command(PathBuf),
}

/// A process that is started again whenever it ends.
pub(crate) struct Member {
    pub role: Role,
    program: Program,
    log: PathBuf,
    child: Option<Child>,
    /// Stopped until then.
    pub frozen_until: Option<Instant>,
    /// A producer that has sent everything.
    pub has_finished: bool,
}

impl Member {
    /// A process to be. What it prints goes to a file in the folder.
    pub(crate) fn new(role: Role, program: Program, folder: &Path) -> Member {
        let log = folder.join(format!("{}.log", role.name));
        Member { role, program, log, child: None, frozen_until: None, has_finished: false }
    }

    /// Whether it has workers.
    pub(crate) fn works(&self) -> bool {
        !self.role.workers.is_empty()
    }

    /// The process, if it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Starts it.
    pub(crate) fn start(&mut self, journal: &Journal) {
        let log = OpenOptions::new().create(true).append(true).open(&self.log).expect("open a log");
        let child = self
            .command()
            .stdin(Stdio::null())
            .stdout(File::try_clone(&log).expect("share a log"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("start {}: {error}", self.role.name));
        journal.say("born", [child.id().to_string(), self.role.name.clone()]);
        self.child = Some(child);
        self.frozen_until = None;
    }

    fn command(&self) -> Command {
        let role = &self.role;
        match &self.program {
            Program::Command(script) if self.works() => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
                let lease = format!("{}ms", role.lease.as_millis());
                let run = format!("WORKER=$PPID exec sh {}", script.display());
                command.args(["work", "--url", &role.url, "--stream", STREAM, "--group", GROUP]);
                command.args(["--exec", &run, "--concurrency", "4", "--lease", &lease]);
                command.args(["--max-deliveries", &role.max_deliveries.to_string()]);
                command.args(["--backoff", "50ms..500ms", "--drain", "5s", "--log", "debug"]);
                if let Some((name, true)) = role.workers.first() {
                    command.args(["--consumer", name]);
                }
                command.env("JOURNAL", &role.journal);
                command
            }
            _ => {
                let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
                command.args([PLAYER, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
                command.env(VARIABLE, role.to_json().to_string());
                command
            }
        }
    }

    /// Notes its end, if it has ended. True if it has.
    pub(crate) fn reap(&mut self, journal: &Journal) -> bool {
        let Some(child) = &mut self.child else { return true };
        let Ok(Some(status)) = child.try_wait() else { return false };
        journal.say("ended", [child.id().to_string(), how(status)]);
        self.has_finished = !self.works() && status.success();
        self.child = None;
        true
    }

    /// Sends a signal, after writing down why.
    pub(crate) fn signal(&self, what: &str, signal: Signal, journal: &Journal) {
        let Some(pid) = self.pid() else { return };
        journal.say(what, [pid]);
        if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
            // It fails only when the process is already gone.
            let _ = kill_process(pid, signal);
        }
    }

    /// Lets it go on, if it was stopped.
    pub(crate) fn thaw(&mut self, journal: &Journal) {
        if self.frozen_until.take().is_some() {
            self.signal("thawed", Signal::CONT, journal);
        }
    }

    /// Waits until it has drained. One that does not is killed.
    pub(crate) fn wait_for_end(&mut self, journal: &Journal) {
        let deadline = Instant::now() + DRAIN_PATIENCE;
        while !self.reap(journal) {
            if Instant::now() > deadline {
                self.signal("killed", Signal::KILL, journal);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether its log says that it lost leases.
    pub(crate) fn has_lost_leases(&self) -> bool {
        std::fs::read(&self.log).is_ok_and(|log| String::from_utf8_lossy(&log).contains("leases lost"))
    }

    /// The end of its log.
    pub(crate) fn last_words(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(2000)..]).into_owned()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // Both fail only when the process is already gone.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("code-{code}"),
        (None, signal) => format!("signal-{}", signal.unwrap_or_default()),
    }
}
