//! `millstream dlq`: lists, shows, redrives and deletes dead letters.

mod redrive;
mod select;

use std::time::SystemTime;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use millstream_worker::Admin;
use millstream_worker::backend::{IdOrder, Range, StreamId};
use millstream_worker::dead_letter::DeadLetter;
use millstream_worker::operate::dead_letters::{DeadLetterSource, PurgeDeadLetters, reason_of};
use millstream_worker::operate::operation::{Effect, EffectAnswer, OnParts, Operate};
use millstream_worker::operate::shapes::{DeadLetterJson, DeadLetterStreamJson};
use millstream_worker::redrive::{Filter, count_redrives};
use serde_json::Value;

use self::select::{DeadLetterStream, Selection};
use super::apply::apply_plan;
use super::confirm::Confirm;
use super::connection::CommonOptions;
use super::failure::Failure;
use super::lookup;
use super::output::{note, print, print_json, print_line};
use super::safe_text::printable;
use super::table::{Properties, Table, row};
use super::target::Part;
use super::time::{format_time, parse_id};
use super::value::{self, ABSENT, age_of, age_or_absent, clipped, count, counted};

/// Number of dead letters that `dlq ls` lists without `--count`.
const DEFAULT_COUNT: u64 = 100;
const ERROR_CHARS_MAX: usize = 60;

pub(crate) const EXAMPLES: &str = "\
Examples:
  millstream dlq ls orders
  millstream dlq show orders 1731664200000-0
  millstream dlq redrive orders --dry-run
  millstream dlq purge orders --older-than 30d --yes";

const LS_EXAMPLES: &str = "\
Examples:
  millstream dlq ls
  millstream dlq ls orders
  millstream dlq ls orders --dlq '{orders}:dlq' --field-map id=original_id,error=why
  millstream dlq ls orders --reason max_attempts --error timeout --count 20 --json";

const SHOW_EXAMPLES: &str = "\
Examples:
  millstream dlq show orders 1731664200000-0
  millstream dlq show orders 1731664200000-0 --json";

const PURGE_EXAMPLES: &str = "\
Examples:
  millstream dlq purge orders --dry-run
  millstream dlq purge orders --older-than 30d --yes";

#[derive(Debug, Subcommand)]
pub(crate) enum DlqAction {
    /// List dead-letter streams, or the dead letters of one stream
    #[command(after_help = LS_EXAMPLES)]
    Ls(DlqListArgs),
    /// Show one dead letter in full
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// Stream that the dead letter comes from
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        stream: String,
        /// Id of the dead letter, or of its original entry
        #[arg(value_parser = parse_id)]
        id: StreamId,
        #[command(flatten)]
        dlq: DeadLetterStream,
    },
    /// Move dead letters back to their group
    #[command(after_help = redrive::EXAMPLES)]
    Redrive(redrive::RedriveArgs),
    /// Delete dead letters permanently
    #[command(after_help = PURGE_EXAMPLES)]
    Purge(PurgeArgs),
}

#[derive(Args, Debug)]
pub(crate) struct DlqListArgs {
    /// Stream that the dead letters come from [default: list all dead-letter streams]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    stream: Option<String>,
    #[command(flatten)]
    dlq: DeadLetterStream,
    #[command(flatten)]
    selection: Selection,
    /// Maximum number of dead letters [default: 100]
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// List the newest dead letters first, instead of the oldest
    #[arg(long, requires = "stream")]
    newest: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PurgeArgs {
    /// Stream that the dead letters come from
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    stream: String,
    #[command(flatten)]
    dlq: DeadLetterStream,
    #[command(flatten)]
    selection: Selection,
    /// Count the dead letters that would be deleted, without deleting them
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    confirm: Confirm,
}

impl DlqAction {
    /// Whether the action handles Ctrl-C itself.
    pub(crate) fn handles_ctrl_c(&self) -> bool {
        matches!(self, DlqAction::Redrive(_))
    }

    pub(crate) async fn run(&self, common: &CommonOptions) -> Result<(), Failure> {
        match self {
            DlqAction::Ls(list) => list.run(common).await,
            DlqAction::Show { stream, id, dlq } => show(common, stream, *id, dlq).await,
            DlqAction::Redrive(redrive) => redrive.run(common).await,
            DlqAction::Purge(purge) => purge.run(common).await,
        }
    }
}

impl DlqListArgs {
    async fn run(&self, common: &CommonOptions) -> Result<(), Failure> {
        if let Some(stream) = &self.stream {
            return self.list(common, stream).await;
        }
        if self.count.is_some() || self.dlq.is_named() || self.selection.filter() != Filter::default() {
            return Err(Failure::Usage(
                "--count, --dlq, --field-map and the filters need a stream: millstream dlq ls STREAM"
                    .to_owned(),
            ));
        }
        list_streams(common).await
    }

    async fn list(&self, common: &CommonOptions, stream: &str) -> Result<(), Failure> {
        let backend = common.connect().await?;
        let sources = self.dlq.find(&*backend, stream, &self.selection).await?;
        let limit = self.count.unwrap_or(DEFAULT_COUNT);
        let order = if self.newest { IdOrder::Descending } else { IdOrder::Ascending };
        let mut found: Vec<(&Part, DeadLetter)> = Vec::new();
        for (part, source) in &sources.sources {
            let mut dead_letters = Vec::new();
            let visit = |dead_letter| {
                dead_letters.push(dead_letter);
                (dead_letters.len() as u64) < limit
            };
            source.for_each_in(&*backend, &self.selection.filter(), order, visit).await?;
            count_redrives(&*backend, &mut dead_letters).await;
            found.extend(dead_letters.into_iter().map(|dead_letter| (part, dead_letter)));
        }
        found.sort_by_key(|(_, dead_letter)| dead_letter.id);
        if self.newest {
            found.reverse();
        }
        found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        if common.json {
            return print_json(
                &found
                    .iter()
                    .map(|(part, dead_letter)| part.mark(DeadLetterJson::new(dead_letter)))
                    .collect::<Value>(),
            );
        }
        let rows = found.iter().map(|(part, dead_letter)| {
            let cells = row![
                dead_letter.id.to_string(),
                dead_letter.origin.map_or_else(|| ABSENT.to_owned(), |id| id.to_string()),
                or_absent(&dead_letter.group),
                or_absent(reason_of(dead_letter)),
                if dead_letter.deliveries == 0 { ABSENT.to_owned() } else { count(dead_letter.deliveries) },
                age_or_absent(SystemTime::now().duration_since(dead_letter.dead_at).ok()),
                clipped(&printable(&dead_letter.error), ERROR_CHARS_MAX),
            ];
            (*part, cells)
        });
        let titles = ["ID", "ORIGIN", "GROUP", "REASON", ">DELIVERIES", ">AGE", "ERROR"];
        print(sources.target.table(&titles, rows))
    }
}

async fn list_streams(common: &CommonOptions) -> Result<(), Failure> {
    let backend = common.connect().await?;
    let mut found = lookup::streams(&*backend, "*:dlq").await?;
    // A dead-letter stream still exists after its last dead letter was removed.
    found.retain(|(_, info)| info.length > 0);
    if common.json {
        return print_json(
            &found
                .iter()
                .map(|(name, info)| DeadLetterStreamJson::new(name, info.length, info))
                .collect::<Vec<_>>(),
        );
    }
    if found.is_empty() {
        note(&format!("no dead letters in {}", backend.location()));
    }
    let rows = found.iter().map(|(name, info)| {
        row![
            name,
            count(info.length),
            age_or_absent(info.first_entry.and_then(age_of)),
            age_or_absent(info.last_entry.and_then(age_of)),
        ]
    });
    print(Table::new(&["DEAD-LETTERS", ">LENGTH", ">OLDEST", ">NEWEST"], rows))
}

async fn show(
    common: &CommonOptions,
    stream: &str,
    id: StreamId,
    dlq: &DeadLetterStream,
) -> Result<(), Failure> {
    let backend = common.connect().await?;
    let sources = dlq.find(&*backend, stream, &Selection::default()).await?;
    let (part, source) = match sources.target.has_partitions() {
        true => sources.with_ids(&*backend, &[id]).await?[0],
        false => &sources.sources[0],
    };
    let mut dead_letter = find_dead_letter(&*backend, source, id).await?;
    count_redrives(&*backend, std::slice::from_mut(&mut dead_letter)).await;
    if common.json {
        print_json(&part.mark(DeadLetterJson::new(&dead_letter)))
    } else {
        print(properties(&dead_letter))
    }
}

impl PurgeArgs {
    async fn run(&self, common: &CommonOptions) -> Result<(), Failure> {
        let backend = common.connect().await?;
        let sources = self.dlq.find(&*backend, &self.stream, &self.selection).await?;
        let name = sources.name();
        let operation = OnParts {
            name: name.clone(),
            parts: sources
                .sources
                .into_iter()
                .map(|(_, source)| PurgeDeadLetters { source, filter: self.selection.filter() })
                .collect(),
        };
        let plan = operation.plan(&backend, None).await?;
        let described =
            |number| format!("{} of {}", counted(number, "dead letter", "dead letters"), printable(&name));
        let (matched, mut effect) = (plan.effect.matched(), plan.effect.clone());
        if !self.dry_run {
            self.confirm.ask(&format!("permanently delete {}", described(matched))).await?;
            effect = apply_plan(&backend, &operation, &plan, false).await?;
        }
        let deleted = effect.done();
        if common.json {
            return print_json(&EffectAnswer::without_preview(effect, self.dry_run));
        }
        print_line(&match self.dry_run {
            true => format!("would delete {}", described(matched)),
            false => format!("deleted {}", described(deleted)),
        })
    }
}

/// Returns the dead letter with this id, or whose original entry had this id.
async fn find_dead_letter(
    backend: &dyn Admin,
    source: &DeadLetterSource,
    id: StreamId,
) -> Result<DeadLetter, Failure> {
    let found = backend.range(&source.name, Range::single(id)).await?;
    match found.first().and_then(|entry| source.format.read(entry)) {
        Some(dead_letter) => Ok(dead_letter),
        None => select::find_by_id(backend, source, &[id]).await,
    }
}

fn or_absent(text: &str) -> &str {
    if text.is_empty() { ABSENT } else { text }
}

fn properties(dead_letter: &DeadLetter) -> Properties {
    let time = |time| format_time(value::millis_since_epoch(time));
    let mut properties = Properties::default();
    let mut push = |name: &str, value: String| {
        properties.push(name, if value.is_empty() { ABSENT.to_owned() } else { value })
    };
    push("id", dead_letter.id.to_string());
    push("stream", dead_letter.stream.clone());
    push("origin", dead_letter.origin.map(|id| id.to_string()).unwrap_or_default());
    push("group", dead_letter.group.clone());
    push("consumer", dead_letter.consumer.clone());
    push(
        "deliveries",
        if dead_letter.deliveries == 0 { String::new() } else { count(dead_letter.deliveries) },
    );
    push("reason", reason_of(dead_letter).to_owned());
    push("error", dead_letter.error.clone());
    push("error type", dead_letter.error_type.clone());
    push("first seen", dead_letter.first_seen.map(time).unwrap_or_default());
    push("dead at", time(dead_letter.dead_at));
    push("redrives", count(dead_letter.redrives));
    for (name, value) in &dead_letter.fields {
        properties.push(format!("field {}", printable(name)), printable(value));
    }
    properties
}
