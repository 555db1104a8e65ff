//! A campaign: one server, one folder, many rounds of load, fault, restart and check.
//!
//! The harness has read the whole state after each restart, so the next round starts from that state: no part of it
//! may disappear, and nothing that was missing may appear.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::check::{Evidence, Fault, Finding, check};
use crate::disk::{Cut, Disk};
use crate::ledger::{Clock, GROUP, Op, WORK, listing};
use crate::load::{Load, Numbers};
use crate::random::Random;
use crate::state::State;
use crate::subject::{Running, Subject};
use crate::support::resp::Value;
use crate::tally::Tally;

/// Folder in the system's temporary folder for the ledgers of rounds with findings.
const EVIDENCE_FOLDER: &str = "millstream-durability-findings";

/// Storage of the server's data.
pub(crate) enum Place {
    /// An ordinary folder.
    Folder,
    /// A disk that can fail.
    Disk(Disk),
}

/// A server and everything known about what it acknowledged or returned.
pub(crate) struct Campaign {
    pub subject: Subject,
    pub seed: u64,
    pub random: Random,
    pub clock: Clock,
    pub place: Place,
    pub running: Running,
    pub tally: Tally,
    base: State,
    numbers: Numbers,
    scratch: Scratch,
}

impl Campaign {
    /// Starts the server on an empty folder.
    ///
    /// # Panics
    /// If it does not start.
    pub(crate) fn new(subject: Subject, seed: u64, place: Place) -> Campaign {
        let scratch = Scratch::new();
        let data = data_folder(&place, &scratch);
        fs::create_dir_all(&data).expect("create the data folder");
        let running =
            subject.start(&data, &scratch.output()).unwrap_or_else(|error| panic!("{subject}: {error}"));
        let mut campaign = Campaign {
            subject,
            seed,
            random: Random::new(seed),
            clock: Clock::new(),
            place,
            running,
            tally: Tally::default(),
            base: State::default(),
            numbers: Numbers::default(),
            scratch,
        };
        campaign.begin_round();
        campaign
    }

    /// Starts the load clients.
    pub(crate) fn load(&mut self) -> Load {
        Load::start(self.running.port, self.clock, self.random.next(), &self.numbers)
    }

    /// Returns a random waiting time, exponentially distributed.
    pub(crate) fn random_delay(&mut self, mean: Duration) -> Duration {
        let uniform = (self.random.below(1_000_000) + 1) as f64 / 1e6;
        mean.mul_f64((-uniform.ln()).min(6.0))
    }

    /// Returns the disk under the server.
    ///
    /// # Panics
    /// If the campaign has no disk.
    pub(crate) fn disk(&mut self) -> &mut Disk {
        match &mut self.place {
            Place::Disk(disk) => disk,
            Place::Folder => panic!("this fault needs a disk of its own"),
        }
    }

    /// Whether the server's disk can fail.
    pub(crate) fn has_disk(&self) -> bool {
        matches!(self.place, Place::Disk(_))
    }

    /// Path of a file for a fault's own notes, outside the server's folder.
    pub(crate) fn note_file(&self) -> PathBuf {
        self.scratch.0.join("notes.txt")
    }

    /// Path of the server's data folder.
    pub(crate) fn data(&self) -> PathBuf {
        data_folder(&self.place, &self.scratch)
    }

    /// Path of the file that collects the server's output.
    pub(crate) fn output(&self) -> PathBuf {
        self.scratch.output()
    }

    /// Restarts the server after a fault, compares its state with the ledger, and starts the next round from that
    /// state.
    ///
    /// The server must be dead and the disk powered.
    pub(crate) fn restart_and_check(&mut self, ops: Vec<Op>, fault: Fault) {
        if let Err(why) = self.restart() {
            self.tally.add(&ops, &[]);
            self.replace_folder(&why);
        } else {
            let found = State::read(&mut self.running.client());
            let findings = self.findings(&ops, fault, &found);
            self.tally.add(&ops, &findings);
            self.keep_evidence(&ops, &findings);
            self.recover_again(&found);
        }
        self.numbers.advance(&ops);
        self.begin_round();
    }

    /// Compares the state of the running server with the ledger, and continues from that state.
    pub(crate) fn check_running(&mut self, ops: &[Op]) {
        let found = State::read(&mut self.running.client());
        let fault = self.no_fault();
        let findings = self.findings(ops, fault, &found);
        self.tally.add_findings(&findings);
        self.tally.acknowledged += ops.iter().filter(|op| op.is_acknowledged_write()).count() as u64;
        self.keep_evidence(ops, &findings);
        self.numbers.advance(ops);
        self.base = found;
    }

    /// Returns everything in `found` that the ledger does not explain.
    pub(crate) fn findings(&self, ops: &[Op], fault: Fault, found: &State) -> Vec<Finding> {
        check(&Evidence { base: &self.base, first: &self.numbers, ops, fault, found })
    }

    /// Returns a fault at the current time, for checks without a fault.
    pub(crate) fn no_fault(&mut self) -> Fault {
        Fault { at: self.clock.now(), dead_ms: self.clock.latest_ms() }
    }

    /// Starts the server again. Sometimes it is killed or loses power while it starts.
    fn restart(&mut self) -> Result<(), String> {
        while self.random.percent(12) {
            let mut starting = self.subject.launch(&self.data(), &self.output());
            std::thread::sleep(self.random_delay(Duration::from_millis(15)));
            if self.has_disk() && self.random.percent(50) {
                self.disk().cut(Cut::Nothing);
                starting.kill();
                self.disk().power_up();
            } else {
                starting.kill();
            }
        }
        self.running = self.subject.start(&self.data(), &self.output())?;
        Ok(())
    }

    /// Sometimes restarts the server again. The harness has read the recovered state, so it must not change.
    fn recover_again(&mut self, found: &State) {
        if !self.random.percent(20) {
            return;
        }
        if self.has_disk() {
            self.disk().cut(Cut::Nothing);
        }
        self.running.kill();
        if self.has_disk() {
            self.disk().power_up();
        }
        if let Err(why) = self.restart() {
            self.replace_folder(&why);
            return;
        }
        let again = State::read(&mut self.running.client());
        let numbers = Numbers::default();
        let findings = check(&Evidence {
            base: found,
            first: &numbers,
            ops: &[],
            fault: self.no_fault(),
            found: &again,
        });
        self.tally.add_findings(&findings);
        self.keep_evidence(&[], &findings);
    }

    /// Replaces a folder that the server refuses to open with an empty one, and keeps a copy as evidence.
    fn replace_folder(&mut self, why: &str) {
        self.tally.add_refusal(why);
        let data = self.data();
        let copy = self.evidence_path("folder");
        let _ = fs::create_dir_all(evidence_folder());
        // Evidence is optional, so errors are ignored.
        let _ = Command::new("cp").arg("-r").arg(&data).arg(copy).status();
        fs::remove_dir_all(&data).expect("remove the data folder");
        fs::create_dir_all(&data).expect("create the data folder");
        let started = self.subject.start(&data, &self.output());
        self.running = started.unwrap_or_else(|error| panic!("{}: {error}", self.subject));
    }

    /// Creates missing groups, and reads the state.
    fn begin_round(&mut self) {
        let mut client = self.running.client();
        for key in WORK {
            let reply = client.call(&["XGROUP", "CREATE", key, GROUP, "0", "MKSTREAM"]);
            let fine = match &reply {
                Value::Simple(_) => true,
                Value::Error(text) => text.starts_with(b"BUSYGROUP"),
                _ => false,
            };
            assert!(fine, "{}: XGROUP CREATE replied {reply:?}", self.subject);
        }
        self.base = State::read(&mut client);
    }

    fn keep_evidence(&self, ops: &[Op], findings: &[Finding]) {
        if findings.is_empty() {
            return;
        }
        let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
        let text = format!("{}\n\n{}", lines.join("\n"), listing(ops));
        // Evidence is optional, so errors are ignored. The findings are reported either way.
        let _ = fs::create_dir_all(evidence_folder());
        let _ = fs::write(self.evidence_path("ledger.txt"), text);
    }

    fn evidence_path(&self, what: &str) -> PathBuf {
        let (program, policy) = (self.subject.program_name(), self.subject.policy.name());
        let round = self.tally.rounds;
        evidence_folder().join(format!("{program}-{policy}-seed-{}-round-{round}-{what}", self.seed))
    }
}

fn evidence_folder() -> PathBuf {
    std::env::temp_dir().join(EVIDENCE_FOLDER)
}

fn data_folder(place: &Place, scratch: &Scratch) -> PathBuf {
    match place {
        Place::Folder => scratch.0.join("data"),
        Place::Disk(disk) => disk.path().join("data"),
    }
}

/// A temporary folder for everything but the server's data. Removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("millstream-durability-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // A killed run with the same process id may have left its folder behind.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("create a scratch folder");
        Scratch(folder)
    }

    fn output(&self) -> PathBuf {
        Path::new(&self.0).join("output.txt")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
