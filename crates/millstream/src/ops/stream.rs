//! `millstream stream`: which streams there are, and what is in one.

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use millstream_worker::monitor::{Monitor, StreamSnapshot};
use serde_json::{Value, json};

use super::connection::Common;
use super::failure::Failure;
use super::known;
use super::output::{note, print, print_json};
use super::shape;
use super::table::{Facts, Table, row};
use super::time::show_moment;
use super::value::{NOTHING, age_of, age_or_nothing, count};

const EXAMPLES: &str = "\
Examples:
  millstream stream ls
  millstream stream info orders";

/// Look at streams
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Stream {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    common: Common,
}

const LS_EXAMPLES: &str = "\
Examples:
  millstream stream ls
  millstream stream ls 'orders*' --json";

const INFO_EXAMPLES: &str = "\
Examples:
  millstream stream info orders
  millstream stream info orders --json";

#[derive(Debug, Subcommand)]
enum Action {
    /// List streams
    #[command(after_help = LS_EXAMPLES)]
    Ls {
        /// Only names that match this glob pattern
        #[arg(default_value = "*")]
        pattern: String,
    },
    /// Tell all about one stream and its groups
    #[command(after_help = INFO_EXAMPLES)]
    Info {
        /// The stream
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        stream: String,
    },
}

impl Stream {
    pub(crate) async fn run(&self) -> Result<(), Failure> {
        match &self.action {
            Action::Ls { pattern } => self.list(pattern).await,
            Action::Info { stream } => self.info(stream).await,
        }
    }

    async fn list(&self, pattern: &str) -> Result<(), Failure> {
        let backend = self.common.connect().await?;
        let mut streams = Vec::new();
        for name in backend.streams(pattern).await? {
            // A stream may have gone since it was listed.
            if let Some(info) = backend.stream(&name).await? {
                streams.push((name, info));
            }
        }
        if self.common.json {
            return print_json(&streams.iter().map(|(name, info)| shape::stream(name, info)).collect());
        }
        let mut table = Table::new(&["STREAM", ">LENGTH", ">GROUPS", ">ADDED", "LAST-ID", ">LAST-ADDED"]);
        for (name, info) in &streams {
            table.push(row![
                name,
                count(info.length),
                count(info.groups),
                info.entries_added.map_or_else(|| NOTHING.to_owned(), count),
                info.last_id.to_string(),
                age_or_nothing(age_of(info.last_id)),
            ]);
        }
        if streams.is_empty() {
            note(&format!("no streams match {pattern} in {}", backend.place()));
        }
        print(&table.to_string())
    }

    async fn info(&self, name: &str) -> Result<(), Failure> {
        let backend = self.common.connect().await?;
        known::stream(&*backend, name).await?;
        let Some(found) = Monitor::new(backend).stream(name).await? else {
            return Err(Failure::NotFound(format!("stream {name} has just gone")));
        };
        if self.common.json {
            let mut told = shape::stream(name, &found.info);
            told["dead_letters"] = json!(found.dead_letters_length);
            told["group_list"] = found.groups.iter().map(shape::group).collect::<Value>();
            return print_json(&told);
        }
        print(&facts(&found).to_string())?;
        if found.groups.is_empty() {
            return Ok(());
        }
        let mut table = Table::new(&["GROUP", ">CONSUMERS", ">LAG", ">PENDING", "LAST-DELIVERED"]);
        for group in &found.groups {
            table.push(row![
                &group.name,
                count(group.consumers.len() as u64),
                shape::lag(group.lag),
                count(group.pending),
                group.last_delivered.to_string(),
            ]);
        }
        print(&format!("\n{table}"))
    }
}

fn facts(found: &StreamSnapshot) -> Facts {
    let info = &found.info;
    let told = |id: Option<millstream_worker::backend::StreamId>| match id {
        None => NOTHING.to_owned(),
        Some(id) if age_of(id).is_some() => format!("{id}  ({})", show_moment(id.ms)),
        Some(id) => id.to_string(),
    };
    let mut facts = Facts::default();
    facts.push("stream", &found.name);
    facts.push("length", count(info.length));
    facts.push("added ever", info.entries_added.map_or_else(|| NOTHING.to_owned(), count));
    facts.push("first entry", told(info.first_entry));
    facts.push("last entry", told(info.last_entry));
    facts.push("last id", told(Some(info.last_id)));
    facts.push("groups", count(info.groups));
    facts.push("dead letters", format!("{}  ({})", count(found.dead_letters_length), found.dead_letters));
    facts
}
