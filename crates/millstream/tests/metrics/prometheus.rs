//! A Prometheus that scrapes a server, the metrics of its streams, and a worker.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::process::free_port;
use crate::support::run::new_folder;

/// Longest wait before a test fails.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A process that is killed at the end.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(command: &mut Command) -> Process {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Process(quiet.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
}

/// What Prometheus scrapes.
pub(crate) struct Targets {
    ports: Vec<u16>,
    folder: PathBuf,
    _processes: Vec<Process>,
}

impl Targets {
    /// Starts a server with a stream that has dead letters, a worker with failures, and `millstream metrics`.
    pub(crate) fn start() -> Targets {
        let folder = new_folder();
        let (port, http) = (free_port(), free_port());
        let url = format!("redis://127.0.0.1:{port}");
        let millstream = |arguments: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
            command.args(arguments).current_dir(&folder).env("MILLSTREAM_URL", &url).env_remove("RUST_LOG");
            command
        };
        let http_at = format!("127.0.0.1:{http}");
        let serve =
            ["serve", "--port", &port.to_string(), "--dir", "data", "--maxmemory", "1gb", "--http", &http_at];
        let server = start(&mut millstream(&serve));
        wait_until_listening(port);
        let add = millstream(&["add", "orders", "n={i}", "--count", "20"]).output().expect("add");
        assert!(add.status.success(), "{add:?}");
        let save = Command::new("redis-cli")
            .args(["-p", &port.to_string(), "SAVE"])
            .output()
            .expect("run redis-cli");
        assert_eq!(String::from_utf8_lossy(&save.stdout).trim(), "OK");
        let (metrics, worker) = (free_port(), free_port());
        let (metrics_at, worker_at) = (format!("127.0.0.1:{metrics}"), format!("127.0.0.1:{worker}"));
        let handler = "exit $((65 * (MILLSTREAM_FIELD_N % 2)))";
        let work =
            ["work", "--stream", "orders", "--group", "billing", "--exec", handler, "--listen", &worker_at];
        let processes = vec![
            server,
            start(&mut millstream(&work)),
            start(&mut millstream(&["metrics", "--listen", &metrics_at])),
        ];
        Targets { ports: vec![http, metrics, worker], folder, _processes: processes }
    }
}

/// Waits until a server accepts connections at a port.
fn wait_until_listening(port: u16) {
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(began.elapsed() < TIMEOUT, "no server listens at port {port}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A running Prometheus.
pub(crate) struct Prometheus {
    port: u16,
    folder: PathBuf,
    process: Option<Process>,
}

impl Prometheus {
    /// Starts Prometheus with the alert rules. It scrapes the targets every second.
    pub(crate) fn start(targets: &Targets) -> Prometheus {
        let folder = targets.folder.clone();
        let addresses: Vec<String> = targets.ports.iter().map(|port| format!("'127.0.0.1:{port}'")).collect();
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/prometheus/rules.yml");
        let configuration = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\nrule_files: ['{}']\n\
             scrape_configs:\n  - job_name: millstream\n    static_configs:\n      - targets: [{}]\n",
            rules.display(),
            addresses.join(", ")
        );
        fs::write(folder.join("prometheus.yml"), configuration).expect("write the configuration");
        let port = free_port();
        let mut command = Command::new("prometheus");
        command.current_dir(&folder).args([
            "--config.file",
            "prometheus.yml",
            "--storage.tsdb.path",
            "series",
        ]);
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        Prometheus { port, folder, process: Some(start(&mut command)) }
    }

    /// Sends a request to the API. Null if Prometheus does not answer.
    pub(crate) fn get(&self, path: &str) -> Value {
        let Ok(mut connection) = TcpStream::connect(("127.0.0.1", self.port)) else { return Value::Null };
        let mut answer = String::new();
        // With HTTP/1.0 the answer has no chunks, and the server closes the connection.
        let sent = write!(connection, "GET /api/v1/{path} HTTP/1.0\r\nHost: prometheus\r\n\r\n");
        if sent.and_then(|()| connection.read_to_string(&mut answer)).is_err() {
            return Value::Null;
        }
        let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        serde_json::from_str(body).unwrap_or_default()
    }

    /// Waits until Prometheus has series with each of these names.
    pub(crate) fn wait_for(&self, names: &BTreeSet<&str>) {
        let began = Instant::now();
        loop {
            let answer = self.get("label/__name__/values");
            let found: BTreeSet<&str> =
                answer["data"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let missing: Vec<_> = names.difference(&found).collect();
            if missing.is_empty() {
                return;
            }
            assert!(began.elapsed() < TIMEOUT, "not scraped: {missing:?}\n{}", self.get("targets"));
            thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        drop(self.process.take());
        // The server still writes into the folder. What is left there is small.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns a text as it is written in a URL.
pub(crate) fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}
