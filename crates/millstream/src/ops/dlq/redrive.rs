//! `millstream dlq redrive`: another chance for dead letters, with a bar that shows how far it is.

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use millstream_worker::redrive::{Destination, Progress, Redrive, redrive};
use serde_json::json;

use super::select::{Letters, Selection};
use crate::ops::connection::Common;
use crate::ops::failure::Failure;
use crate::ops::output::{note, print_json, print_line, progress_is_seen};
use crate::ops::value::{count, counted};

pub(super) const EXAMPLES: &str = "\
Examples:
  millstream dlq redrive orders --dry-run
  millstream dlq redrive orders --rate 100
  millstream dlq redrive orders --reason max_deliveries --error timeout --limit 10
  millstream dlq redrive orders --id 1731664200000-0 --all-groups

Messages go back to the group they ended for, and only there; with --all-groups they are added to the stream anew.
A letter is deleted when its message is back. Stop it any time with Ctrl-C.";

#[derive(Args, Debug)]
pub(super) struct RedriveCommand {
    /// The stream the letters come from
    stream: String,
    #[command(flatten)]
    letters: Letters,
    #[command(flatten)]
    selection: Selection,
    /// The most messages in a second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// The most messages in all
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Add the messages to the stream anew, for all of its groups
    #[arg(long)]
    all_groups: bool,
    /// Only count what would go back
    #[arg(long)]
    dry_run: bool,
}

impl RedriveCommand {
    pub(super) async fn run(&self, common: &Common) -> Result<(), Failure> {
        let backend = common.connect().await?;
        let name = self.letters.find(&*backend, &self.stream).await?;
        let bar = progress_bar();
        let show = |progress: &Progress| {
            bar.set_length(progress.total);
            bar.set_position(progress.looked_at);
            bar.set_message(format!("{} back", count(progress.redriven)));
        };
        let done = redrive(&*backend, &name, &self.request(), show).await;
        bar.finish_and_clear();
        self.tell(common, &name, &done?)
    }

    fn request(&self) -> Redrive {
        Redrive {
            filter: self.selection.filter(),
            to: if self.all_groups { Destination::AllGroups } else { Destination::Group },
            rate: self.rate.map(f64::from),
            limit: self.limit,
            dry_run: self.dry_run,
        }
    }

    fn tell(&self, common: &Common, name: &str, done: &Progress) -> Result<(), Failure> {
        if common.json {
            return print_json(&json!({
                "dead_letters": name,
                "total": done.total,
                "matched": done.matched,
                "redriven": done.redriven,
                "gone": done.gone,
                "foreign": done.foreign,
                "dry_run": self.dry_run,
            }));
        }
        let letters = |number| counted(number, "dead letter", "dead letters");
        let to = if self.all_groups { "the stream" } else { "their group" };
        print_line(&match self.dry_run {
            true => format!("would give {} of {} back to {to}", letters(done.matched), count(done.total)),
            false => format!("gave {} of {} back to {to}", letters(done.redriven), count(done.total)),
        })?;
        if done.gone > 0 {
            note(&format!(
                "{} stay: their entries are gone from the stream; they can go back with --all-groups",
                letters(done.gone)
            ));
        }
        Ok(())
    }
}

fn progress_bar() -> ProgressBar {
    if !progress_is_seen() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {human_pos}/{human_len} {msg} ({eta} left)");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
