//! The server's own figures in the text format of Prometheus: commands, clients, memory, the log with the times of its
//! syncs, snapshots, policies and delayed messages. They are those of INFO, with names and units as Prometheus wants
//! them.
//!
//! This module knows no HTTP. The figures of streams and groups are not here.

use std::fmt::Display;

use millstream_protocol::prometheus::{MetricKind, PrometheusText};
use millstream_store::DurabilityStats;
use millstream_store::log::SYNC_BOUNDS_US;

use crate::admin::persistence::policy_name;
use crate::admin::process::cpu_seconds;
use crate::memory;
use crate::settings::Id;
use crate::state::Server;
use crate::stats::{Event, Totals};
use crate::table::COMMANDS;
use crate::version::REDIS_VERSION;

impl Server {
    /// Returns the server's own figures in the text format of Prometheus. All names begin with `millstream_server_`.
    /// Locks the shards one after the other for a moment.
    pub fn figures(&self) -> String {
        let totals = self.stats.totals();
        let mut text = Figures::default();
        write_build(&mut text, self);
        write_clients(&mut text, self, &totals);
        write_commands(&mut text, self, &totals);
        write_memory(&mut text, self);
        if let Some(durability) = self.store.durability() {
            write_log(&mut text, &durability);
            write_snapshots(&mut text, self, &durability);
        }
        write_streams(&mut text, self);
        text.0.finish()
    }
}

/// Writes metrics whose names begin with `millstream_server_`.
#[derive(Default)]
struct Figures(PrometheusText);

impl Figures {
    fn metric(&mut self, kind: MetricKind, name: &str, help: &str) {
        self.0.family(&format!("millstream_server_{name}"), help, kind);
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.sample(&format!("millstream_server_{name}"), labels, value);
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.metric(MetricKind::Gauge, name, help);
        self.sample(name, &[], value);
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.metric(MetricKind::Counter, name, help);
        self.sample(name, &[], value);
    }

    fn labelled<V: Display>(
        &mut self,
        kind: MetricKind,
        (name, label): (&str, &str),
        help: &str,
        samples: impl IntoIterator<Item = (impl AsRef<str>, V)>,
    ) {
        self.metric(kind, name, help);
        for (value_of_label, value) in samples {
            self.sample(name, &[(label, value_of_label.as_ref())], value);
        }
    }
}

fn write_build(text: &mut Figures, server: &Server) {
    text.metric(
        MetricKind::Gauge,
        "build_info",
        "The version of the server, and of Redis that it reports to clients",
    );
    let version = env!("CARGO_PKG_VERSION");
    text.sample("build_info", &[("version", version), ("redis_version", REDIS_VERSION)], 1);
    text.gauge("uptime_seconds", "Seconds since the start", server.uptime_ms() / 1000);
    let (system, user) = cpu_seconds();
    text.labelled(
        MetricKind::Counter,
        ("cpu_seconds_total", "mode"),
        "Processor time of the process",
        [("system", system), ("user", user)],
    );
    let behind = server.store.clock_behind_wall_ms() as f64 / 1e3;
    text.gauge(
        "clock_behind_wall_seconds",
        "Difference between the wall clock and the server's clock",
        behind,
    );
}

fn write_clients(text: &mut Figures, server: &Server, totals: &Totals) {
    let clients = &server.clients;
    text.gauge("clients", "Connected clients", clients.count());
    text.gauge("clients_max", "Maximum number of connected clients", server.settings.number(Id::MaxClients));
    text.gauge("clients_blocked", "Clients in a blocking command", clients.blocked_count());
    let logged_out = clients.logged_out_count();
    text.gauge("clients_logged_out", "Clients that must log in and have not", logged_out);
    let counters = [
        ("connections_total", "Connections accepted", Event::Connection),
        (
            "connections_rejected_total",
            "Connections rejected because of maxclients",
            Event::RejectedConnection,
        ),
        ("logins_failed_total", "Failed logins", Event::AuthFailure),
        ("denied_commands_total", "Commands denied because of the command", Event::DeniedCommand),
        ("denied_keys_total", "Commands denied because of a key", Event::DeniedKey),
        (
            "clients_evicted_total",
            "Clients closed because all clients used too much memory",
            Event::EvictedClient,
        ),
        ("output_limit_closes_total", "Clients closed because a reply was too long", Event::OutputLimitClose),
        ("query_limit_closes_total", "Clients closed because a request was too long", Event::QueryLimitClose),
    ];
    for (name, help, event) in counters {
        text.counter(name, help, totals.of(event));
    }
    text.counter("received_bytes_total", "Bytes received from clients", totals.input_bytes);
    text.counter("sent_bytes_total", "Bytes sent to clients", totals.output_bytes);
}

/// Writes the figures of the commands that were called at least once.
fn write_commands(text: &mut Figures, server: &Server, totals: &Totals) {
    let called = || {
        let all = COMMANDS.iter().zip(&totals.commands);
        all.filter(|(_, totals)| totals.calls + totals.rejected + totals.failed > 0)
    };
    text.labelled(
        MetricKind::Counter,
        ("commands_total", "command"),
        "Commands run",
        called().map(|(spec, totals)| (spec.name, totals.calls)),
    );
    text.labelled(
        MetricKind::Counter,
        ("command_seconds_total", "command"),
        "Time in which commands ran",
        called().map(|(spec, totals)| (spec.name, totals.nanos as f64 / 1e9)),
    );
    text.labelled(
        MetricKind::Counter,
        ("command_errors_total", "command"),
        "Commands that replied with an error, or were rejected before they ran",
        called().map(|(spec, totals)| (spec.name, totals.failed + totals.rejected)),
    );
    text.labelled(
        MetricKind::Counter,
        ("errors_total", "code"),
        "Error replies by their first word",
        server.stats.error_kinds(),
    );
    text.counter("slow_commands_total", "Commands that the slow log has recorded", server.slowlog.recorded());
}

fn write_memory(text: &mut Figures, server: &Server) {
    memory::refresh();
    text.gauge("memory_bytes", "Memory in use", memory::used_bytes());
    text.gauge("memory_peak_bytes", "Most memory that was in use", memory::peak_bytes());
    text.gauge("memory_limit_bytes", "maxmemory; 0: no limit", server.maxmemory());
    text.gauge("memory_resident_bytes", "Resident memory of the process", memory::resident_bytes());
    text.gauge("memory_clients_bytes", "Memory of all clients", server.clients.memory_bytes());
}

fn write_log(text: &mut Figures, durability: &DurabilityStats) {
    let log = &durability.log;
    text.labelled(
        MetricKind::Gauge,
        ("log_policy_info", "appendfsync"),
        "When the log is synced",
        [(policy_name(durability.policy), 1)],
    );
    text.gauge("log_bytes", "Bytes of the log on disk", log.bytes);
    text.gauge("log_segments", "Files of the log", log.segments);
    text.gauge("log_pending_bytes", "Bytes of the log that are not written yet", log.pending_bytes);
    text.gauge(
        "log_unsynced_records",
        "Records that are not synced yet",
        log.appended.saturating_sub(log.durable),
    );
    text.counter("log_records_total", "Number of the last record of the log", log.appended);
    text.counter("log_disk_full_total", "Writes deferred for lack of space", log.full);
    let is_writable = durability.error.is_none() && durability.refusal.is_none();
    text.gauge(
        "log_writable",
        "1: the log accepts changes; 0: the disk is full or has failed, or files of the data folder are missing",
        u8::from(is_writable),
    );
    write_sync_times(text, &log.sync_times, log.sync_ns);
}

fn write_sync_times(text: &mut Figures, sync_times: &[u64], sync_ns: u64) {
    text.metric(MetricKind::Histogram, "log_sync_seconds", "Time that a sync of the log takes");
    let bounds = SYNC_BOUNDS_US.iter().map(|us| (*us as f64 / 1e6).to_string()).chain(["+Inf".to_owned()]);
    let mut count = 0;
    for (bound, times) in bounds.zip(sync_times) {
        count += times;
        text.sample("log_sync_seconds_bucket", &[("le", &bound)], count);
    }
    text.sample("log_sync_seconds_sum", &[], sync_ns as f64 / 1e9);
    text.sample("log_sync_seconds_count", &[], count);
}

fn write_snapshots(text: &mut Figures, server: &Server, durability: &DurabilityStats) {
    let state = server.persistence.state();
    text.counter("snapshots_total", "Snapshots taken", state.taken);
    let is_ok = !state.last_save.failed && !state.last_rewrite.failed;
    text.gauge("snapshot_ok", "1: the last snapshots succeeded; 0: one failed", u8::from(is_ok));
    text.gauge("snapshot_running", "1: a snapshot is being taken", u8::from(durability.snapshotting));
    let Some(snapshot) = durability.snapshot else { return };
    if let Some(at_ms) = snapshot.at_ms {
        let at = at_ms as f64 / 1e3;
        text.gauge("snapshot_timestamp_seconds", "When the last snapshot was taken, since 1970", at);
    }
    text.gauge("snapshot_bytes", "Size of the last snapshot", snapshot.taken.bytes);
    text.gauge("snapshot_keys", "Keys in the last snapshot", snapshot.taken.keys);
    let changes = durability.changes_since_snapshot;
    text.gauge("snapshot_changes_since", "Records since the last snapshot", changes);
}

fn write_streams(text: &mut Figures, server: &Server) {
    let delayed = server.store.delayed_stats();
    text.gauge("delayed_messages", "Messages that wait for their time", delayed.entries);
    text.gauge("delayed_messages_bytes", "Bytes of their payload", delayed.text_bytes);
    text.counter("delayed_messages_added_total", "Messages added when they were due", delayed.promoted);
    text.counter(
        "delayed_messages_refused_total",
        "Messages that could not be added when due",
        delayed.refused,
    );
    let overdue_ms = delayed.next_due_ms.map_or(0, |due_ms| server.store.now_ms().saturating_sub(due_ms));
    text.gauge(
        "delayed_messages_overdue_seconds",
        "How long the first message is overdue",
        overdue_ms as f64 / 1e3,
    );
    let late = delayed.late_ms_max as f64 / 1e3;
    text.gauge("delayed_messages_late_seconds_max", "Longest time that a message was late", late);
    let policies = server.store.policy_stats();
    let counters = [
        (
            "policy_redelivered_total",
            "Pending entries delivered again because of LEASE",
            policies.redelivered,
        ),
        ("policy_dead_lettered_total", "Entries moved to a dead-letter stream", policies.dead_lettered),
        ("policy_dead_letter_errors_total", "Failed attempts to do so", policies.dead_letter_errors),
        ("policy_trimmed_total", "Entries removed by retention", policies.trimmed),
        ("policy_consumers_removed_total", "Consumers removed by CONSUMERTTL", policies.consumers_removed),
    ];
    for (name, help, count) in counters {
        text.counter(name, help, count);
    }
    let late = policies.late_ms_max as f64 / 1e3;
    text.gauge("policy_late_seconds_max", "Longest time that the work of a policy was late", late);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    #[test]
    fn sync_times_are_cumulative() {
        let mut text = Figures::default();
        let mut times = [0; SYNC_BOUNDS_US.len() + 1];
        (times[0], times[2], times[SYNC_BOUNDS_US.len()]) = (3, 4, 1);
        write_sync_times(&mut text, &times, 2_500_000_000);
        let text = text.0.finish();
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(lines[0], "millstream_server_log_sync_seconds_bucket{le=\"0.00005\"} 3");
        assert_eq!(lines[2], "millstream_server_log_sync_seconds_bucket{le=\"0.00025\"} 7");
        assert_eq!(lines[12], "millstream_server_log_sync_seconds_bucket{le=\"1\"} 7");
        assert_eq!(lines[13], "millstream_server_log_sync_seconds_bucket{le=\"+Inf\"} 8");
        assert_eq!(lines[14], "millstream_server_log_sync_seconds_sum 2.5");
        assert_eq!(lines[15], "millstream_server_log_sync_seconds_count 8");
    }

    #[test]
    fn every_sample_belongs_to_the_metric_before_it_and_has_a_number() {
        let settings = Settings::new();
        settings.set(Id::Port, "0").unwrap();
        settings.set(Id::AppendOnly, "no").unwrap();
        let running = Server::start(settings).unwrap();
        running.server().stats.note_error(b"ERR");
        let text = running.server().figures();
        let mut names = Vec::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                names.push(rest.split(' ').next().unwrap());
            } else if !line.starts_with("# HELP ") {
                let (series, value) = line.rsplit_once(' ').unwrap();
                assert_eq!(series.split('{').next(), names.last().copied(), "{line}");
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert!(names.len() == count && count > 30, "{text}");
        running.server().shutdown.begin();
    }
}
