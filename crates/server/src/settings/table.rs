//! The table of settings, used by CONFIG, the command line, environment variables and the configuration file.
//!
//! To add a setting, add a row.

use super::value::{ONE_MIB, ValueType};

/// When a setting can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changeable {
    /// At start, and later with CONFIG SET.
    Anytime,
    /// Only at start.
    AtStart,
    /// Never. The setting exists because clients read it with CONFIG GET.
    Never,
}

/// The default value of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultValue {
    /// A constant.
    Fixed(&'static str),
    /// Half the machine's cores, at least one. The kernel and the clients use the other half.
    HalfTheCores,
}

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// Its identifier in code.
    pub id: Id,
    /// Its name in CONFIG, on the command line and in the file. For its environment variable see [`Setting::env_name`].
    pub name: &'static str,
    /// The values it accepts.
    pub value_type: ValueType,
    /// Its value if the operator does not set it.
    pub default: DefaultValue,
    /// When it can change.
    pub changeable: Changeable,
    /// One line of documentation.
    pub doc: &'static str,
}

const ANY_NUMBER: i64 = i64::MAX;

/// Declares the settings. Each row becomes a variant of [`Id`] and, at the same index, a [`Setting`] in [`SETTINGS`].
macro_rules! settings {
    ($($id:ident, $name:literal, $value_type:expr, $default:expr, $changeable:expr, $doc:literal;)*) => {
        /// Identifies a setting. As a number it is the setting's index in [`SETTINGS`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Id {
            $(#[doc = $doc] $id,)*
        }

        /// Every setting, in the order of [`Id`].
        pub static SETTINGS: &[Setting] = {
            use Changeable::{Anytime, AtStart, Never};
            use DefaultValue::{Fixed, HalfTheCores};
            use ValueType::{Bytes, Choice, ClientMemory, MemoryLimit, Number, OutputLimit, Permissions, Text, YesNo};
            &[$(Setting {
                id: Id::$id,
                name: $name,
                value_type: $value_type,
                default: $default,
                changeable: $changeable,
                doc: $doc,
            }),*]
        };
    };
}

// A row: identifier in code, name, type of value, default, when it can change, documentation.
settings! {
    Bind, "bind", Text, Fixed("127.0.0.1 -::1"), AtStart,
        "Addresses to listen on, separated by spaces; `-` before an address: skip it if this machine does not have it; \
                 `*`: all addresses";
    Port, "port", Number { min: 0, max: 65_535 }, Fixed("6379"), AtStart,
        "TCP port to listen on; 0: a free port that the system chooses, or no port without TLS if `tls-port` is set";
    TlsPort, "tls-port", Number { min: 0, max: 65_535 }, Fixed("0"), AtStart,
        "TCP port for connections with TLS, on the same addresses; 0: no TLS";
    TlsCertFile, "tls-cert-file", Text, Fixed(""), Anytime,
        "PEM file with the server's certificate, followed by the intermediate certificates; setting it again, even \
                 to the same path, reads all TLS files again";
    TlsKeyFile, "tls-key-file", Text, Fixed(""), Anytime,
        "PEM file with the private key of the certificate, not encrypted";
    TlsCaCertFile, "tls-ca-cert-file", Text, Fixed(""), Anytime,
        "PEM file with the certificate authorities (CAs) that sign client certificates";
    TlsCaCertDir, "tls-ca-cert-dir", Text, Fixed(""), Anytime,
        "Folder with further CAs; the server reads every file in it";
    TlsAuthClients, "tls-auth-clients", Choice(&["yes", "optional", "no"]), Fixed("yes"), Anytime,
        "Whether clients need a certificate; `yes`: every client, `optional`: a certificate that a client presents is \
                 checked, `no`: no certificate is requested";
    TlsProtocols, "tls-protocols", Text, Fixed(""), Anytime,
        "Accepted versions, separated by spaces: TLSv1.2, TLSv1.3; empty: both";
    TlsCiphers, "tls-ciphers", Text, Fixed(""), Anytime,
        "Accepted ciphers of TLS 1.2, separated by colons, with OpenSSL's names; empty: all that the server has";
    TlsCipherSuites, "tls-ciphersuites", Text, Fixed(""), Anytime,
        "Accepted ciphers of TLS 1.3, separated by colons; empty: all that the server has";
    TlsSessionCaching, "tls-session-caching", YesNo, Fixed("yes"), Anytime,
        "Let clients resume an earlier TLS session, which makes reconnecting cheaper";
    TlsSessionCacheSize, "tls-session-cache-size", Number { min: 1, max: 1_000_000 }, Fixed("20480"), Anytime,
        "Maximum number of TLS sessions that can be resumed";
    TlsSessionCacheTimeout, "tls-session-cache-timeout", Number { min: 1, max: 604_800 }, Fixed("300"), Anytime,
        "Seconds for which a TLS session can be resumed";
    UnixSocket, "unixsocket", Text, Fixed(""), AtStart,
        "Path of a Unix socket to listen on as well; empty: no Unix socket";
    UnixSocketPerm, "unixsocketperm", Permissions, Fixed("0"), AtStart,
        "Permissions of the Unix socket as an octal number, such as 770; 0: those that the process' umask allows";
    Http, "http", Text, Fixed(""), AtStart,
        "Address of the dashboard, such as 127.0.0.1:8001; if it is not a loopback address, clients must log in; empty: no \
                 dashboard";
    HttpReadOnly, "http-read-only", YesNo, Fixed("no"), AtStart,
        "Dashboard: refuse every action";
    HttpPayloads, "http-payloads", YesNo, Fixed("yes"), AtStart,
        "Dashboard: show the values of fields; `no`: only their names";
    HttpRedact, "http-redact", Text, Fixed(""), AtStart,
        "Dashboard: patterns of the names of fields whose values are hidden, separated by spaces, besides `*password*`, \
                 `*secret*`, `*token*` and `authorization`; a pattern also matches the path of a value in JSON, such as \
                 `data.user.email`";
    HttpAllowHost, "http-allow-host", Text, Fixed(""), AtStart,
        "Dashboard: host names under which browsers may reach it, separated by spaces, besides IP addresses, `localhost` and \
                 the host of `http-public-url`";
    HttpPublicUrl, "http-public-url", Text, Fixed(""), AtStart,
        "Dashboard: its URL for browsers if a proxy is in front of it: scheme, host and base path";
    HttpMetricsConsumers, "http-metrics-consumers", YesNo, Fixed("no"), AtStart,
        "Dashboard: `/metrics` has series for each consumer";
    HttpMetricsPartitions, "http-metrics-partitions", YesNo, Fixed("no"), AtStart,
        "Dashboard: `/metrics` has series for each partition of a stream";
    HttpHistoryMemory, "http-history-memory", Bytes { min: ONE_MIB, max: ANY_NUMBER }, Fixed("64mb"), AtStart,
        "Dashboard: maximum memory for the history of streams and groups";
    Dir, "dir", Text, Fixed("./millstream-data"), AtStart,
        "Data folder";
    RequirePass, "requirepass", Text, Fixed(""), Anytime,
        "Password of the user `default`, which clients must send with AUTH or HELLO; empty: no password is required";
    LoginTimeout, "login-timeout", Number { min: 0, max: 86_400 }, Fixed("10"), Anytime,
        "If clients must log in, close a connection that has not logged in after this many seconds; 0: never";
    AuditLog, "audit-log", Choice(&["all", "no-connections", "no"]), Fixed("all"), Anytime,
        "Which events the server logs on standard error; `all`: connections, logins, failed logins, changes of \
                 settings and users, and other administrative commands, `no-connections`: all but connections and \
                 successful logins, `no`: none";
    LogLevel, "loglevel", Choice(&["debug", "verbose", "notice", "warning", "nothing"]), Fixed("notice"), Anytime,
        "Which lines the server logs on standard error, besides those of `audit-log`; `warning`: only what needs attention, \
                 `nothing`: none";
    LogFormat, "log-format", Choice(&["text", "json"]), Fixed("text"), Anytime,
        "Format of the log; `json`: one JSON object per line";
    AclFile, "aclfile", Text, Fixed(""), AtStart,
        "Path of a file that contains the users and what each may do; empty: users are kept in memory only";
    AclLogMaxLen, "acllog-max-len", Number { min: 0, max: 1_000_000 }, Fixed("128"), Anytime,
        "Maximum number of entries in ACL LOG";
    ProtectedMode, "protected-mode", YesNo, Fixed("yes"), Anytime,
        "While the user `default` needs no password, refuse clients from other machines";
    EnableDebugCommand, "enable-debug-command", Choice(&["no", "local", "yes"]), Fixed("no"), AtStart,
        "Who may run DEBUG, which can block the server; `no`: no client, `local`: clients on this machine, over a \
                 loopback address or the Unix socket, `yes`: every client";
    MaxClients, "maxclients", Number { min: 1, max: 4_294_967_295 }, Fixed("10000"), Anytime,
        "Maximum number of connected clients";
    Timeout, "timeout", Number { min: 0, max: 2_147_483_647 }, Fixed("0"), Anytime,
        "Close a connection that has been idle for this many seconds; 0: never";
    TcpKeepAlive, "tcp-keepalive", Number { min: 0, max: 2_147_483_647 }, Fixed("300"), Anytime,
        "Seconds between TCP keep-alive probes, which detect lost clients; 0: no probes";
    TcpBacklog, "tcp-backlog", Number { min: 1, max: 65_535 }, Fixed("511"), AtStart,
        "Maximum number of connections that wait to be accepted";
    Databases, "databases", Number { min: 1, max: 10_000 }, Fixed("16"), AtStart,
        "Number of databases (SELECT)";
    IoThreads, "io-threads", Number { min: 1, max: 128 }, HalfTheCores, AtStart,
        "Number of threads that serve clients";
    Shards, "shards", Number { min: 1, max: 4_096 }, Fixed("16"), AtStart,
        "Number of shards; the keys are distributed over them, and each has its own lock";
    ProtoMaxBulkLen, "proto-max-bulk-len", Bytes { min: ONE_MIB, max: ANY_NUMBER }, Fixed("512mb"), Anytime,
        "Maximum length of an argument and of a string value";
    ClientQueryBufferLimit, "client-query-buffer-limit", Bytes { min: ONE_MIB, max: ANY_NUMBER },
        Fixed("1gb"), Anytime,
        "Maximum size of a client's buffered requests; beyond it the connection is closed";
    ClientOutputBufferLimit, "client-output-buffer-limit", OutputLimit, Fixed("normal 256mb 0 0"), Anytime,
        "Maximum size of one reply; beyond it the connection is closed; replies of up to 16kb are always sent; 0: no \
                 limit";
    SlowlogLogSlowerThan, "slowlog-log-slower-than", Number { min: -1, max: ANY_NUMBER }, Fixed("10000"), Anytime,
        "SLOWLOG records commands that take longer than this many microseconds; -1: no commands";
    SlowlogMaxLen, "slowlog-max-len", Number { min: 0, max: 1_000_000 }, Fixed("128"), Anytime,
        "Maximum number of commands in SLOWLOG";
    StreamNodeMaxBytes, "stream-node-max-bytes", Bytes { min: 0, max: ANY_NUMBER }, Fixed("4096"), Anytime,
        "Maximum size of a block of stream entries, the unit that `MAXLEN ~` trims; 0: no limit";
    StreamNodeMaxEntries, "stream-node-max-entries", Number { min: 0, max: ANY_NUMBER }, Fixed("100"), Anytime,
        "Maximum number of entries in a block, the unit that `MAXLEN ~` trims; 0: no limit";
    StreamIdmpDuration, "stream-idmp-duration", Number { min: 1, max: 86_400 }, Fixed("100"), Anytime,
        "Seconds for which a stream detects duplicates of entries sent with `XADD IDMP`; XCFGSET overrides it for one \
                 stream";
    StreamIdmpMaxsize, "stream-idmp-maxsize", Number { min: 1, max: 10_000 }, Fixed("100"), Anytime,
        "Number of entries per producer for which a stream detects duplicates; XCFGSET overrides it for one stream";
    ExactLag, "exact-lag", YesNo, Fixed("yes"), Anytime,
        "XINFO always returns a group's exact lag; `no`: as in Redis, the lag is sometimes null";
    AppendOnly, "appendonly", YesNo, Fixed("yes"), AtStart,
        "Write every change to a log on disk; `no`: keep data in memory only and lose it when the server stops";
    AppendFsync, "appendfsync", Choice(&["always", "everysec", "no"]), Fixed("always"), Anytime,
        "When the log is synced to disk; `always`: before a reply is sent, `everysec`: once a second, `no`: when the \
                 operating system decides";
    Save, "save", Text, Fixed(""), Never,
        "Redis' schedule of snapshots (always empty: a snapshot is taken when the log has grown enough)";
    MaxMemory, "maxmemory", MemoryLimit, Fixed("auto"), Anytime,
        "Maximum memory of the server; above it, commands that add data are refused; `auto`: 80 % of the limit of the \
                 control group or of the machine's memory, whichever is less; `50%`: half of the same memory; 0: no limit";
    MaxMemoryClients, "maxmemory-clients", ClientMemory, Fixed("auto"), Anytime,
        "Maximum memory of all clients together; above it, the server closes the connections that use most; `auto`: half of \
                 what everything else leaves of `maxmemory`, at least an eighth of `maxmemory` and at least 64 MB; `5%`: this \
                 percentage of `maxmemory`; 0: no limit";
    MaxMemoryPolicy, "maxmemory-policy", Choice(&["noeviction"]), Fixed("noeviction"), Never,
        "Which keys are evicted when memory is full (eviction is not supported)";
}

impl Setting {
    /// Returns the setting with this name, ignoring case.
    pub fn find(name: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.name.eq_ignore_ascii_case(name))
    }

    /// Returns its default value as text.
    pub fn default_text(&self) -> String {
        match self.default {
            DefaultValue::Fixed(text) => text.to_owned(),
            DefaultValue::HalfTheCores => half_the_cores().to_string(),
        }
    }

    /// Returns the name of its environment variable.
    pub fn env_name(&self) -> String {
        format!("MILLSTREAM_{}", self.name.replace('-', "_").to_ascii_uppercase())
    }

    /// Returns the name most similar to a misspelt one, or `None` if no name is similar.
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
    /// Returns the setting's row in the table.
    pub fn setting(self) -> &'static Setting {
        &SETTINGS[self as usize]
    }
}

fn half_the_cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1))
}

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
    fn every_setting_has_a_unique_name_and_documentation() {
        for setting in SETTINGS {
            assert!(
                std::ptr::eq(Setting::find(setting.name).unwrap(), setting),
                "duplicate name {}",
                setting.name
            );
            assert!(!setting.doc.is_empty() && !setting.doc.ends_with('.'), "{}", setting.name);
        }
    }

    #[test]
    fn every_default_is_a_valid_value() {
        for setting in SETTINGS {
            setting
                .value_type
                .parse(&setting.default_text())
                .unwrap_or_else(|error| panic!("{}: {error}", setting.name));
        }
    }

    #[test]
    fn suggest_finds_similar_names_only() {
        assert_eq!(Setting::suggest("max-clients"), Some("maxclients"));
        assert_eq!(Setting::suggest("exactlag"), Some("exact-lag"));
        assert_eq!(Setting::suggest("requirepas"), Some("requirepass"));
        assert_eq!(Setting::suggest("colour-of-the-sky"), None);
    }

    #[test]
    fn environment_variables_are_upper_case_with_underscores() {
        assert_eq!(Id::ExactLag.setting().env_name(), "MILLSTREAM_EXACT_LAG");
    }
}
