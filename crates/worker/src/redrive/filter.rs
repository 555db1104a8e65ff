//! Selects the dead letters to redrive.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::backend::StreamId;
use crate::dead_letter::DeadLetter;
use crate::outcome::Reason;
use crate::redaction::Redaction;
use crate::wording::millis_since_epoch;

/// Selects dead letters. All conditions that are set must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only dead letters of this group, and those that name no group.
    pub group: Option<String>,
    /// Only dead letters with this reason.
    pub reason: Option<Reason>,
    /// Only dead letters whose error message or error type contains this text.
    pub error: Option<String>,
    /// Hides parts of errors from `error`. Otherwise somebody who searches errors could guess them character by
    /// character.
    pub hidden: Option<Redaction>,
    /// Only dead letters with these ids: their own, or those of the original entries.
    pub ids: Option<BTreeSet<StreamId>>,
    /// Only messages dead-lettered at least this long ago.
    pub older_than: Option<Duration>,
    /// Only messages dead-lettered at most this long ago.
    pub newer_than: Option<Duration>,
    /// Only dead letters with this id or a smaller one of their own.
    pub through: Option<StreamId>,
    /// The time at which ages are measured. `None` means now.
    pub at: Option<SystemTime>,
}

impl Filter {
    /// Returns whether a dead letter meets all conditions.
    pub fn matches(&self, dead_letter: &DeadLetter, now: SystemTime) -> bool {
        let age = self.at.unwrap_or(now).duration_since(dead_letter.dead_at).unwrap_or_default();
        self.group.as_ref().is_none_or(|group| *group == dead_letter.group || dead_letter.group.is_empty())
            && self.reason.is_none_or(|reason| dead_letter.reason == Some(reason))
            && self.ids.as_ref().is_none_or(|ids| dead_letter.ids().any(|id| ids.contains(&id)))
            && self.older_than.is_none_or(|least| age >= least)
            && self.newer_than.is_none_or(|most| age <= most)
            && self.through.is_none_or(|last| dead_letter.id <= last)
            && self.error.as_ref().is_none_or(|text| self.is_in_error(text, dead_letter))
    }

    fn is_in_error(&self, text: &str, dead_letter: &DeadLetter) -> bool {
        let DeadLetter { error, error_type, fields, .. } = dead_letter;
        [error, error_type].into_iter().any(|error| match &self.hidden {
            None => error.contains(text),
            Some(hidden) => hidden.mask(error, fields).contains(text),
        })
    }

    /// Returns the filter with this time, unless it has one: ages are whole milliseconds, as in the digest of a plan.
    pub(crate) fn fixed(&self, now: SystemTime) -> Filter {
        let at = UNIX_EPOCH + Duration::from_millis(millis_since_epoch(now));
        Filter { at: self.at.or(Some(at)), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Entry;
    use crate::dead_letter;
    use crate::message::sample;
    use crate::outcome::Failure;

    fn dead_letter(reason: Reason, error: &str, dead_at: SystemTime) -> DeadLetter {
        let failure = Failure { error: error.into(), error_type: "PayError".into(), reason };
        let dead_letter = dead_letter::compose(&sample(&[]), "dead", &failure, 0, dead_at);
        DeadLetter::read(&Entry { id: StreamId::new(5, 0), fields: dead_letter.fields }).unwrap()
    }

    #[test]
    fn filter_requires_every_condition() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        let dead_letter = dead_letter(Reason::Panic, "index out of bounds", now - Duration::from_secs(10));
        let all = Filter {
            group: Some("billing".into()),
            reason: Some(Reason::Panic),
            error: Some("out of".into()),
            ids: Some([StreamId::new(5, 0)].into()),
            older_than: Some(Duration::from_secs(5)),
            newer_than: Some(Duration::from_secs(15)),
            hidden: Some(Redaction::default()),
            through: Some(StreamId::new(5, 0)),
            at: Some(now),
        };
        assert!(Filter::default().matches(&dead_letter, now));
        assert!(all.matches(&dead_letter, now));
        let wrong = [
            Filter { group: Some("mail".into()), ..all.clone() },
            Filter { reason: Some(Reason::Decode), ..all.clone() },
            Filter { error: Some("timeout".into()), ..all.clone() },
            Filter { ids: Some([StreamId::new(6, 0)].into()), ..all.clone() },
            Filter { older_than: Some(Duration::from_secs(11)), ..all.clone() },
            Filter { newer_than: Some(Duration::from_secs(9)), ..all.clone() },
            Filter { through: StreamId::new(5, 0).prev(), ..all.clone() },
            Filter { at: Some(now + Duration::from_secs(6)), ..all.clone() },
        ];
        for filter in wrong {
            assert!(!filter.matches(&dead_letter, now), "{filter:?}");
        }
        let by_origin = Filter { ids: Some([sample(&[]).id].into()), ..Filter::default() };
        assert!(by_origin.matches(&dead_letter, now));
        let by_type = Filter { error: Some("PayError".into()), ..Filter::default() };
        assert!(by_type.matches(&dead_letter, now));
    }
}
