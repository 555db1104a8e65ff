//! A disk that can lose power and run full: an ext4 image on a loop device. Needs root and loop devices.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::ledger::Nanos;

/// Size of the image. It is sparse, and large enough for any campaign.
const IMAGE_BYTES: u64 = 256 << 20;

/// Reads flags from standard input, calls EXT4_IOC_SHUTDOWN with each, and prints the monotonic time just before the
/// call.
///
/// Written in Python, so that no crate needs unsafe code. Started in advance, so that a cut happens without delay.
const POWER_SWITCH: &str = r"
import fcntl, os, struct, sys, time
for line in sys.stdin:
    folder = os.open(sys.argv[1], os.O_RDONLY)
    began = time.monotonic_ns()
    fcntl.ioctl(folder, 0x8004587D, struct.pack('I', int(line)))
    os.close(folder)
    print(began, flush=True)
";

/// What the file system flushes before a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Nothing is flushed: all data that is not on the disk is lost.
    Nothing,
    /// The file system's journal is flushed first: names and lengths survive, contents do not.
    Journal,
}

/// How the file system is created and mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    pub block_bytes: u32,
    /// Mounted with `data=writeback`: contents can reach the disk after the lengths that cover them.
    pub writeback: bool,
}

/// A mounted image. Unmounted and removed on drop.
pub(crate) struct Disk {
    folder: PathBuf,
    format: Format,
    mounted: bool,
    switch: Child,
}

impl Disk {
    /// Creates and mounts a disk. The error states what is missing on this machine.
    pub(crate) fn new(format: Format) -> Result<Disk, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let folder = parent.join(format!("millstream-disk-{}-{number}", std::process::id()));
        fs::create_dir_all(folder.join("mount")).map_err(|error| format!("{}: {error}", folder.display()))?;
        let switch = Command::new("python3")
            .args(["-c", POWER_SWITCH])
            .arg(folder.join("mount"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("python3: {error}"))?;
        let mut disk = Disk { folder, format, mounted: false, switch };
        let image = File::create(disk.image()).map_err(|error| error.to_string())?;
        image.set_len(IMAGE_BYTES).map_err(|error| error.to_string())?;
        let block = format.block_bytes.to_string();
        run(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0", "-b", &block]).arg(disk.image()))?;
        disk.mount()?;
        Ok(disk)
    }

    /// Path of the mounted file system.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join("mount")
    }

    /// Cuts the power: every later access fails. Returns the time just before, on the clock of [`monotonic`].
    ///
    /// [`monotonic`]: crate::ledger::monotonic
    pub(crate) fn cut(&mut self, cut: Cut) -> Nanos {
        let flag = match cut {
            Cut::Nothing => 2,
            Cut::Journal => 1,
        };
        let input = self.switch.stdin.as_mut().expect("the switch has an input");
        writeln!(input, "{flag}").expect("request the cut");
        let mut began = String::new();
        let output = self.switch.stdout.as_mut().expect("the switch has an output");
        // The switch prints one short line per cut, so the buffered reader reads no further data that would be lost.
        BufReader::new(output).read_line(&mut began).expect("read the time of the cut");
        began.trim().parse().unwrap_or_else(|_| panic!("cannot shut down {}", self.path().display()))
    }

    /// Restores the power. No process may have files open on the disk.
    pub(crate) fn power_up(&mut self) {
        self.unmount().and_then(|()| self.mount()).unwrap_or_else(|error| panic!("cannot power up: {error}"));
    }

    /// Fills the disk until `bytes_left` bytes are free.
    pub(crate) fn fill(&self, bytes_left: u64) {
        let mut problem = String::new();
        // A server that writes at the same time may have used some of the measured space.
        for _ in 0..20 {
            let ballast = fs::metadata(self.ballast()).map_or(0, |file| file.len());
            let ballast = (ballast + self.bytes_free()).saturating_sub(bytes_left).to_string();
            match run(Command::new("fallocate").args(["-l", &ballast]).arg(self.ballast())) {
                Ok(()) => return,
                Err(error) => problem = error,
            }
            // fallocate may have allocated part of the space.
            let _ = fs::remove_file(self.ballast());
        }
        panic!("cannot fill the disk: {problem}");
    }

    /// Frees the space again.
    pub(crate) fn free_space(&self) {
        fs::remove_file(self.ballast()).expect("remove the ballast");
    }

    fn bytes_free(&self) -> u64 {
        let output = Command::new("stat").args(["-f", "-c", "%a %S"]).arg(self.path()).output();
        let text = String::from_utf8(output.expect("run stat").stdout).expect("digits");
        text.split_whitespace().map(|part| part.parse::<u64>().expect("a number")).product()
    }

    fn mount(&mut self) -> Result<(), String> {
        let options = if self.format.writeback { "loop,data=writeback" } else { "loop" };
        run(Command::new("mount").args(["-t", "ext4", "-o", options]).arg(self.image()).arg(self.path()))?;
        self.mounted = true;
        Ok(())
    }

    fn unmount(&mut self) -> Result<(), String> {
        run(Command::new("umount").arg(self.path()))?;
        self.mounted = false;
        Ok(())
    }

    fn image(&self) -> PathBuf {
        self.folder.join("image")
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Fails only if the switch has already ended.
        let _ = self.switch.kill();
        let _ = self.switch.wait();
        if self.mounted && self.unmount().is_err() {
            // A process still has a file open: detach the mount point at least.
            let _ = run(Command::new("umount").arg("-l").arg(self.path()));
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{:?}: {error}", command.get_program()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{:?}: {}", command.get_program(), String::from_utf8_lossy(&output.stderr).trim()))
}
