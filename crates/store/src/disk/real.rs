//! A folder of the machine's file system. It is private to its owner, and one process at a time can lock it. Symbolic
//! links in the folder are not followed.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::{Access, Disk, DiskError, File, FileState, LOCK_FILE, Listed};

/// Number of attempts to lock the folder before it counts as in use. `millstream check` locks it only for a moment.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// A folder of the machine's file system.
pub struct RealDisk {
    dir: PathBuf,
    locks: Mutex<Option<FolderLocks>>,
}

/// The open files that hold the locks on the folder. Closing them releases the locks.
struct FolderLocks {
    /// The LOCK file, which contains the process id.
    _lock: fs::File,
    /// The folder itself. It is locked as well, because the LOCK file can be removed. It stays open, so that syncing it
    /// needs no new file descriptor.
    folder: Arc<fs::File>,
}

impl RealDisk {
    /// Opens the folder `dir`. Creates it (mode 0700) and its parents if they do not exist, and makes its name durable.
    pub fn create(dir: impl Into<PathBuf>) -> Result<RealDisk, DiskError> {
        let disk = RealDisk::existing(dir);
        for folder in folders_to_sync(&disk.dir) {
            create_folder(folder)
                .map_err(|error| DiskError::new("create the folder", folder.display().to_string(), &error))?;
            sync_name(folder)?;
        }
        Ok(disk)
    }

    /// Refers to the folder `dir` without creating anything. Unless it is locked, use it only for reading.
    pub fn existing(dir: impl Into<PathBuf>) -> RealDisk {
        RealDisk { dir: dir.into(), locks: Mutex::new(None) }
    }

    fn error(&self, operation: &'static str, name: &str, error: &io::Error) -> DiskError {
        DiskError::new(operation, self.path_of(name), error)
    }

    /// Returns the open folder if this process has locked it.
    fn locked_folder(&self) -> Option<Arc<fs::File>> {
        self.locks.lock().as_ref().map(|locks| Arc::clone(&locks.folder))
    }

    /// Opens a file with mode 0600. Does not follow a symbolic link.
    fn open_with(
        &self,
        operation: &'static str,
        name: &str,
        options: &mut fs::OpenOptions,
    ) -> Result<fs::File, DiskError> {
        let no_follow = OFlags::NOFOLLOW.bits() as i32;
        let opened = options.mode(0o600).custom_flags(no_follow).open(self.dir.join(name));
        opened.map_err(|error| self.error(operation, name, &error))
    }

    fn wrap(&self, name: &str, file: fs::File) -> Arc<dyn File> {
        Arc::new(RealFile { file, path: self.path_of(name) })
    }

    /// Returns the process that has the folder open, if there is one.
    ///
    /// Takes a shared lock for a moment to find out. A process that calls [`Disk::lock`] in this moment waits for it.
    pub(crate) fn holder(&self) -> Option<String> {
        let lock = fs::File::open(self.dir.join(LOCK_FILE)).ok();
        let folder = fs::File::open(&self.dir).ok();
        let is_locked =
            |file: &fs::File| flock(file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK);
        lock.iter().chain(&folder).any(is_locked).then(|| process_in(lock.as_ref()))
    }

    /// Returns the error for a folder that another process has locked.
    fn in_use(&self) -> DiskError {
        let holder = process_in(fs::File::open(self.dir.join(LOCK_FILE)).ok().as_ref());
        let message = format!("in use by {holder}; only one process at a time can open a data folder");
        self.folder_error("lock", &io::Error::new(io::ErrorKind::ResourceBusy, message))
    }

    fn folder_error(&self, operation: &'static str, error: &io::Error) -> DiskError {
        DiskError::new(operation, self.dir.display().to_string(), error)
    }
}

impl Disk for RealDisk {
    fn lock(&self) -> Result<(), DiskError> {
        let mut locks = self.locks.lock();
        if locks.is_some() {
            let message = "already in use by this process".to_owned();
            return Err(self.folder_error("lock", &io::Error::new(io::ErrorKind::ResourceBusy, message)));
        }
        let folder = fs::File::open(&self.dir).map_err(|error| self.folder_error("open", &error))?;
        // Some network file systems cannot lock folders. The lock on the file must suffice there.
        if lock_exclusively(&folder) == Err(Errno::WOULDBLOCK) {
            return Err(self.in_use());
        }
        let options = &mut fs::OpenOptions::new();
        let lock =
            self.open_with("lock", LOCK_FILE, options.read(true).write(true).create(true).truncate(false))?;
        match lock_exclusively(&lock) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(self.in_use()),
            Err(errno) => return Err(self.error("lock", LOCK_FILE, &errno.into())),
        }
        if !is_lock_file(&lock) {
            let message = "a file with this name exists that Millstream did not create";
            let error = io::Error::new(io::ErrorKind::AlreadyExists, message);
            return Err(self.error("lock", LOCK_FILE, &error));
        }
        let note = format!("{}\n", std::process::id());
        let noted = lock.set_len(0).and_then(|()| lock.write_all_at(note.as_bytes(), 0));
        noted.map_err(|error| self.error("write", LOCK_FILE, &error))?;
        *locks = Some(FolderLocks { _lock: lock, folder: Arc::new(folder) });
        Ok(())
    }

    fn unlock(&self) {
        self.locks.lock().take();
    }

    fn list(&self) -> Result<Vec<Listed>, DiskError> {
        self.check_not_moved()?;
        let failed = |error: io::Error| self.folder_error("list", &error);
        let mut listed = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // Metadata of the entry itself: a symbolic link is not a regular file.
            let metadata = match entry.metadata() {
                // Another process removed the file meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                metadata => metadata.map_err(failed)?,
            };
            if let (true, Ok(name)) = (metadata.is_file(), entry.file_name().into_string()) {
                listed.push(Listed { name, bytes: metadata.len() });
            }
        }
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(listed)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn File>, DiskError> {
        self.check_not_moved()?;
        let options = &mut fs::OpenOptions::new();
        let file = self.open_with("create", name, options.read(true).write(true).create_new(true))?;
        Ok(self.wrap(name, file))
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>, DiskError> {
        self.check_not_moved()?;
        let options = &mut fs::OpenOptions::new();
        let file = self.open_with("open", name, options.read(true).write(access == Access::Write))?;
        Ok(self.wrap(name, file))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.check_not_moved()?;
        let renamed = fs::rename(self.dir.join(from), self.dir.join(to));
        renamed.map_err(|error| self.error("rename", from, &error))
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        self.check_not_moved()?;
        fs::remove_file(self.dir.join(name)).map_err(|error| self.error("remove", name, &error))
    }

    fn sync_dir(&self) -> Result<(), DiskError> {
        let opened = self.locked_folder().map_or_else(|| fs::File::open(&self.dir).map(Arc::new), Ok);
        let synced = opened.and_then(|folder| folder.sync_all());
        synced.map_err(|error| self.folder_error("sync the folder", &error))
    }

    fn check_not_moved(&self) -> Result<(), DiskError> {
        let Some(folder) = self.locked_folder() else { return Ok(()) };
        let identity = |found: fs::Metadata| (found.dev(), found.ino());
        let is_same = fs::metadata(&self.dir)
            .and_then(|at_path| folder.metadata().map(|locked| identity(locked) == identity(at_path)));
        match is_same {
            Ok(true) => Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.folder_error("find", &error)),
            _ => {
                let message = "the folder was moved or removed while this process used it";
                Err(self.folder_error("find", &io::Error::new(io::ErrorKind::NotFound, message)))
            }
        }
    }

    fn free_bytes(&self) -> Result<u64, DiskError> {
        let stat = rustix::fs::statvfs(&self.dir)
            .map_err(|errno| self.folder_error("get the free space of", &errno.into()))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn path_of(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }
}

/// Returns the folders whose names may not be durable yet, from the top down.
///
/// These are the folders that do not exist, and the nearest one that does: an earlier process may have ended after
/// creating it and before syncing its name.
fn folders_to_sync(dir: &Path) -> Vec<&Path> {
    let named = || dir.ancestors().take_while(|folder| !folder.as_os_str().is_empty());
    let missing = named().take_while(|folder| !folder.exists()).count();
    let mut folders: Vec<&Path> = named().take(missing + 1).collect();
    folders.reverse();
    folders
}

fn create_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if folder.exists() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, "a file with this name exists"));
    }
    // If another process has created it meanwhile, this succeeds too.
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Makes the name of a folder durable by syncing its parent folder, after resolving symbolic links.
fn sync_name(folder: &Path) -> Result<(), DiskError> {
    let failed = |path: &Path, error| DiskError::new("sync the folder", path.display().to_string(), &error);
    let real = folder.canonicalize().map_err(|error| failed(folder, error))?;
    let Some(parent) = real.parent() else { return Ok(()) };
    match fs::File::open(parent) {
        // Without read permission the parent cannot be synced. That is no reason to refuse the folder: the
        // administrator who created it may have synced it.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        opened => opened.and_then(|opened| opened.sync_all()).map_err(|error| failed(parent, error)),
    }
}

fn lock_exclusively(lock: &fs::File) -> Result<(), Errno> {
    for _ in 1..LOCK_TRIES {
        match flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => thread::sleep(LOCK_PAUSE),
            outcome => return outcome,
        }
    }
    flock(lock, FlockOperation::NonBlockingLockExclusive)
}

/// Returns true if the file is empty or contains a process id, as only our lock files do.
fn is_lock_file(lock: &fs::File) -> bool {
    let mut text = String::new();
    let read = lock.take(64).read_to_string(&mut text);
    read.is_ok() && (text.is_empty() || text.strip_suffix('\n').is_some_and(|pid| pid.parse::<u32>().is_ok()))
}

/// Returns the process that a lock file names. If that process has ended, another process holds the lock.
fn process_in(lock: Option<&fs::File>) -> String {
    let mut text = String::new();
    // If the file cannot be read, the process is unknown, but the folder is still in use.
    let _ = lock.map(|mut lock| lock.read_to_string(&mut text));
    match text.trim().parse().ok().and_then(Pid::from_raw) {
        // Any error except "no such process" means that the process exists, even if it belongs to another user.
        Some(pid) if test_kill_process(pid) != Err(Errno::SRCH) => format!("pid {}", pid.as_raw_pid()),
        _ => "another process".to_owned(),
    }
}

struct RealFile {
    file: fs::File,
    path: String,
}

impl RealFile {
    fn error(&self, operation: &'static str) -> impl Fn(io::Error) -> DiskError {
        move |error| DiskError::new(operation, self.path.as_str(), &error)
    }
}

impl File for RealFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        uninterrupted(|| self.file.read_at(into, offset)).map_err(self.error("read"))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize, DiskError> {
        let written = uninterrupted(|| self.file.write_at(bytes, offset)).map_err(self.error("write"))?;
        match written {
            0 if !bytes.is_empty() => Err(self.error("write")(io::ErrorKind::WriteZero.into())),
            written => Ok(written),
        }
    }

    fn truncate(&self, bytes: u64) -> Result<(), DiskError> {
        self.file.set_len(bytes).map_err(self.error("truncate"))
    }

    fn start_writeback(&self, offset: u64, bytes: u64) {
        // On Linux, DONTNEED starts to write dirty pages and does not wait. If it fails, the sync writes them.
        #[cfg(target_os = "linux")]
        let _ = rustix::fs::fadvise(
            &self.file,
            offset,
            std::num::NonZeroU64::new(bytes),
            rustix::fs::Advice::DontNeed,
        );
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.file.sync_data().map_err(self.error("sync"))
    }

    fn bytes(&self) -> Result<u64, DiskError> {
        Ok(self.state()?.bytes)
    }

    fn state(&self) -> Result<FileState, DiskError> {
        let found = self.file.metadata().map_err(self.error("get the size of"))?;
        Ok(FileState { bytes: found.len(), identity: (found.dev(), found.ino()) })
    }
}

/// Repeats a call that a signal interrupted.
fn uninterrupted(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("millstream-disk-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        dir
    }

    #[test]
    fn folder_and_files_are_private_and_the_lock_names_its_holder() {
        let dir = scratch("private");
        let disk = RealDisk::create(&dir).unwrap();
        disk.lock().unwrap();
        disk.create("log").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&dir), mode(&dir.join("log")), mode(&dir.join(LOCK_FILE))), (0o700, 0o600, 0o600));

        let error = RealDisk::existing(&dir).lock().unwrap_err();
        assert!(error.to_string().contains(&format!("in use by pid {}", std::process::id())), "{error}");
        disk.unlock();
        RealDisk::existing(&dir).lock().unwrap();
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn each_created_folder_is_synced_before_the_next_is_created() {
        let dir = scratch("way");
        let (inner, data) = (dir.join("a"), dir.join("a/b"));
        fs::create_dir(&dir).unwrap();
        assert_eq!(folders_to_sync(&data), [&dir, &inner, &data]);
        // The state after a process that ended when it had created the first folder.
        fs::create_dir(&inner).unwrap();
        assert_eq!(folders_to_sync(&data), [&inner, &data]);
        RealDisk::create(&data).unwrap();
        assert_eq!(folders_to_sync(&data), [&data]);
        assert_eq!(
            folders_to_sync(Path::new("not-there/data")),
            [Path::new("not-there"), Path::new("not-there/data")]
        );
        assert_eq!(folders_to_sync(Path::new("/")), [Path::new("/")]);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn lock_waits_for_a_short_shared_lock() {
        let dir = scratch("moment");
        let disk = RealDisk::create(&dir).unwrap();
        let shared = fs::File::create(dir.join(LOCK_FILE)).unwrap();
        flock(&shared, FlockOperation::LockShared).unwrap();
        thread::scope(|scope| {
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(10));
                drop(shared);
            });
            disk.lock().unwrap();
        });
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn ended_process_is_not_named_as_the_holder() {
        let dir = scratch("ended");
        let disk = RealDisk::create(&dir).unwrap();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        fs::write(dir.join(LOCK_FILE), format!("{}\n", ended.id())).unwrap();
        let other = fs::File::open(dir.join(LOCK_FILE)).unwrap();
        flock(&other, FlockOperation::LockExclusive).unwrap();
        let error = disk.lock().unwrap_err().to_string();
        assert!(error.contains("in use by another process"), "{error}");
        assert_eq!(disk.holder().as_deref(), Some("another process"));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn locked_folder_is_synced_without_opening_it_again() {
        let dir = scratch("held");
        let disk = RealDisk::create(&dir).unwrap();
        disk.lock().unwrap();
        let moved = scratch("moved");
        fs::rename(&dir, &moved).unwrap();
        disk.sync_dir().unwrap();
        disk.unlock();
        assert_eq!(disk.sync_dir().unwrap_err().kind, io::ErrorKind::NotFound);
        fs::remove_dir_all(&moved).unwrap();
    }

    #[test]
    fn folder_stays_locked_without_its_lock_file() {
        let dir = scratch("unlocked");
        let disk = RealDisk::create(&dir).unwrap();
        disk.lock().unwrap();
        fs::remove_file(dir.join(LOCK_FILE)).unwrap();
        let error = RealDisk::existing(&dir).lock().unwrap_err().to_string();
        assert!(error.contains("in use by another process"), "{error}");
        assert_eq!(disk.holder().as_deref(), Some("another process"));
        disk.unlock();
        assert_eq!(disk.holder(), None);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn moved_or_replaced_folder_is_not_touched() {
        let dir = scratch("left");
        let disk = RealDisk::create(&dir).unwrap();
        disk.lock().unwrap();
        disk.create("log").unwrap();
        disk.check_not_moved().unwrap();
        let moved = scratch("left-moved");
        fs::rename(&dir, &moved).unwrap();
        for _ in 0..2 {
            let error = disk.check_not_moved().unwrap_err().to_string();
            assert!(error.contains("moved or removed"), "{error}");
            assert!(disk.create("other").is_err() && disk.list().is_err() && disk.remove("log").is_err());
            assert!(disk.rename("log", "other").is_err() && disk.open("log", Access::Read).is_err());
            // As if another process had created a folder with this name.
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("log"), "another's").unwrap();
        }
        assert!(dir.join("log").exists());
        fs::remove_dir_all(&dir).unwrap();
        fs::remove_dir_all(&moved).unwrap();
    }

    #[test]
    fn foreign_file_is_not_used_as_the_lock_file() {
        let dir = scratch("foreign-lock");
        let disk = RealDisk::create(&dir).unwrap();
        fs::write(dir.join(LOCK_FILE), "precious\n").unwrap();
        let error = disk.lock().unwrap_err().to_string();
        assert!(error.contains("that Millstream did not create"), "{error}");
        assert_eq!(fs::read_to_string(dir.join(LOCK_FILE)).unwrap(), "precious\n");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn symbolic_links_are_neither_followed_nor_listed() {
        let dir = scratch("links");
        let disk = RealDisk::create(&dir).unwrap();
        fs::write(dir.join("target"), "x").unwrap();
        std::os::unix::fs::symlink(dir.join("target"), dir.join("manifest")).unwrap();
        assert!(disk.open("manifest", Access::Write).is_err());
        assert!(disk.create("manifest").is_err());
        let names: Vec<String> = disk.list().unwrap().into_iter().map(|listed| listed.name).collect();
        assert_eq!(names, ["target"]);
        fs::remove_dir_all(&dir).unwrap();
    }
}
