//! Duties: what streams do at their times, without a request. The timekeeper does them, in transactions of bounded
//! size whose outcomes are in the log. Replay does not repeat a duty, and never looks at a clock.

use crate::dbkey::DbKey;
use crate::priority::TimeSlices;
use crate::store::Store;
use crate::txn::Txn;

impl Store {
    /// Does what the streams of all shards have to do by now. The store tells the timekeeper when the next duty is.
    pub(crate) fn run_duties(&self) {
        let mut slices = TimeSlices::begin();
        for shard in 0..self.shard_count() {
            while let Some(at) = self.due_stream(shard) {
                self.run_duties_of(&at, &mut slices);
            }
            if let Some(at_ms) = self.shard(shard).lock().schedule.earliest_ms() {
                self.timers.work_in(at_ms.saturating_sub(self.now_ms()));
            }
        }
    }

    fn due_stream(&self, shard: usize) -> Option<DbKey> {
        self.shard(shard).lock().schedule.due(self.now_ms())
    }

    fn run_duties_of(&self, at: &DbKey, slices: &mut TimeSlices) {
        let mut txn = Txn::of_shard(self, at.db, self.now_ms(), self.shard_of(&at.key));
        txn.schedule(at.db, &at.key);
        drop(txn);
        slices.pause();
    }
}
