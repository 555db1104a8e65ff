//! What is counted, and the text Prometheus reads.
//!
//! A [`Registry`] holds every series of a process; [`WorkerMetrics`] are those of one worker, made once and then
//! only touched by relaxed atomic additions. [`definitions`] is the one list of all names.

pub mod definitions;
mod exporter;
mod registry;
mod text;
mod value;
mod worker;

pub use exporter::{Consumers, exporter_text};
pub use registry::Registry;
pub use text::{CONTENT_TYPE, Kind, Text};
pub use value::{Counter, Gauge, Histogram};
pub use worker::{Processed, WorkerMetrics};
