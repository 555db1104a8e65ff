//! A gate across the workers of a process: while a message that may crash the process runs alone, no other handler
//! runs.
//!
//! The gate is a fair lock. Slots share it while their handlers run; a message that must run alone takes it
//! exclusively. Who asks first is first: slots that ask after such a message wait until it has run or given up.

use std::sync::Arc;

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What the workers of one process share: see [`WorkerBuilder::process`](crate::WorkerBuilder::process). Cheap to
/// clone.
#[derive(Clone, Debug, Default)]
pub struct Process {
    handlers: Arc<RwLock<()>>,
}

/// Held while handlers run.
pub(crate) enum Entered<'a> {
    Beside { _others: RwLockReadGuard<'a, ()> },
    Alone { _only: RwLockWriteGuard<'a, ()> },
}

impl Process {
    /// Lets handlers run beside others. `None` if a message runs alone, or waits for that.
    pub(crate) fn enter(&self) -> Option<Entered<'_>> {
        self.handlers.try_read().ok().map(|guard| Entered::Beside { _others: guard })
    }

    /// Waits until handlers can run beside others again.
    pub(crate) async fn opened(&self) {
        drop(self.handlers.read().await);
    }

    /// Waits until no other handler of the process runs.
    pub(crate) async fn enter_alone(&self) -> Entered<'_> {
        Entered::Alone { _only: self.handlers.write().await }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_message_runs_alone_and_then_the_others_go_on() {
        let process = Process::default();
        let (others, second) = (process.enter(), Duration::from_secs(1));
        assert!(others.is_some() && process.enter().is_some());
        let mut alone = Box::pin(process.enter_alone());
        assert!(timeout(second, &mut alone).await.is_err(), "a handler runs");
        assert!(process.enter().is_none(), "no handler starts while it waits");
        drop(others);
        let running = timeout(second, alone).await.expect("no handler runs any more");
        assert!(timeout(second, process.opened()).await.is_err() && process.enter().is_none());
        let waiting = tokio::spawn({
            let process = process.clone();
            async move { process.opened().await }
        });
        tokio::task::yield_now().await;
        drop(running);
        waiting.await.unwrap();
        assert!(process.enter().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_gives_up_holds_up_nobody() {
        let process = Process::default();
        let other = process.enter();
        assert!(timeout(Duration::from_secs(60), process.enter_alone()).await.is_err());
        assert!(other.is_some() && process.enter().is_some());
    }
}
