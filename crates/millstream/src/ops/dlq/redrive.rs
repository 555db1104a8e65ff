//! `millstream dlq redrive`: another chance for dead letters, with a bar that shows how far it is.

use std::cell::Cell;
use std::collections::BTreeSet;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use millstream_worker::Admin;
use millstream_worker::redrive::{Destination, Progress, Redrive, redrive};
use serde_json::{Value, json};

use super::select::{self, Letters, Selection};
use crate::ops::connection::Common;
use crate::ops::failure::Failure;
use crate::ops::output::{note, print_json, print_line, progress_bar};
use crate::ops::until_ctrl_c;
use crate::ops::value::{count, counted};

pub(super) const EXAMPLES: &str = "\
Examples:
  millstream dlq redrive orders --dry-run
  millstream dlq redrive orders --rate 100
  millstream dlq redrive orders --reason max_deliveries --error timeout --count 10
  millstream dlq redrive orders --id 1731664200000-0 --all-groups

Messages go back to the group they ended for, and only there; with --all-groups they are added to the stream anew.
A letter is deleted when its message is back. Stop it any time with Ctrl-C.";

#[derive(Args, Debug)]
pub(crate) struct RedriveCommand {
    /// The stream the letters come from
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    stream: String,
    #[command(flatten)]
    letters: Letters,
    #[command(flatten)]
    selection: Selection,
    /// The most messages in a second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// The most messages in all
    #[arg(long = "count", value_name = "N")]
    most: Option<u64>,
    /// Add the messages to the stream anew, for all of its groups
    #[arg(long)]
    all_groups: bool,
    /// Only count what would go back
    #[arg(long)]
    dry_run: bool,
}

impl RedriveCommand {
    pub(super) async fn run(&self, common: &Common) -> Result<(), Failure> {
        let (backend, name) = until_ctrl_c(async {
            let backend = common.connect().await?;
            let name = self.letters.find(&*backend, &self.stream, &self.selection).await?;
            Ok((backend, name))
        })
        .await?;
        let so_far = Cell::new(Progress::default());
        let bar = progress_bar(0, "{bar:30} {human_pos}/{human_len} {msg} ({eta} left)");
        let show = |progress: &Progress| {
            so_far.set(*progress);
            bar.set_length(self.most.map_or(progress.total, |most| most.min(progress.total)));
            bar.set_position(progress.redriven);
            let stay = progress.gone + progress.no_group;
            bar.set_message(if stay > 0 { format!("back, {} stay", count(stay)) } else { "back".to_owned() });
        };
        let request = self.request();
        let done = until_ctrl_c(async { Ok(redrive(&*backend, &name, &request, show).await?) }).await;
        bar.finish_and_clear();
        let done = match done {
            Ok(done) => done,
            Err(failure) => {
                self.tell(common, &name, &so_far.get(), Some(&failure))?;
                if !self.dry_run {
                    note("what was on its way may be back too, and its letter still here");
                }
                return Err(failure);
            }
        };
        self.tell(common, &name, &done, None)?;
        if done.no_group > 0 && !common.json {
            self.tell_groups_gone(&*backend, &name, &done).await?;
        }
        Ok(())
    }

    fn request(&self) -> Redrive {
        Redrive {
            filter: self.selection.filter(),
            to: if self.all_groups { Destination::AllGroups } else { Destination::Group },
            rate: self.rate.map(f64::from),
            limit: self.most,
            dry_run: self.dry_run,
        }
    }

    /// How many went back, and why others stay; also when something has cut it off.
    fn tell(
        &self,
        common: &Common,
        name: &str,
        done: &Progress,
        cut_off: Option<&Failure>,
    ) -> Result<(), Failure> {
        if common.json {
            let mut told = json!({
                "dead_letters": name,
                "total": done.total,
                "matched": done.matched,
                "redriven": done.redriven,
                "gone": done.gone,
                "payload_gone": done.payload_gone,
                "no_group": done.no_group,
                "foreign": done.foreign,
                "dry_run": self.dry_run,
            });
            if let Some(failure) = cut_off {
                told["error"] = Value::from(failure.to_string());
            }
            return print_json(&told);
        }
        let letters = |number| counted(number, "dead letter", "dead letters");
        let to = if self.all_groups { "the stream" } else { "their group" };
        print_line(&match self.dry_run {
            true => format!("would give {} of {} back to {to}", letters(done.returning()), count(done.total)),
            false => format!("gave {} of {} back to {to}", letters(done.redriven), count(done.total)),
        })?;
        let stay = |number| counted(number, "dead letter stays: its", "dead letters stay: their");
        let entry_gone = done.gone - done.payload_gone;
        if entry_gone > 0 {
            note(&format!(
                "{} entry is gone from the stream, but not from the letter; go back with --all-groups",
                stay(entry_gone)
            ));
        }
        if done.payload_gone > 0 {
            note(&format!(
                "{} payload is lost and cannot go back; delete with: millstream dlq purge {} --reason payload_gone",
                stay(done.payload_gone),
                self.stream
            ));
        }
        Ok(())
    }

    /// Which groups letters wait for in vain, and the ways out.
    async fn tell_groups_gone(
        &self,
        backend: &dyn Admin,
        name: &str,
        done: &Progress,
    ) -> Result<(), Failure> {
        let mut wanted = BTreeSet::new();
        select::each(backend, name, &self.selection, |letter| {
            wanted.insert((letter.stream, letter.group));
            true
        })
        .await?;
        note(&format!(
            "{} group is gone; make it again, or add to the stream anew with --all-groups, or choose others with --group",
            counted(done.no_group, "dead letter stays: its", "dead letters stay: their")
        ));
        for (stream, group) in wanted {
            let groups = backend.groups(&stream).await.unwrap_or_default();
            if !groups.iter().any(|found| found.name == group) {
                note(&format!("  millstream group create {stream} {group}"));
            }
        }
        Ok(())
    }
}
