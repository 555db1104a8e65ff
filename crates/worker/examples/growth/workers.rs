//! Worker processes. Their handlers do nothing but measure how old each message is.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader, stdin};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use millstream_worker::{Message, Worker, connect};
use tokio::sync::oneshot;

use super::{BoxResult, GROUP, STREAM};

/// A worker process.
pub(crate) struct WorkerProcess {
    process: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl WorkerProcess {
    pub(crate) fn start(url: &str) -> BoxResult<WorkerProcess> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--work", url]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let output = BufReader::new(process.stdout.take().ok_or("the worker has no standard output")?);
        Ok(WorkerProcess { process, output })
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Kills the worker, as a crash would.
    pub(crate) fn kill(mut self) -> BoxResult<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    /// Lets the worker drain and end. Returns how old the messages were when its handlers began.
    pub(crate) fn end(mut self) -> BoxResult<Latencies> {
        drop(self.process.stdin.take());
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        self.process.wait()?;
        Latencies::parse(&line)
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // Both fail only if the process has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs one worker until its standard input is closed. Then prints the latencies.
pub(crate) async fn work(url: &str) -> BoxResult<()> {
    let latencies = Arc::new(Mutex::new(Latencies::default()));
    let recorded = Arc::clone(&latencies);
    let handler = move |message: Message| {
        let age_ms = message.age().as_millis() as u64;
        if let Ok(mut recorded) = recorded.lock() {
            *recorded.0.entry(age_ms).or_default() += 1;
        }
        async {}
    };
    let worker = Worker::builder(connect(url).await?).stream(STREAM).group(GROUP).handler(handler).build()?;
    let (end, ended) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        // The end of the input stops the worker.
        let _ = stdin().read_line(&mut String::new());
        drop(end);
    });
    worker.run_until(async { drop(ended.await) }).await?;
    let latencies = latencies.lock().map_err(|_| "a handler has panicked")?;
    let counts: Vec<String> = latencies.0.iter().map(|(ms, count)| format!("{ms}:{count}")).collect();
    println!("{}", counts.join(" "));
    Ok(())
}

/// How many messages waited how many milliseconds for a handler.
#[derive(Default)]
pub(crate) struct Latencies(BTreeMap<u64, u64>);

impl Latencies {
    fn parse(line: &str) -> BoxResult<Latencies> {
        let mut latencies = Latencies::default();
        for pair in line.split_whitespace() {
            let (ms, count) = pair.split_once(':').ok_or("a worker printed something else")?;
            latencies.0.insert(ms.parse()?, count.parse()?);
        }
        Ok(latencies)
    }

    pub(crate) fn merge(&mut self, other: Latencies) {
        for (ms, count) in other.0 {
            *self.0.entry(ms).or_default() += count;
        }
    }

    /// Returns the time that this part of the messages did not exceed.
    fn quantile_ms(&self, part: f64) -> u64 {
        let mut left = (self.0.values().sum::<u64>() as f64 * part).ceil() as u64;
        for (ms, count) in &self.0 {
            if *count >= left {
                return *ms;
            }
            left -= count;
        }
        0
    }
}

impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [median, p99, max] = [0.5, 0.99, 1.0].map(|part| self.quantile_ms(part));
        write!(f, "median {median} ms, p99 {p99} ms, maximum {max} ms")
    }
}
