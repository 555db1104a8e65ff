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

const EXAMPLES: &str = "\
Examples:
  millstream consumer ls orders billing
  millstream consumer rm orders billing worker-2 --heir worker-1 --yes";

/// Look at the consumers of a group, and remove one
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Consumer {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    common: Common,
}

const LS_EXAMPLES: &str = "\
Examples:
  millstream consumer ls orders billing
  millstream consumer ls orders billing --json";

const RM_EXAMPLES: &str = "\
Examples:
  millstream consumer rm orders billing worker-2 --heir worker-1 --yes

What is pending with the consumer becomes the heir's in the same step: nothing is lost.";

#[derive(Debug, Subcommand)]
enum Action {
    /// List the consumers of a group
    #[command(after_help = LS_EXAMPLES)]
    Ls {
        #[command(flatten)]
        of: NamedGroup,
    },
    /// Remove a consumer after another one has taken over its messages
    #[command(after_help = RM_EXAMPLES)]
    Rm(Remove),
}

#[derive(Args, Debug)]
struct Remove {
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

impl Consumer {
    pub(crate) async fn run(&self) -> Result<(), Failure> {
        match &self.action {
            Action::Ls { of } => self.list(of).await,
            Action::Rm(remove) => self.remove(remove).await,
        }
    }

    async fn list(&self, NamedGroup { stream, group }: &NamedGroup) -> Result<(), Failure> {
        let backend = self.common.connect().await?;
        known::group(&*backend, stream, group).await?;
        let consumers = backend.consumers(stream, group).await?;
        if self.common.json {
            return print_json(&consumers.iter().map(shape::consumer).collect());
        }
        let mut table = Table::new(&["CONSUMER", ">PENDING", ">IDLE", ">INACTIVE"]);
        for consumer in &consumers {
            table.push(row![
                &consumer.name,
                count(consumer.pending),
                age(consumer.idle),
                age_or_nothing(consumer.inactive),
            ]);
        }
        if consumers.is_empty() {
            note(&format!("group {group} of stream {stream} has no consumers"));
        }
        print(&table.to_string())
    }

    async fn remove(&self, remove: &Remove) -> Result<(), Failure> {
        let Remove { of: NamedGroup { stream, group }, consumer, heir, dry_run, confirm } = remove;
        let backend = self.common.connect().await?;
        let found = known::consumer(&*backend, stream, group, consumer).await?;
        let entries = |number| counted(number, "pending entry", "pending entries");
        let heir_is_new = match heir {
            Some(heir) => !backend.consumers(stream, group).await?.iter().any(|other| other.name == *heir),
            None => false,
        };
        let new = if heir_is_new { ", a new consumer," } else { "" };
        let question = match heir {
            Some(heir) => {
                let many = entries(found.pending);
                format!("{consumer} leaves group {group} of {stream}; {heir}{new} takes over {many}")
            }
            None if found.pending == 0 => format!("{consumer} leaves group {group} of {stream} with nothing"),
            None => {
                return Err(Failure::Usage(format!(
                    "{consumer} has {}; say who takes over with --heir NAME\nthere are: {}",
                    entries(found.pending),
                    others(&backend.consumers(stream, group).await?, consumer)
                )));
            }
        };
        if *dry_run {
            return self.tell_dry(remove, found.pending, heir_is_new, &question);
        }
        confirm.ask(&question).await?;
        let groups = GroupManager::new(backend);
        let removed = groups.remove_consumer(stream, group, consumer, heir.as_deref()).await?;
        if self.common.json {
            return print_json(&json!({
                "stream": stream,
                "group": group,
                "removed": removed.consumer,
                "heir": removed.heir,
                "heir_is_new": heir_is_new,
                "moved": removed.adopted,
                "dry_run": false,
            }));
        }
        print_line(&match removed.adopted {
            0 => format!("removed {consumer}; nothing was pending with it"),
            moved => format!("removed {consumer}; {} moved to {}", entries(moved), removed.heir),
        })?;
        if heir_is_new {
            note(&format!("{} was no consumer of {group} before: it is new", removed.heir));
        }
        Ok(())
    }

    fn tell_dry(&self, remove: &Remove, pending: u64, heir_is_new: bool, what: &str) -> Result<(), Failure> {
        if self.common.json {
            return print_json(&json!({
                "stream": remove.of.stream,
                "group": remove.of.group,
                "removed": remove.consumer,
                "heir": remove.heir,
                "heir_is_new": heir_is_new,
                "moved": pending,
                "dry_run": true,
            }));
        }
        print_line(&format!("would happen: {what}"))
    }
}

fn others(consumers: &[ConsumerInfo], but: &str) -> String {
    let names: Vec<&str> =
        consumers.iter().map(|other| other.name.as_str()).filter(|name| *name != but).collect();
    if names.is_empty() { "no others; a new name is fine".to_owned() } else { names.join(", ") }
}
