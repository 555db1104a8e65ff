//! `millstream stream`: lists streams, describes one, and sets its policy.

use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use millstream_worker::backend::StreamId;
use millstream_worker::monitor::{Monitor, StreamSnapshot};
use millstream_worker::operate::shapes;
use serde_json::{Value, json};

use super::connection::CommonOptions;
use super::failure::Failure;
use super::lookup;
use super::output::{note, print, print_json};
use super::policy;
use super::safe_text::printable;
use super::table::{Properties, Table, row};
use super::time::format_time;
use super::value::{ABSENT, age_of, age_or_absent, count, format_lag};

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
        /// Only streams whose names match this glob pattern
        #[arg(default_value = "*")]
        pattern: String,
    },
    /// Describe a stream and its groups
    #[command(after_help = INFO_EXAMPLES)]
    Info {
        /// Stream name
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        stream: String,
    },
    /// Show or set the policy of a stream: retention, and defaults of its groups
    #[command(after_help = policy::STREAM_EXAMPLES)]
    Policy(Box<policy::StreamPolicyCommand>),
}

impl StreamAction {
    pub(crate) async fn run(&self, common: &CommonOptions) -> Result<(), Failure> {
        match self {
            StreamAction::Ls { pattern } => list(common, pattern).await,
            StreamAction::Info { stream } => describe(common, stream).await,
            StreamAction::Policy(policy) => policy.run(common).await,
        }
    }
}

async fn list(common: &CommonOptions, pattern: &str) -> Result<(), Failure> {
    let backend = common.connect().await?;
    let streams = lookup::streams(&*backend, pattern).await?;
    if common.json {
        return print_json(&streams.iter().map(|(name, info)| shapes::stream(name, info)).collect());
    }
    if streams.is_empty() {
        note(&format!("no streams match {} in {}", printable(pattern), backend.location()));
    }
    let rows = streams.iter().map(|(name, info)| {
        row![
            name,
            count(info.length),
            count(info.groups),
            info.entries_added.map_or_else(|| ABSENT.to_owned(), count),
            info.last_id.to_string(),
            age_or_absent(age_of(info.last_id)),
        ]
    });
    print(Table::new(&["STREAM", ">LENGTH", ">GROUPS", ">ADDED", "LAST-ID", ">LAST-ADDED"], rows))
}

async fn describe(common: &CommonOptions, name: &str) -> Result<(), Failure> {
    let backend = common.connect().await?;
    lookup::stream(&*backend, name).await?;
    let Some(found) = Monitor::new(backend).stream(name).await? else {
        return Err(Failure::NotFound(format!("stream {} was deleted a moment ago", printable(name))));
    };
    if common.json {
        let mut json = shapes::stream(name, &found.info);
        json["dead_letters"] = json!(found.dead_letters_length);
        json["group_list"] = found.groups.iter().map(shapes::group).collect::<Value>();
        return print_json(&json);
    }
    print(properties(&found))?;
    if found.groups.is_empty() {
        return Ok(());
    }
    let rows = found.groups.iter().map(|group| {
        row![
            &group.name,
            count(group.consumers.len() as u64),
            format_lag(group.lag),
            count(group.pending),
            group.last_delivered.to_string(),
        ]
    });
    let table = Table::new(&["GROUP", ">CONSUMERS", ">LAG", ">PENDING", "LAST-DELIVERED"], rows);
    print(format_args!("\n{table}"))
}

fn properties(found: &StreamSnapshot) -> Properties {
    let info = &found.info;
    let with_time = |id: Option<StreamId>| match id {
        None => ABSENT.to_owned(),
        Some(id) if age_of(id).is_some() => format!("{id}  ({})", format_time(id.ms)),
        Some(id) => id.to_string(),
    };
    let mut properties = Properties::default();
    properties.push("stream", &found.name);
    properties.push("length", count(info.length));
    properties.push("ever added", info.entries_added.map_or_else(|| ABSENT.to_owned(), count));
    properties.push("first entry", with_time(info.first_entry));
    properties.push("last entry", with_time(info.last_entry));
    properties.push("last id", with_time(Some(info.last_id)));
    properties.push("groups", count(info.groups));
    for (name, length) in &found.dead_letter_streams {
        if *length > 0 || *name == found.dead_letters {
            properties.push("dead letters", format!("{}  ({name})", count(*length)));
        }
    }
    properties
}
