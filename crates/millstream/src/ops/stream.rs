//! `millstream stream`: which streams there are, and what is in one.

use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use millstream_worker::backend::StreamId;
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

pub(crate) const EXAMPLES: &str = "\
Examples:
  millstream stream ls
  millstream stream info orders";

const LS_EXAMPLES: &str = "\
Examples:
  millstream stream ls
  millstream stream ls 'orders*' --json";

const INFO_EXAMPLES: &str = "\
Examples:
  millstream stream info orders
  millstream stream info orders --json";

#[derive(Debug, Subcommand)]
pub(crate) enum StreamAction {
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

impl StreamAction {
    pub(crate) async fn run(&self, common: &Common) -> Result<(), Failure> {
        match self {
            StreamAction::Ls { pattern } => list(common, pattern).await,
            StreamAction::Info { stream } => tell_all(common, stream).await,
        }
    }
}

async fn list(common: &Common, pattern: &str) -> Result<(), Failure> {
    let backend = common.connect().await?;
    let streams = known::streams(&*backend, pattern).await?;
    if common.json {
        return print_json(&streams.iter().map(|(name, info)| shape::stream(name, info)).collect());
    }
    if streams.is_empty() {
        note(&format!("no streams match {pattern} in {}", backend.place()));
    }
    let rows = streams.iter().map(|(name, info)| {
        row![
            name,
            count(info.length),
            count(info.groups),
            info.entries_added.map_or_else(|| NOTHING.to_owned(), count),
            info.last_id.to_string(),
            age_or_nothing(age_of(info.last_id)),
        ]
    });
    print(Table::new(&["STREAM", ">LENGTH", ">GROUPS", ">ADDED", "LAST-ID", ">LAST-ADDED"], rows))
}

async fn tell_all(common: &Common, name: &str) -> Result<(), Failure> {
    let backend = common.connect().await?;
    known::stream(&*backend, name).await?;
    let Some(found) = Monitor::new(backend).stream(name).await? else {
        return Err(Failure::NotFound(format!("stream {name} has just gone")));
    };
    if common.json {
        let mut told = shape::stream(name, &found.info);
        told["dead_letters"] = json!(found.dead_letters_length);
        told["group_list"] = found.groups.iter().map(shape::group).collect::<Value>();
        return print_json(&told);
    }
    print(facts(&found))?;
    if found.groups.is_empty() {
        return Ok(());
    }
    let rows = found.groups.iter().map(|group| {
        row![
            &group.name,
            count(group.consumers.len() as u64),
            shape::lag(group.lag),
            count(group.pending),
            group.last_delivered.to_string(),
        ]
    });
    let table = Table::new(&["GROUP", ">CONSUMERS", ">LAG", ">PENDING", "LAST-DELIVERED"], rows);
    print(format_args!("\n{table}"))
}

fn facts(found: &StreamSnapshot) -> Facts {
    let info = &found.info;
    let told = |id: Option<StreamId>| match id {
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
