//! `millstream dlq redrive`: moves dead letters back to their group or stream, with a progress bar.

use std::collections::BTreeSet;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use millstream_worker::Admin;
use millstream_worker::dead_letter::DeadLetter;
use millstream_worker::operate::dead_letters::{RedriveDeadLetters, RedriveEffect};
use millstream_worker::operate::operation::{EffectAnswer, OnParts, Operate};
use millstream_worker::redrive::{Destination, Progress, Redrive};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::select::{DeadLetterStream, Selection, Sources};
use crate::ops::apply::execute;
use crate::ops::connection::CommonOptions;
use crate::ops::failure::Failure;
use crate::ops::output::{note, print_json, print_line, progress_bar};
use crate::ops::shell::{option, suggest};
use crate::ops::target::Part;
use crate::ops::until_ctrl_c;
use crate::ops::value::{count, counted};

pub(super) const EXAMPLES: &str = "\
Examples:
  millstream dlq redrive orders --dry-run
  millstream dlq redrive orders --rate 100
  millstream dlq redrive orders --reason max_attempts --error timeout --count 10
  millstream dlq redrive orders --id 1731664200000-0 --all-groups

A redriven message is delivered again to the group it failed in, and to no other group. With --all-groups, it is added \
to the stream as a new entry instead. The dead letter is deleted afterwards. Dead letters that name another stream are \
skipped.
Dead letters of other programs may name no group: --group names it, unless the stream has only one. If the original entry \
is unknown or gone and the stream has only one group, the message is added as a new entry.
Ctrl-C stops the redrive at any time.";

#[derive(Args, Debug)]
pub(crate) struct RedriveArgs {
    /// Stream that the dead letters come from
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    stream: String,
    #[command(flatten)]
    dlq: DeadLetterStream,
    #[command(flatten)]
    selection: Selection,
    /// Maximum number of messages per second [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Maximum number of messages to redrive [default: no limit]
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Add the messages to the stream as new entries, for all of its groups
    #[arg(long)]
    all_groups: bool,
    /// Count the messages that would be redriven, without redriving them
    #[arg(long)]
    dry_run: bool,
}

impl RedriveArgs {
    pub(super) async fn run(&self, common: &CommonOptions) -> Result<(), Failure> {
        let (backend, sources) = until_ctrl_c(async {
            let backend = common.connect().await?;
            let sources = self.dlq.find(&*backend, &self.stream, &self.selection).await?;
            Ok((backend, sources))
        })
        .await?;
        let name = sources.name();
        let parts = sources.sources.iter().map(|(part, source)| RedriveDeadLetters {
            dead_letters: source.name.clone(),
            request: self.request(part),
        });
        let operation = OnParts { name: name.clone(), parts: parts.collect() };
        let so_far = Mutex::new(Progress::default());
        let bar = progress_bar(0, "{bar:30} {human_pos}/{human_len} {msg} ({eta} left)");
        let show = |effect: &RedriveEffect| {
            let progress = effect.progress;
            *so_far.lock() = progress;
            bar.set_length(self.count.map_or(progress.total, |limit| limit.min(progress.total)));
            bar.set_position(progress.redriven);
            bar.set_message(match progress.skipped() {
                0 => "redriven".to_owned(),
                skipped => format!("redriven, {} skipped", count(skipped)),
            });
        };
        let done = until_ctrl_c(async {
            let plan = operation.plan(&backend, None).await?;
            let effect = match self.dry_run {
                true => plan.effect,
                false => execute(&backend, &operation, plan, show).await?,
            };
            Ok(effect.progress)
        })
        .await;
        bar.finish_and_clear();
        let done = match done {
            Ok(done) => done,
            Err(failure) => {
                self.print_result(common, &name, &so_far.lock(), Some(&failure))?;
                if !self.dry_run {
                    note(
                        "the message in progress may have been redriven although its dead letter still exists",
                    );
                }
                return Err(failure);
            }
        };
        self.print_result(common, &name, &done, None)?;
        if done.no_group > 0 && !common.json {
            self.print_missing_groups(&*backend, &sources, &done).await?;
        }
        Ok(())
    }

    fn request(&self, part: &Part) -> Redrive {
        Redrive {
            stream: self.dlq.origin(&part.stream),
            field_map: self.dlq.field_map(),
            filter: self.selection.filter(),
            to: if self.all_groups { Destination::AllGroups } else { Destination::Group },
            rate: self.rate.map(f64::from),
            limit: self.count,
            dry_run: false,
        }
    }

    /// Prints the number of redriven messages and why others were skipped.
    ///
    /// `interrupted_by` is the failure that ended the redrive early.
    fn print_result(
        &self,
        common: &CommonOptions,
        name: &str,
        done: &Progress,
        interrupted_by: Option<&Failure>,
    ) -> Result<(), Failure> {
        if common.json {
            let effect = RedriveEffect { dead_letters: name.to_owned(), progress: *done };
            let mut json = json!(EffectAnswer::without_preview(effect, self.dry_run));
            if let Some(failure) = interrupted_by {
                json["error"] = Value::from(failure.to_string());
            }
            return print_json(&json);
        }
        let of_total = counted(done.total, "dead letter", "dead letters");
        let to = match (self.all_groups, done.total) {
            (true, _) => "the stream",
            (false, 1) => "its group",
            (false, _) => "their group",
        };
        print_line(&match self.dry_run {
            true => format!("would move {} of {of_total} back to {to}", count(done.redrivable())),
            false => format!("moved {} of {of_total} back to {to}", count(done.redriven)),
        })?;
        if done.added > 0 && !self.all_groups {
            note(&format!(
                "{}, without the fields that describe the failure: the original entry is unknown or gone",
                match self.dry_run {
                    true =>
                        counted(done.added, "would be added as a new entry", "would be added as new entries"),
                    false => counted(done.added, "was added as a new entry", "were added as new entries"),
                }
            ));
        }
        if done.unknown_group > 0 {
            note(&format!(
                "{}, and the stream has several groups; name the group with --group, or add new entries for all of them with \
                 --all-groups",
                counted(
                    done.unknown_group,
                    "dead letter skipped: it names no group",
                    "dead letters skipped: they name no group"
                )
            ));
        }
        let entry_gone = done.gone - done.payload_gone;
        if entry_gone > 0 {
            note(&format!(
                "{} entry is not in the stream any more; add a new entry with --all-groups",
                skipped_because(entry_gone)
            ));
        }
        if done.payload_gone > 0 {
            note(&format!(
                "{} payload is lost; delete with: {}",
                skipped_because(done.payload_gone),
                suggest("dlq purge", &[&self.stream], "--reason payload_gone")
            ));
        }
        if done.other_stream > 0 {
            note(&format!(
                "{}; redrive those of another stream with: {}",
                counted(
                    done.other_stream,
                    "dead letter skipped: it does not come from this stream",
                    "dead letters skipped: they do not come from this stream"
                ),
                suggest("dlq redrive", &["STREAM"], &option("--dlq", name))
            ));
        }
        Ok(())
    }

    /// Prints which groups of the dead letters do not exist, and how to create them.
    async fn print_missing_groups(
        &self,
        backend: &dyn Admin,
        sources: &Sources,
        done: &Progress,
    ) -> Result<(), Failure> {
        let mut groups = BTreeSet::new();
        for (part, source) in &sources.sources {
            let request = self.request(part);
            let visit = |dead_letter: DeadLetter| {
                if request.returns_to(&dead_letter.stream, &source.name) {
                    let group = Some(dead_letter.group).filter(|group| !group.is_empty());
                    let group =
                        group.or_else(|| request.filter.group.clone()).unwrap_or_else(|| "GROUP".to_owned());
                    groups.insert((dead_letter.stream, group));
                }
                true
            };
            source.for_each(backend, &request.filter, visit).await?;
        }
        note(&format!(
            "{} group does not exist; create it again, add new entries with --all-groups, or select other dead letters with --group",
            skipped_because(done.no_group)
        ));
        let mut missing = BTreeSet::new();
        for (stream, group) in groups {
            let existing = backend.groups(&stream).await.unwrap_or_default();
            if !existing.iter().any(|found| found.name == group) {
                let name = if sources.target.has_partitions() { self.stream.clone() } else { stream };
                missing.insert((name, group));
            }
        }
        for (stream, group) in missing {
            note(&format!("  {}", suggest("group create", &[&stream, &group], "")));
        }
        Ok(())
    }
}

/// The beginning of a sentence about skipped dead letters: `2 dead letters skipped: their`.
fn skipped_because(number: u64) -> String {
    counted(number, "dead letter skipped: its", "dead letters skipped: their")
}
