//! Monitors streams and groups without changing them: lag, pending entries, consumers, rates, and a verdict on health.
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

mod collect;
mod dead_letters;
mod describe;
mod growth;
mod missed;
mod partitioned;
mod rates;
mod retries;
mod snapshot;
#[cfg(test)]
mod tests;
mod verdict;

pub use collect::Monitor;
pub(crate) use collect::{count_after, lag_of};
pub(crate) use dead_letters::DeadLetters;
pub use dead_letters::dead_letter_streams;
pub(crate) use describe::StuckRule;
pub use growth::Growth;
pub use missed::{Missed, MissedAccuracy};
pub(crate) use partitioned::{GroupWorkers, PartitionLists, fold, logical_groups, read_workers};
pub use partitioned::{PartOf, PartitionOwners, Partitioned};
pub use rates::{GroupRates, StreamRates};
pub use retries::{known_records, retry_records};
pub use snapshot::{GroupSnapshot, Lag, LagAccuracy, OldestEntry, PendingScan, StreamSnapshot};
pub use verdict::{Finding, GroupVerdict, Health, Limits, Thresholds};
