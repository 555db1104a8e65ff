//! Checks the contents of a folder before opening a store in it. Opening creates files, which must not mix with others.

use std::io;
use std::path::Path;

use millstream_store::FolderContents;

use super::super::{Error, ErrorKind};

/// Returns what a folder contains, without changing anything.
pub(super) fn contents(folder: &Path) -> Result<FolderContents, Error> {
    FolderContents::of(folder).map_err(|error| match error.kind() {
        io::ErrorKind::NotADirectory => file(folder),
        _ => unreadable(folder, error),
    })
}

pub(super) fn no_store(folder: &Path) -> Error {
    let what = if folder.exists() { "there is no store in this folder" } else { "there is no such folder" };
    Error::new(ErrorKind::NoStore, format!("{}: {what}", folder.display()))
}

pub(super) fn foreign(folder: &Path) -> Error {
    let message = format!(
        "{}: the folder contains no store, only other files; name a folder that is empty or does not exist yet",
        folder.display()
    );
    Error::new(ErrorKind::NoStore, message)
}

fn file(path: &Path) -> Error {
    let message = format!("{}: this is a file, not a folder; name a folder for the store", path.display());
    Error::new(ErrorKind::NoStore, message)
}

fn unreadable(folder: &Path, error: io::Error) -> Error {
    Error::new(ErrorKind::Unreachable, format!("cannot read the folder {}: {error}", folder.display()))
        .with_source(error)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::Embedded;
    use super::*;

    #[test]
    fn open_rejects_folders_with_other_files() {
        let folder = std::env::temp_dir().join(format!("millstream-folder-{}", std::process::id()));
        let refused = |opened: Result<Embedded, Error>| opened.map(|_| ()).unwrap_err().kind();
        assert_eq!(refused(Embedded::open_existing(&folder)), ErrorKind::NoStore);
        assert!(!folder.exists(), "open_existing created the folder");
        fs::write(&folder, "mine").unwrap();
        assert_eq!(refused(Embedded::open_existing(&folder)), ErrorKind::NoStore);
        assert_eq!(refused(Embedded::open(&folder)), ErrorKind::NoStore);
        fs::remove_file(&folder).unwrap();
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("notes"), "mine").unwrap();
        assert_eq!(refused(Embedded::open_existing(&folder)), ErrorKind::NoStore);
        assert_eq!(refused(Embedded::open(&folder)), ErrorKind::NoStore);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "a rejected open wrote files");
        fs::remove_file(folder.join("notes")).unwrap();
        assert_eq!(refused(Embedded::open_existing(&folder)), ErrorKind::NoStore);
        Embedded::open(&folder).unwrap().store().close().unwrap();
        fs::write(folder.join("notes"), "mine").unwrap();
        Embedded::open_existing(&folder).unwrap().store().close().unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }
}
