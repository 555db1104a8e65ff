//! `millstream consumer`: who reads for a group, and how one leaves without leaving messages behind.

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use millstream_worker::backend::ConsumerInfo;
use millstream_worker::group_manager::GroupManager;
use serde_json::json;

use super::confirm::Confirm;
use super::connection::Common;
use super::failure::Failure;
use super::known;
use super::named::NamedGroup;
use super::output::{note, print, print_json, print_line};
use super::shape;
use super::table::{Table, row};
use super::value::{age, age_or_nothing, count, counted};

pub(crate) const EXAMPLES: &str = "\
Examples:
  millstream consumer ls orders billing
  millstream consumer rm orders billing worker-2 --heir worker-1 --yes";

const LS_EXAMPLES: &str = "\
Examples:
  millstream consumer ls orders billing
  millstream consumer ls orders billing --json";

const RM_EXAMPLES: &str = "\
Examples:
  millstream consumer rm orders billing worker-2 --heir worker-1 --yes

What is pending with the consumer becomes the heir's in the same step: nothing is lost.";

#[derive(Debug, Subcommand)]
pub(crate) enum ConsumerAction {
    /// List the consumers of a group
    #[command(after_help = LS_EXAMPLES)]
    Ls {
        #[command(flatten)]
        of: NamedGroup,
    },
    /// Remove a consumer after another one has taken over its messages
    #[command(after_help = RM_EXAMPLES)]
    Rm(RemoveConsumer),
}

#[derive(Args, Debug)]
pub(crate) struct RemoveConsumer {
    #[command(flatten)]
    of: NamedGroup,
    /// The consumer that goes
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    consumer: String,
    /// Who takes over its messages; needed if it has any
    #[arg(long, value_name = "NAME")]
    heir: Option<String>,
    /// Only tell what would happen
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    confirm: Confirm,
}

impl ConsumerAction {
    pub(crate) async fn run(&self, common: &Common) -> Result<(), Failure> {
        match self {
            ConsumerAction::Ls { of } => list(common, of).await,
            ConsumerAction::Rm(remove) => remove.run(common).await,
        }
    }
}

async fn list(common: &Common, NamedGroup { stream, group }: &NamedGroup) -> Result<(), Failure> {
    let backend = common.connect().await?;
    known::group(&*backend, stream, group).await?;
    let consumers = backend.consumers(stream, group).await?;
    if common.json {
        return print_json(&consumers.iter().map(shape::consumer).collect());
    }
    if consumers.is_empty() {
        note(&format!("group {group} of stream {stream} has no consumers"));
    }
    let rows = consumers.iter().map(|consumer| {
        row![&consumer.name, count(consumer.pending), age(consumer.idle), age_or_nothing(consumer.inactive),]
    });
    print(Table::new(&["CONSUMER", ">PENDING", ">IDLE", ">INACTIVE"], rows))
}

impl RemoveConsumer {
    async fn run(&self, common: &Common) -> Result<(), Failure> {
        let RemoveConsumer { of: NamedGroup { stream, group }, consumer, heir, dry_run, confirm } = self;
        let backend = common.connect().await?;
        let found = known::consumer(&*backend, stream, group, consumer).await?;
        let consumers = backend.consumers(stream, group).await?;
        let entries = |number| counted(number, "pending entry", "pending entries");
        let heir_is_new =
            heir.as_ref().is_some_and(|heir| !consumers.iter().any(|other| other.name == *heir));
        let question = match heir {
            Some(heir) => {
                let (new, many) =
                    (if heir_is_new { ", a new consumer," } else { "" }, entries(found.pending));
                format!("{consumer} leaves group {group} of {stream}; {heir}{new} takes over {many}")
            }
            None if found.pending == 0 => format!("{consumer} leaves group {group} of {stream} with nothing"),
            None => {
                return Err(Failure::Usage(format!(
                    "{consumer} has {}; say who takes over with --heir NAME\nthere are: {}",
                    entries(found.pending),
                    others(&consumers, consumer)
                )));
            }
        };
        let (heir, moved) = if *dry_run {
            (heir.clone(), found.pending)
        } else {
            confirm.ask(&question).await?;
            let groups = GroupManager::new(backend);
            let removed = groups.remove_consumer(stream, group, consumer, heir.as_deref()).await?;
            (Some(removed.heir), removed.adopted)
        };
        if common.json {
            return print_json(&json!({
                "stream": stream,
                "group": group,
                "removed": consumer,
                "heir": heir,
                "heir_is_new": heir_is_new,
                "moved": moved,
                "dry_run": dry_run,
            }));
        }
        if *dry_run {
            return print_line(&format!("would happen: {question}"));
        }
        let heir = heir.unwrap_or_default();
        print_line(&match moved {
            0 => format!("removed {consumer}; nothing was pending with it"),
            moved => format!("removed {consumer}; {} moved to {heir}", entries(moved)),
        })?;
        if heir_is_new {
            note(&format!("{heir} was no consumer of {group} before: it is new"));
        }
        Ok(())
    }
}

fn others(consumers: &[ConsumerInfo], but: &str) -> String {
    let names: Vec<&str> =
        consumers.iter().map(|other| other.name.as_str()).filter(|name| *name != but).collect();
    if names.is_empty() { "no others; a new name is fine".to_owned() } else { names.join(", ") }
}
