//! The fuzzer: runs one target for some time, or replays inputs. `scripts/fuzz` builds and starts it.
//!
//! ```text
//! millstream-fuzz list                                       the names of all targets
//! millstream-fuzz TARGET --seconds 10 --seed 1 --dir DIR     replay corpus and crashers, then fuzz
//! millstream-fuzz TARGET --replay FILE                       run the inputs of a file
//! millstream-fuzz TARGET … --bless                           write the smallest corpus that reaches everything
//! millstream-fuzz TARGET … --result FILE                     add the result to a file, as a line of JSON
//! ```

mod campaign;
mod corpus;
mod coverage;
mod instruments;
mod mutate;
mod oracle;
mod random;
mod targets;
mod watchdog;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use campaign::Campaign;
use targets::{TARGETS, Target};

/// Maximum size of the stored corpus of a target, in bytes.
const CORPUS_BYTES_MAX: usize = 40 << 10;

/// The command line.
struct Options {
    target: &'static Target,
    time: Duration,
    seed: u64,
    dir: PathBuf,
    replay: Option<PathBuf>,
    bless: bool,
    result: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == "list") {
        TARGETS.iter().for_each(|target| println!("{}", target.name));
        return ExitCode::SUCCESS;
    }
    match parse(&args).and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn parse(args: &[String]) -> Result<Options, String> {
    let names = || TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(", ");
    let mut args = args.iter();
    let name = args.next().ok_or_else(|| format!("expected a target: {}", names()))?;
    let target = TARGETS.iter().find(|target| target.name == *name);
    let target = target.ok_or_else(|| format!("unknown target {name}; the targets are {}", names()))?;
    let mut options = Options {
        target,
        time: Duration::ZERO,
        seed: 1,
        dir: PathBuf::from("target/fuzz/failures"),
        replay: None,
        bless: false,
        result: None,
    };
    while let Some(option) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{option} needs a value"));
        let number = |text: &String| text.parse().map_err(|_| format!("{option} {text}: expected a number"));
        match option.as_str() {
            "--seconds" => options.time = Duration::from_secs(number(value()?)?),
            "--seed" => options.seed = number(value()?)?,
            "--dir" => options.dir = PathBuf::from(value()?),
            "--replay" => options.replay = Some(PathBuf::from(value()?)),
            "--bless" => options.bless = true,
            "--result" => options.result = Some(PathBuf::from(value()?)),
            _ => return Err(format!("unknown option {option}")),
        }
    }
    Ok(options)
}

fn run(options: &Options) -> Result<(), String> {
    let target = options.target;
    oracle::install_panic_hook();
    watchdog::start(target.name);
    let begin = Instant::now();
    let mut campaign = Campaign::new(target, options.seed, &options.dir)?;
    if let Some(path) = &options.replay {
        let inputs = corpus::read(path)?;
        campaign.replay(&inputs)?;
        println!("{}: {} inputs of {} pass", target.name, inputs.len(), path.display());
        return Ok(());
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpus_path = folder.join("corpus").join(format!("{}.txt", target.name));
    campaign.replay(&corpus::read_folder(&folder.join("crashers").join(target.name))?)?;
    campaign.replay(&corpus::read(&corpus_path)?)?;
    campaign.fuzz(options.time)?;
    report(options, &campaign, begin.elapsed())?;
    if options.bless {
        let kept = campaign.smallest_corpus(CORPUS_BYTES_MAX)?;
        corpus::write(&corpus_path, &kept)?;
        println!("{}: {} inputs in {}", target.name, kept.len(), corpus_path.display());
    }
    Ok(())
}

/// Prints the result, and adds it to the file of results.
fn report(options: &Options, campaign: &Campaign, took: Duration) -> Result<(), String> {
    let (name, seed, executions) = (options.target.name, options.seed, campaign.executions);
    let (reached, counters) = campaign.counters();
    let (seconds, longest_ms) = (took.as_secs_f64(), campaign.longest.as_secs_f64() * 1e3);
    let largest_kib = campaign.largest_bytes >> 10;
    println!(
        "{name}: seed {seed}, {executions} executions in {seconds:.1} s ({:.0}/s), {reached} of {counters} counters, \
         {} inputs kept, longest {longest_ms:.1} ms, largest allocation {largest_kib} KiB",
        executions as f64 / seconds,
        campaign.input_count(),
    );
    let Some(path) = &options.result else { return Ok(()) };
    let line = format!(
        "{{\"target\": \"{name}\", \"seed\": {seed}, \"executions\": {executions}, \"seconds\": {seconds:.1}, \
         \"counters\": {reached}, \"longest_ms\": {longest_ms:.1}, \"largest_kib\": {largest_kib}}}\n"
    );
    let file = OpenOptions::new().create(true).append(true).open(path);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))
}
