//! `millstream dlq`: dead letters: which there are, what is in them, another chance for them, or an end.

mod redrive;
mod select;

use std::time::SystemTime;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use millstream_worker::Admin;
use millstream_worker::backend::{Range, StreamId};
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

const EXAMPLES: &str = "\
Examples:
  millstream dlq ls orders
  millstream dlq show orders 1731664200000-0
  millstream dlq redrive orders --dry-run
  millstream dlq purge orders --older-than 30d --yes";

/// Look at dead letters, give them another chance, or delete them
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Dlq {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    common: Common,
}

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
enum Action {
    /// List dead-letter streams, or the letters of one stream
    #[command(after_help = LS_EXAMPLES)]
    Ls {
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
    },
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
    Purge {
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
    },
}

impl Dlq {
    /// Whether it deals with Ctrl-C itself.
    pub(crate) fn minds_ctrl_c(&self) -> bool {
        matches!(self.action, Action::Redrive(_))
    }

    pub(crate) async fn run(&self) -> Result<(), Failure> {
        match &self.action {
            Action::Ls { stream: None, letters, selection, most } => {
                if most.is_some() || letters.are_named() || selection.filter() != Filter::default() {
                    return Err(Failure::Usage(
                        "which letters to list makes sense for one stream: name it, as in millstream dlq ls STREAM"
                            .to_owned(),
                    ));
                }
                self.list_streams().await
            }
            Action::Ls { stream: Some(stream), letters, selection, most } => {
                self.list(stream, letters, selection, most.unwrap_or(LISTED_MAX)).await
            }
            Action::Show { stream, id, letters } => self.show(stream, *id, letters).await,
            Action::Redrive(redrive) => redrive.run(&self.common).await,
            Action::Purge { stream, letters, selection, dry_run, confirm } => {
                self.purge(stream, letters, selection, *dry_run, *confirm).await
            }
        }
    }

    async fn list_streams(&self) -> Result<(), Failure> {
        let backend = self.common.connect().await?;
        let mut found = Vec::new();
        for name in backend.streams("*:dlq").await? {
            // The stream stays when its last letter has gone.
            if let Some(info) = backend.stream(&name).await?.filter(|info| info.length > 0) {
                found.push((name, info));
            }
        }
        if self.common.json {
            let told = |(name, info): &(String, millstream_worker::backend::StreamInfo)| {
                json!({
                    "dead_letters": name,
                    "length": info.length,
                    "first_entry": value::id_json(info.first_entry),
                    "last_entry": value::id_json(info.last_entry),
                })
            };
            return print_json(&found.iter().map(told).collect::<Value>());
        }
        let mut table = Table::new(&["DEAD-LETTERS", ">LENGTH", ">OLDEST", ">NEWEST"]);
        for (name, info) in &found {
            table.push(row![
                name,
                count(info.length),
                age_or_nothing(info.first_entry.and_then(age_of)),
                age_or_nothing(info.last_entry.and_then(age_of)),
            ]);
        }
        if found.is_empty() {
            note(&format!("no dead letters in {}", backend.place()));
        }
        print(&table.to_string())
    }

    async fn list(
        &self,
        stream: &str,
        letters: &Letters,
        selection: &Selection,
        most: u64,
    ) -> Result<(), Failure> {
        let backend = self.common.connect().await?;
        let name = letters.find(&*backend, stream).await?;
        select::check_named(&*backend, &name, selection).await?;
        let mut found = Vec::new();
        select::each(&*backend, &name, selection, |letter| {
            found.push(letter);
            (found.len() as u64) < most
        })
        .await?;
        if self.common.json {
            return print_json(&found.iter().map(shape::letter).collect());
        }
        let mut table = Table::new(&["ID", "ORIGIN", "GROUP", "REASON", ">DELIVERIES", ">DIED", "ERROR"]);
        for letter in &found {
            let died = SystemTime::now().duration_since(letter.dead_at).ok();
            table.push(row![
                letter.id.to_string(),
                letter.origin.to_string(),
                &letter.group,
                letter.reason.map_or("?", |reason| reason.as_str()),
                count(letter.deliveries),
                age_or_nothing(died),
                clipped(&value::text(letter.error.as_bytes()), ERROR_SHOWN),
            ]);
        }
        print(&table.to_string())
    }

    async fn show(&self, stream: &str, id: StreamId, letters: &Letters) -> Result<(), Failure> {
        let backend = self.common.connect().await?;
        let name = letters.find(&*backend, stream).await?;
        let letter = find_letter(&*backend, &name, id).await?;
        if self.common.json {
            return print_json(&shape::letter(&letter));
        }
        print(&facts(&letter).to_string())
    }

    async fn purge(
        &self,
        stream: &str,
        letters: &Letters,
        selection: &Selection,
        dry_run: bool,
        confirm: Confirm,
    ) -> Result<(), Failure> {
        let backend = self.common.connect().await?;
        let name = letters.find(&*backend, stream).await?;
        select::check_named(&*backend, &name, selection).await?;
        let mut ids = Vec::new();
        select::each(&*backend, &name, selection, |letter| {
            ids.push(letter.id);
            true
        })
        .await?;
        let mut deleted = 0;
        if !dry_run {
            let many = counted(ids.len() as u64, "dead letter", "dead letters");
            confirm.ask(&format!("{many} of {name} go for good")).await?;
            for page in ids.chunks(1000) {
                deleted += backend.delete_entries(&name, page).await?;
            }
        }
        if self.common.json {
            return print_json(&json!({
                "dead_letters": name, "matched": ids.len(), "deleted": deleted, "dry_run": dry_run,
            }));
        }
        let many = |number| counted(number, "dead letter", "dead letters");
        print_line(&match dry_run {
            true => format!("would delete {} of {name}", many(ids.len() as u64)),
            false => format!("deleted {} of {name}", many(deleted)),
        })
    }
}

/// A letter by its own id, or by that of the entry it was.
async fn find_letter(backend: &dyn Admin, name: &str, id: StreamId) -> Result<Letter, Failure> {
    if let Some(letter) = backend.range(name, Range::one(id)).await?.first().and_then(Letter::read) {
        return Ok(letter);
    }
    let (mut found, mut ids) = (None, Vec::new());
    select::each(backend, name, &Selection::default(), |letter| {
        ids.push(letter.id.to_string());
        if letter.origin == id {
            found = Some(letter);
        }
        found.is_none()
    })
    .await?;
    found.ok_or_else(|| known::missing(&format!("{name} has no letter {id}"), &ids, "it is empty"))
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
