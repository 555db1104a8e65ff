//! Every setting there is: one list, from which CONFIG, the command line, the environment and the
//! configuration file all read. To add a setting is to add a row.

use super::value::{Kind, ONE_MIB};

/// When a setting may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// With CONFIG SET, and at start.
    Anytime,
    /// Only at start.
    AtStart,
    /// Never: a fact about this server that clients ask for by this name.
    Never,
}

/// What a setting is when nobody says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// This.
    Is(&'static str),
    /// Half the machine's cores, at least one: the other half is the kernel's and the clients'.
    HalfTheCores,
}

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// Its name in code.
    pub id: Id,
    /// Its name for CONFIG, on the command line and in the file. In the environment: see [`Setting::env_name`].
    pub name: &'static str,
    /// What values it takes.
    pub kind: Kind,
    /// Its value when nobody gives one.
    pub fallback: Fallback,
    /// When it may change.
    pub change: Change,
    /// One line for people.
    pub doc: &'static str,
}

const ANY_NUMBER: i64 = i64::MAX;

/// Declares the settings. A row becomes a name in [`Id`] and, at the same place, a [`Setting`] in [`SETTINGS`].
macro_rules! settings {
    ($($id:ident, $name:literal, $kind:expr, $fallback:expr, $change:expr, $doc:literal;)*) => {
        /// Names a setting in code. As a number it is the setting's place in [`SETTINGS`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Id {
            $(#[doc = $doc] $id,)*
        }

        /// Every setting, in the order of [`Id`].
        pub static SETTINGS: &[Setting] = {
            use Change::{Anytime, AtStart, Never};
            use Fallback::{HalfTheCores, Is};
            use Kind::{Bytes, Choice, Number, OutputLimit, Text, YesNo};
            &[$(Setting {
                id: Id::$id,
                name: $name,
                kind: $kind,
                fallback: $fallback,
                change: $change,
                doc: $doc,
            }),*]
        };
    };
}

// A row: name in code, name for users, values, default, when it may change, one line for people.
settings! {
    Bind, "bind", Text, Is("127.0.0.1 -::1"), AtStart,
        "Addresses to listen on, separated by blanks; `-` in front: if there is such an address; `*`: all";
    Port, "port", Number { min: 0, max: 65_535 }, Is("6379"), AtStart,
        "TCP port; 0 lets the system choose a free one";
    UnixSocket, "unixsocket", Text, Is(""), AtStart,
        "Path of a Unix socket to listen on as well; empty: none";
    Dir, "dir", Text, Is("./millstream-data"), AtStart,
        "Folder of the data";
    RequirePass, "requirepass", Text, Is(""), Anytime,
        "Password that clients must give with AUTH or HELLO; empty: none";
    ProtectedMode, "protected-mode", YesNo, Is("yes"), Anytime,
        "Without a password, refuse clients that do not come over the loopback address";
    MaxClients, "maxclients", Number { min: 1, max: 4_294_967_295 }, Is("10000"), Anytime,
        "Most clients connected at a time";
    Timeout, "timeout", Number { min: 0, max: 2_147_483_647 }, Is("0"), Anytime,
        "Close a client that has been silent for this many seconds; 0: never";
    TcpKeepAlive, "tcp-keepalive", Number { min: 0, max: 2_147_483_647 }, Is("300"), Anytime,
        "Seconds between probes that notice vanished clients; 0: none";
    TcpBacklog, "tcp-backlog", Number { min: 1, max: 65_535 }, Is("511"), AtStart,
        "Connections the system may hold for us before they are accepted";
    Databases, "databases", Number { min: 1, max: 10_000 }, Is("16"), AtStart,
        "Numbered databases for SELECT";
    IoThreads, "io-threads", Number { min: 1, max: 128 }, HalfTheCores, AtStart,
        "Threads that serve clients";
    Shards, "shards", Number { min: 1, max: 4_096 }, Is("16"), AtStart,
        "Parts the keys are spread over, each with a lock of its own";
    ProtoMaxBulkLen, "proto-max-bulk-len", Bytes { min: ONE_MIB, max: ANY_NUMBER }, Is("512mb"), Anytime,
        "Longest argument of a command, and longest string";
    ClientQueryBufferLimit, "client-query-buffer-limit", Bytes { min: ONE_MIB, max: ANY_NUMBER },
        Is("1gb"), Anytime,
        "Most bytes held of requests that are not complete or not yet run; beyond it the client is closed";
    ClientOutputBufferLimit, "client-output-buffer-limit", OutputLimit, Is("normal 256mb 0 0"), Anytime,
        "Most bytes of one reply to one client; beyond it the client is closed; 0: no limit";
    SlowlogLogSlowerThan, "slowlog-log-slower-than", Number { min: -1, max: ANY_NUMBER }, Is("10000"), Anytime,
        "Microseconds from which a command is noted in SLOWLOG; -1: none is";
    SlowlogMaxLen, "slowlog-max-len", Number { min: 0, max: 1_000_000 }, Is("128"), Anytime,
        "Commands that SLOWLOG keeps";
    StreamNodeMaxBytes, "stream-node-max-bytes", Bytes { min: 0, max: ANY_NUMBER }, Is("4096"), Anytime,
        "Most bytes in a block of stream entries, the unit of `MAXLEN ~`; 0: no limit";
    StreamNodeMaxEntries, "stream-node-max-entries", Number { min: 0, max: ANY_NUMBER }, Is("100"), Anytime,
        "Most entries in a block of stream entries, the unit of `MAXLEN ~`; 0: no limit";
    StreamIdmpDuration, "stream-idmp-duration", Number { min: 1, max: 86_400 }, Is("100"), Anytime,
        "For how many seconds a stream knows what producers have sent with IDMP; XCFGSET says otherwise for one stream";
    StreamIdmpMaxsize, "stream-idmp-maxsize", Number { min: 1, max: 10_000 }, Is("100"), Anytime,
        "How many entries of each producer a stream knows; XCFGSET says otherwise for one stream";
    ExactLag, "exact-lag", YesNo, Is("yes"), Anytime,
        "XINFO always knows a group's lag; `no`: by Redis' rules, which sometimes answer null";
    AppendOnly, "appendonly", YesNo, Is("yes"), AtStart,
        "Whether writes are logged to disk; `no`: everything is in memory and gone at the end";
    AppendFsync, "appendfsync", Choice(&["always", "everysec", "no"]), Is("always"), Anytime,
        "When the log is synced: before anything is told, once a second, or when the system likes";
    Save, "save", Text, Is(""), Never,
        "Redis' times for snapshots (here they are taken when the log has grown enough)";
    MaxMemory, "maxmemory", Bytes { min: 0, max: ANY_NUMBER }, Is("0"), Never,
        "Memory limit (there is none)";
    MaxMemoryPolicy, "maxmemory-policy", Choice(&["noeviction"]), Is("noeviction"), Never,
        "What is evicted when memory is full (nothing ever is)";
}

impl Setting {
    /// The setting of this name, in any case.
    pub fn find(name: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.name.eq_ignore_ascii_case(name))
    }

    /// Its value when nobody gives one, as text.
    pub fn fallback_text(&self) -> String {
        match self.fallback {
            Fallback::Is(text) => text.to_owned(),
            Fallback::HalfTheCores => half_the_cores().to_string(),
        }
    }

    /// The name of its environment variable.
    pub fn env_name(&self) -> String {
        format!("MILLSTREAM_{}", self.name.replace('-', "_").to_ascii_uppercase())
    }

    /// The name closest to a misspelt one, if any is close.
    pub fn suggest(misspelt: &str) -> Option<&'static str> {
        let misspelt = misspelt.to_ascii_lowercase();
        let distance_max = misspelt.len() / 3 + 1;
        SETTINGS
            .iter()
            .map(|setting| (edit_distance(&misspelt, setting.name), setting.name))
            .filter(|(distance, _)| *distance <= distance_max)
            .min()
            .map(|(_, name)| name)
    }
}

impl Id {
    /// The setting itself.
    pub fn setting(self) -> &'static Setting {
        &SETTINGS[self as usize]
    }
}

fn half_the_cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1))
}

/// How many letters must change, come or go to turn `a` into `b`.
fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_a_unique_name_and_a_line_for_people() {
        for setting in SETTINGS {
            assert!(std::ptr::eq(Setting::find(setting.name).unwrap(), setting), "{} twice", setting.name);
            assert!(!setting.doc.is_empty() && !setting.doc.ends_with('.'), "{}", setting.name);
        }
    }

    #[test]
    fn every_fallback_is_a_legal_value() {
        for setting in SETTINGS {
            setting
                .kind
                .parse(&setting.fallback_text())
                .unwrap_or_else(|why| panic!("{}: {why}", setting.name));
        }
    }

    #[test]
    fn misspelt_names_find_their_neighbour_and_nonsense_finds_none() {
        assert_eq!(Setting::suggest("max-clients"), Some("maxclients"));
        assert_eq!(Setting::suggest("exactlag"), Some("exact-lag"));
        assert_eq!(Setting::suggest("requirepas"), Some("requirepass"));
        assert_eq!(Setting::suggest("colour-of-the-sky"), None);
    }

    #[test]
    fn environment_names_are_upper_case_with_underscores() {
        assert_eq!(Id::ExactLag.setting().env_name(), "MILLSTREAM_EXACT_LAG");
    }
}
