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
/// How often a server that starts gets a PING.
const START_POLL: Duration = Duration::from_millis(2);
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
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Persistence {
    #[default]
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

/// How a server is started. The default: without persistence, open, with one port.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Setup {
    pub(crate) persistence: Persistence,
    /// As for a port that other machines can reach: with [`PASSWORD`], and with Millstream's limit of a reply on every
    /// server.
    pub(crate) is_exposed: bool,
    /// Whether `maxmemory` is set to [`MEMORY_LIMIT`].
    pub(crate) has_memory_limit: bool,
    /// Whether there is a second port, for TLS. Clients need no certificate.
    pub(crate) has_tls: bool,
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
    command: Vec<String>,
    folder: PathBuf,
}

impl Server {
    /// Starts the program in a fresh folder, or connects to the address. Returns when the server replies to PING.
    pub(crate) fn start(program: &Program, setup: Setup, options: &Options) -> Result<Server, Failure> {
        let slowly = setup.persistence == Persistence::AlwaysOnSlowDisk;
        Server::start_under(if slowly { delayed_syncs() } else { Vec::new() }, program, setup, &[], options)
    }

    /// Like `start`, under a wrapper program that gets the server's command line after its own. The server gets `more`
    /// arguments.
    pub(crate) fn start_under(
        wrapper: Vec<String>,
        program: &Program,
        setup: Setup,
        more: &[&str],
        options: &Options,
    ) -> Result<Server, Failure> {
        let path = match &program.place {
            Place::Path(path) => path,
            Place::Address(address) => return Server::attach(&program.name, address),
        };
        let (port, folder) = fresh_folder(options)?;
        let mut command = wrapper;
        command.push(path.to_string_lossy().into_owned());
        // The server whose instructions are counted is an example program, which prints no version.
        let is_ours = program.name == options.subject().name || is_millstream(path);
        command.extend(arguments(is_ours, port, &folder, setup));
        command.extend(more.iter().map(|argument| (*argument).to_owned()));
        let tls = setup.has_tls.then(|| add_tls_port(&mut command, &folder)).transpose()?;
        let password = setup.is_exposed.then_some(PASSWORD);
        let mut server = Server::unstarted(&program.name, &format!("127.0.0.1:{port}"));
        (server.password, server.tls) = (password, tls);
        server.launch(command, folder)
    }

    /// Starts a nats-server. `sync_always` needs a version that supports it.
    pub(crate) fn start_nats(path: &Path, sync_always: bool, options: &Options) -> Result<Server, Failure> {
        let (port, folder) = fresh_folder(options)?;
        let command =
            [vec![path.to_string_lossy().into_owned()], nats::arguments(port, &folder, sync_always)?]
                .concat();
        let address = format!("127.0.0.1:{port}");
        let mut server = Server::unstarted("nats", &address);
        server.protocol = Protocol::Nats;
        server.launch(command, folder)
    }

    fn unstarted(name: &str, address: &str) -> Server {
        let (answered_after, address) = (Duration::ZERO, address.into());
        Server {
            name: name.into(),
            protocol: Protocol::Redis,
            address,
            answered_after,
            password: None,
            tls: None,
            process: None,
        }
    }

    fn attach(name: &str, address: &str) -> Result<Server, Failure> {
        let server = Server::unstarted(name, address);
        server.connect()?.call(&["PING"])?;
        Ok(server)
    }

    fn launch(mut self, command: Vec<String>, folder: PathBuf) -> Result<Server, Failure> {
        let begun = Instant::now();
        self.process = Some(Process { child: spawn(&command, &folder)?, command, folder });
        self.wait_until_it_answers()?;
        self.answered_after = begun.elapsed();
        Ok(self)
    }

    /// Shuts the server down and waits until its process has ended.
    pub(crate) fn stop(mut self) -> Result<(), Failure> {
        // The server closes the connection without a reply.
        let _ = self.connect()?.call(&["SHUTDOWN", "NOSAVE"]);
        self.process_mut()?.child.wait()?;
        Ok(())
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
        process.child = spawn(&process.command, &process.folder)?;
        self.wait_until_it_answers()?;
        Ok(begun.elapsed())
    }

    /// Turns a peer's default rule on again: rewrite the log when its size has doubled. Holds until the peer is
    /// restarted.
    pub(crate) fn enable_automatic_rewrite(&self) -> Result<(), Failure> {
        if self.info("server", "millstream_version").is_err() {
            self.connect()?.call(&["CONFIG", "SET", "auto-aof-rewrite-percentage", "100"])?;
        }
        Ok(())
    }

    /// Returns the bytes of the files that the server reads when it starts.
    pub(crate) fn disk_bytes(&self) -> Result<u64, Failure> {
        Ok(bytes_under(&self.process()?.folder)?)
    }

    /// Whether this program started the server, and it does not report the system's malloc.
    pub(crate) fn has_own_malloc(&self) -> bool {
        self.process.as_ref().is_some_and(|process| has_own_malloc(Path::new(&process.command[0])))
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
        let info = self.connect()?.call_text(&["INFO", "cpu"])?;
        let seconds = |name: &str| info_value(&info, name)?.parse::<f64>().ok();
        let own = seconds("used_cpu_user").zip(seconds("used_cpu_sys"));
        let (user, system) = own.ok_or_else(|| format!("INFO of {} has no used_cpu_user", self.name))?;
        let children =
            ["used_cpu_user_children", "used_cpu_sys_children"].map(|name| seconds(name).unwrap_or(0.0));
        Ok(Duration::from_secs_f64(user + system + children.iter().sum::<f64>()))
    }

    /// Returns a value of INFO.
    pub(crate) fn info(&self, section: &str, name: &str) -> Result<String, Failure> {
        let info = self.connect()?.call_text(&["INFO", section])?;
        let value = info_value(&info, name).map(str::to_owned);
        value.ok_or_else(|| format!("INFO of {} has no {name}", self.name).into())
    }

    /// Waits until this many clients are blocked.
    pub(crate) fn wait_until_blocked(&self, count: usize) -> Result<(), Failure> {
        let mut connection = self.connect()?;
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            let info = connection.call_text(&["INFO", "clients"])?;
            if info_value(&info, "blocked_clients") == Some(&count.to_string()) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        Err(format!("INFO of {} did not show {count} blocked clients within a minute", self.name).into())
    }

    /// Returns the resident memory in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<u64, Failure> {
        let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.process()?.child.id()))?;
        let kib = text.lines().find_map(|line| line.strip_prefix("Rss:")?.split_whitespace().next());
        Ok(kib.ok_or("smaps_rollup without Rss")?.parse::<u64>()? * 1024)
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

    fn wait_until_it_answers(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + START_WITHIN;
        while Instant::now() < deadline && self.process_mut()?.child.try_wait()?.is_none() {
            if self.answers() {
                return Ok(());
            }
            std::thread::sleep(START_POLL);
        }
        let process = self.process()?;
        let output = fs::read_to_string(process.folder.join("output.txt")).unwrap_or_default();
        Err(format!("{} does not reply to PING; its output was:\n{output}", process.command[0]).into())
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

/// Chooses a port and creates the server's folder on the disk of the results. /tmp may be in memory, where a sync costs
/// nothing.
fn fresh_folder(options: &Options) -> Result<(u16, PathBuf), Failure> {
    let port = free_port()?;
    let folder = options.out.join(format!("data-{}-{port}", std::process::id()));
    let data = folder.join(DATA);
    fs::create_dir_all(&data).map_err(|e| format!("{}: {e}", data.display()))?;
    Ok((port, folder))
}

fn spawn(command: &[String], folder: &Path) -> Result<Child, Failure> {
    let log = File::create(folder.join("output.txt"))?;
    let mut process = Command::new(&command[0]);
    process.args(&command[1..]).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    process.spawn().map_err(|e| format!("cannot start {}: {e}", command[0]).into())
}

/// Whether `strace` can delay syncs on this machine.
pub(crate) fn can_delay_syncs() -> bool {
    let [strace, arguments @ ..] = &delayed_syncs()[..] else { return false };
    let tried =
        Command::new(strace).args(arguments).arg("true").stdout(Stdio::null()).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

/// Returns a command line with which `strace` delays the syncs of a program and no other system call. `-D` makes the
/// program, not `strace`, the direct child of this process.
fn delayed_syncs() -> Vec<String> {
    let inject = format!("inject=fdatasync:delay_enter={SYNC_DELAY_US}");
    let all =
        ["strace", "-D", "-f", "--seccomp-bpf", "-e", "trace=fdatasync", "-e", &inject, "-o", "/dev/null"];
    all.map(str::to_owned).to_vec()
}

/// Returns the server's arguments: default settings, except those of the setup and the number of clients.
fn arguments(is_ours: bool, port: u16, folder: &Path, setup: Setup) -> Vec<String> {
    let (append_only, sync) = match setup.persistence {
        Persistence::Off => ("no", "no"),
        Persistence::EverySec => ("yes", "everysec"),
        Persistence::Always | Persistence::AlwaysOnSlowDisk => ("yes", "always"),
    };
    let (port, folder) = (port.to_string(), folder.join(DATA));
    let folder = folder.to_string_lossy();
    // Peers: no automatic rewrite of the log, so none falls into a row by chance.
    let mut all = if is_ours { vec!["serve"] } else { vec!["--auto-aof-rewrite-percentage", "0"] };
    all.extend(["--bind", "127.0.0.1", "--port", &port, "--dir", &folder, "--save", ""]);
    all.extend(["--appendonly", append_only, "--appendfsync", sync, "--maxclients", MAX_CLIENTS]);
    if setup.is_exposed {
        all.extend(["--requirepass", PASSWORD]);
    }
    if setup.is_exposed && !is_ours {
        all.extend(["--client-output-buffer-limit", "normal", "256mb", "0", "0"]);
    }
    if setup.has_memory_limit {
        all.extend(["--maxmemory", MEMORY_LIMIT]);
    }
    all.into_iter().map(str::to_owned).collect()
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
        Place::Address(address) => {
            let info = Connection::open(address)?.call_text(&["INFO", "server"])?;
            let line = info.lines().find(|line| line.contains("_version:"));
            let line =
                line.ok_or_else(|| format!("{name}: the server at {address} reports no version with INFO"))?;
            Ok(format!("{} at {address}", line.trim()))
        }
    }
}

fn version_line(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next()?.to_owned())
}

fn printed_version(program: &Path) -> Option<String> {
    Some(version_line(program)?.split(" sha=").next()?.trim().to_owned())
}

/// Returns the servers that this program can start, except those that report that they were built with the system's
/// malloc.
pub(crate) fn with_own_malloc(options: &Options) -> Vec<Program> {
    let mut programs = options.startable();
    programs.retain(|program| match &program.place {
        Place::Path(path) => has_own_malloc(path),
        Place::Address(_) => false,
    });
    programs
}

fn has_own_malloc(program: &Path) -> bool {
    version_line(program).is_none_or(|line| !line.contains("malloc=libc"))
}

/// Returns the value of a line in a reply to INFO.
fn info_value<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
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
    fn values_of_info_are_found_by_their_whole_name() {
        let info = "# CPU\r\nused_cpu_user_children:9\r\nused_cpu_user:0.25\r\n";
        assert_eq!(info_value(info, "used_cpu_user"), Some("0.25"));
        assert_eq!(info_value(info, "cpu_user"), None);
    }
}
