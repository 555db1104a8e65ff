//! Looking at streams and groups without touching them: what waits, since when, with whom, and whether that is well.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use millstream_worker::monitor::{Limits, Monitor};
//!
//! let backend = millstream_worker::connect("memory:").await?;
//! let monitor = Monitor::new(backend);
//! for stream in monitor.streams("orders*").await? {
//!     for group in &stream.groups {
//!         println!("{}: lag {}, {}", group.name, group.lag, group.verdict(&Limits::default()));
//!     }
//! }
//! # Ok::<(), millstream_worker::Error>(())
//! # }).unwrap();
//! ```

mod look;
mod rates;
mod snapshot;
#[cfg(test)]
mod tests;
mod verdict;

pub use look::Monitor;
pub(crate) use look::count_after;
pub use rates::{GroupRates, StreamRates};
pub use snapshot::{GroupSnapshot, Lag, LagKnown, PendingScan, StreamSnapshot, Waiting};
pub use verdict::{Finding, Health, Limits, Threshold, Verdict};
