//! The fuzzing loop: changes inputs, runs them, and keeps those that reach something new.
//!
//! The inputs of a batch run one after the other. The counters are read once per batch, because that takes longer than
//! most inputs. If a batch reached something new, its inputs run again one by one, to find out which of them did.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::coverage::Coverage;
use crate::mutate::mutate;
use crate::oracle::{self, Failure, Measured};
use crate::random::Random;
use crate::targets::Target;
use crate::{corpus, watchdog};

/// Number of inputs of a batch.
const BATCH: usize = 16;
/// Maximum number of attempts to make a failing input shorter.
const SHORTENING_ATTEMPTS: usize = 2000;

/// A campaign on one target.
pub(crate) struct Campaign {
    target: &'static Target,
    random: Random,
    coverage: Coverage,
    /// Every input that reached something new.
    inputs: Vec<Vec<u8>>,
    pub(crate) executions: u64,
    /// The slowest input.
    pub(crate) longest: Duration,
    /// The most bytes that an input allocated.
    pub(crate) largest_bytes: usize,
    /// The file with the inputs of the current batch, for an input that ends the process.
    current: File,
    current_path: PathBuf,
}

impl Campaign {
    /// Begins a campaign. Failing inputs are written to `dir`.
    pub(crate) fn new(target: &'static Target, seed: u64, dir: &Path) -> Result<Campaign, String> {
        let current_path = dir.join(format!("{}-current.txt", target.name));
        let current = fs::create_dir_all(dir).and_then(|()| File::create(&current_path));
        let current =
            current.map_err(|error| format!("cannot create {}: {error}", current_path.display()))?;
        let mut campaign = Campaign {
            target,
            random: Random::new(seed),
            coverage: Coverage::new(),
            inputs: Vec::new(),
            executions: 0,
            longest: Duration::ZERO,
            largest_bytes: 0,
            current,
            current_path,
        };
        // The first run initializes what the program initializes only once.
        campaign.run_batch(&[Vec::new()])?;
        campaign.coverage = Coverage::new();
        Ok(campaign)
    }

    /// Runs these inputs and keeps those that reach something new.
    pub(crate) fn replay(&mut self, inputs: &[Vec<u8>]) -> Result<(), String> {
        inputs.iter().try_for_each(|input| self.run_batch(std::slice::from_ref(input)))
    }

    /// Fuzzes until the time is over.
    pub(crate) fn fuzz(&mut self, time: Duration) -> Result<(), String> {
        let begin = Instant::now();
        while begin.elapsed() < time {
            let batch: Vec<Vec<u8>> = (0..BATCH).map(|_| self.next_input()).collect();
            self.run_batch(&batch)?;
        }
        Ok(())
    }

    /// Returns the inputs that together reach every counter that the campaign reached, short inputs first, up to
    /// `bytes_max` bytes.
    pub(crate) fn smallest_corpus(&mut self, bytes_max: usize) -> Result<Vec<Vec<u8>>, String> {
        let mut inputs = std::mem::take(&mut self.inputs);
        inputs.sort_by_key(Vec::len);
        let mut reached = Coverage::new();
        let (mut kept, mut bytes) = (Vec::new(), 0);
        for input in inputs {
            self.run_one(&input)?;
            let line_bytes = input.escape_ascii().count() + 1;
            if bytes + line_bytes <= bytes_max && reached.take_new_counters() {
                bytes += line_bytes;
                kept.push(input);
            }
        }
        Ok(kept)
    }

    /// Returns the number of counters reached, and the number of counters.
    pub(crate) fn counters(&self) -> (usize, usize) {
        self.coverage.reached()
    }

    /// Returns the number of inputs that reached something new.
    pub(crate) fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// Returns a changed copy of an input; one in ten is new.
    fn next_input(&mut self) -> Vec<u8> {
        let count = self.inputs.len();
        if count == 0 || self.random.one_in(10) {
            let length_max = 1 << self.random.below(9);
            let length = self.random.below(length_max);
            return self.random.bytes(length);
        }
        // Half of the inputs come from the newest quarter, which is least explored.
        let newest = if self.random.one_in(2) { count.div_ceil(4) } else { count };
        let at = count - 1 - self.random.below(newest);
        let other = self.random.below(count);
        mutate(&mut self.random, &self.inputs[at], &self.inputs[other], self.target.words)
    }

    fn run_batch(&mut self, batch: &[Vec<u8>]) -> Result<(), String> {
        self.note_current(batch);
        for input in batch {
            self.run_one(input)?;
        }
        if self.coverage.take_new() {
            if let [input] = batch {
                self.inputs.push(input.clone());
                return Ok(());
            }
            self.coverage.forget_last();
            for input in batch {
                self.run_one(input)?;
                if self.coverage.take_new() {
                    self.inputs.push(input.clone());
                }
            }
        }
        Ok(())
    }

    /// Runs an input. A failing input is shortened and written to a file.
    fn run_one(&mut self, input: &[u8]) -> Result<(), String> {
        watchdog::begin_input();
        self.executions += 1;
        match oracle::run(self.target, input) {
            Ok(Measured { time, bytes }) => {
                self.longest = self.longest.max(time);
                self.largest_bytes = self.largest_bytes.max(bytes);
                Ok(())
            }
            Err(failure) => Err(self.report(input, &failure)),
        }
    }

    /// Writes the inputs to a file that remains if one of them ends the process.
    fn note_current(&self, batch: &[Vec<u8>]) {
        let mut text = Vec::with_capacity(256);
        for input in batch {
            text.extend(input.escape_ascii());
            text.push(b'\n');
        }
        // Without the file, the campaign still works.
        let _ = self.current.write_all_at(&text, 0).and_then(|()| self.current.set_len(text.len() as u64));
    }

    /// Shortens a failing input, writes it to a file, and returns the report.
    fn report(&self, input: &[u8], failure: &Failure) -> String {
        let input = self.shortened(input, failure);
        let hash = input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let path = self.current_path.with_file_name(format!("{}-{hash:016x}.txt", self.target.name));
        let written = corpus::write(&path, std::slice::from_ref(&input));
        let place = written.map_or_else(|error| error, |()| path.display().to_string());
        let name = self.target.name;
        format!(
            "{name}: {failure}\n  input: {}\n  run it again: scripts/fuzz {name} --replay {place}\n  \
             once it is fixed, keep it: mv {place} fuzz/crashers/{name}/WHAT-IT-WAS.txt",
            input.escape_ascii()
        )
    }

    /// Removes parts of a failing input for as long as it fails in the same way.
    fn shortened(&self, input: &[u8], failure: &Failure) -> Vec<u8> {
        let mut shortest = input.to_vec();
        let mut attempts = SHORTENING_ATTEMPTS;
        let mut length = shortest.len().next_power_of_two();
        while length > 0 {
            let mut at = 0;
            while at < shortest.len() && attempts > 0 && !failure.is_slow() {
                attempts -= 1;
                watchdog::begin_input();
                let mut shorter = shortest.clone();
                shorter.drain(at..(at + length).min(shortest.len()));
                match oracle::run(self.target, &shorter) {
                    Err(again) if again.is_like(failure) => shortest = shorter,
                    _ => at += length,
                }
            }
            length /= 2;
        }
        shortest
    }
}

impl Drop for Campaign {
    fn drop(&mut self) {
        // The process did not end in an input.
        let _ = fs::remove_file(&self.current_path);
    }
}
