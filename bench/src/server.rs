//! A server process: started fresh on loopback, watched through /proc, gone when dropped.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Failure;
use crate::options::Program;
use crate::wire::Connection;

const START_WITHIN: Duration = Duration::from_secs(10);

/// A running server with persistence off, on a free port, in a folder of its own.
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) port: u16,
    process: Child,
    folder: PathBuf,
}

impl Server {
    /// Starts it and returns when it answers PING.
    pub(crate) fn start(program: &Program) -> Result<Server, Failure> {
        let port = free_port()?;
        let folder = std::env::temp_dir().join(format!("millstream-bench-{}-{port}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let log = File::create(folder.join("output.txt"))?;
        let process = command(program, port, &folder.to_string_lossy())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .map_err(|e| format!("cannot start {}: {e}", program.path))?;
        let mut server = Server { name: program.name.clone(), port, process, folder };
        server.wait_until_it_answers(program)?;
        Ok(server)
    }

    /// A connection to it.
    pub(crate) fn connect(&self) -> Result<Connection, Failure> {
        Connection::open(self.port)
    }

    /// Processor time the process has used so far, all threads, user and system.
    ///
    /// The scheduler's own account in nanoseconds where the kernel has it; else the same sum in clock ticks.
    pub(crate) fn cpu(&self) -> Result<Duration, Failure> {
        self.cpu_by_scheduler().map_or_else(|| self.cpu_by_ticks(), Ok)
    }

    /// Resident memory in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<u64, Failure> {
        let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.process.id()))?;
        let line = text.lines().find(|l| l.starts_with("Rss:")).ok_or("smaps_rollup without Rss")?;
        let kib: u64 = line.split_whitespace().nth(1).ok_or("smaps_rollup without Rss")?.parse()?;
        Ok(kib * 1024)
    }

    fn wait_until_it_answers(&mut self, program: &Program) -> Result<(), Failure> {
        let deadline = Instant::now() + START_WITHIN;
        while Instant::now() < deadline && self.process.try_wait()?.is_none() {
            if let Ok(mut connection) = self.connect()
                && connection.call(&["PING"]).is_ok()
            {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let output = fs::read_to_string(self.folder.join("output.txt")).unwrap_or_default();
        Err(format!("{} does not answer; it printed:\n{output}", program.path).into())
    }

    fn cpu_by_scheduler(&self) -> Option<Duration> {
        let mut nanos = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.process.id())).ok()? {
            let text = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            nanos += text.split_whitespace().next()?.parse::<u64>().ok()?;
        }
        Some(Duration::from_nanos(nanos))
    }

    fn cpu_by_ticks(&self) -> Result<Duration, Failure> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.process.id()))?;
        let ticks = ticks_of_stat(&text).ok_or("/proc/PID/stat is not as expected")?;
        // USER_HZ is 100 on every Linux that has a /proc like this.
        Ok(Duration::from_millis(ticks * 10))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already dead is as good as killed.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// utime + stime. The process name may hold spaces and brackets, so fields count from its last bracket.
fn ticks_of_stat(text: &str) -> Option<u64> {
    let mut fields = text[text.rfind(')')? + 1..].split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// How this program is started with persistence off.
fn command(program: &Program, port: u16, folder: &str) -> Command {
    let mut command = Command::new(&program.path);
    if is_millstream(program) {
        command.arg("serve");
    }
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--dir", folder]);
    command.args(["--save", "", "--appendonly", "no"]);
    command
}

fn is_millstream(program: &Program) -> bool {
    version(program).is_some_and(|v| v.starts_with("millstream"))
}

/// What the program says of its version, without the details of its build.
pub(crate) fn version(program: &Program) -> Option<String> {
    let output = Command::new(&program.path).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    Some(text.lines().next()?.split(" sha=").next()?.trim().to_owned())
}

fn free_port() -> Result<u16, Failure> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_counted_from_the_last_bracket() {
        let stat = "7 (odd) name) S 1 7 7 0 -1 4194560 9 0 0 0 64 10 0 0 20 0 5 0 100";
        assert_eq!(ticks_of_stat(stat), Some(74));
        assert_eq!(ticks_of_stat("nonsense"), None);
    }
}
