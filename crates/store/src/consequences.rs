//! What a change means for others: for the log, for watchers and readers of its key, for whoever frees memory.

use millstream_engine::{Effect, StreamEffect};

use crate::planted::{self, Bug};

/// Whether a change must survive. When a consumer last asked in vain need not: a record for every empty poll
/// would cost a sync each.
pub(crate) fn is_logged(effect: &Effect<'_>) -> bool {
    match effect {
        Effect::Stream(StreamEffect::ConsumerSeen { .. }) => false,
        Effect::Stream(StreamEffect::Repeat) => !planted::has(Bug::RepeatNotLogged),
        Effect::Stream(StreamEffect::Forget { .. }) => !planted::has(Bug::ForgettingNotLogged),
        Effect::Stream(StreamEffect::ConsumerCreate { .. }) => !planted::has(Bug::ConsumerCreationNotLogged),
        Effect::Stream(StreamEffect::Deliver { pending: false, .. }) => {
            !planted::has(Bug::UnacknowledgedDeliveryNotLogged)
        }
        _ => true,
    }
}

/// Whether a transaction that watches the key must not run. Groups, what they track and XSETID are not
/// watched, as in Redis: reading and acknowledging would break every transaction on a busy stream.
pub(crate) fn touches_watchers(effect: &Effect<'_>) -> bool {
    use StreamEffect::{Append, Create, DeleteEntries, TrimEntries, TrimThrough};
    match effect {
        Effect::Stream(effect) => matches!(
            effect,
            Append { .. } | Create | DeleteEntries { .. } | TrimEntries { .. } | TrimThrough { .. }
        ),
        _ => true,
    }
}

/// Whether the change may leave something behind that takes a while to free.
pub(crate) fn may_remove_much(effect: &Effect<'_>) -> bool {
    use StreamEffect::{GroupDestroy, TrimThrough};
    matches!(
        effect,
        Effect::Delete | Effect::StringSet { .. } | Effect::Stream(TrimThrough { .. } | GroupDestroy { .. })
    )
}

/// Whether readers waiting for the key may have something to read, or nothing left to wait for.
pub(crate) fn may_serve_readers(effect: &Effect<'_>) -> bool {
    match effect {
        Effect::Delete | Effect::StringSet { .. } | Effect::ListPush { .. } => true,
        Effect::Stream(effect) => {
            use StreamEffect::{Append, GroupDestroy, Release};
            matches!(effect, Append { .. } | GroupDestroy { .. } | Release { .. })
        }
        _ => false,
    }
}
