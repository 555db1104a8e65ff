//! `millstream pending`: what was delivered and not acknowledged, and what can be done about it.

mod act;

use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use millstream_worker::backend::{PendingFilter, PendingRow, StreamId};

use super::confirm::Confirm;
use super::connection::Common;
use super::failure::Failure;
use super::known;
use super::named::NamedGroup;
use super::output::{note, print, print_json};
use super::shape;
use super::table::{Table, row};
use super::time::{parse_duration, parse_id};
use super::value::{age_of, age_or_nothing, count};

pub(crate) const EXAMPLES: &str = "\
Examples:
  millstream pending ls orders billing
  millstream pending claim orders billing worker-1 --min-idle 5m
  millstream pending ack orders billing 1731664200000-0";

const LS_EXAMPLES: &str = "\
Examples:
  millstream pending ls orders billing
  millstream pending ls orders billing --min-idle 5m --json
  millstream pending ls orders billing --consumer worker-1 --count 20";

const CLAIM_EXAMPLES: &str = "\
Examples:
  millstream pending claim orders billing worker-1 --min-idle 5m

The consumer finds the entries when it asks for its own pending entries. Claiming counts as a delivery.
Entries that are gone from the stream are listed and stay where they are.";

const ACK_EXAMPLES: &str = "\
Examples:
  millstream pending ack orders billing 1731664200000-0
  millstream pending ack orders billing --all --dry-run
  millstream pending ack orders billing --all --yes

Acknowledged entries are done with: no consumer gets them again.";

const NACK_EXAMPLES: &str = "\
Examples:
  millstream pending nack orders billing 1731664200000-0

The entries can be claimed by anyone at once.";

const EXTEND_EXAMPLES: &str = "\
Examples:
  millstream pending extend orders billing 1731664200000-0

The idle time begins anew, so that nobody claims the entries yet.";

/// What stands in the place of the consumer of a row that was released.
const RELEASED: &str = "(released)";

#[derive(Debug, Subcommand)]
pub(crate) enum PendingAction {
    /// List pending entries
    #[command(after_help = LS_EXAMPLES)]
    Ls(List),
    /// Give entries that nobody has touched for long to a consumer
    #[command(after_help = CLAIM_EXAMPLES)]
    Claim(Claim),
    /// Acknowledge entries by hand
    #[command(after_help = ACK_EXAMPLES)]
    Ack(Ack),
    /// Give entries back, for anyone to claim at once
    #[command(after_help = NACK_EXAMPLES)]
    Nack(Rows),
    /// Begin the idle time of entries anew
    #[command(after_help = EXTEND_EXAMPLES)]
    Extend(Rows),
}

#[derive(Args, Debug)]
pub(crate) struct List {
    #[command(flatten)]
    of: NamedGroup,
    /// Only those of this consumer
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
    /// Only those that nobody has touched for so long
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    min_idle: Option<Duration>,
    /// The most entries
    #[arg(long, value_name = "N", default_value_t = 100)]
    count: usize,
}

#[derive(Args, Debug)]
pub(crate) struct Claim {
    #[command(flatten)]
    of: NamedGroup,
    /// Who gets them
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    consumer: String,
    /// Those that nobody has touched for so long
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    min_idle: Duration,
    /// The most entries
    #[arg(long, value_name = "N", default_value_t = 100)]
    count: usize,
}

#[derive(Args, Debug)]
pub(crate) struct Ack {
    #[command(flatten)]
    of: NamedGroup,
    /// The entries, unless --all is said
    #[arg(value_name = "ID", value_parser = parse_id, conflicts_with = "all")]
    ids: Vec<StreamId>,
    /// Everything that is pending
    #[arg(long)]
    all: bool,
    /// Only count what would be acknowledged
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    confirm: Confirm,
}

#[derive(Args, Debug)]
pub(crate) struct Rows {
    #[command(flatten)]
    of: NamedGroup,
    /// The entries
    #[arg(value_name = "ID", value_parser = parse_id, required = true)]
    ids: Vec<StreamId>,
}

impl PendingAction {
    pub(crate) async fn run(&self, common: &Common) -> Result<(), Failure> {
        match self {
            PendingAction::Ls(list) => list.run(common).await,
            PendingAction::Claim(claim) => act::claim(common, claim).await,
            PendingAction::Ack(ack) => act::acknowledge(common, ack).await,
            PendingAction::Nack(rows) => act::give_back(common, rows).await,
            PendingAction::Extend(rows) => act::extend(common, rows).await,
        }
    }
}

impl List {
    async fn run(&self, common: &Common) -> Result<(), Failure> {
        let backend = common.connect().await?;
        let NamedGroup { stream, group } = &self.of;
        let info = known::group(&*backend, stream, group).await?;
        if let Some(consumer) = &self.consumer {
            known::consumer(&*backend, stream, group, consumer).await?;
        }
        let filter = PendingFilter {
            consumer: self.consumer.clone(),
            min_idle: self.min_idle,
            ..PendingFilter::rising(StreamId::MIN, self.count)
        };
        let rows = backend.pending(stream, group, &filter).await?;
        if common.json {
            return print_json(&rows.iter().map(shape::pending).collect());
        }
        print(table(&rows))?;
        if rows.len() == self.count && info.pending > self.count as u64 {
            note(&format!("{} are pending in all; see more with --count", count(info.pending)));
        }
        Ok(())
    }
}

fn table(rows: &[PendingRow]) -> Table {
    let cells = |row: &PendingRow| {
        row![
            row.id.to_string(),
            row.consumer.as_deref().unwrap_or(RELEASED),
            age_or_nothing(row.idle),
            count(row.deliveries),
            age_or_nothing(age_of(row.id)),
        ]
    };
    Table::new(&["ID", "CONSUMER", ">IDLE", ">DELIVERIES", ">AGE"], rows.iter().map(cells))
}
