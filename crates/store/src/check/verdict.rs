//! Decides what salvage may say: only what the folder proves.
//!
//! A folder proves that its data is complete if three parts are: the start, the log after it, and the end of the log.
//! Nothing in a folder that was not closed states where its log ended: a file that was cut after a record looks like
//! the result of a crash.

/// What a folder proves about a part of its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Whole,
    Doubtful,
    Lost,
}

/// What salvage can say about its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything that the store had acknowledged was salvaged.
    Complete,
    /// Everything up to the last position that was found was salvaged. The store was not closed, so the folder does not
    /// tell whether records followed.
    CompleteSoFar,
    /// Data may be lost: the folder does not prove the opposite.
    Unknown,
    /// Data is lost.
    Lost,
}

/// Decides from the start (a snapshot or an empty store), the log after it, and whether the folder proves that the log
/// ends where it was found to end.
pub(super) fn decide(start: Part, log: Part, is_end_proved: bool) -> Verdict {
    match (start.max(log), is_end_proved) {
        (Part::Lost, _) => Verdict::Lost,
        (Part::Doubtful, _) => Verdict::Unknown,
        (Part::Whole, false) => Verdict::CompleteSoFar,
        (Part::Whole, true) => Verdict::Complete,
    }
}

/// Decides what a snapshot proves as the start. `is_whole`: it was read without a fault. `keys` is the number of intact
/// keys, and `keys_written` the number in its footer, if that is intact.
pub(super) fn decide_snapshot(is_whole: bool, keys: u64, keys_written: Option<u64>) -> Part {
    match keys_written {
        _ if is_whole => Part::Whole,
        Some(written) if written > keys => Part::Lost,
        _ => Part::Doubtful,
    }
}
