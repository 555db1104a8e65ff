//! The processes of a campaign, managed by the supervisor: started, signalled, and restarted when they end.

use std::fs::{File, OpenOptions};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::journal::Journal;
use crate::recording::Mistake;
use crate::role::{GROUP, Role, STREAM, VARIABLE};

/// Name of the test in this binary that runs a role.
const ROLE_TEST: &str = "run_role_of_a_campaign";
/// Longest time to drain before a process is killed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// The program of a worker process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// This test binary, with the worker crate.
    Crate,
    /// The same with a bug.
    Mistaken(Mistake),
    /// This test binary, with plain clients on a group that has a policy.
    PlainClient,
    /// `millstream work --exec` with this script.
    Command(PathBuf),
}

/// A process that is restarted whenever it ends.
pub(crate) struct ManagedProcess {
    pub role: Role,
    program: Program,
    log: PathBuf,
    child: Option<Child>,
    /// The process is stopped with SIGSTOP until this time.
    pub frozen_until: Option<Instant>,
    /// Whether this is a producer that has sent all its messages.
    pub has_finished: bool,
}

impl ManagedProcess {
    /// Prepares a process. Its output is appended to a file in the folder.
    pub(crate) fn new(role: Role, program: Program, folder: &Path) -> ManagedProcess {
        let log = folder.join(format!("{}.log", role.name));
        ManagedProcess { role, program, log, child: None, frozen_until: None, has_finished: false }
    }

    /// Whether it has workers.
    pub(crate) fn works(&self) -> bool {
        !self.role.workers.is_empty()
    }

    /// Process id, if it is running.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Starts the process.
    pub(crate) fn start(&mut self, journal: &Journal) {
        let log = OpenOptions::new().create(true).append(true).open(&self.log).expect("open a log");
        let child = self
            .command()
            .stdin(Stdio::null())
            .stdout(File::try_clone(&log).expect("share a log"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("start {}: {error}", self.role.name));
        journal.record("born", [child.id().to_string(), self.role.name.clone()]);
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
                command.args(["--max-attempts", &role.max_attempts.to_string()]);
                command.args(["--backoff", "50ms..500ms", "--drain", "5s", "--log", "debug"]);
                if let Some((name, true)) = role.workers.first() {
                    command.args(["--consumer", name]);
                }
                command.env("JOURNAL", &role.journal).env("OUTAGE", &role.outage);
                command
            }
            _ => {
                let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
                command.args([ROLE_TEST, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
                command.env(VARIABLE, role.to_json().to_string());
                command
            }
        }
    }

    /// Returns whether the process has ended, and records its end.
    pub(crate) fn reap(&mut self, journal: &Journal) -> bool {
        let Some(child) = &mut self.child else { return true };
        let Ok(Some(status)) = child.try_wait() else { return false };
        journal.record("ended", [child.id().to_string(), exit_name(status)]);
        self.has_finished = !self.works() && status.success();
        self.child = None;
        true
    }

    /// Records the reason and sends a signal.
    pub(crate) fn signal(&self, event: &str, signal: Signal, journal: &Journal) {
        let Some(pid) = self.pid() else { return };
        journal.record(event, [pid]);
        if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
            // Fails only if the process has already ended.
            let _ = kill_process(pid, signal);
        }
    }

    /// Continues the process if it was stopped.
    pub(crate) fn thaw(&mut self, journal: &Journal) {
        if self.frozen_until.take().is_some() {
            self.signal("thawed", Signal::CONT, journal);
        }
    }

    /// Waits until the process has drained. Kills it if that takes too long.
    pub(crate) fn wait_for_end(&mut self, journal: &Journal) {
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        while !self.reap(journal) {
            if Instant::now() > deadline {
                self.signal("killed", Signal::KILL, journal);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether its log reports lost leases.
    pub(crate) fn has_lost_leases(&self) -> bool {
        std::fs::read(&self.log).is_ok_and(|log| String::from_utf8_lossy(&log).contains("leases lost"))
    }

    /// Returns the warnings and errors in its log that no handler has caused, and when they were written.
    pub(crate) fn warnings(&self) -> Vec<(u64, String)> {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let is_of_handler = |line: &str| {
            ["attempt failed", "attempts failed", "dead-lettered"].iter().any(|text| line.contains(text))
        };
        let lines = log.lines().filter(|line| line.contains(" WARN ") || line.contains(" ERROR "));
        let lines = lines.filter(|line| !is_of_handler(line));
        let time_of = |line: &str| line.split(' ').find_map(|word| word.parse().ok()).unwrap_or_default();
        lines.map(|line| (time_of(line), format!("{}: {line}", self.role.name))).collect()
    }

    /// Returns the end of its log.
    pub(crate) fn log_end(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(2000)..]).into_owned()
    }
}

impl Drop for ManagedProcess {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // Both fail only if the process has already ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn exit_name(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("code-{code}"),
        (None, signal) => format!("signal-{}", signal.unwrap_or_default()),
    }
}
