//! The real servers that Millstream is compared with: which there are, and where their programs lie.
//!
//! `scripts/peers` installs all but Redis 7.0.15, which is the `redis-server` of the system.

use std::path::{Path, PathBuf};

/// A folder with peers other than the one in cargo's target folder.
const FOLDER: &str = "MILLSTREAM_PEERS_DIR";

/// A real server of a pinned version.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Its folder among the peers, and what options call it.
    pub name: &'static str,
    /// What people call it, with its version.
    pub title: &'static str,
    /// The version of Redis it follows, major and minor. Valkey went its own way after Redis 7.2.
    pub redis_version: (u32, u32),
    /// Whether it is a Valkey.
    pub is_valkey: bool,
}

/// The oldest server that workers support.
pub(crate) static REDIS_6_2: Peer =
    Peer { name: "redis-6.2", title: "Redis 6.2.14", redis_version: (6, 2), is_valkey: false };
/// The `redis-server` of Debian 12.
pub(crate) static REDIS_7_0: Peer =
    Peer { name: "redis-7.0", title: "Redis 7.0.15", redis_version: (7, 0), is_valkey: false };
/// The newest Redis that comes as a package.
pub(crate) static REDIS_8_2: Peer =
    Peer { name: "redis-8.2", title: "Redis 8.2.3", redis_version: (8, 2), is_valkey: false };
/// The newest Valkey.
pub(crate) static VALKEY_9_1: Peer =
    Peer { name: "valkey-9.1", title: "Valkey 9.1.2", redis_version: (7, 2), is_valkey: true };

/// All of them, the oldest first.
pub(crate) static PEERS: [&Peer; 4] = [&REDIS_6_2, &REDIS_7_0, &REDIS_8_2, &VALKEY_9_1];

impl Peer {
    /// The program.
    ///
    /// # Panics
    /// When it is not installed; the message says how to install it.
    pub(crate) fn program(&self) -> PathBuf {
        let path = self.path();
        let is_missing = *self != REDIS_7_0 && !path.is_file();
        assert!(!is_missing, "{} is not installed at {}: run scripts/peers", self.title, path.display());
        path
    }

    /// Where the program should be.
    pub(crate) fn path(&self) -> PathBuf {
        if *self == REDIS_7_0 {
            return "redis-server".into();
        }
        let program = if self.is_valkey { "valkey-server" } else { "redis-server" };
        folder().join(self.name).join(program)
    }
}

/// Beside the profiles of cargo's target folder, in one of which this test lies.
fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return folder.into();
    }
    let test = std::env::current_exe().expect("the path of this test");
    let target = test.ancestors().nth(3).expect("target/PROFILE/deps/test");
    Path::new(target).join("peers")
}
