//! The metrics of workers and streams, in the text format of Prometheus.
//!
//! A [`Registry`] contains all series of a process. [`WorkerMetrics`] are the series of one worker: created once, then
//! updated with relaxed atomics. [`definitions`] lists the names of all metrics.

mod compression;
pub mod definitions;
mod exporter;
mod registry;
#[cfg(test)]
mod tests;
mod value;
mod worker;

pub use compression::{accepts_gzip, gzip};
pub use millstream_protocol::prometheus::{CONTENT_TYPE, MetricKind, PrometheusText};

pub use exporter::{EXPORTED_GROUPS_MAX, MoreSeries, exporter_text, observed_text, store_text};
pub use registry::Registry;
pub use value::{Counter, Gauge, Histogram};
pub use worker::{Processed, WorkerMetrics};
