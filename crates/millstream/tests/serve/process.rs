//! A server process for a test, and a client that sends and expects raw bytes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Longer than any step takes, even on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A running server, killed on drop.
pub(crate) struct Server {
    child: Child,
    stderr: BufReader<ChildStderr>,
    pub(crate) greeting: String,
    pub(crate) port: u16,
    /// Its folder, unless the test owns the folder.
    _dir: Option<TempDir>,
}

/// Returns a command for the binary, with its own data folder and without the caller's `MILLSTREAM_` variables.
pub(crate) fn millstream(dir: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MILLSTREAM_")) {
        command.env_remove(name);
    }
    command.current_dir(&dir.path).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Server {
    pub(crate) fn start(flags: &[&str]) -> Server {
        Server::start_with(flags, &[])
    }

    pub(crate) fn start_with(flags: &[&str], environment: &[(&str, &str)]) -> Server {
        let dir = TempDir::new();
        let mut command = millstream(&dir);
        command.arg("serve").args(["--port", "0"]).args(flags).envs(environment.iter().copied());
        Server::spawn(command, Some(dir))
    }

    /// Starts a server in a folder that outlives it.
    pub(crate) fn start_in(dir: &TempDir, flags: &[&str]) -> Server {
        let mut command = millstream(dir);
        command.arg("serve").args(["--port", "0"]).args(flags);
        Server::spawn(command, None)
    }

    /// Starts a server with this limit on open files.
    pub(crate) fn start_with_descriptors(count: u32, flags: &[&str]) -> Server {
        let dir = TempDir::new();
        let mut command = Command::new("sh");
        let script = format!("ulimit -n {count}; exec \"$0\" serve --port 0 \"$@\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_millstream")]).args(flags);
        command.current_dir(&dir.path).stdin(Stdio::null()).stderr(Stdio::piped());
        Server::spawn(command, Some(dir))
    }

    /// Starts a server in a folder that outlives it, in the control group with this `cgroup.procs`.
    pub(crate) fn start_in_group(dir: &TempDir, procs: &Path, flags: &[&str]) -> Server {
        let mut command = Command::new("sh");
        let script = "echo $$ > \"$1\" && shift && exec \"$0\" serve --port 0 \"$@\"";
        command.args(["-c", script, env!("CARGO_BIN_EXE_millstream")]).arg(procs).args(flags);
        command.current_dir(&dir.path).stdin(Stdio::null()).stderr(Stdio::piped());
        Server::spawn(command, None)
    }

    /// Starts the process and waits until it prints its address.
    fn spawn(command: Command, dir: Option<TempDir>) -> Server {
        Server::try_spawn(command, dir).unwrap_or_else(|printed| panic!("the server ended: {printed}"))
    }

    /// Starts the process and waits until it prints its address. If it ends, returns what it printed.
    pub(crate) fn try_spawn(mut command: Command, dir: Option<TempDir>) -> Result<Server, String> {
        let mut child = command.spawn().expect("the binary is built");
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut greeting = String::new();
        while !greeting.contains("stop ") {
            let before = greeting.len();
            stderr.read_line(&mut greeting).expect("readable");
            if before == greeting.len() {
                let _ = child.wait();
                return Err(greeting);
            }
        }
        let listening = greeting.split("listening").nth(1).expect("an address");
        let address = listening.split([',', '(']).next().expect("an address").trim();
        let port = address.rsplit(':').next().expect("a port").parse().expect("a port");
        Ok(Server { child, stderr, greeting, port, _dir: dir })
    }

    /// Reads the lines that it prints, up to one that contains `text`. Returns that line.
    pub(crate) fn line_with(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(
                self.stderr.read_line(&mut line).expect("readable"),
                0,
                "the server ended without {text}"
            );
            if line.contains(text) {
                return line;
            }
        }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(SocketAddr::from(([127, 0, 0, 1], self.port)))
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent =
            Command::new("kill").args([name, &self.child.id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child of this process").is_none()
    }

    /// Waits until it has ended. Returns the rest of its standard error and its exit status.
    pub(crate) fn wait(mut self) -> (String, ExitStatus) {
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).expect("readable");
        (rest, self.child.wait().expect("a child of this process"))
    }

    /// Sets its soft and hard limit on open files.
    pub(crate) fn limit_descriptors(&self, count: u64) {
        self.set_descriptor_limit(&format!("{count}:{count}"));
    }

    /// Sets only its soft limit on open files, so that it can raise the limit itself.
    pub(crate) fn set_soft_descriptor_limit(&self, count: u64) {
        self.set_descriptor_limit(&format!("{count}:"));
    }

    fn set_descriptor_limit(&self, limit: &str) {
        let pid = self.child.id().to_string();
        let set = Command::new("prlimit").args(["--pid", &pid, &format!("--nofile={limit}")]).status();
        assert!(set.expect("prlimit runs").success());
    }

    /// Its soft limit on open files.
    pub(crate) fn descriptors_allowed(&self) -> u64 {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", self.child.id())).expect("it runs");
        let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a Linux kernel");
        line.split_ascii_whitespace().nth(3).expect("a number").parse().expect("a number")
    }

    /// Number of file descriptors that it has open.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("it runs").count()
    }

    /// Resident memory in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.memory_bytes("VmRSS:")
    }

    /// Maximum of its resident memory since [`Server::reset_peak`], in bytes.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.memory_bytes("VmHWM:")
    }

    /// Makes [`Server::peak_bytes`] forget earlier maxima.
    pub(crate) fn reset_peak(&self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").expect("it runs");
    }

    fn memory_bytes(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find(|line| line.starts_with(field)).expect("a Linux kernel");
        let kib: u64 = line.split_ascii_whitespace().nth(1).expect("a number").parse().expect("a number");
        kib * 1024
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client that sends and expects raw bytes.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("settable");
        stream.set_write_timeout(Some(TIMEOUT)).expect("settable");
        stream.set_nodelay(true).expect("settable");
        Client { stream }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the server reads");
    }

    /// Asserts that exactly these bytes arrive next.
    #[track_caller]
    pub(crate) fn expect(&mut self, reply: &str) {
        let mut bytes = vec![0; reply.len()];
        let mut got = 0;
        while got < bytes.len() {
            match self.stream.read(&mut bytes[got..]) {
                Ok(0) | Err(_) => break,
                Ok(count) => got += count,
            }
            if bytes[..got] != reply.as_bytes()[..got] {
                break;
            }
        }
        assert_eq!(String::from_utf8_lossy(&bytes[..got]), reply);
    }

    /// Sends an inline command and asserts its exact reply.
    #[track_caller]
    pub(crate) fn call(&mut self, command: &str, reply: &str) {
        self.send(format!("{command}\r\n"));
        self.expect(reply);
    }

    /// Sends inline commands and returns the bytes of all replies.
    pub(crate) fn ask(&mut self, commands: &[&str]) -> String {
        const END: &str = "$14\r\nend-of-replies\r\n";
        self.send(format!("{}\r\nECHO end-of-replies\r\n", commands.join("\r\n")));
        let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
        while !answer.ends_with(END.as_bytes()) {
            match self.stream.read(&mut piece) {
                Ok(0) | Err(_) => panic!("incomplete replies: {}", String::from_utf8_lossy(&answer)),
                Ok(count) => answer.extend_from_slice(&piece[..count]),
            }
        }
        answer.truncate(answer.len() - END.len());
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Reads one line and returns it without its end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\r\n") {
            match self.stream.read(&mut byte) {
                Ok(1) => line.push(byte[0]),
                _ => break,
            }
        }
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }

    /// Asserts that the server sends nothing more and closes the connection. A reset counts as a close.
    #[track_caller]
    pub(crate) fn expect_closed(&mut self) {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => assert_eq!(String::from_utf8_lossy(&rest), ""),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
        }
    }
}

/// Encodes a command as an array of bulk strings.
pub(crate) fn request(args: &[&str]) -> String {
    let mut text = format!("*{}\r\n", args.len());
    for arg in args {
        text.push_str(&format!("${}\r\n{arg}\r\n", arg.len()));
    }
    text
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < TIMEOUT, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A temporary folder, removed on drop.
pub(crate) struct TempDir {
    pub(crate) path: PathBuf,
}

impl TempDir {
    pub(crate) fn new() -> TempDir {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("millstream-serve-{}-{number}", std::process::id()));
        // A killed run with the same process id may have left its folder behind.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a temporary folder");
        TempDir { path }
    }

    /// Writes a file and returns its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.path.join(name);
        std::fs::write(&path, text).expect("writable");
        path.display().to_string()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
