//! Reads the counters of servers and processes, for the examples that measure.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Maximum time for one reply. A server that was killed refuses connections at once.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// The reply of a server to INFO.
#[derive(Clone, Debug, Default)]
pub(crate) struct Info(HashMap<String, String>);

impl Info {
    /// Asks the server with this address, such as `127.0.0.1:6379`.
    pub(crate) async fn of(address: &str) -> io::Result<Info> {
        let text = ask(address, "INFO everything").await?;
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        Ok(Info(pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()))
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns a number, or 0 if the server does not report it. For a command, it is the number of its calls.
    pub(crate) fn number(&self, name: &str) -> f64 {
        let value = self.text(name).unwrap_or("0");
        let calls = value.strip_prefix("calls=").and_then(|value| value.split(',').next());
        calls.unwrap_or(value).parse().unwrap_or_default()
    }

    /// Returns the CPU time that the server has used.
    pub(crate) fn cpu(&self) -> Duration {
        Duration::from_secs_f64(self.number("used_cpu_user") + self.number("used_cpu_sys"))
    }
}

/// Returns the addresses in the URL of a server or cluster. Empty for an embedded store.
pub(crate) fn addresses(url: &str) -> Vec<String> {
    let hosts = url.split_once("://").map_or("", |(_, hosts)| hosts);
    hosts.split(',').filter(|host| !host.is_empty()).map(str::to_owned).collect()
}

/// Sends a command without quotes to a server. Returns a text reply, or the first line of any other reply.
pub(crate) async fn ask(address: &str, command: &str) -> io::Result<String> {
    timeout(REPLY_TIMEOUT, async {
        let mut connection = BufReader::new(TcpStream::connect(address).await?);
        connection.write_all(format!("{command}\r\n").as_bytes()).await?;
        let mut line = String::new();
        connection.read_line(&mut line).await?;
        let Some(length) = line.trim().strip_prefix('$').and_then(|length| length.parse::<usize>().ok())
        else {
            return Ok(line.trim().to_owned());
        };
        let mut text = vec![0; length];
        connection.read_exact(&mut text).await?;
        String::from_utf8(text).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
    })
    .await
    .map_err(|_| io::Error::new(ErrorKind::TimedOut, format!("{address} does not answer {command}")))?
}

/// Returns the user and system CPU time of a process on this machine.
///
/// Linux reports them in hundredths of a second as fields 14 and 15 of `/proc/PID/stat`. Field 2, the name, can
/// contain spaces and ends with the last `)`.
pub(crate) fn process_cpu(process: u32) -> io::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    let ticks: u64 =
        ticks.sum::<Result<u64, _>>().map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
    Ok(Duration::from_millis(ticks * 10))
}
