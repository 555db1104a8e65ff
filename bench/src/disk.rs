//! Measures how long the disk takes for a sync.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::load::micros;
use crate::stats::Latencies;

/// Number of bytes written before each sync: about a log record of a small message.
pub(crate) const WRITE_LEN: usize = 128;
/// How long to measure.
const TIME: Duration = Duration::from_secs(1);
const SYNCS_MAX: usize = 1_000;

/// Measures `fdatasync` after small writes into a preallocated file in this folder. A sync starts at each interval,
/// because a disk and a processor that were idle are slower.
pub(crate) fn sync_latencies(folder: &Path, every: Duration) -> Result<Latencies, Failure> {
    fs::create_dir_all(folder)?;
    let path = folder.join(format!("sync-{}", std::process::id()));
    let measured = sync_repeatedly(&path, every).map_err(|e| format!("{}: {e}", path.display()));
    // If the file could not be created, there is nothing to remove.
    let _ = fs::remove_file(&path);
    Ok(Latencies::of(measured?).ok_or("no sync was measured")?)
}

fn sync_repeatedly(path: &Path, every: Duration) -> std::io::Result<Vec<f64>> {
    let mut file = File::create(path)?;
    // In small writes, so that the kernel does not cache the zeros as one large folio.
    (0..SYNCS_MAX).try_for_each(|_| file.write_all(&[0; WRITE_LEN]))?;
    file.sync_all()?;
    file.seek(SeekFrom::Start(0))?;
    let first = Instant::now();
    let due = (0..SYNCS_MAX as u32).map(|n| n * every).take_while(|due| *due < TIME);
    let timed = |due: Duration| {
        std::thread::sleep((first + due).saturating_duration_since(Instant::now()));
        file.write_all(&[1; WRITE_LEN])?;
        let begun = Instant::now();
        file.sync_data()?;
        Ok(micros(begun.elapsed()))
    };
    due.map(timed).collect()
}
