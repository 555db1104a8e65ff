//! INFO persistence: first Redis' fields, then Millstream's own fields about the log and the snapshots.

use std::time::Duration;

use millstream_store::DurabilityStats;
use millstream_store::log::{LogStats, Policy, SYNC_BOUNDS_US};

use super::info::InfoWriter;
use crate::persistence::{LastSnapshot, SnapshotPurpose, SnapshotState};

pub(super) fn write(info: &mut InfoWriter<'_, '_>) {
    let state = info.server.persistence.state();
    let durability = info.server.store.durability();
    info.line("loading", 0);
    info.line("async_loading", 0);
    write_saves(info, &state, durability.as_ref());
    write_rewrites(info, &state, durability.as_ref());
    if let Some(durability) = &durability {
        write_sizes(info, durability);
        write_log(info, durability);
        write_snapshot(info, durability, &state);
    }
}

fn write_saves(info: &mut InfoWriter<'_, '_>, state: &SnapshotState, durability: Option<&DurabilityStats>) {
    let changes = durability.map_or(0, |durability| durability.changes_since_snapshot);
    info.line("rdb_changes_since_last_save", changes);
    info.line("rdb_bgsave_in_progress", i32::from(is_running(state, SnapshotPurpose::Save)));
    info.line("rdb_last_save_time", state.last_save_s);
    info.line("rdb_last_bgsave_status", status(!state.last_save.failed));
    info.line("rdb_last_bgsave_time_sec", seconds(state.last_save.took));
    info.line("rdb_current_bgsave_time_sec", seconds(running_for(state, SnapshotPurpose::Save)));
    info.line("rdb_saves", state.taken);
}

fn write_rewrites(
    info: &mut InfoWriter<'_, '_>,
    state: &SnapshotState,
    durability: Option<&DurabilityStats>,
) {
    let LastSnapshot { took, failed } = state.last_rewrite;
    let is_scheduled = state.scheduled == Some(SnapshotPurpose::Rewrite);
    info.line("aof_enabled", i32::from(durability.is_some()));
    info.line("aof_rewrite_in_progress", i32::from(is_running(state, SnapshotPurpose::Rewrite)));
    info.line("aof_rewrite_scheduled", i32::from(is_scheduled));
    info.line("aof_last_rewrite_time_sec", seconds(took));
    info.line("aof_current_rewrite_time_sec", seconds(running_for(state, SnapshotPurpose::Rewrite)));
    info.line("aof_last_bgrewrite_status", status(!failed));
    let can_write =
        durability.is_none_or(|durability| durability.error.is_none() && durability.refusal.is_none());
    info.line("aof_last_write_status", status(can_write));
}

/// Writes the fields that Redis has only if its log is enabled.
fn write_sizes(info: &mut InfoWriter<'_, '_>, durability: &DurabilityStats) {
    let log = &durability.log;
    info.line("aof_current_size", log.bytes);
    info.line("aof_base_size", durability.snapshot.map_or(0, |snapshot| snapshot.taken.bytes));
    info.line("aof_pending_rewrite", 0);
    info.line("aof_buffer_length", log.pending_bytes);
    info.line("aof_pending_bio_fsync", i32::from(log.durable < log.written));
    info.line("aof_delayed_fsync", durability.slow_syncs);
}

fn write_log(info: &mut InfoWriter<'_, '_>, durability: &DurabilityStats) {
    let log = &durability.log;
    info.line("log_policy", policy_name(durability.policy));
    info.line("log_appended_position", log.appended);
    info.line("log_written_position", log.written);
    info.line("log_durable_position", log.durable);
    info.line("log_first_position", log.first);
    info.line("log_segments", log.segments);
    info.line("log_bytes", log.bytes);
    info.line("log_pending_bytes", log.pending_bytes);
    info.line("log_syncs", log.syncs);
    info.line("log_last_sync_time", durability.synced_at_ms.unwrap_or(0) / 1000);
    info.line("log_last_sync_usec", log.last_sync_ns / 1000);
    info.line("log_sync_usec", log.sync_ns / 1000);
    info.line("log_average_sync_usec", log.sync_ns / 1000 / log.syncs.max(1));
    info.line("log_sync_usec_distribution", sync_times(log));
    info.line("log_disk_full_events", log.full);
    let refusal = durability.refusal.as_ref().map(ToString::to_string);
    info.line("log_error", one_line(durability.error.as_deref().or(refusal.as_deref())));
}

/// Returns how many syncs took how long, as `le_50=3,le_100=0,…,le_inf=1`. Each number counts syncs that exceed the
/// bound before.
fn sync_times(log: &LogStats) -> String {
    let bounds = SYNC_BOUNDS_US.iter().map(u64::to_string).chain(["inf".to_owned()]);
    let pairs = bounds.zip(log.sync_times).map(|(bound, count)| format!("le_{bound}={count}"));
    pairs.collect::<Vec<_>>().join(",")
}

fn write_snapshot(info: &mut InfoWriter<'_, '_>, durability: &DurabilityStats, state: &SnapshotState) {
    let snapshot = durability.snapshot;
    let at_ms = snapshot.and_then(|snapshot| snapshot.at_ms);
    let taken = snapshot.map(|snapshot| snapshot.taken).unwrap_or_default();
    info.line("snapshot_in_progress", i32::from(durability.snapshotting));
    info.line("snapshot_position", taken.position);
    info.line("snapshot_keys", taken.keys);
    info.line("snapshot_bytes", taken.bytes);
    info.line("snapshot_time", at_ms.unwrap_or(0) / 1000);
    info.line("snapshot_error", one_line(state.error.as_deref()));
}

fn is_running(state: &SnapshotState, purpose: SnapshotPurpose) -> bool {
    running_for(state, purpose).is_some()
}

fn running_for(state: &SnapshotState, purpose: SnapshotPurpose) -> Option<Duration> {
    state.running.filter(|(running, _)| *running == purpose).map(|(_, since)| since.elapsed())
}

/// Converts a duration to seconds. As in Redis, -1 means that no such snapshot has been taken or is being taken.
fn seconds(took: Option<Duration>) -> i64 {
    took.map_or(-1, |took| i64::try_from(took.as_secs()).unwrap_or(i64::MAX))
}

fn status(good: bool) -> &'static str {
    if good { "ok" } else { "err" }
}

pub(crate) fn policy_name(policy: Policy) -> &'static str {
    match policy {
        Policy::Always => "always",
        Policy::EverySecond => "everysec",
        Policy::Never => "no",
    }
}

/// Replaces line ends with spaces, because a field of INFO is one line.
fn one_line(error: Option<&str>) -> String {
    error.map_or(String::new(), |error| error.replace(['\r', '\n'], " "))
}
