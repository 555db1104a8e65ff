//! `millstream delayed`: lists delayed messages, cancels them, or adds them to their stream now.

use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use millstream_worker::backend::StreamId;
use millstream_worker::operate::delayed::{ChangeDelayed, DelayedChange, still_delayed};
use millstream_worker::operate::operation::{Effect, OnParts, Operate};
use millstream_worker::operate::shapes::DelayedJson;
use serde_json::json;

use super::apply::execute;
use super::confirm::Confirm;
use super::connection::CommonOptions;
use super::failure::Failure;
use super::output::{note, print, print_json, print_line};
use super::safe_text::printable;
use super::shell::suggest;
use super::table::row;
use super::target::{Part, Target};
use super::time::{format_time, now_ms, parse_id};
use super::value::{age, clipped, counted, fields_line};

pub(crate) const EXAMPLES: &str = "\
Examples:
  millstream delayed ls orders
  millstream delayed rm orders --all --dry-run
  millstream delayed now orders --all --yes

'millstream add --delay' and '--at' delay a message. Only Millstream's server and folders can delay messages.";

const LS_EXAMPLES: &str = "\
Examples:
  millstream delayed ls orders
  millstream delayed ls orders --count 20 --json";

const RM_EXAMPLES: &str = "\
Examples:
  millstream delayed rm orders --all --dry-run
  millstream delayed rm orders --all --yes

'millstream add --delay' prints the ticket of a message, and 'delayed ls' lists tickets. \
Pass tickets instead of --all to cancel only those messages.";

const NOW_EXAMPLES: &str = "\
Examples:
  millstream delayed now orders --all --dry-run
  millstream delayed now orders --all --yes

Pass tickets instead of --all to add only those messages.";

const FIELDS_CHARS_MAX: usize = 60;
/// Number of messages per call when all of them are listed or changed.
const PAGE_SIZE: usize = 1000;

#[derive(Debug, Subcommand)]
pub(crate) enum DelayedAction {
    /// List delayed messages in the order of their due times
    #[command(after_help = LS_EXAMPLES)]
    Ls(DelayedListArgs),
    /// Cancel delayed messages
    #[command(after_help = RM_EXAMPLES)]
    Rm(TicketArgs),
    /// Add delayed messages to their stream now
    #[command(after_help = NOW_EXAMPLES)]
    Now(TicketArgs),
}

#[derive(Args, Debug)]
pub(crate) struct DelayedListArgs {
    /// Stream name
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    stream: String,
    /// Maximum number of messages
    #[arg(long, value_name = "N", default_value_t = 100)]
    count: usize,
}

#[derive(Args, Debug)]
pub(crate) struct TicketArgs {
    /// Stream name
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    stream: String,
    /// Tickets of the messages; required without --all
    #[arg(value_name = "TICKET", value_parser = parse_id, conflicts_with = "all")]
    tickets: Vec<StreamId>,
    /// All delayed messages of the stream
    #[arg(long)]
    all: bool,
    /// Count the messages, without changing anything
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    confirm: Confirm,
}

/// Returns what a command does, and what it has done.
fn verbs(change: DelayedChange) -> (&'static str, &'static str) {
    match change {
        DelayedChange::Cancel => ("cancel", "cancelled"),
        DelayedChange::Promote => ("add", "added"),
    }
}

impl DelayedAction {
    pub(crate) async fn run(&self, common: &CommonOptions) -> Result<(), Failure> {
        match self {
            DelayedAction::Ls(list) => list_delayed(common, list).await,
            DelayedAction::Rm(tickets) => change(common, tickets, DelayedChange::Cancel).await,
            DelayedAction::Now(tickets) => change(common, tickets, DelayedChange::Promote).await,
        }
    }
}

async fn list_delayed(common: &CommonOptions, list: &DelayedListArgs) -> Result<(), Failure> {
    let backend = common.connect().await?;
    let target = Target::existing(&*backend, &list.stream).await?;
    let mut found = Vec::new();
    for part in &target.parts {
        let (mut listed, mut next) = (0, Some(StreamId::MIN));
        while let Some(first) = next
            && listed < list.count
        {
            let page = backend.delayed(&part.stream, first, PAGE_SIZE.min(list.count - listed)).await?;
            next = page.last().and_then(|entry| entry.id.next());
            listed += page.len();
            found.extend(page.into_iter().map(|entry| (part, entry)));
        }
    }
    found.sort_by_key(|(_, entry)| entry.id);
    found.truncate(list.count);
    if common.json {
        return print_json(
            &found.iter().map(|(part, entry)| part.mark(DelayedJson::new(entry))).collect::<Vec<_>>(),
        );
    }
    if found.is_empty() {
        note(&format!("stream {} has no delayed messages", printable(&list.stream)));
    }
    let now_ms = now_ms();
    let rows = found.iter().map(|(part, entry)| {
        let due_in = Duration::from_millis(entry.id.ms.saturating_sub(now_ms));
        let cells = row![
            entry.id.to_string(),
            format_time(entry.id.ms),
            age(due_in),
            clipped(&fields_line(&entry.fields), FIELDS_CHARS_MAX),
        ];
        (*part, cells)
    });
    print(target.table(&["TICKET", "DUE", ">IN", "FIELDS"], rows))
}

async fn change(common: &CommonOptions, args: &TicketArgs, change: DelayedChange) -> Result<(), Failure> {
    let stream = &args.stream;
    if args.tickets.is_empty() && !args.all {
        return Err(Failure::Usage(format!(
            "no messages given: pass their tickets, or --all for all delayed messages\nlist them with: {}",
            suggest("delayed ls", &[stream], "")
        )));
    }
    let backend = common.connect().await?;
    let target = Target::existing(&*backend, stream).await?;
    let parts = match args.all {
        true => target.parts.iter().map(|part| (part, None)).collect(),
        false => {
            let find = async |part: &Part| Ok(still_delayed(&*backend, &part.stream, &args.tickets).await?);
            let found = target.by_part(&args.tickets, find).await?.into_iter();
            found.map(|(part, tickets)| (part, Some(tickets))).collect::<Vec<_>>()
        }
    };
    let parts = parts.into_iter().map(|(part, tickets)| ChangeDelayed {
        stream: part.stream.clone(),
        tickets,
        change,
    });
    let operation = OnParts { name: stream.clone(), parts: parts.collect() };
    let plan = match operation.parts.is_empty() {
        true => None,
        false => Some(operation.plan(&backend, None).await?),
    };
    let (verb, verb_done) = verbs(change);
    let matched = plan.as_ref().map_or(0, |plan| plan.effect.matched());
    let asked = if args.all { matched } else { args.tickets.len() as u64 };
    if args.dry_run {
        if common.json {
            return print_json(&json!({ verb_done: 0, "matched": matched, "asked": asked, "dry_run": true }));
        }
        return print_line(&format!("would {verb} {}", messages(matched)));
    }
    if args.all && asked > 0 {
        let question = format!("{verb} {} of stream {}", messages(asked), printable(stream));
        args.confirm.ask(&question).await?;
    }
    // A message that was added or cancelled in between is left alone.
    let changed = match plan {
        Some(plan) => execute(&backend, &operation, plan, |_| {}).await?.done(),
        None => 0,
    };
    if common.json {
        print_json(&json!({ verb_done: changed, "asked": asked }))?;
    } else {
        print_line(&format!("{verb_done} {}", messages(changed)))?;
    }
    if changed == 0 && !args.all {
        return Err(Failure::NotFound(format!(
            "stream {} has no delayed message with one of these tickets: such a message was already added or cancelled\n\
             list delayed messages with: {}",
            printable(stream),
            suggest("delayed ls", &[stream], "")
        )));
    }
    Ok(())
}

fn messages(number: u64) -> String {
    counted(number, "delayed message", "delayed messages")
}
