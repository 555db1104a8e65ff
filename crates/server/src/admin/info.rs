//! INFO: the server's state as text, with Redis' sections and field names, which monitoring tools read.
//!
//! Fields about features that this server does not have are left out. Exception: a field that tools require is 0.

use std::fmt::{Display, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;

use millstream_protocol::args::Args;
use millstream_protocol::commands::ArgList;
use millstream_store::Txn;

use super::memory::MemoryUsage;
use super::{persistence, process};
use crate::command::{Call, CommandSpec, DONE, Reply};
use crate::memory::{self, human};
use crate::settings::Id;
use crate::state::Server;
use crate::stats::{Event, Totals};
use crate::version::REDIS_VERSION;

/// A section: its title, whether INFO without arguments contains it, and the function that writes it.
type Section = (&'static str, bool, fn(&mut InfoWriter<'_, '_>));

const SECTIONS: &[Section] = &[
    ("Server", true, |info| info.server()),
    ("Clients", true, |info| info.clients()),
    ("Memory", true, |info| info.memory()),
    ("Persistence", true, |info| persistence::write(info)),
    ("Stats", true, |info| info.stats()),
    ("Streams", true, |info| info.streams()),
    ("Replication", true, |info| info.replication()),
    ("CPU", true, |info| info.cpu()),
    ("Modules", true, |_| {}),
    ("Commandstats", false, |info| info.command_stats()),
    ("Errorstats", true, |info| info.error_stats()),
    ("Cluster", true, |info| info.line("cluster_enabled", 0)),
    ("Keyspace", true, |info| info.keyspace()),
];

pub(crate) fn info(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let requested = Args::of_command(argv).rest();
    let (server, commands) = (call.context.server, call.context.commands);
    let totals = server.stats.totals();
    let mut info = InfoWriter { text: String::new(), server, commands, txn: call.txn, totals };
    for (title, is_default, write) in SECTIONS {
        if is_requested(requested, title, *is_default) {
            if !info.text.is_empty() {
                info.text.push_str("\r\n");
            }
            let _ = write!(info.text, "# {title}\r\n");
            write(&mut info);
        }
    }
    let text = info.text;
    call.out.verbatim(text);
    DONE
}

/// Returns whether one of the requested sections looks at keys, which needs locks.
///
/// The other sections need no lock, so an operator can read them even if all other commands are stuck.
pub(crate) fn counts_keys(argv: ArgList<'_>) -> bool {
    let requested = Args::of_command(argv).rest();
    ["Clients", "Keyspace", "Streams"].iter().any(|title| is_requested(requested, title, true))
}

fn is_requested(requested: &[&[u8]], title: &str, is_default: bool) -> bool {
    let this = |word: &&[u8]| word.eq_ignore_ascii_case(title.as_bytes());
    let all = |word: &&[u8]| word.eq_ignore_ascii_case(b"all") || word.eq_ignore_ascii_case(b"everything");
    let default = |word: &&[u8]| word.eq_ignore_ascii_case(b"default");
    match requested.is_empty() {
        true => is_default,
        false => requested.iter().any(|word| this(word) || all(word) || (is_default && default(word))),
    }
}

pub(super) struct InfoWriter<'a, 't> {
    text: String,
    pub(super) server: &'a Arc<Server>,
    commands: &'static [CommandSpec],
    txn: &'a mut Txn<'t>,
    totals: Totals,
}

impl InfoWriter<'_, '_> {
    pub(super) fn line(&mut self, name: &str, value: impl Display) {
        let _ = write!(self.text, "{name}:{value}\r\n");
    }

    /// Writes 0 for each of these fields.
    fn zeros(&mut self, names: &[&str]) {
        names.iter().for_each(|name| self.line(name, 0));
    }

    /// Writes a number of bytes twice: as a plain number, and with a unit in the field `NAME_human`.
    fn bytes(&mut self, name: &str, bytes: u64) {
        self.line(name, bytes);
        self.line(&format!("{name}_human"), human(bytes));
    }

    fn server(&mut self) {
        let uptime_s = self.server.uptime_ms() / 1000;
        let now_ms = self.txn.now_ms();
        let (plain, tls) = (&self.server.addresses, &self.server.tls_addresses);
        let port = plain.first().or(tls.first()).map_or(0, SocketAddr::port);
        let executable = std::env::current_exe().map_or(String::new(), |path| path.display().to_string());
        self.line("redis_version", REDIS_VERSION);
        self.line("millstream_version", env!("CARGO_PKG_VERSION"));
        self.line("server_name", "millstream");
        self.line("redis_git_sha1", "00000000");
        self.line("redis_git_dirty", 0);
        self.line("redis_build_id", "0");
        self.line("redis_mode", "standalone");
        self.line("os", process::system_name());
        self.line("arch_bits", usize::BITS);
        self.line("multiplexing_api", "epoll");
        self.line("process_id", std::process::id());
        self.line("run_id", self.server.run_id.clone());
        self.line("tcp_port", port);
        self.line("server_time_usec", now_ms * 1000);
        self.line("clock_behind_wall_ms", self.server.store.clock_behind_wall_ms());
        self.line("uptime_in_seconds", uptime_s);
        self.line("uptime_in_days", uptime_s / 86_400);
        self.line("hz", 10);
        self.line("configured_hz", 10);
        self.line("lru_clock", (now_ms / 1000) & 0xff_ffff);
        self.line("executable", executable);
        self.line("config_file", "");
        self.listeners();
        self.line("io_threads_active", i32::from(self.server.settings.number(Id::IoThreads) > 1));
    }

    /// Writes one line per kind of socket, with its addresses.
    fn listeners(&mut self) {
        let path = self.server.settings.text(Id::UnixSocket);
        let tcp = |addresses: &[SocketAddr]| {
            let binds: String = addresses.iter().map(|address| format!(",bind={}", address.ip())).collect();
            addresses.first().map(|first| format!("{binds},port={}", first.port()))
        };
        let unix = (!path.is_empty()).then(|| format!(",bind={path}"));
        let kinds =
            [("tcp", tcp(&self.server.addresses)), ("unix", unix), ("tls", tcp(&self.server.tls_addresses))];
        let open = kinds.into_iter().filter_map(|(name, sockets)| sockets.map(|sockets| (name, sockets)));
        for (number, (name, sockets)) in open.enumerate() {
            self.line(&format!("listener{number}"), format!("name={name}{sockets}"));
        }
    }

    fn clients(&mut self) {
        let clients = &self.server.clients;
        let (connected, blocked) = (clients.count(), clients.blocked_count());
        self.line("connected_clients", connected);
        self.line("unauthenticated_clients", clients.logged_out_count());
        self.line("cluster_connections", 0);
        self.line("maxclients", self.server.settings.number(Id::MaxClients));
        self.zeros(&["client_recent_max_input_buffer", "client_recent_max_output_buffer"]);
        self.line("blocked_clients", blocked);
        self.zeros(&["tracking_clients", "clients_in_timeout_table"]);
        self.line("total_blocking_keys", self.txn.blocking_key_count());
        self.line("total_blocking_keys_on_nokey", self.txn.blocking_group_key_count());
    }

    fn memory(&mut self) {
        let usage = MemoryUsage::now(self.server);
        self.bytes("used_memory", usage.used);
        self.bytes("used_memory_rss", usage.resident);
        self.bytes("used_memory_peak", usage.peak);
        self.line("used_memory_peak_perc", format!("{:.2}%", usage.peak_percent()));
        self.line("used_memory_overhead", usage.overhead());
        self.line("used_memory_startup", usage.startup);
        self.line("used_memory_dataset", usage.dataset());
        self.line("used_memory_dataset_perc", format!("{:.2}%", usage.dataset_percent()));
        self.bytes("total_system_memory", memory::machine_bytes());
        self.bytes("used_memory_lua", 0);
        self.bytes("used_memory_scripts", 0);
        self.bytes("maxmemory", self.server.maxmemory());
        self.line("maxmemory_policy", "noeviction");
        self.line("mem_fragmentation_ratio", format!("{:.2}", usage.fragmentation()));
        self.line("mem_fragmentation_bytes", usage.fragmentation_bytes());
        self.line("mem_clients_slaves", 0);
        self.line("mem_clients_normal", usage.clients);
        self.line("mem_allocator", "libc");
        self.line("active_defrag_running", 0);
        self.line("lazyfree_pending_objects", self.server.store.unreclaimed());
    }

    fn stats(&mut self) {
        let [ops, input, output] = self.server.stats.rates_per_second();
        let totals = self.totals.clone();
        self.line("total_connections_received", totals.of(Event::Connection));
        self.line("total_commands_processed", totals.processed);
        self.line("instantaneous_ops_per_sec", ops);
        self.line("total_net_input_bytes", totals.input_bytes);
        self.line("total_net_output_bytes", totals.output_bytes);
        self.line("instantaneous_input_kbps", format!("{:.2}", input as f64 / 1024.0));
        self.line("instantaneous_output_kbps", format!("{:.2}", output as f64 / 1024.0));
        self.line("rejected_connections", totals.of(Event::RejectedConnection));
        self.zeros(&["sync_full", "sync_partial_ok", "sync_partial_err"]);
        self.line("expired_keys", totals.expired_keys);
        self.line("evicted_keys", 0);
        self.line("evicted_clients", totals.of(Event::EvictedClient));
        self.zeros(&["keyspace_hits", "keyspace_misses"]);
        self.zeros(&["pubsub_channels", "pubsub_patterns", "latest_fork_usec", "total_forks"]);
        self.line("client_query_buffer_limit_disconnections", totals.of(Event::QueryLimitClose));
        self.line("client_output_buffer_limit_disconnections", totals.of(Event::OutputLimitClose));
        self.line("acl_users", self.server.users.count());
        self.line("acl_access_denied_cmd", totals.of(Event::DeniedCommand));
        self.line("acl_access_denied_key", totals.of(Event::DeniedKey));
        self.zeros(&["acl_access_denied_channel"]);
        self.line("acl_access_denied_auth", totals.of(Event::AuthFailure));
        self.line("failed_login_disconnections", totals.of(Event::FailedLoginsClose));
        self.line("login_timeout_disconnections", totals.of(Event::LoginTimeoutClose));
        self.line("total_error_replies", totals.of(Event::Error));
        self.line("total_reads_processed", totals.reads);
        self.line("total_writes_processed", totals.writes);
    }

    /// What the policies of streams and groups have done, and the delayed entries of all streams.
    fn streams(&mut self) {
        let delayed = self.txn.delayed_stats();
        self.line("delayed_messages", delayed.entries);
        self.line("delayed_messages_bytes", delayed.text_bytes);
        let next_ms = delayed.next_due_ms.map(|due_ms| due_ms.saturating_sub(self.txn.now_ms()));
        self.line("delayed_next_in_ms", next_ms.map_or(-1, |next_ms| next_ms as i64));
        self.line("delayed_added", delayed.promoted);
        self.line("delayed_late_ms_max", delayed.late_ms_max);
        self.line("delayed_refused", delayed.refused);
        let stats = self.server.store.policy_stats();
        self.line("policy_redelivered", stats.redelivered);
        self.line("policy_dead_lettered", stats.dead_lettered);
        self.line("policy_dead_letter_errors", stats.dead_letter_errors);
        self.line("policy_trimmed", stats.trimmed);
        self.line("policy_consumers_removed", stats.consumers_removed);
        self.line("duties_next_ms", self.txn.next_duty_ms().map_or(-1, |at_ms| at_ms as i64));
        self.line("duties_late_ms_max", stats.late_ms_max);
    }

    fn replication(&mut self) {
        self.line("role", "master");
        self.line("connected_slaves", 0);
        self.line("master_failover_state", "no-failover");
        self.line("master_replid", self.server.run_id.clone());
        self.line("master_replid2", "0".repeat(40));
        self.line("master_repl_offset", 0);
        self.line("second_repl_offset", -1);
        self.zeros(&["repl_backlog_active", "repl_backlog_size"]);
        self.zeros(&["repl_backlog_first_byte_offset", "repl_backlog_histlen"]);
    }

    fn cpu(&mut self) {
        let (system, user) = process::cpu_seconds();
        self.line("used_cpu_sys", format!("{system:.6}"));
        self.line("used_cpu_user", format!("{user:.6}"));
        self.line("used_cpu_sys_children", "0.000000");
        self.line("used_cpu_user_children", "0.000000");
    }

    fn command_stats(&mut self) {
        for (spec, totals) in self.commands.iter().zip(std::mem::take(&mut self.totals.commands)) {
            if totals.calls + totals.rejected + totals.failed > 0 {
                let micros = totals.nanos / 1000;
                let each = totals.nanos as f64 / 1000.0 / totals.calls.max(1) as f64;
                let figures = format!(
                    "calls={},usec={micros},usec_per_call={each:.2},rejected_calls={},failed_calls={}",
                    totals.calls, totals.rejected, totals.failed
                );
                self.line(&format!("cmdstat_{}", spec.name), figures);
            }
        }
    }

    fn error_stats(&mut self) {
        for (kind, count) in self.server.stats.error_kinds() {
            self.line(&format!("errorstat_{kind}"), format!("count={count}"));
        }
    }

    fn keyspace(&mut self) {
        let selected = self.txn.db();
        for db in 0..self.server.store.databases() {
            self.txn.select(db);
            let (keys, expires) = (self.txn.key_count(), self.txn.expiring_count());
            if keys > 0 {
                self.line(&format!("db{db}"), format!("keys={keys},expires={expires},avg_ttl=0,subexpiry=0"));
            }
        }
        self.txn.select(selected);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_selected_by_name_or_by_default() {
        assert!(is_requested(&[], "Server", true));
        assert!(!is_requested(&[], "Commandstats", false));
        assert!(is_requested(&[b"COMMANDSTATS"], "Commandstats", false));
        assert!(is_requested(&[b"everything"], "Commandstats", false));
        assert!(!is_requested(&[b"default"], "Commandstats", false));
        assert!(!is_requested(&[b"server", b"nonsense"], "Clients", true));
        assert!(counts_keys(&[b"streams"]));
        assert!(counts_keys(&[]) && counts_keys(&[b"persistence", b"keyspace"]) && counts_keys(&[b"all"]));
        assert!(!counts_keys(&[b"persistence", b"server"]));
    }
}
