//! INFO persistence: Redis' fields as far as they are true here, then the log and the snapshot in our own words.

use std::time::Duration;

use millstream_store::DurabilityStats;
use millstream_store::log::Policy;

use super::info::Page;
use crate::persistence::{LastRun, Purpose, SnapshotState};

pub(super) fn write(page: &mut Page<'_, '_>) {
    let state = page.server.persistence.state();
    let durability = page.server.store.durability();
    page.line("loading", 0);
    page.line("async_loading", 0);
    write_saves(page, &state, durability.as_ref());
    write_rewrites(page, &state, durability.as_ref());
    if let Some(durability) = &durability {
        write_sizes(page, durability);
        write_log(page, durability);
        write_snapshot(page, durability, &state);
    }
}

fn write_saves(page: &mut Page<'_, '_>, state: &SnapshotState, durability: Option<&DurabilityStats>) {
    page.line(
        "rdb_changes_since_last_save",
        durability.map_or(0, |durability| durability.changes_since_snapshot),
    );
    page.line("rdb_bgsave_in_progress", i32::from(is_running(state, Purpose::Save)));
    page.line("rdb_last_save_time", state.last_save_s);
    page.line("rdb_last_bgsave_status", status(!state.last_save.failed));
    page.line("rdb_last_bgsave_time_sec", seconds(state.last_save.took));
    page.line("rdb_current_bgsave_time_sec", seconds(running_for(state, Purpose::Save)));
    page.line("rdb_saves", state.taken);
}

fn write_rewrites(page: &mut Page<'_, '_>, state: &SnapshotState, durability: Option<&DurabilityStats>) {
    let LastRun { took, failed } = state.last_rewrite;
    let is_scheduled = state.scheduled == Some(Purpose::Rewrite);
    page.line("aof_enabled", i32::from(durability.is_some()));
    page.line("aof_rewrite_in_progress", i32::from(is_running(state, Purpose::Rewrite)));
    page.line("aof_rewrite_scheduled", i32::from(is_scheduled));
    page.line("aof_last_rewrite_time_sec", seconds(took));
    page.line("aof_current_rewrite_time_sec", seconds(running_for(state, Purpose::Rewrite)));
    page.line("aof_last_bgrewrite_status", status(!failed));
    page.line(
        "aof_last_write_status",
        status(durability.is_none_or(|durability| durability.error.is_none() && !durability.is_full)),
    );
}

/// What Redis tells only of a log that is written.
fn write_sizes(page: &mut Page<'_, '_>, durability: &DurabilityStats) {
    let log = &durability.log;
    page.line("aof_current_size", log.bytes);
    page.line("aof_base_size", durability.snapshot.map_or(0, |snapshot| snapshot.taken.bytes));
    page.line("aof_pending_rewrite", 0);
    page.line("aof_buffer_length", log.pending_bytes);
    page.line("aof_pending_bio_fsync", i32::from(log.durable < log.written));
    page.line("aof_delayed_fsync", durability.delays);
}

fn write_log(page: &mut Page<'_, '_>, durability: &DurabilityStats) {
    let log = &durability.log;
    page.line("log_policy", policy_name(durability.policy));
    page.line("log_appended_position", log.appended);
    page.line("log_written_position", log.written);
    page.line("log_durable_position", log.durable);
    page.line("log_first_position", log.first);
    page.line("log_segments", log.segments);
    page.line("log_bytes", log.bytes);
    page.line("log_pending_bytes", log.pending_bytes);
    page.line("log_syncs", log.syncs);
    page.line("log_last_sync_time", durability.synced_at_ms.unwrap_or(0) / 1000);
    page.line("log_last_sync_usec", log.last_sync_ns / 1000);
    page.line("log_average_sync_usec", log.sync_ns / 1000 / log.syncs.max(1));
    page.line("log_disk_full_events", log.full);
    page.line("log_error", one_line(durability.error.as_deref()));
}

fn write_snapshot(page: &mut Page<'_, '_>, durability: &DurabilityStats, state: &SnapshotState) {
    let snapshot = durability.snapshot;
    let at_ms = snapshot.and_then(|snapshot| snapshot.at_ms);
    let taken = snapshot.map(|snapshot| snapshot.taken).unwrap_or_default();
    page.line("snapshot_in_progress", i32::from(durability.snapshotting));
    page.line("snapshot_position", taken.position);
    page.line("snapshot_keys", taken.keys);
    page.line("snapshot_bytes", taken.bytes);
    page.line("snapshot_time", at_ms.unwrap_or(0) / 1000);
    page.line("snapshot_error", one_line(state.error.as_deref()));
}

fn is_running(state: &SnapshotState, purpose: Purpose) -> bool {
    running_for(state, purpose).is_some()
}

fn running_for(state: &SnapshotState, purpose: Purpose) -> Option<Duration> {
    state.running.filter(|(running, _)| *running == purpose).map(|(_, since)| since.elapsed())
}

/// Redis' way to say that there was none is -1.
fn seconds(took: Option<Duration>) -> i64 {
    took.map_or(-1, |took| i64::try_from(took.as_secs()).unwrap_or(i64::MAX))
}

fn status(good: bool) -> &'static str {
    if good { "ok" } else { "err" }
}

fn policy_name(policy: Policy) -> &'static str {
    match policy {
        Policy::Always => "always",
        Policy::EverySecond => "everysec",
        Policy::Never => "no",
    }
}

/// INFO's fields are lines.
fn one_line(error: Option<&str>) -> String {
    error.map_or(String::new(), |error| error.replace(['\r', '\n'], " "))
}
