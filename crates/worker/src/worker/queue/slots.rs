//! What the slots of a worker are doing: whether their tasks run, and what kind of messages they handle.

/// The slots of a worker.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    /// Number of slots that handle messages.
    busy: usize,
    /// Number of suspects that slots handle.
    suspects: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Whether its task runs.
    is_alive: bool,
    work: Work,
}

/// What a slot does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Work {
    #[default]
    Nothing,
    /// It handles messages that are not suspects.
    Messages,
    /// It handles this number of suspects, of which this is the highest level.
    Suspects { count: usize, level: u64 },
}

impl Slots {
    /// Marks this number of slots as running. Returns those whose tasks are to be started.
    pub(super) fn start(&mut self, count: usize) -> Vec<usize> {
        if self.slots.len() < count {
            self.slots.resize(count, Slot::default());
        }
        (0..count).filter(|slot| !std::mem::replace(&mut self.slots[*slot].is_alive, true)).collect()
    }

    /// Marks a slot as ended.
    pub(super) fn end(&mut self, slot: usize) {
        self.slots[slot].is_alive = false;
    }

    /// Records what a slot does from now on.
    pub(super) fn set_work(&mut self, slot: usize, work: Work) {
        let before = std::mem::replace(&mut self.slots[slot].work, work);
        self.busy += usize::from(work != Work::Nothing);
        self.busy -= usize::from(before != Work::Nothing);
        self.suspects += work.suspects();
        self.suspects -= before.suspects();
    }

    /// Number of slots that handle messages.
    pub(super) fn busy(&self) -> usize {
        self.busy
    }

    /// Number of suspects that slots handle.
    pub(super) fn suspects(&self) -> usize {
        self.suspects
    }

    /// Highest level of the suspects that slots handle. 0 if there are none.
    pub(super) fn highest_level(&self) -> u64 {
        if self.suspects == 0 {
            return 0;
        }
        let levels = self.slots.iter().map(|slot| match slot.work {
            Work::Suspects { level, .. } => level,
            Work::Nothing | Work::Messages => 0,
        });
        levels.max().unwrap_or_default()
    }
}

impl Work {
    fn suspects(self) -> usize {
        match self {
            Work::Suspects { count, .. } => count,
            Work::Nothing | Work::Messages => 0,
        }
    }
}
