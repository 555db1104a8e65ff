//! The real servers that Millstream is compared with: their versions, and the paths of their programs.
//!
//! `scripts/peers` installs all but Redis 7.0.15, which is the `redis-server` of the system.

use std::path::{Path, PathBuf};

/// Environment variable with a folder of peers that replaces the one in cargo's target folder.
const FOLDER_VARIABLE: &str = "MILLSTREAM_PEERS_DIR";

/// A real server of a pinned version.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Name of its folder among the peers, and its name in options.
    pub name: &'static str,
    /// Product name and version for messages.
    pub title: &'static str,
    /// Major and minor version of Redis whose behaviour it follows. Valkey branched off after Redis 7.2.
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
/// The newest Redis that is available as a package.
pub(crate) static REDIS_8_2: Peer =
    Peer { name: "redis-8.2", title: "Redis 8.2.3", redis_version: (8, 2), is_valkey: false };
/// The newest Valkey.
pub(crate) static VALKEY_9_1: Peer =
    Peer { name: "valkey-9.1", title: "Valkey 9.1.2", redis_version: (7, 2), is_valkey: true };

/// All peers, the oldest first.
pub(crate) static PEERS: [&Peer; 4] = [&REDIS_6_2, &REDIS_7_0, &REDIS_8_2, &VALKEY_9_1];

impl Peer {
    /// Returns the path of the program.
    ///
    /// # Panics
    /// If it is not installed. The message states how to install it.
    pub(crate) fn program(&self) -> PathBuf {
        let path = self.path();
        let is_missing = *self != REDIS_7_0 && !path.is_file();
        assert!(!is_missing, "{} is not installed at {}: run scripts/peers", self.title, path.display());
        path
    }

    /// Returns the path where the program is expected.
    pub(crate) fn path(&self) -> PathBuf {
        if *self == REDIS_7_0 {
            return "redis-server".into();
        }
        let program = if self.is_valkey { "valkey-server" } else { "redis-server" };
        folder().join(self.name).join(program)
    }
}

/// The folder `peers` in cargo's target folder. This test's executable is in `target/PROFILE/deps`.
fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os(FOLDER_VARIABLE) {
        return folder.into();
    }
    let test = std::env::current_exe().expect("the path of this test");
    let target = test.ancestors().nth(3).expect("target/PROFILE/deps/test");
    Path::new(target).join("peers")
}
