//! `millstream dlq`: dead letters: which there are, what is in them, another chance for them, or an end.

mod redrive;
mod select;

use std::time::SystemTime;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use millstream_worker::Admin;
use millstream_worker::backend::{Range, StreamId, StreamInfo};
use millstream_worker::dead_letter::Letter;
use millstream_worker::redrive::Filter;
use serde_json::{Value, json};

use self::select::{Letters, Selection};
use super::confirm::Confirm;
use super::connection::Common;
use super::failure::Failure;
use super::known;
use super::output::{note, print, print_json, print_line};
use super::shape;
use super::table::{Facts, Table, row};
use super::time::{parse_id, show_moment};
use super::value::{self, age_of, age_or_nothing, clipped, count, counted};

/// How many letters are listed if nothing else is said.
const LISTED_MAX: u64 = 100;
/// How much of an error a table shows.
const ERROR_SHOWN: usize = 60;

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
  millstream dlq ls orders --reason max_deliveries --error timeout --count 20 --json";

const SHOW_EXAMPLES: &str = "\
Examples:
  millstream dlq show orders 1731664200000-0
  millstream dlq show orders 1731664200000-0 --json

The id is the letter's own or that of the entry it was.";

const PURGE_EXAMPLES: &str = "\
Examples:
  millstream dlq purge orders --dry-run
  millstream dlq purge orders --older-than 30d --yes";

#[derive(Debug, Subcommand)]
pub(crate) enum DlqAction {
    /// List dead-letter streams, or the letters of one stream
    #[command(after_help = LS_EXAMPLES)]
    Ls(ListLetters),
    /// Tell all about one letter
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// The stream the letter comes from
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        stream: String,
        /// The letter
        #[arg(value_parser = parse_id)]
        id: StreamId,
        #[command(flatten)]
        letters: Letters,
    },
    /// Give letters another chance, back to the group they ended for
    #[command(after_help = redrive::EXAMPLES)]
    Redrive(redrive::RedriveCommand),
    /// Delete letters for good
    #[command(after_help = PURGE_EXAMPLES)]
    Purge(Purge),
}

#[derive(Args, Debug)]
pub(crate) struct ListLetters {
    /// The stream the letters come from; without it, where letters are
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    stream: Option<String>,
    #[command(flatten)]
    letters: Letters,
    #[command(flatten)]
    selection: Selection,
    /// The most letters [default: 100]
    #[arg(long = "count", value_name = "N")]
    most: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct Purge {
    /// The stream the letters come from
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    stream: String,
    #[command(flatten)]
    letters: Letters,
    #[command(flatten)]
    selection: Selection,
    /// Only count what would go
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    confirm: Confirm,
}

impl DlqAction {
    /// Whether it deals with Ctrl-C itself.
    pub(crate) fn minds_ctrl_c(&self) -> bool {
        matches!(self, DlqAction::Redrive(_))
    }

    pub(crate) async fn run(&self, common: &Common) -> Result<(), Failure> {
        match self {
            DlqAction::Ls(list) => list.run(common).await,
            DlqAction::Show { stream, id, letters } => show(common, stream, *id, letters).await,
            DlqAction::Redrive(redrive) => redrive.run(common).await,
            DlqAction::Purge(purge) => purge.run(common).await,
        }
    }
}

impl ListLetters {
    async fn run(&self, common: &Common) -> Result<(), Failure> {
        if let Some(stream) = &self.stream {
            return self.list(common, stream).await;
        }
        if self.most.is_some() || self.letters.are_named() || self.selection.filter() != Filter::default() {
            return Err(Failure::Usage(
                "which letters to list makes sense for one stream: name it, as in millstream dlq ls STREAM"
                    .to_owned(),
            ));
        }
        list_streams(common).await
    }

    async fn list(&self, common: &Common, stream: &str) -> Result<(), Failure> {
        let backend = common.connect().await?;
        let name = self.letters.find(&*backend, stream, &self.selection).await?;
        let most = self.most.unwrap_or(LISTED_MAX);
        let mut found = Vec::new();
        select::each(&*backend, &name, &self.selection, |letter| {
            found.push(letter);
            (found.len() as u64) < most
        })
        .await?;
        if common.json {
            return print_json(&found.iter().map(shape::letter).collect());
        }
        let rows = found.iter().map(|letter| {
            row![
                letter.id.to_string(),
                letter.origin.to_string(),
                &letter.group,
                letter.reason.map_or("?", |reason| reason.as_str()),
                count(letter.deliveries),
                age_or_nothing(SystemTime::now().duration_since(letter.dead_at).ok()),
                clipped(&value::text(letter.error.as_bytes()), ERROR_SHOWN),
            ]
        });
        print(Table::new(&["ID", "ORIGIN", "GROUP", "REASON", ">DELIVERIES", ">DIED", "ERROR"], rows))
    }
}

async fn list_streams(common: &Common) -> Result<(), Failure> {
    let backend = common.connect().await?;
    let mut found = known::streams(&*backend, "*:dlq").await?;
    // The stream stays when its last letter has gone.
    found.retain(|(_, info)| info.length > 0);
    if common.json {
        let told = |(name, info): &(String, StreamInfo)| {
            json!({
                "dead_letters": name,
                "length": info.length,
                "first_entry": info.first_entry.map(|id| id.to_string()),
                "last_entry": info.last_entry.map(|id| id.to_string()),
            })
        };
        return print_json(&found.iter().map(told).collect::<Value>());
    }
    if found.is_empty() {
        note(&format!("no dead letters in {}", backend.place()));
    }
    let rows = found.iter().map(|(name, info)| {
        row![
            name,
            count(info.length),
            age_or_nothing(info.first_entry.and_then(age_of)),
            age_or_nothing(info.last_entry.and_then(age_of)),
        ]
    });
    print(Table::new(&["DEAD-LETTERS", ">LENGTH", ">OLDEST", ">NEWEST"], rows))
}

async fn show(common: &Common, stream: &str, id: StreamId, letters: &Letters) -> Result<(), Failure> {
    let backend = common.connect().await?;
    let name = letters.find(&*backend, stream, &Selection::default()).await?;
    let letter = find_letter(&*backend, &name, id).await?;
    if common.json { print_json(&shape::letter(&letter)) } else { print(facts(&letter)) }
}

impl Purge {
    async fn run(&self, common: &Common) -> Result<(), Failure> {
        let backend = common.connect().await?;
        let name = self.letters.find(&*backend, &self.stream, &self.selection).await?;
        let mut ids = Vec::new();
        select::each(&*backend, &name, &self.selection, |letter| {
            ids.push(letter.id);
            true
        })
        .await?;
        let many = |number| counted(number, "dead letter", "dead letters");
        let (matched, mut deleted) = (ids.len() as u64, 0);
        if !self.dry_run {
            self.confirm.ask(&format!("{} of {name} go for good", many(matched))).await?;
            for page in ids.chunks(1000) {
                deleted += backend.delete_entries(&name, page).await?;
            }
        }
        if common.json {
            return print_json(&json!({
                "dead_letters": name, "matched": matched, "deleted": deleted, "dry_run": self.dry_run,
            }));
        }
        print_line(&match self.dry_run {
            true => format!("would delete {} of {name}", many(matched)),
            false => format!("deleted {} of {name}", many(deleted)),
        })
    }
}

/// A letter by its own id, or by that of the entry it was.
async fn find_letter(backend: &dyn Admin, name: &str, id: StreamId) -> Result<Letter, Failure> {
    match backend.range(name, Range::one(id)).await?.first().and_then(Letter::read) {
        Some(letter) => Ok(letter),
        None => select::first_named(backend, name, &[id]).await,
    }
}

fn facts(letter: &Letter) -> Facts {
    let shown = |text: &str| value::text(text.as_bytes());
    let moment = |time| show_moment(value::millis_since_epoch(time));
    let mut facts = Facts::default();
    facts.push("id", letter.id.to_string());
    facts.push("stream", &letter.stream);
    facts.push("origin", letter.origin.to_string());
    facts.push("group", &letter.group);
    facts.push("consumer", &letter.consumer);
    facts.push("deliveries", count(letter.deliveries));
    facts.push("reason", letter.reason.map_or("?", |reason| reason.as_str()));
    facts.push("error", shown(&letter.error));
    facts.push("error type", shown(&letter.error_type));
    facts.push("first seen", moment(letter.first_seen));
    facts.push("dead at", moment(letter.dead_at));
    facts.push("redrives", count(letter.redrives));
    for (name, value) in &letter.fields {
        facts.push(format!("field {}", value::text(name)), value::text(value));
    }
    facts
}
