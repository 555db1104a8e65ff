//! `millstream tail`: follows the entries of a stream, or the progress of a group without joining it.

mod group;

use std::collections::VecDeque;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use millstream_worker::Admin;
use millstream_worker::backend::{Entry, IdOrder, Range, StreamId};

use super::connection::CommonOptions;
use super::failure::Failure;
use super::output::{DIM, print, print_json_line};
use super::safe_text::printable;
use super::target::{Part, Target};
use super::time::{Position, format_time, parse_position};
use super::value::{age_of, fields_line};
use millstream_worker::operate::shapes::EntryJson;

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
delivered and acknowledged. The group is not affected.
If the stream has partitions, the entries of all of them are merged in the order of their ids. --group then needs one \
of them, such as orders/3.";

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
        let target = Target::existing(&*backend, &self.stream).await?;
        match &self.group {
            Some(group) => {
                target.refuse_partitions("--group follows one stream")?;
                group::follow(self, backend, &target.parts[0].stream, group).await
            }
            None => self.follow(&*backend, &target).await,
        }
    }

    /// Prints the entries of all streams in the order of their ids, as far as they exist when they are read.
    async fn follow(&self, backend: &dyn Admin, target: &Target) -> Result<(), Failure> {
        let mut after = self.start(backend, target).await?;
        let mut found: Vec<VecDeque<Entry>> = target.parts.iter().map(|_| VecDeque::new()).collect();
        let mut left = self.count.unwrap_or(u64::MAX);
        while left > 0 {
            for (at, part) in target.parts.iter().enumerate() {
                if let (true, Some(first)) = (found[at].is_empty(), after[at].next()) {
                    let count = PAGE.min(usize::try_from(left).unwrap_or(PAGE));
                    let page = backend.range(&part.stream, Range::starting_at(first, count)).await?;
                    after[at] = page.last().map_or(after[at], |last| last.id);
                    found[at].extend(page);
                }
            }
            // A stream whose entries are all printed can have more that come before those of others: read it again.
            let mut printed = false;
            let next = |found: &[VecDeque<Entry>]| {
                let heads = found.iter().enumerate().filter_map(|(at, found)| Some((found.front()?.id, at)));
                heads.min().map(|(_, at)| at)
            };
            while let Some(at) = next(&found).filter(|_| left > 0) {
                let Some(entry) = found[at].pop_front() else { break };
                self.print(target, &target.parts[at], &entry)?;
                (left, printed) = (left - 1, true);
                if found[at].is_empty() {
                    break;
                }
            }
            if !printed && self.no_follow {
                break;
            }
            if !printed {
                self.wait(backend, target, &mut after, &mut found).await?;
            }
        }
        Ok(())
    }

    /// Waits for new entries, or until there may be some.
    async fn wait(
        &self,
        backend: &dyn Admin,
        target: &Target,
        after: &mut [StreamId],
        found: &mut [VecDeque<Entry>],
    ) -> Result<(), Failure> {
        let ([part], [after], [found]) = (&target.parts[..], after, found) else {
            // To wait for several streams takes as many connections.
            tokio::time::sleep(WAIT / 4).await;
            return Ok(());
        };
        found.extend(backend.follow(&part.stream, *after, PAGE, WAIT).await?);
        *after = found.back().map_or(*after, |last| last.id);
        Ok(())
    }

    /// Returns the id in each stream after which to start.
    async fn start(&self, backend: &dyn Admin, target: &Target) -> Result<Vec<StreamId>, Failure> {
        let (mut after, mut last) = (Vec::new(), Vec::new());
        for (at, part) in target.parts.iter().enumerate() {
            // A partition can be gone until the next message creates it again.
            let last_id = backend.stream(&part.stream).await?.map_or(StreamId::MIN, |info| info.last_id);
            after.push(match self.from {
                Some(Position::Earliest) => StreamId::MIN,
                Some(Position::At(id)) => id.prev().unwrap_or(StreamId::MIN),
                Some(Position::Latest) | None => last_id,
            });
            if self.from.is_none() && self.last > 0 {
                let range =
                    Range { order: IdOrder::Descending, ..Range::starting_at(StreamId::MIN, self.last) };
                last.extend(backend.range(&part.stream, range).await?.iter().map(|entry| (entry.id, at)));
            }
        }
        // Each stream starts with the oldest of its entries that are among the last of all.
        last.sort_unstable();
        for (id, at) in last.into_iter().rev().take(self.last) {
            after[at] = id.prev().unwrap_or(StreamId::MIN);
        }
        Ok(after)
    }

    fn print(&self, target: &Target, part: &Part, entry: &Entry) -> Result<(), Failure> {
        if self.common.json {
            return print_json_line(&part.mark(EntryJson::new(entry)));
        }
        let fields = fields_line(&entry.fields);
        let line = match part.number {
            None => fields,
            Some(_) => format!("{}  {fields}", printable(target.label(part))),
        };
        print(format_args!("{}\n", entry_line(entry.id, &line)))
    }
}

/// Formats an id, its time if it has one, and more text on one line.
fn entry_line(id: StreamId, rest: &str) -> String {
    match age_of(id) {
        Some(_) => format!("{id}  {DIM}{}{DIM:#}  {rest}", format_time(id.ms)),
        None => format!("{id}  {rest}"),
    }
}
