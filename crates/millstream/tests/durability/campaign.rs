//! A campaign: one server, one folder, many rounds of load, fault, restart and check.
//!
//! What the server shows after a restart was shown to somebody, so it is what the next round starts from: nothing of
//! it may vanish, and nothing that was missing may appear.

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

/// Ledgers of rounds with findings go here.
const EVIDENCE_FOLDER: &str = "millstream-durability-findings";

/// Where the server keeps its data.
pub(crate) enum Place {
    /// An ordinary folder.
    Folder,
    /// A disk that can fail.
    Disk(Disk),
}

/// A server and everything known about what it promised.
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
    /// When it does not start.
    pub(crate) fn new(subject: Subject, seed: u64, place: Place) -> Campaign {
        let scratch = Scratch::new();
        let data = data_folder(&place, &scratch);
        fs::create_dir_all(&data).expect("create the data folder");
        let running =
            subject.start(&data, &scratch.output()).unwrap_or_else(|how| panic!("{subject}: {how}"));
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

    /// Starts the clients.
    pub(crate) fn load(&mut self) -> Load {
        Load::start(self.running.port, self.clock, self.random.next(), &self.numbers)
    }

    /// A time to wait, exponentially distributed.
    pub(crate) fn moment(&mut self, mean: Duration) -> Duration {
        let part = (self.random.below(1_000_000) + 1) as f64 / 1e6;
        mean.mul_f64((-part.ln()).min(6.0))
    }

    /// The disk under the server.
    ///
    /// # Panics
    /// When the campaign has none.
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

    /// A file for a fault's own notes, outside the server's folder.
    pub(crate) fn note_file(&self) -> PathBuf {
        self.scratch.0.join("notes.txt")
    }

    /// Where the server's data is.
    pub(crate) fn data(&self) -> PathBuf {
        data_folder(&self.place, &self.scratch)
    }

    /// Where what the server prints is collected.
    pub(crate) fn output(&self) -> PathBuf {
        self.scratch.output()
    }

    /// After a fault, with the server dead and the disk powered: starts it again, holds what it shows against the
    /// ledger, and makes that the next round's beginning.
    pub(crate) fn judge(&mut self, ops: Vec<Op>, fault: Fault) {
        if let Err(why) = self.restart() {
            self.tally.add(&ops, &[]);
            self.give_up(&why);
        } else {
            let found = State::read(&mut self.running.client());
            let findings = self.findings(&ops, fault, &found);
            self.tally.add(&ops, &findings);
            self.keep_evidence(&ops, &findings);
            self.recover_once_more(&found);
        }
        self.numbers.advance(&ops);
        self.begin_round();
    }

    /// Holds what the running server shows against the ledger, without a restart, and goes on from there.
    pub(crate) fn judge_live(&mut self, ops: &[Op]) {
        let found = State::read(&mut self.running.client());
        let fault = self.no_fault();
        let findings = self.findings(ops, fault, &found);
        self.tally.add_findings(&findings);
        self.tally.acknowledged += ops.iter().filter(|op| op.is_acknowledged_write()).count() as u64;
        self.keep_evidence(ops, &findings);
        self.numbers.advance(ops);
        self.base = found;
    }

    /// What cannot be explained in `found`.
    pub(crate) fn findings(&self, ops: &[Op], fault: Fault, found: &State) -> Vec<Finding> {
        check(&Evidence { base: &self.base, first: &self.numbers, ops, fault, found })
    }

    /// Nothing has happened until now.
    pub(crate) fn no_fault(&mut self) -> Fault {
        Fault { at: self.clock.now(), dead_ms: self.clock.latest_ms() }
    }

    /// Starts the server again; now and then it is struck down while it starts.
    fn restart(&mut self) -> Result<(), String> {
        while self.random.percent(12) {
            let mut starting = self.subject.launch(&self.data(), &self.output());
            std::thread::sleep(self.moment(Duration::from_millis(15)));
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

    /// What was recovered must be recovered again, whatever happens in between: it has been shown.
    fn recover_once_more(&mut self, found: &State) {
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
            self.give_up(&why);
            return;
        }
        let again = State::read(&mut self.running.client());
        let nothing = Numbers::default();
        let findings = check(&Evidence {
            base: found,
            first: &nothing,
            ops: &[],
            fault: self.no_fault(),
            found: &again,
        });
        self.tally.add_findings(&findings);
        self.keep_evidence(&[], &findings);
    }

    /// Gives up on a folder that cannot be opened: keeps a copy as evidence, and begins with an empty one.
    fn give_up(&mut self, why: &str) {
        self.tally.refuse(why);
        let data = self.data();
        let copy = self.evidence_path("folder");
        let _ = fs::create_dir_all(evidence_folder());
        // A courtesy, as all evidence.
        let _ = Command::new("cp").arg("-r").arg(&data).arg(copy).status();
        fs::remove_dir_all(&data).expect("remove the data folder");
        fs::create_dir_all(&data).expect("create the data folder");
        let started = self.subject.start(&data, &self.output());
        self.running = started.unwrap_or_else(|how| panic!("{}: {how}", self.subject));
    }

    /// Makes the groups where they are missing, and reads what there is.
    fn begin_round(&mut self) {
        let mut client = self.running.client();
        for key in WORK {
            let reply = client.call(&["XGROUP", "CREATE", key, GROUP, "0", "MKSTREAM"]);
            let fine = match &reply {
                Value::Simple(_) => true,
                Value::Error(text) => text.starts_with(b"BUSYGROUP"),
                _ => false,
            };
            assert!(fine, "{}: XGROUP CREATE said {reply:?}", self.subject);
        }
        self.base = State::read(&mut client);
    }

    fn keep_evidence(&self, ops: &[Op], findings: &[Finding]) {
        if findings.is_empty() {
            return;
        }
        let told: Vec<String> = findings.iter().map(Finding::to_string).collect();
        let text = format!("{}\n\n{}", told.join("\n"), listing(ops));
        // Evidence is a courtesy: the findings themselves are reported either way.
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

/// A folder for everything that is not the server's. Removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("millstream-durability-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // A run that was killed may have left one behind.
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
