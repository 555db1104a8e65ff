//! `millstream tail`: watches entries come, or a group at work, without joining it.

mod group;

use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use millstream_worker::Admin;
use millstream_worker::backend::{Entry, Order, Range, StreamId};

use super::connection::Common;
use super::failure::Failure;
use super::known;
use super::output::{DIM, print_json_line, print_line};
use super::shape;
use super::time::{Position, parse_position, show_moment};
use super::value::{age_of, fields_line};

/// How long one call waits for the next entry. The loop goes on for ever.
const WAIT: Duration = Duration::from_secs(1);
/// How many entries are read at once.
const PAGE: usize = 500;

const EXAMPLES: &str = "\
Examples:
  millstream tail orders
  millstream tail orders --from earliest --no-follow
  millstream tail orders --from 10m --count 100 --json --no-follow
  millstream tail orders --group billing --no-follow

With --group: what the group has yet to read and what is pending in it, and then each entry as it is added, delivered
and done. The group does not notice.";

/// Follow a stream, or a group at work, without joining it
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Tail {
    /// The stream
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    stream: String,
    /// Watch this group at work
    #[arg(long, value_name = "GROUP", conflicts_with_all = ["from", "last"])]
    group: Option<String>,
    /// Begin here: earliest, latest, an id, a moment, or how long ago
    #[arg(long, value_name = "POSITION", value_parser = parse_position)]
    from: Option<Position>,
    /// Without --from: begin with the last so many entries
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, conflicts_with = "from")]
    last: usize,
    /// End after so many lines
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// End when everything that is there has been told
    #[arg(long)]
    no_follow: bool,
    #[command(flatten)]
    common: Common,
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
        let mut after = self.begin(backend).await?;
        let mut left = self.count.unwrap_or(u64::MAX);
        while left > 0 {
            let count = PAGE.min(usize::try_from(left).unwrap_or(PAGE));
            let entries = if self.no_follow {
                let Some(first) = after.next() else { break };
                backend.range(&self.stream, Range::rising(first, count)).await?
            } else {
                backend.follow(&self.stream, after, count, WAIT).await?
            };
            entries.iter().try_for_each(|entry| self.tell(entry))?;
            left -= entries.len() as u64;
            match entries.last() {
                Some(last) => after = last.id,
                None if self.no_follow => break,
                None => {}
            }
        }
        Ok(())
    }

    /// The entry after which to begin.
    async fn begin(&self, backend: &dyn Admin) -> Result<StreamId, Failure> {
        let info = known::stream(backend, &self.stream).await?;
        Ok(match self.from {
            Some(Position::Earliest) => StreamId::MIN,
            Some(Position::Latest) => info.last_id,
            Some(Position::At(id)) => id.prev().unwrap_or(StreamId::MIN),
            None if self.last == 0 => info.last_id,
            None => {
                let range = Range { order: Order::Falling, ..Range::rising(StreamId::MIN, self.last) };
                let last = backend.range(&self.stream, range).await?;
                last.last().and_then(|entry| entry.id.prev()).unwrap_or(info.last_id)
            }
        })
    }

    fn tell(&self, entry: &Entry) -> Result<(), Failure> {
        if self.common.json {
            return print_json_line(&shape::entry(entry));
        }
        print_line(&entry_line(entry.id, &fields_line(&entry.fields)))
    }
}

/// An id, its moment and what belongs to it.
fn entry_line(id: StreamId, rest: &str) -> String {
    match age_of(id) {
        Some(_) => format!("{id}  {DIM}{}{DIM:#}  {rest}", show_moment(id.ms)),
        None => format!("{id}  {rest}"),
    }
}
