//! `millstream tail`: follows the entries of a stream, or the progress of a group without joining it.

mod group;

use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use millstream_worker::Admin;
use millstream_worker::backend::{Entry, IdOrder, Range, StreamId};

use super::connection::CommonOptions;
use super::failure::Failure;
use super::lookup;
use super::output::{DIM, print, print_json_line};
use super::time::{Position, format_time, parse_position};
use super::value::{age_of, fields_line};
use millstream_worker::operate::shapes;

/// Maximum time that one call waits for the next entry. The command then calls again.
const WAIT: Duration = Duration::from_secs(1);
/// Maximum number of entries read per call.
const PAGE: usize = 500;

const EXAMPLES: &str = "\
Examples:
  millstream tail orders
  millstream tail orders --from earliest --no-follow
  millstream tail orders --from 10m --count 100 --json --no-follow
  millstream tail orders --group billing --no-follow

With --group, the command first prints the pending and the unread entries of the group, then each entry as it is added, \
delivered and acknowledged. The group is not affected.";

/// Follow the entries of a stream, or the progress of a group
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Tail {
    /// Stream name
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    stream: String,
    /// Show the unread and pending entries and the progress of this group
    #[arg(long, value_name = "GROUP", conflicts_with_all = ["from", "last"])]
    group: Option<String>,
    /// Position to start at: earliest, latest, an id, a time, or a duration before now such as 10m
    #[arg(long, value_name = "POSITION", value_parser = parse_position)]
    from: Option<Position>,
    /// Without --from, start with the last N entries
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, conflicts_with = "from")]
    last: usize,
    /// Exit after N lines
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Exit after the existing entries instead of waiting for new ones
    #[arg(long)]
    no_follow: bool,
    #[command(flatten)]
    common: CommonOptions,
}

impl Tail {
    pub(crate) async fn run(&self) -> Result<(), Failure> {
        let backend = self.common.connect().await?;
        match &self.group {
            Some(group) => group::follow(self, backend, group).await,
            None => self.follow(&*backend).await,
        }
    }

    async fn follow(&self, backend: &dyn Admin) -> Result<(), Failure> {
        let mut after = self.start(backend).await?;
        let mut left = self.count.unwrap_or(u64::MAX);
        while left > 0 {
            let count = PAGE.min(usize::try_from(left).unwrap_or(PAGE));
            let entries = if self.no_follow {
                let Some(first) = after.next() else { break };
                backend.range(&self.stream, Range::starting_at(first, count)).await?
            } else {
                backend.follow(&self.stream, after, count, WAIT).await?
            };
            entries.iter().try_for_each(|entry| self.print(entry))?;
            left -= entries.len() as u64;
            match entries.last() {
                Some(last) => after = last.id,
                None if self.no_follow => break,
                None => {}
            }
        }
        Ok(())
    }

    /// Returns the id after which to start.
    async fn start(&self, backend: &dyn Admin) -> Result<StreamId, Failure> {
        let info = lookup::stream(backend, &self.stream).await?;
        Ok(match self.from {
            Some(Position::Earliest) => StreamId::MIN,
            Some(Position::Latest) => info.last_id,
            Some(Position::At(id)) => id.prev().unwrap_or(StreamId::MIN),
            None if self.last == 0 => info.last_id,
            None => {
                let range =
                    Range { order: IdOrder::Descending, ..Range::starting_at(StreamId::MIN, self.last) };
                let last = backend.range(&self.stream, range).await?;
                last.last().and_then(|entry| entry.id.prev()).unwrap_or(info.last_id)
            }
        })
    }

    fn print(&self, entry: &Entry) -> Result<(), Failure> {
        if self.common.json {
            return print_json_line(&shapes::entry(entry));
        }
        print(format_args!("{}\n", entry_line(entry.id, &fields_line(&entry.fields))))
    }
}

/// Formats an id, its time if it has one, and more text on one line.
fn entry_line(id: StreamId, rest: &str) -> String {
    match age_of(id) {
        Some(_) => format!("{id}  {DIM}{}{DIM:#}  {rest}", format_time(id.ms)),
        None => format!("{id}  {rest}"),
    }
}
