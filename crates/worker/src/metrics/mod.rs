//! The metrics of workers and streams, in the text format of Prometheus.
//!
//! A [`Registry`] contains all series of a process. [`WorkerMetrics`] are the series of one worker: created once, then
//! updated with relaxed atomics. [`definitions`] lists the names of all metrics.

pub mod definitions;
mod exporter;
mod registry;
mod text;
mod value;
mod worker;

pub use exporter::{ConsumerSeries, exporter_text};
pub use registry::Registry;
pub use text::{CONTENT_TYPE, MetricKind, PrometheusText};
pub use value::{Counter, Gauge, Histogram};
pub use worker::{Processed, WorkerMetrics};
