//! Refuses to move or remove a group while consumers read from it, unless the operator passes `--force`.

use crate::ops::failure::Failure;
use crate::ops::safe_text::printable;

/// Returns an error that names the active consumers, if there are any. With `force`, always returns `Ok`.
pub(super) fn refuse(group: &str, active_consumers: &[String], force: bool) -> Result<(), Failure> {
    if force || active_consumers.is_empty() {
        return Ok(());
    }
    Err(Failure::Other(format!(
        "group {} has active consumers: {}\nstop them and wait a minute, or pass --force",
        printable(group),
        active_consumers.iter().map(printable).collect::<Vec<_>>().join(", ")
    )))
}
