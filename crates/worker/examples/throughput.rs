//! Measures how many messages per second workers handle with an empty handler, and the CPU use of an idle worker.
//!
//! ```text
//! cargo run --release -p millstream-worker --example throughput -- [--delete-done] [--keys N] [URL [MESSAGES [WORKERS]]]
//! cargo run --release -p millstream-worker --example throughput -- --idle SECONDS URL
//! ```
//!
//! The messages are added before the measurement starts. Leases, retries and metrics are enabled, as always.
//!
//! With `--keys N`, each message has one of N keys, and the workers run the messages of a key in order.
//!
//! On a server every worker runs in its own process, with one connection for calls and one for blocking reads. On an
//! embedded store all workers share this process. `no:FOLDER` and `everysec:FOLDER` are embedded stores that never
//! fsync, or fsync once a second.

use std::error::Error;
use std::io::{BufRead, BufReader, Write, stdin};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millstream_store::embedded::Millstream;
use millstream_store::log::Policy;
use millstream_store::{FolderOptions, Store, StoreOptions};
use millstream_worker::backend::{Embedded, NewEntry, Start};
use millstream_worker::handler::Raw;
use millstream_worker::{Admin, Worker, WorkerHandle, connect};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

const STREAM: &str = "throughput";
const GROUP: &str = "bench";
/// The field that holds the key of a message.
const KEY: &str = "customer";

type BoxResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> BoxResult<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let options = Options::take(&mut arguments)?;
    match arguments[..] {
        ["--join", url] => join(url, options).await,
        ["--idle", seconds, url] => idle(url, Duration::from_secs_f64(seconds.parse()?)).await,
        [] => measure("memory:", 1_000_000, 1, options).await,
        [url] => measure(url, 1_000_000, 1, options).await,
        [url, messages] => measure(url, messages.parse()?, 1, options).await,
        [url, messages, workers] => measure(url, messages.parse()?, workers.parse()?, options).await,
        _ => Err("too many arguments".into()),
    }
}

/// What the workers do besides handling messages.
#[derive(Clone, Copy, Default)]
struct Options {
    /// Whether they delete what every group has acknowledged.
    delete_done: bool,
    /// The number of keys by which they order messages. `None`: no order.
    keys: Option<usize>,
}

impl Options {
    /// Removes the options from the arguments.
    fn take(arguments: &mut Vec<&str>) -> BoxResult<Options> {
        let mut options = Options::default();
        loop {
            match arguments[..] {
                ["--delete-done", ..] => options.delete_done = true,
                ["--keys", keys, ..] => {
                    options.keys = Some(keys.parse()?);
                    arguments.remove(0);
                }
                _ => return Ok(options),
            }
            arguments.remove(0);
        }
    }

    /// Returns the arguments of a worker process.
    fn arguments(self) -> Vec<String> {
        let delete_done = self.delete_done.then(|| "--delete-done".to_owned());
        let keys = self.keys.map(|keys| ["--keys".to_owned(), keys.to_string()]);
        delete_done.into_iter().chain(keys.into_iter().flatten()).collect()
    }
}

async fn measure(url: &str, messages: usize, workers: usize, options: Options) -> BoxResult<()> {
    let backend = open(url).await?;
    backend.delete_stream(STREAM).await?;
    backend.create_group(STREAM, GROUP, Start::Beginning).await?;
    fill(&backend, messages, options.keys.unwrap_or(1)).await?;
    let (elapsed, processor) = if url.contains("://") {
        in_child_processes(&backend, url, workers, options).await?
    } else {
        in_this_process(&backend, messages, workers, options).await?
    };
    let rate = messages as f64 / elapsed.as_secs_f64();
    let each = processor.as_secs_f64() * 1e6 / messages as f64;
    println!(
        "{workers} workers, {messages} messages: {rate:.0} messages/s, {each:.2} us of processor time each"
    );
    backend.delete_stream(STREAM).await?;
    Ok(())
}

async fn open(url: &str) -> BoxResult<Arc<dyn Admin>> {
    let (policy, folder) = match url.split_once(':') {
        Some(("no", folder)) => (Policy::Never, folder),
        Some(("everysec", folder)) => (Policy::EverySecond, folder),
        _ => return Ok(connect(url).await?),
    };
    let options = FolderOptions { policy, ..FolderOptions::default() };
    let (store, _) = Store::open(Path::new(folder), StoreOptions::default(), options)?;
    Ok(Arc::new(Embedded::over(Millstream::owning(store)?, url)))
}

/// Adds messages with this number of keys.
async fn fill(backend: &Arc<dyn Admin>, messages: usize, keys: usize) -> BoxResult<()> {
    let entry = |n: usize| {
        // The keys come in no order.
        let key = (n.wrapping_mul(7919) % keys.max(1)).to_string();
        let fields = vec![("order".into(), "12345678".into()), (KEY.into(), key.into())];
        NewEntry { fields, idempotence: None }
    };
    for added in (0..messages).step_by(1000) {
        let entries: Vec<NewEntry> = (added..messages.min(added + 1000)).map(entry).collect();
        backend.add(STREAM, &entries, None).await?;
    }
    Ok(())
}

fn worker(backend: &Arc<dyn Admin>, options: Options) -> BoxResult<Worker> {
    let mut builder =
        Worker::builder(backend.clone()).stream(STREAM).group(GROUP).delete_done(options.delete_done);
    if options.keys.is_some() {
        builder = builder.order_by(KEY);
    }
    Ok(builder.handler(async |_: Raw| {}).build()?)
}

/// Runs workers in this process. Returns the elapsed time and the CPU time.
async fn in_this_process(
    backend: &Arc<dyn Admin>,
    messages: usize,
    workers: usize,
    options: Options,
) -> BoxResult<(Duration, Duration)> {
    let workers = (0..workers).map(|_| worker(backend, options)).collect::<BoxResult<Vec<Worker>>>()?;
    let handles: Vec<WorkerHandle> = workers.iter().map(Worker::handle).collect();
    let (processor, began) = (cpu_time()?, Instant::now());
    let mut running: JoinSet<_> = workers.into_iter().map(Worker::run).collect();
    while handles.iter().map(|handle| handle.stats().acknowledged).sum::<u64>() < messages as u64 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let spent = (began.elapsed(), cpu_time()? - processor);
    handles.iter().for_each(WorkerHandle::drain);
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(spent)
}

/// Runs each worker as a process; all of them start to read together. Returns the elapsed time and the CPU time.
async fn in_child_processes(
    backend: &Arc<dyn Admin>,
    url: &str,
    workers: usize,
    options: Options,
) -> BoxResult<(Duration, Duration)> {
    let mut processes = (0..workers)
        .map(|_| WorkerProcess::start(url, options))
        .collect::<BoxResult<Vec<WorkerProcess>>>()?;
    processes.iter_mut().try_for_each(|worker| worker.next_line().map(drop))?;
    let began = Instant::now();
    processes.iter_mut().try_for_each(WorkerProcess::go)?;
    while backend.groups(STREAM).await?.iter().any(|group| group.lag != Some(0) || group.pending > 0) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let elapsed = began.elapsed();
    let processor = processes.into_iter().map(WorkerProcess::end).sum::<BoxResult<Duration>>()?;
    Ok((elapsed, processor))
}

/// A child process that runs one worker: see [`join`].
struct WorkerProcess {
    process: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl WorkerProcess {
    fn start(url: &str, options: Options) -> BoxResult<WorkerProcess> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(options.arguments());
        command.args(["--join", url]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let lines = BufReader::new(process.stdout.take().ok_or("the worker has no standard output")?);
        Ok(WorkerProcess { process, lines })
    }

    fn next_line(&mut self) -> BoxResult<String> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        Ok(line)
    }

    fn go(&mut self) -> BoxResult<()> {
        Ok(self.process.stdin.as_mut().ok_or("the worker has no standard input")?.write_all(b"go\n")?)
    }

    /// Ends the worker by closing its standard input. Returns its CPU time.
    fn end(mut self) -> BoxResult<Duration> {
        drop(self.process.stdin.take());
        let seconds = self.next_line()?.trim().parse()?;
        self.process.wait()?;
        Ok(Duration::from_secs_f64(seconds))
    }
}

/// Runs one worker as a child process: prints `ready`, starts to read after the first line on standard input, and
/// ends after the next line or when the input is closed.
async fn join(url: &str, options: Options) -> BoxResult<()> {
    let worker = worker(&open(url).await?, options)?;
    println!("ready");
    stdin().read_line(&mut String::new())?;
    let before = cpu_time()?;
    let (end, ended) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        // A line or the end of the input stops the worker.
        let _ = stdin().read_line(&mut String::new());
        drop(end);
    });
    worker.run_until(async { drop(ended.await) }).await?;
    println!("{}", (cpu_time()? - before).as_secs_f64());
    Ok(())
}

/// Measures the CPU use of a worker that waits on an empty stream.
async fn idle(url: &str, time: Duration) -> BoxResult<()> {
    let backend = open(url).await?;
    backend.delete_stream(STREAM).await?;
    let measured = async {
        // Let the worker start up before the measurement.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let before = cpu_time();
        tokio::time::sleep(time).await;
        if let (Ok(before), Ok(after)) = (before, cpu_time()) {
            let share = (after - before).as_secs_f64() / time.as_secs_f64();
            println!("an idle worker: {:.2} % of one CPU", share * 100.0);
        }
    };
    worker(&backend, Options::default())?.run_until(measured).await?;
    Ok(())
}

/// Returns the user and system CPU time of this process.
///
/// Linux reports them in hundredths of a second as fields 14 and 15 of `/proc/self/stat`. Field 2, the name, can
/// contain spaces and ends with the last `)`.
fn cpu_time() -> BoxResult<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit(')').next().ok_or("/proc/self/stat has no fields")?;
    let ticks = after_name.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    Ok(Duration::from_millis(ticks.sum::<Result<u64, _>>()? * 10))
}
