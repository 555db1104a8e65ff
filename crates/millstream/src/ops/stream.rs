//! `millstream stream`: lists streams, describes one, and sets its policy.

use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use millstream_worker::backend::StreamId;
use millstream_worker::monitor::{Monitor, StreamSnapshot};
use millstream_worker::operate::shapes::{GroupJson, StreamSnapshotJson};
use serde_json::{Value, json};

use super::connection::CommonOptions;
use super::failure::Failure;
use super::lookup;
use super::output::{note, print, print_json};
use super::partitions_args::{PartitionsArgs, stream_name};
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
  millstream stream ls 'orders*' --json
  millstream stream ls --partitions";

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
        #[command(flatten)]
        partitions: PartitionsArgs,
    },
    /// Describe a stream and its groups
    #[command(after_help = INFO_EXAMPLES)]
    Info {
        /// Stream name
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        stream: String,
        #[command(flatten)]
        partitions: PartitionsArgs,
    },
    /// Show or set the policy of a stream: retention, and defaults of its groups
    #[command(after_help = policy::STREAM_EXAMPLES)]
    Policy(Box<policy::StreamPolicyCommand>),
}

impl StreamAction {
    pub(crate) async fn run(&self, common: &CommonOptions) -> Result<(), Failure> {
        match self {
            StreamAction::Ls { pattern, partitions } => list(common, pattern, *partitions).await,
            StreamAction::Info { stream, partitions } => describe(common, stream, *partitions).await,
            StreamAction::Policy(policy) => policy.run(common).await,
        }
    }
}

async fn list(common: &CommonOptions, pattern: &str, partitions: PartitionsArgs) -> Result<(), Failure> {
    let backend = common.connect().await?;
    let location = backend.location();
    let streams = Monitor::new(backend).list(pattern).await?;
    if common.json {
        return print_json(&streams.iter().map(|stream| json_of(stream, partitions)).collect::<Value>());
    }
    if streams.is_empty() {
        note(&format!("no streams match {} in {location}", printable(pattern)));
    }
    let rows = streams.iter().flat_map(|stream| partitions.streams(stream)).map(|stream| {
        let info = &stream.info;
        row![
            stream_name(stream),
            count(info.length),
            count(info.groups),
            info.entries_added.map_or_else(|| ABSENT.to_owned(), count),
            info.last_id.to_string(),
            age_or_absent(age_of(info.last_id)),
        ]
    });
    print(Table::new(&["STREAM", ">LENGTH", ">GROUPS", ">ADDED", "LAST-ID", ">LAST-ADDED"], rows))
}

/// Returns the JSON of a stream and, if the user asked for them, of its partitions.
fn json_of(stream: &StreamSnapshot, partitions: PartitionsArgs) -> Value {
    let mut json = json!(StreamSnapshotJson::new(stream));
    if partitions.partitions && stream.partitioned.is_some() {
        json["partitions"] =
            json!(stream.parts().iter().map(|part| StreamSnapshotJson::new(part)).collect::<Vec<_>>());
    }
    json
}

async fn describe(common: &CommonOptions, name: &str, partitions: PartitionsArgs) -> Result<(), Failure> {
    let backend = common.connect().await?;
    let found = lookup::snapshot(&backend, name).await?;
    if common.json {
        let mut json = json_of(&found, partitions);
        json["dead_letters"] = json!(found.dead_letters_length);
        json["group_list"] = json!(found.groups.iter().map(GroupJson::new).collect::<Vec<_>>());
        return print_json(&json);
    }
    print(properties(&found))?;
    if partitions.partitions && found.partitioned.is_some() {
        let rows = found.parts().iter().map(|part| {
            let number = part.number().map_or_else(|| ABSENT.to_owned(), |number| number.to_string());
            let added = part.info.entries_added.map_or_else(|| ABSENT.to_owned(), count);
            row![number, &part.name, count(part.info.length), added, part.info.last_id.to_string()]
        });
        print(format_args!(
            "\n{}",
            Table::new(&[">PARTITION", "STREAM", ">LENGTH", ">ADDED", "LAST-ID"], rows)
        ))?;
    }
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
    if let Some(part) = &found.part_of {
        properties.push("partition", format!("{} of {}", part.number, part.stream));
    }
    if let Some(partitioned) = &found.partitioned {
        let missing = match &partitioned.missing()[..] {
            [] => String::new(),
            missing => format!("  ({} missing)", missing.len()),
        };
        properties.push("partitions", format!("{}{missing}", partitioned.list.len()));
        properties.push("key", partitioned.list.key_field().unwrap_or(ABSENT));
    }
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
