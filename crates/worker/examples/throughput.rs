//! Measures how many messages per second workers handle with an empty handler, and what an idle worker costs.
//!
//! ```text
//! cargo run --release -p millstream-worker --example throughput -- [OPTIONS] [URL [MESSAGES [WORKERS]]]
//! cargo run --release -p millstream-worker --example throughput -- [OPTIONS] --compare ROUNDS URL MESSAGES
//! cargo run --release -p millstream-worker --example throughput -- [OPTIONS] --idle SECONDS URL
//! ```
//!
//! The messages have 10,000 different keys. They are added before the measurement starts. Leases, retries and metrics
//! are enabled, as always.
//!
//! | option | |
//! |---|---|
//! | `--order` | the workers run the messages of a key in order |
//! | `--partitions P` | the stream has P partitions, and the workers share them |
//! | `--prefetch N` | the workers read at most N messages ahead |
//! | `--delete-done` | the workers delete what they have acknowledged |
//!
//! `--compare` runs one worker without and with `--order` in turn, and prints the best of each as a row of a table.
//!
//! On a server every worker runs in its own process, with one connection for calls and one for blocking reads. On an
//! embedded store all workers share this process. `no:FOLDER` and `everysec:FOLDER` are embedded stores that never
//! fsync, or fsync once a second.

mod counters;

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
use millstream_worker::partitions::{Partitions, partition_of, partitions_key};
use millstream_worker::{Admin, Worker, WorkerHandle, connect};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use self::counters::{Info, addresses, ask, process_cpu};

const STREAM: &str = "throughput";
const GROUP: &str = "bench";
/// The field that holds the key of a message.
const KEY: &str = "customer";
/// Number of different keys.
const KEYS: usize = 10_000;

type BoxResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> BoxResult<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let options = Options::take(&mut arguments)?;
    match arguments[..] {
        ["--join", url] => join(url, options).await,
        ["--idle", seconds, url] => idle(url, Duration::from_secs_f64(seconds.parse()?), options).await,
        ["--compare", rounds, url, messages] => {
            compare(rounds.parse()?, url, messages.parse()?, options).await
        }
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
    delete_done: bool,
    order: bool,
    /// Number of partitions. 0: an ordinary stream.
    partitions: usize,
    prefetch: Option<usize>,
}

impl Options {
    /// Removes the options from the arguments.
    fn take(arguments: &mut Vec<&str>) -> BoxResult<Options> {
        let mut options = Options::default();
        loop {
            let count = match arguments[..] {
                ["--delete-done", ..] => {
                    options.delete_done = true;
                    1
                }
                ["--order", ..] => {
                    options.order = true;
                    1
                }
                ["--partitions", partitions, ..] => {
                    options.partitions = partitions.parse()?;
                    2
                }
                ["--prefetch", prefetch, ..] => {
                    options.prefetch = Some(prefetch.parse()?);
                    2
                }
                _ => return Ok(options),
            };
            arguments.drain(..count);
        }
    }

    /// Returns the arguments of a worker process.
    fn arguments(self) -> Vec<String> {
        let flags = [(self.delete_done, "--delete-done"), (self.order, "--order")];
        let mut arguments: Vec<String> =
            flags.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| (*name).to_owned()).collect();
        if let Some(prefetch) = self.prefetch {
            arguments.extend(["--prefetch".to_owned(), prefetch.to_string()]);
        }
        arguments
    }

    /// Returns the names of the streams that have the messages.
    fn streams(self) -> BoxResult<Vec<String>> {
        if self.partitions == 0 {
            return Ok(vec![STREAM.to_owned()]);
        }
        let partitions = Partitions::plan(STREAM, self.partitions, Some(KEY))?;
        Ok(partitions.names().into_iter().map(str::to_owned).collect())
    }
}

/// The result of one run.
struct Run {
    messages: usize,
    elapsed: Duration,
    /// CPU time of the workers. With an embedded store, it includes the store.
    workers: Duration,
    servers: Vec<ServerRun>,
}

/// What one server did in a run.
struct ServerRun {
    address: String,
    cpu: Duration,
    commands: f64,
    /// Number of its XREADGROUP calls.
    reads: f64,
    streams: usize,
    /// Number of messages in its streams.
    messages: usize,
}

impl Run {
    fn rate(&self) -> f64 {
        self.messages as f64 / self.elapsed.as_secs_f64()
    }

    fn us_each(&self, time: Duration) -> f64 {
        time.as_secs_f64() * 1e6 / self.messages as f64
    }

    fn server_us_each(&self) -> f64 {
        self.us_each(self.servers.iter().map(|server| server.cpu).sum())
    }

    fn messages_per_read(&self) -> f64 {
        self.messages as f64 / self.servers.iter().map(|server| server.reads).sum::<f64>()
    }
}

async fn measure(url: &str, messages: usize, workers: usize, options: Options) -> BoxResult<()> {
    let run = run(url, messages, workers, options).await?;
    for server in &run.servers {
        println!(
            "{}: {} streams, {} messages, {:.2} us of processor time and {:.3} commands for each of them",
            server.address,
            server.streams,
            server.messages,
            server.cpu.as_secs_f64() * 1e6 / server.messages as f64,
            server.commands / server.messages as f64
        );
    }
    if !run.servers.is_empty() {
        let (each, per_read) = (run.server_us_each(), run.messages_per_read());
        println!("servers: {each:.2} us of processor time each, {per_read:.0} messages per read");
    }
    println!(
        "{workers} workers, {messages} messages: {:.0} messages/s, {:.2} us of processor time each",
        run.rate(),
        run.us_each(run.workers)
    );
    Ok(())
}

/// Runs one worker without and with order in turn. Prints the best of each.
async fn compare(rounds: usize, url: &str, messages: usize, options: Options) -> BoxResult<()> {
    let (mut unordered, mut ordered) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        unordered.push(run(url, messages, 1, Options { order: false, ..options }).await?);
        ordered.push(run(url, messages, 1, Options { order: true, ..options }).await?);
    }
    let best = |runs: &[Run]| runs.iter().map(Run::rate).fold(0.0, f64::max);
    let least = |runs: &[Run], us: fn(&Run) -> f64| runs.iter().map(us).fold(f64::INFINITY, f64::min);
    let percent = |ordered: f64, unordered: f64| ordered / unordered * 100.0;
    let cells = |runs: &[Run]| {
        let worker = least(runs, |run| run.us_each(run.workers));
        (best(runs), worker, least(runs, Run::server_us_each))
    };
    let ((rate, worker, server), (rate_ordered, worker_ordered, server_ordered)) =
        (cells(&unordered), cells(&ordered));
    print!(
        "{rate:.0} | {rate_ordered:.0} | {:.0} % | {worker:.2} µs | {worker_ordered:.2} µs | ",
        percent(rate_ordered, rate)
    );
    match addresses(url).is_empty() {
        true => println!(" | | | |"),
        false => println!(
            "{server:.2} µs | {server_ordered:.2} µs | {:+.1} % | {:.0} |",
            percent(server_ordered, server) - 100.0,
            least(&ordered, Run::messages_per_read)
        ),
    }
    Ok(())
}

/// Adds messages and lets workers handle them.
async fn run(url: &str, messages: usize, workers: usize, options: Options) -> BoxResult<Run> {
    let backend = open(url).await?;
    let streams = create(&backend, options).await?;
    let lengths = fill(&backend, &streams, messages).await?;
    let mut before = Vec::new();
    for address in addresses(url) {
        before.push((Info::of(&address).await?, address));
    }
    let (elapsed, processor) = if url.contains("://") {
        in_child_processes(&backend, url, &streams, workers, options).await?
    } else {
        in_this_process(&backend, messages, workers, options).await?
    };
    let mut servers = Vec::new();
    for (before, address) in before {
        let after = Info::of(&address).await?;
        let increase = |name| after.number(name) - before.number(name);
        let mut held = Vec::new();
        for (stream, length) in streams.iter().zip(&lengths) {
            if ask(&address, &format!("EXISTS {stream}")).await? == ":1" {
                held.push(*length);
            }
        }
        servers.push(ServerRun {
            cpu: after.cpu().saturating_sub(before.cpu()),
            commands: increase("total_commands_processed"),
            reads: increase("cmdstat_xreadgroup"),
            streams: held.len(),
            messages: held.iter().sum(),
            address,
        });
    }
    delete(&backend, &streams).await?;
    Ok(Run { messages, elapsed, workers: processor, servers })
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

/// Creates the streams and their groups anew. Returns the names of the streams.
async fn create(backend: &Arc<dyn Admin>, options: Options) -> BoxResult<Vec<String>> {
    let streams = options.streams()?;
    delete(backend, &streams).await?;
    if options.partitions > 0 {
        Partitions::plan(STREAM, options.partitions, Some(KEY))?.create(&**backend).await?;
    }
    for stream in &streams {
        backend.create_group(stream, GROUP, Start::Beginning).await?;
    }
    Ok(streams)
}

async fn delete(backend: &Arc<dyn Admin>, streams: &[String]) -> BoxResult<()> {
    for stream in streams {
        backend.delete_stream(stream).await?;
    }
    let list = partitions_key(STREAM);
    let fields = backend.hash_fields(&list).await?;
    if !fields.is_empty() {
        backend.hash_delete(&list, &fields).await?;
    }
    Ok(())
}

/// Adds messages to the streams of their keys. Returns the lengths of the streams.
async fn fill(backend: &Arc<dyn Admin>, streams: &[String], messages: usize) -> BoxResult<Vec<usize>> {
    let mut lengths = vec![0; streams.len()];
    for added in (0..messages).step_by(1000 * streams.len()) {
        let mut batches: Vec<Vec<NewEntry>> = vec![Vec::new(); streams.len()];
        for n in added..messages.min(added + 1000 * streams.len()) {
            // The keys come in no order.
            let key = (n.wrapping_mul(7919) % KEYS).to_string();
            let number = partition_of(key.as_bytes(), streams.len());
            let fields = vec![("order".into(), "12345678".into()), (KEY.into(), key.into())];
            batches[number].push(NewEntry { fields, idempotence: None });
        }
        for ((stream, entries), length) in streams.iter().zip(&batches).zip(&mut lengths) {
            if !entries.is_empty() {
                backend.add(stream, entries, None).await?;
                *length += entries.len();
            }
        }
    }
    Ok(lengths)
}

fn worker(backend: &Arc<dyn Admin>, options: Options) -> BoxResult<Worker> {
    let mut builder =
        Worker::builder(backend.clone()).stream(STREAM).group(GROUP).delete_done(options.delete_done);
    if options.order {
        builder = builder.order_by(KEY);
    }
    if let Some(prefetch) = options.prefetch {
        builder = builder.prefetch(prefetch);
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
    streams: &[String],
    workers: usize,
    options: Options,
) -> BoxResult<(Duration, Duration)> {
    let mut processes = (0..workers)
        .map(|_| WorkerProcess::start(url, options))
        .collect::<BoxResult<Vec<WorkerProcess>>>()?;
    processes.iter_mut().try_for_each(|worker| worker.next_line().map(drop))?;
    let began = Instant::now();
    processes.iter_mut().try_for_each(WorkerProcess::go)?;
    for stream in streams {
        while backend.groups(stream).await?.iter().any(|group| group.lag != Some(0) || group.pending > 0) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
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

/// Measures the CPU use and the commands of a worker that waits on an empty stream.
async fn idle(url: &str, time: Duration, options: Options) -> BoxResult<()> {
    let backend = open(url).await?;
    let streams = create(&backend, options).await?;
    let measured = async {
        // The worker starts up, and acquires its partitions, before the measurement.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let (before, servers) = (cpu_time()?, totals(url).await?);
        tokio::time::sleep(time).await;
        let (after, servers_after) = (cpu_time()?, totals(url).await?);
        let share = |spent: Duration| spent.as_secs_f64() / time.as_secs_f64() * 100.0;
        BoxResult::Ok((
            share(after - before),
            (servers_after.0 - servers.0) / time.as_secs_f64(),
            share(servers_after.1.saturating_sub(servers.1)),
        ))
    };
    let (send, receive) = oneshot::channel();
    let ending = async { drop(send.send(measured.await)) };
    worker(&backend, options)?.run_until(ending).await?;
    let (cpu, commands, server_cpu) = receive.await??;
    match addresses(url).is_empty() {
        true => println!("an idle worker: {cpu:.2} % of one CPU"),
        false => println!(
            "an idle worker: {cpu:.2} % of one CPU, {commands:.1} commands/s, servers {server_cpu:.2} % of one CPU"
        ),
    }
    delete(&backend, &streams).await
}

/// Returns the number of commands that all servers have run, and their CPU time.
async fn totals(url: &str) -> BoxResult<(f64, Duration)> {
    let mut totals = (0.0, Duration::ZERO);
    for address in addresses(url) {
        let info = Info::of(&address).await?;
        totals.0 += info.number("total_commands_processed");
        totals.1 += info.cpu();
    }
    Ok(totals)
}

/// Returns the user and system CPU time of this process.
fn cpu_time() -> BoxResult<Duration> {
    Ok(process_cpu(std::process::id())?)
}
