//! Deliberate mistakes, to show that the tests would notice them. Outside tests and the `sim` feature none can be
//! planted, and every question for one is answered "no" at compile time.

/// A mistake that a log like this could have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// `durable` is published before the sync.
    AcknowledgedBeforeSync,
    /// `durable` is published without a sync.
    SyncSkipped,
    /// The folder is not synced after creations and renames.
    FolderNotSynced,
    /// Records are believed without their checksum.
    ChecksumUnchecked,
    /// Records and segments need not continue the one before.
    ChainUnchecked,
    /// Any damage in the last segment counts as a torn tail.
    CutOnAnyDamage,
    /// Records claim one position more than is durable.
    ClaimOffByOne,
    /// Segments go before the manifest does without them.
    RemovedBeforeManifest,
    /// After a failed sync the next one is believed.
    SyncRetried,
    /// A torn tail is left where it is, and records are appended behind it.
    TailNotCut,
    /// Bytes that an earlier process may have failed to sync are not written again.
    TailNotRewritten,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 11] = [
        Bug::AcknowledgedBeforeSync,
        Bug::SyncSkipped,
        Bug::FolderNotSynced,
        Bug::ChecksumUnchecked,
        Bug::ChainUnchecked,
        Bug::CutOnAnyDamage,
        Bug::ClaimOffByOne,
        Bug::RemovedBeforeManifest,
        Bug::SyncRetried,
        Bug::TailNotCut,
        Bug::TailNotRewritten,
    ];
}

/// The mistake planted in a log, usually none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Planted {
    #[cfg(any(test, feature = "sim"))]
    bug: Option<Bug>,
}

impl Planted {
    /// Plants one.
    #[cfg(any(test, feature = "sim"))]
    pub fn with(bug: Bug) -> Planted {
        Planted { bug: Some(bug) }
    }

    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn has(self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    #[cfg(not(any(test, feature = "sim")))]
    #[inline]
    pub(crate) fn has(self, _: Bug) -> bool {
        false
    }
}
