//! A server under test: a process that this program starts and kills, or a server that was already running.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Failure;
use crate::nats;
use crate::options::{Options, Place, Program};
use crate::wire::Connection;

/// Maximum time for a start or a snapshot. Generous, because a server may have to load ten million entries.
const START_WITHIN: Duration = Duration::from_secs(300);
/// More connections than any workload opens.
const MAX_CLIENTS: &str = "12000";
/// `maxmemory` of servers with a limit.
pub(crate) const MEMORY_LIMIT: &str = "64mb";
/// The password of servers that `start_exposed` starts.
pub(crate) const PASSWORD: &str = "correct horse battery staple";

/// Files that a server does not read when it starts: its output, and the dump of redis-server, which redis-server
/// ignores if it has a log.
const NOT_READ: [&str; 2] = ["output.txt", "dump.rdb"];

/// When the server syncs its log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Persistence {
    Off,
    EverySec,
    Always,
    /// `Always` on a simulated slow disk: every sync is delayed by `SYNC_DELAY_US`.
    AlwaysOnSlowDisk,
}

/// How clients talk to a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Protocol {
    Redis,
    Nats,
}

/// Delay of every sync on the simulated slow disk, in microseconds.
const SYNC_DELAY_US: u64 = 2_000;

/// A running server.
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) protocol: Protocol,
    /// `host:port`.
    pub(crate) address: String,
    /// Time from its start to its reply to PING; zero if it was already running.
    pub(crate) answered_after: Duration,
    password: Option<&'static str>,
    /// Its port for TLS, which `redis-benchmark` then uses.
    pub(crate) tls: Option<TlsPort>,
    /// `None` if it was already running.
    process: Option<Process>,
}

/// Additional settings of a server that other machines can reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Extra {
    Nothing,
    /// `maxmemory`, set to `MEMORY_LIMIT`.
    MemoryLimit,
    TlsPort,
}

/// A server's port for TLS.
pub(crate) struct TlsPort {
    pub(crate) port: u16,
    /// File with the certificate of the authority that signed the server's.
    pub(crate) authority: PathBuf,
}

/// A server process that this program started.
struct Process {
    child: Child,
    program: PathBuf,
    arguments: Vec<String>,
    folder: PathBuf,
}

impl Server {
    /// Starts the program in a fresh folder, or connects to the address. Returns when the server replies to PING.
    pub(crate) fn start(
        program: &Program,
        persistence: Persistence,
        options: &Options,
    ) -> Result<Server, Failure> {
        let path = match &program.place {
            Place::Path(path) => path,
            Place::Address(address) => return Server::attach(&program.name, address),
        };
        let port = free_port()?;
        let folder = fresh_folder(port, options)?;
        let mut arguments = arguments(is_millstream(path), port, &folder, persistence);
        let mut started = path.as_path();
        if persistence == Persistence::AlwaysOnSlowDisk {
            arguments.insert(0, path.to_string_lossy().into_owned());
            arguments.splice(0..0, delayed_syncs());
            started = Path::new(STRACE);
        }
        Server::launch(&program.name, Protocol::Redis, started, arguments, folder, port, None)
    }

    /// Starts a program with settings for a port that other machines can reach: a password, and Millstream's limit of a
    /// reply on every server. Persistence is off.
    pub(crate) fn start_exposed(
        program: &Program,
        extra: Extra,
        options: &Options,
    ) -> Result<Server, Failure> {
        let Place::Path(path) = &program.place else { return Err(not_ours(&program.name)) };
        let port = free_port()?;
        let folder = fresh_folder(port, options)?;
        let is_ours = is_millstream(path);
        let mut arguments = arguments(is_ours, port, &folder, Persistence::Off);
        arguments.extend(["--requirepass", PASSWORD].map(str::to_owned));
        if !is_ours {
            let limit = ["--client-output-buffer-limit", "normal", "256mb", "0", "0"];
            arguments.extend(limit.map(str::to_owned));
        }
        let mut tls = None;
        match extra {
            Extra::Nothing => {}
            Extra::MemoryLimit => arguments.extend(["--maxmemory", MEMORY_LIMIT].map(str::to_owned)),
            Extra::TlsPort => tls = Some(add_tls_port(&mut arguments, &folder)?),
        }
        let password = Some(PASSWORD);
        let mut server =
            Server::launch(&program.name, Protocol::Redis, path, arguments, folder, port, password)?;
        server.tls = tls;
        Ok(server)
    }

    /// Starts a program with a second port, for TLS, and without persistence. Clients need no certificate.
    pub(crate) fn start_tls(program: &Program, options: &Options) -> Result<Server, Failure> {
        let Place::Path(path) = &program.place else { return Err(not_ours(&program.name)) };
        let port = free_port()?;
        let folder = fresh_folder(port, options)?;
        let mut arguments = arguments(is_millstream(path), port, &folder, Persistence::Off);
        let tls = add_tls_port(&mut arguments, &folder)?;
        let mut server = Server::launch(&program.name, Protocol::Redis, path, arguments, folder, port, None)?;
        server.tls = Some(tls);
        Ok(server)
    }

    /// Starts the subject under a wrapper program. The wrapper gets the arguments `before`, then the server's command
    /// line.
    pub(crate) fn start_under(
        wrapper: &str,
        before: Vec<String>,
        persistence: Persistence,
        options: &Options,
    ) -> Result<Server, Failure> {
        let Place::Path(path) = &options.subject.place else { return Err(not_ours(&options.subject.name)) };
        let port = free_port()?;
        let folder = fresh_folder(port, options)?;
        let mut all = before;
        all.push(path.to_string_lossy().into_owned());
        all.extend(arguments(true, port, &folder, persistence));
        // One I/O thread, as on the smallest machine, so counts do not depend on the number of cores.
        all.extend(["--io-threads".to_owned(), "1".to_owned()]);
        Server::launch(&options.subject.name, Protocol::Redis, Path::new(wrapper), all, folder, port, None)
    }

    /// Starts a nats-server. `sync_always` needs a version that supports it.
    pub(crate) fn start_nats(
        installed: &nats::Installed,
        sync_always: bool,
        options: &Options,
    ) -> Result<Server, Failure> {
        let port = free_port()?;
        let folder = fresh_folder(port, options)?;
        let arguments = nats::arguments(port, &folder, sync_always)?;
        Server::launch("nats", Protocol::Nats, &installed.path, arguments, folder, port, None)
    }

    fn launch(
        name: &str,
        protocol: Protocol,
        program: &Path,
        arguments: Vec<String>,
        folder: PathBuf,
        port: u16,
        password: Option<&'static str>,
    ) -> Result<Server, Failure> {
        let begun = Instant::now();
        let child = spawn(program, &arguments, &folder)?;
        let process = Process { child, program: program.into(), arguments, folder };
        let address = format!("127.0.0.1:{port}");
        let mut server = Server {
            name: name.into(),
            protocol,
            address,
            answered_after: Duration::ZERO,
            password,
            tls: None,
            process: Some(process),
        };
        server.wait_until_it_answers(Duration::from_millis(2))?;
        server.answered_after = begun.elapsed();
        Ok(server)
    }

    /// Shuts the server down and waits until its process has ended.
    pub(crate) fn stop(mut self) -> Result<(), Failure> {
        // The server closes the connection without a reply.
        let _ = self.connect()?.call(&["SHUTDOWN", "NOSAVE"]);
        self.process_mut()?.child.wait()?;
        Ok(())
    }

    fn attach(name: &str, address: &str) -> Result<Server, Failure> {
        let server = Server {
            name: name.into(),
            protocol: Protocol::Redis,
            address: address.into(),
            answered_after: Duration::ZERO,
            password: None,
            tls: None,
            process: None,
        };
        server.connect()?.call(&["PING"])?;
        Ok(server)
    }

    /// Opens a connection, and logs in if the server has a password.
    pub(crate) fn connect(&self) -> Result<Connection, Failure> {
        self.log_in(Connection::open(&self.address)?)
    }

    /// Opens a connection with a small buffer, for workloads with thousands of connections.
    pub(crate) fn connect_small(&self) -> Result<Connection, Failure> {
        self.log_in(Connection::small(&self.address)?)
    }

    fn log_in(&self, mut connection: Connection) -> Result<Connection, Failure> {
        if let Some(password) = self.password {
            connection.call(&["AUTH", password])?;
        }
        Ok(connection)
    }

    /// Kills the server and starts it again on its data. Returns the time until it replies to PING.
    pub(crate) fn crash_and_recover(&mut self) -> Result<Duration, Failure> {
        let process = self.process_mut()?;
        process.child.kill()?;
        process.child.wait()?;
        let begun = Instant::now();
        process.child = spawn(&process.program, &process.arguments, &process.folder)?;
        self.wait_until_it_answers(Duration::from_millis(2))?;
        Ok(begun.elapsed())
    }

    /// Turns a peer's default rule on again: rewrite the log when its size has doubled. Holds until the peer is
    /// restarted.
    pub(crate) fn enable_automatic_rewrite(&self) -> Result<(), Failure> {
        let mut connection = self.connect()?;
        if connection.call_text(&["INFO", "server"])?.contains("millstream_version") {
            return Ok(());
        }
        connection.call(&["CONFIG", "SET", "auto-aof-rewrite-percentage", "100"])?;
        Ok(())
    }

    /// Returns the bytes of the files that the server reads when it starts.
    pub(crate) fn disk_bytes(&self) -> Result<u64, Failure> {
        Ok(bytes_under(&self.process()?.folder)?)
    }

    /// Returns the size of the server's program file in bytes.
    pub(crate) fn program_bytes(&self) -> Result<u64, Failure> {
        let link = fs::canonicalize(format!("/proc/{}/exe", self.process()?.child.id()))?;
        Ok(fs::metadata(link)?.len())
    }

    /// Returns the CPU time that the server has used: user and system, all threads, and child processes that ended.
    ///
    /// Comes from INFO, which has microseconds; /proc/PID/stat counts hundredths of a second.
    pub(crate) fn cpu(&self) -> Result<Duration, Failure> {
        cpu_by_info(&self.connect()?.call_text(&["INFO", "cpu"])?)
            .ok_or_else(|| format!("INFO of {} has no used_cpu_user", self.name).into())
    }

    /// Returns the resident memory in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<u64, Failure> {
        let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.process()?.child.id()))?;
        let line = text.lines().find(|l| l.starts_with("Rss:")).ok_or("smaps_rollup without Rss")?;
        let kib: u64 = line.split_whitespace().nth(1).ok_or("smaps_rollup without Rss")?.parse()?;
        Ok(kib * 1024)
    }

    /// Waits until the server takes no snapshot and rewrites no log.
    pub(crate) fn wait_until_at_rest(&self) -> Result<(), Failure> {
        let mut connection = self.connect()?;
        let deadline = Instant::now() + START_WITHIN;
        while Instant::now() < deadline {
            if !connection.call_text(&["INFO", "persistence"])?.contains("in_progress:1") {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(format!("{} is still taking a snapshot", self.name).into())
    }

    fn process(&self) -> Result<&Process, Failure> {
        self.process.as_ref().ok_or_else(|| not_ours(&self.name))
    }

    fn process_mut(&mut self) -> Result<&mut Process, Failure> {
        self.process.as_mut().ok_or_else(|| not_ours(&self.name))
    }

    fn wait_until_it_answers(&mut self, poll_interval: Duration) -> Result<(), Failure> {
        let deadline = Instant::now() + START_WITHIN;
        while Instant::now() < deadline && self.process_mut()?.child.try_wait()?.is_none() {
            if self.answers() {
                return Ok(());
            }
            std::thread::sleep(poll_interval);
        }
        let process = self.process()?;
        let output = fs::read_to_string(process.folder.join("output.txt")).unwrap_or_default();
        Err(format!("{} does not reply to PING; its output was:\n{output}", process.program.display()).into())
    }

    /// Whether the server replies to PING. While it loads its data it refuses connections or replies with an error.
    fn answers(&self) -> bool {
        match self.protocol {
            Protocol::Redis => self.connect_small().is_ok_and(|mut c| c.call(&["PING"]).is_ok()),
            Protocol::Nats => nats::check(&self.address).is_ok(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // Errors do not matter: the process may have ended already.
            let _ = process.child.kill();
            let _ = process.child.wait();
            let _ = fs::remove_dir_all(&process.folder);
        }
    }
}

/// Makes a certificate in the folder, and adds the arguments for a TLS port that needs no client certificates.
fn add_tls_port(arguments: &mut Vec<String>, folder: &Path) -> Result<TlsPort, Failure> {
    let port = free_port()?;
    make_certificate(folder)?;
    let in_folder = |name: &str| folder.join(name).to_string_lossy().into_owned();
    arguments.extend(["--tls-port".to_owned(), port.to_string()]);
    arguments.extend(["--tls-auth-clients".to_owned(), "no".to_owned()]);
    for (setting, name) in [("cert", "server.pem"), ("key", "server.key"), ("ca-cert", "server.pem")] {
        arguments.extend([format!("--tls-{setting}-file"), in_folder(name)]);
    }
    Ok(TlsPort { port, authority: folder.join("server.pem") })
}

/// Makes a key and a certificate for 127.0.0.1 that is its own authority.
fn make_certificate(folder: &Path) -> Result<(), Failure> {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-keyout", "server.key", "-out", "server.pem", "-days", "2", "-subj", "/CN=127.0.0.1"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1"])
        .current_dir(folder)
        .output()
        .map_err(|e| format!("cannot run openssl, which makes the certificate: {e}"))?;
    match made.status.success() {
        true => Ok(()),
        false => Err(format!("openssl failed: {}", String::from_utf8_lossy(&made.stderr).trim()).into()),
    }
}

fn not_ours(name: &str) -> Failure {
    format!("{name} was not started by this program").into()
}

/// The part of a server's folder that the server gets for its data. Certificates and the server's output are beside it.
const DATA: &str = "data";

/// Creates the server's folder on the disk of the results. /tmp may be in memory, where a sync costs nothing.
fn fresh_folder(port: u16, options: &Options) -> Result<PathBuf, Failure> {
    let folder = options.out.join(format!("data-{}-{port}", std::process::id()));
    let data = folder.join(DATA);
    fs::create_dir_all(&data).map_err(|e| format!("{}: {e}", data.display()))?;
    Ok(folder)
}

fn spawn(program: &Path, arguments: &[String], folder: &Path) -> Result<Child, Failure> {
    let log = File::create(folder.join("output.txt"))?;
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .map_err(|e| format!("cannot start {}: {e}", program.display()).into())
}

const STRACE: &str = "strace";

/// Whether `strace` can delay syncs on this machine.
pub(crate) fn can_delay_syncs() -> bool {
    let tried = Command::new(STRACE)
        .args(delayed_syncs())
        .arg("true")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    tried.is_ok_and(|status| status.success())
}

/// Returns arguments with which `strace` delays the syncs of a program and no other system call. `-D` makes the
/// program, not `strace`, the direct child of this process.
fn delayed_syncs() -> Vec<String> {
    let inject = format!("inject=fdatasync:delay_enter={SYNC_DELAY_US}");
    let all = ["-D", "-f", "--seccomp-bpf", "-e", "trace=fdatasync", "-e", &inject, "-o", "/dev/null"];
    all.map(str::to_owned).to_vec()
}

/// Returns the server's command line: default settings, except persistence and the number of clients.
fn arguments(is_ours: bool, port: u16, folder: &Path, persistence: Persistence) -> Vec<String> {
    let (append_only, sync) = match persistence {
        Persistence::Off => ("no", "no"),
        Persistence::EverySec => ("yes", "everysec"),
        Persistence::Always | Persistence::AlwaysOnSlowDisk => ("yes", "always"),
    };
    let port = port.to_string();
    let folder = folder.join(DATA);
    let folder = folder.to_string_lossy();
    let mut arguments = Vec::new();
    if is_ours {
        arguments.push("serve");
    } else {
        // No automatic rewrite of the log, so none falls into a row by chance.
        arguments.extend(["--auto-aof-rewrite-percentage", "0"]);
    }
    arguments.extend(["--bind", "127.0.0.1", "--port", &port, "--dir", &folder, "--save", ""]);
    arguments.extend(["--appendonly", append_only, "--appendfsync", sync, "--maxclients", MAX_CLIENTS]);
    arguments.into_iter().map(str::to_owned).collect()
}

fn is_millstream(program: &Path) -> bool {
    printed_version(program).is_some_and(|v| v.starts_with("millstream"))
}

/// Returns the version that a server reports, without build details. Fails if the server cannot be asked.
pub(crate) fn version(program: &Program) -> Result<String, Failure> {
    let name = &program.name;
    match &program.place {
        Place::Path(path) => printed_version(path).ok_or_else(|| {
            format!("{name}: {} --version prints nothing; is it a server program?", path.display()).into()
        }),
        Place::Address(address) => version_by_info(address)
            .ok_or_else(|| format!("{name}: no server at {address} reports a version with INFO").into()),
    }
}

fn printed_version(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    Some(text.lines().next()?.split(" sha=").next()?.trim().to_owned())
}

/// Whether a server reports that it was built with the system's malloc.
pub(crate) fn uses_libc_malloc(program: &Program) -> bool {
    let Place::Path(path) = &program.place else { return false };
    let output = Command::new(path).arg("--version").output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("malloc=libc"))
}

fn version_by_info(address: &str) -> Option<String> {
    let info = Connection::open(address).ok()?.call_text(&["INFO", "server"]).ok()?;
    let line = info.lines().find(|l| l.contains("_version:"))?;
    Some(format!("{} at {address}", line.trim()))
}

fn cpu_by_info(info: &str) -> Option<Duration> {
    let seconds = |name: &str| {
        let line = info.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().parse::<f64>().ok()
    };
    let children =
        ["used_cpu_user_children", "used_cpu_sys_children"].map(|name| seconds(name).unwrap_or(0.0));
    let own = seconds("used_cpu_user")? + seconds("used_cpu_sys")?;
    Some(Duration::from_secs_f64(own + children.iter().sum::<f64>()))
}

fn bytes_under(folder: &Path) -> std::io::Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if NOT_READ.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        total +=
            if entry.file_type()?.is_dir() { bytes_under(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(total)
}

fn free_port() -> Result<u16, Failure> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_has_cpu_time_in_seconds() {
        let info = "# CPU\r\nused_cpu_sys:1.500000\r\nused_cpu_user:0.250000\r\nused_cpu_sys_children:9\r\n";
        assert_eq!(cpu_by_info(info), Some(Duration::from_millis(10_750)));
        assert_eq!(cpu_by_info("# CPU\r\n"), None);
    }
}
