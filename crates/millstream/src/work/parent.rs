//! Notices that the process which started the worker has ended, by the end of standard input.
//!
//! A package for a language starts the worker with a pipe as its standard input, writes nothing, and keeps the other
//! end open. When that process ends, however it ends, the system closes the pipe. There is no moment at which nobody
//! watches.

use std::io;

use tokio::sync::oneshot;

/// Completes when standard input has ended. Never completes if the worker does not watch it.
pub(super) async fn ended(is_watched: bool) {
    if !is_watched {
        return std::future::pending().await;
    }
    let (ended, noticed) = oneshot::channel::<()>();
    // A thread, because a blocking read in the runtime would delay the end of the process.
    std::thread::spawn(move || {
        // What arrives is ignored. An error is an end too.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        drop(ended);
    });
    // The sender is only dropped.
    let _ = noticed.await;
}
