//! Detects a command that cannot run at all, such as a misspelt path.
//!
//! A shell exits with 127 if it does not find a command, and with 126 if it cannot execute it. Until a first run ends
//! in another way, such an exit is the fault of the command line, not of the message: the message is delivered again,
//! and the delivery does not count. After [`FAILURES_MAX`] of them, the command is broken and the worker must stop.
//! Later in the run, these exit codes are failures like any other.

use std::collections::HashMap;
use std::process::ExitStatus;
use std::sync::Arc;

use millstream_worker::backend::StreamId;
use millstream_worker::{Message, Outcome};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::exec::not_ready;

/// Exit codes of a shell: it cannot execute the command, and it does not find the command.
const CANNOT_RUN_CODES: [i32; 2] = [126, 127];
/// Number of messages for which the command cannot run, or number of such runs for one message, after which the
/// command is broken.
const FAILURES_MAX: usize = 3;

/// Whether the command of a worker can run.
#[derive(Default)]
pub(super) struct CommandCheck {
    state: Mutex<CommandState>,
    broken: CancellationToken,
}

enum CommandState {
    /// No run has ended, except with one of [`CANNOT_RUN_CODES`]. Contains how often that happened per message.
    Unknown(HashMap<(Arc<str>, StreamId), usize>),
    /// A run has ended in another way.
    CanRun,
    /// The command is broken, with the error of its last run.
    Broken(String),
}

impl Default for CommandState {
    fn default() -> CommandState {
        CommandState::Unknown(HashMap::new())
    }
}

impl CommandCheck {
    /// Returns the outcome of a message without running the command, if the command is broken.
    pub(super) fn outcome_if_broken(&self) -> Option<Outcome> {
        self.error().map(not_ready)
    }

    /// Records how a run of the command for this message ended, and returns the outcome of the message: `outcome`,
    /// unless the exit status says that the command cannot run and no run has ended in another way so far.
    pub(super) fn judge(&self, message: &Message, status: Option<ExitStatus>, outcome: Outcome) -> Outcome {
        let code = status.and_then(|status| status.code());
        let cannot_run = code.is_some_and(|code| CANNOT_RUN_CODES.contains(&code));
        let mut state = self.state.lock();
        match &mut *state {
            CommandState::CanRun => return outcome,
            CommandState::Unknown(_) if !cannot_run => {
                *state = CommandState::CanRun;
                return outcome;
            }
            CommandState::Broken(_) if !cannot_run => return outcome,
            CommandState::Broken(_) => {}
            CommandState::Unknown(failures) => {
                let count = failures.entry((Arc::clone(&message.stream), message.id)).or_default();
                *count += 1;
                if *count >= FAILURES_MAX || failures.len() >= FAILURES_MAX {
                    *state = CommandState::Broken(error_of(&outcome));
                    self.broken.cancel();
                }
            }
        }
        not_ready(error_of(&outcome))
    }

    pub(super) async fn broken(&self) {
        self.broken.cancelled().await;
    }

    pub(super) fn error(&self) -> Option<String> {
        match &*self.state.lock() {
            CommandState::Broken(error) => Some(error.clone()),
            _ => None,
        }
    }
}

fn error_of(outcome: &Outcome) -> String {
    outcome.failure().map_or_else(String::new, |failure| failure.error.clone())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use millstream_worker::{Failure, Reason};

    use super::*;

    fn message(number: u64) -> Message {
        Message {
            stream: "orders".into(),
            logical_stream: "orders".into(),
            group: "billing".into(),
            consumer: "one".into(),
            id: StreamId::new(number, 0),
            fields: Arc::default(),
            attempt: 1,
            span_id: None,
            key_field: None,
            partition: None,
            fence: None,
            cancelled: CancellationToken::new(),
        }
    }

    /// Records a run for a message that ended with this status. Returns whether the message keeps its outcome, a retry.
    fn is_ordinary(check: &CommandCheck, number: u64, status: ExitStatus) -> bool {
        let failure =
            Failure { error: "not found".into(), error_type: "exit".into(), reason: Reason::Failed };
        let retry = Outcome::Retry { after: None, failure: Some(failure) };
        check.judge(&message(number), Some(status), retry.clone()) == retry
    }

    fn exited(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    #[test]
    fn three_messages_or_three_runs_of_one_message_show_a_broken_command() {
        for numbers in [[1, 2, 3], [1, 1, 1]] {
            let check = CommandCheck::default();
            for (number, code) in numbers.into_iter().zip([127, 126, 127]) {
                assert!(check.error().is_none() && check.outcome_if_broken().is_none());
                assert!(!is_ordinary(&check, number, exited(code)));
            }
            assert_eq!(check.error().as_deref(), Some("not found"));
            assert!(check.broken.is_cancelled() && check.outcome_if_broken().is_some());
            // The worker is stopping, whatever the other commands that were running report.
            assert!(is_ordinary(&check, 4, exited(1)) && !is_ordinary(&check, 5, exited(127)));
            assert!(check.error().is_some());
        }
    }

    #[test]
    fn a_command_that_has_run_once_is_never_broken() {
        for ended in [exited(0), exited(65), ExitStatus::from_raw(9)] {
            let check = CommandCheck::default();
            assert!((1..=2).all(|number| !is_ordinary(&check, number, exited(127))));
            assert!(is_ordinary(&check, 3, ended));
            assert!((4..10).all(|number| is_ordinary(&check, number, exited(127))));
            assert_eq!(check.error(), None);
        }
    }
}
