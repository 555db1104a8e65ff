//! What order by key means to all rooms: which lane a message belongs to, and when its lane goes on.

use super::Core;
use super::settings::OnFailure;
use crate::outcome::Outcome;
use crate::worker::message::{FinishedJob, Job, JobResult, LaneId, Place};

impl Core {
    pub(crate) fn blocks_keys(&self) -> bool {
        self.is_ordered() && self.settings.on_failure == OnFailure::Block
    }

    /// Gives a message that was read its place in the lane of its key.
    pub(crate) fn place_of(&self, job: &Job) -> Place {
        if !self.is_ordered() {
            return Place::Free;
        }
        let key_field = job.origin.key_field.as_ref();
        let field = key_field.and_then(|key| job.fields.iter().find(|(name, _)| name == key.as_bytes()));
        Place::Behind(LaneId::new(job.origin.subscription, field.map(|(_, key)| &key[..])))
    }

    /// Lets the lanes of handled messages go on, then sends the messages to the settlers.
    ///
    /// A lane goes on as soon as a handler has succeeded, before the message is acknowledged. If the worker dies in
    /// between, the message is handled again, and then those after it. The lanes of other messages go on when they are
    /// settled.
    pub(crate) fn finish(&self, finished: &mut Vec<FinishedJob>) {
        if self.is_ordered() {
            let done = finished.iter_mut().filter(|finished| {
                matches!(finished.result, JobResult::Outcome(Outcome::Ack | Outcome::Skip))
            });
            self.queue.end_lanes(done.filter_map(|finished| finished.job.leave_lane()));
        }
        self.send_to_settlers(finished);
    }

    /// Lets the lanes of messages go on that have left the worker: settled, lost or released.
    pub(crate) fn leave_lanes<'a>(&self, jobs: impl Iterator<Item = &'a Job>) {
        if self.is_ordered() {
            self.queue.end_lanes(jobs.filter_map(|job| match job.place {
                Place::Out(lane) => Some(lane),
                Place::Free | Place::Behind(_) => None,
            }));
        }
    }
}
