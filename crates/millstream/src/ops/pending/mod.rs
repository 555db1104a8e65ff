//! `millstream pending`: lists entries that were delivered and not acknowledged, and claims, acknowledges, releases or
//! extends them.

mod act;

use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use millstream_worker::Admin;
use millstream_worker::backend::{PendingRow, StreamId};
use millstream_worker::monitor::known_records;
use millstream_worker::retry_record::RetryRecord;

use super::confirm::Confirm;
use super::connection::CommonOptions;
use super::consumer::all_consumers;
use super::failure::Failure;
use super::group_args::GroupArgs;
use super::lookup;
use super::output::{note, print, print_json};
use super::safe_text::printable;
use super::table::{Cell, row};
use super::target::{Part, Target};
use super::time::{parse_duration, parse_id};
use super::value::{ABSENT, age, age_of, age_or_absent, clipped, count};
use millstream_worker::operate::pending::{self, PendingQuery};
use millstream_worker::operate::shapes::PendingJson;

pub(crate) const EXAMPLES: &str = "\
Examples:
  millstream pending ls orders billing
  millstream pending claim orders billing worker-1 --min-idle 5m
  millstream pending ack orders billing 1731664200000-0";

const LS_EXAMPLES: &str = "\
Examples:
  millstream pending ls orders billing
  millstream pending ls orders billing --min-idle 5m --json
  millstream pending ls orders billing --stuck
  millstream pending ls orders billing --consumer worker-1 --count 20";

const CLAIM_EXAMPLES: &str = "\
Examples:
  millstream pending claim orders billing worker-1 --min-idle 5m
  millstream pending claim orders billing worker-1 1731664200000-0

The consumer gets the claimed entries when it reads its own pending entries. Claiming counts as a delivery.
Entries that were deleted from the stream are listed, but not claimed.";

const ACK_EXAMPLES: &str = "\
Examples:
  millstream pending ack orders billing 1731664200000-0
  millstream pending ack orders billing --all --dry-run
  millstream pending ack orders billing --all --yes

An acknowledged entry is not delivered to this group again.";

const NACK_EXAMPLES: &str = "\
Examples:
  millstream pending nack orders billing 1731664200000-0";

const EXTEND_EXAMPLES: &str = "\
Examples:
  millstream pending extend orders billing 1731664200000-0

Resetting the idle time keeps other consumers from claiming the entries.";

const ERROR_CHARS_MAX: usize = 60;
/// The consumer column of a released entry.
const RELEASED: &str = "(released)";

#[derive(Debug, Subcommand)]
pub(crate) enum PendingAction {
    /// List pending entries
    #[command(after_help = LS_EXAMPLES)]
    Ls(PendingListArgs),
    /// Move idle entries to a consumer
    #[command(after_help = CLAIM_EXAMPLES)]
    Claim(ClaimArgs),
    /// Acknowledge entries without processing them
    #[command(after_help = ACK_EXAMPLES)]
    Ack(AckArgs),
    /// Release entries, so that any consumer can claim them immediately
    #[command(after_help = NACK_EXAMPLES)]
    Nack(EntryArgs),
    /// Reset the idle time of entries to zero
    #[command(after_help = EXTEND_EXAMPLES)]
    Extend(EntryArgs),
}

#[derive(Args, Debug)]
pub(crate) struct PendingListArgs {
    #[command(flatten)]
    group_args: GroupArgs,
    /// Only entries of this consumer
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
    /// Only entries that have been idle for at least this long
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    min_idle: Option<Duration>,
    /// Only entries that look stuck: delivered five times, or idle for five minutes
    #[arg(long)]
    stuck: bool,
    /// Maximum number of entries
    #[arg(long, value_name = "N", default_value_t = 100)]
    count: usize,
}

#[derive(Args, Debug)]
pub(crate) struct ClaimArgs {
    #[command(flatten)]
    group_args: GroupArgs,
    /// Consumer that takes over the entries
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    consumer: String,
    /// Ids of the entries; required without --min-idle
    #[arg(value_name = "ID", value_parser = parse_id, conflicts_with = "min_idle")]
    ids: Vec<StreamId>,
    /// Claim entries that have been idle for at least this long, or were released
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    min_idle: Option<Duration>,
    /// Maximum number of entries, with --min-idle
    #[arg(long, value_name = "N", default_value_t = 100)]
    count: usize,
}

#[derive(Args, Debug)]
pub(crate) struct AckArgs {
    #[command(flatten)]
    group_args: GroupArgs,
    /// Ids of the entries; required without --all
    #[arg(value_name = "ID", value_parser = parse_id, conflicts_with = "all")]
    ids: Vec<StreamId>,
    /// Acknowledge all pending entries
    #[arg(long)]
    all: bool,
    /// Count the entries that would be acknowledged, without acknowledging them
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    confirm: Confirm,
}

#[derive(Args, Debug)]
pub(crate) struct EntryArgs {
    #[command(flatten)]
    group_args: GroupArgs,
    /// Ids of the entries
    #[arg(value_name = "ID", value_parser = parse_id, required = true)]
    ids: Vec<StreamId>,
}

impl PendingAction {
    pub(crate) async fn run(&self, common: &CommonOptions) -> Result<(), Failure> {
        match self {
            PendingAction::Ls(list) => list.run(common).await,
            PendingAction::Claim(claim) => act::claim(common, claim).await,
            PendingAction::Ack(ack) => act::acknowledge(common, ack).await,
            PendingAction::Nack(entries) => act::release(common, entries).await,
            PendingAction::Extend(entries) => act::extend(common, entries).await,
        }
    }
}

impl PendingListArgs {
    async fn run(&self, common: &CommonOptions) -> Result<(), Failure> {
        let backend = common.connect().await?;
        let GroupArgs { stream, group } = &self.group_args;
        let target = Target::with_group(&*backend, stream, group).await?;
        if let Some(name) = &self.consumer {
            let consumers = all_consumers(&*backend, &target, group).await?;
            if !consumers.iter().any(|consumer| consumer.name == *name) {
                return Err(lookup::no_consumer(stream, group, name, &consumers));
            }
        }
        let query = PendingQuery {
            consumer: self.consumer.clone(),
            idle_min: self.min_idle,
            stuck: self.stuck,
            ..PendingQuery::default()
        };
        let (mut listed, mut pending) = (Vec::new(), 0_u64);
        for part in &target.parts {
            let rows = first_rows(&*backend, &part.stream, group, &query, self.count).await?;
            let ids: Vec<StreamId> = rows.iter().map(|row| row.id).collect();
            let (records, now_ms) = known_records(&*backend, &part.stream, group, &ids).await?;
            let records = records.into_iter().map(Option::unwrap_or_default);
            let rows = rows.into_iter().zip(records);
            listed.extend(rows.map(|(row, record)| PendingLine { part, row, record, now_ms }));
            pending = pending.saturating_add(backend.pending_summary(&part.stream, group).await?.total);
        }
        listed.sort_by_key(|listed| listed.row.id);
        listed.truncate(self.count);
        if common.json {
            let json =
                |listed: &PendingLine<'_>| listed.part.mark(PendingJson::whole(&listed.row, &listed.record));
            return print_json(&listed.iter().map(json).collect::<Vec<_>>());
        }
        let titles =
            ["ID", "CONSUMER", ">IDLE", ">DELIVERIES", ">ATTEMPTS", ">NEXT-ATTEMPT", ">AGE", "LAST-ERROR"];
        print(target.table(&titles, listed.iter().map(|listed| (listed.part, listed.cells()))))?;
        if listed.len() == self.count && pending > self.count as u64 {
            note(&format!("{} entries are pending in total; show more with --count", count(pending)));
        }
        Ok(())
    }
}

/// Returns the first pending entries that match.
async fn first_rows(
    backend: &dyn Admin,
    stream: &str,
    group: &str,
    query: &PendingQuery,
    count: usize,
) -> Result<Vec<PendingRow>, Failure> {
    // Without the condition that the store cannot check, it need not list more entries than these.
    let scan = if query.stuck { usize::MAX } else { count };
    let (mut rows, _) = pending::select(backend, stream, group, query, StreamId::MIN, scan).await?;
    rows.truncate(count);
    Ok(rows)
}

/// A pending entry, as `pending ls` shows it.
struct PendingLine<'a> {
    part: &'a Part,
    row: PendingRow,
    record: RetryRecord,
    /// The time of the store.
    now_ms: u64,
}

impl PendingLine<'_> {
    fn cells(&self) -> Vec<Cell> {
        let PendingLine { row, record, now_ms, .. } = self;
        row![
            row.id.to_string(),
            row.consumer.as_deref().unwrap_or(RELEASED),
            age_or_absent(row.idle),
            count(row.deliveries),
            count(record.attempts),
            next_attempt(record, *now_ms),
            age_or_absent(age_of(row.id)),
            clipped(&printable(&record.error), ERROR_CHARS_MAX),
        ]
    }
}

/// Returns the time until the next attempt, `due` if that time has come, or [`ABSENT`] if there is none.
fn next_attempt(record: &RetryRecord, now_ms: u64) -> String {
    match record.due_at_ms {
        0 => ABSENT.to_owned(),
        due if due <= now_ms => "due".to_owned(),
        due => format!("in {}", age(Duration::from_millis(due - now_ms))),
    }
}
