//! The consumers of a group, each with its worker.

use crate::backend::ConsumerInfo;
use crate::heartbeat::WorkerInfo;

/// A consumer of a group and one of its workers.
#[derive(Clone, Copy, Debug)]
pub struct ConsumerRow<'a> {
    /// The consumer name.
    pub name: &'a str,
    /// The consumer. `None` if a worker with this name has not read yet.
    pub consumer: Option<&'a ConsumerInfo>,
    /// The worker. `None` for other clients, and for workers without heartbeats.
    pub worker: Option<&'a WorkerInfo>,
}

/// Returns a row for each worker and for each consumer without one, sorted by name.
pub fn rows<'a>(consumers: &'a [ConsumerInfo], workers: &'a [WorkerInfo]) -> Vec<ConsumerRow<'a>> {
    let of_worker = |worker: &'a WorkerInfo| {
        let name = worker.heartbeat.consumer.as_str();
        let consumer = consumers.iter().find(|consumer| consumer.name == name);
        ConsumerRow { name, consumer, worker: Some(worker) }
    };
    let without_worker =
        |consumer: &&ConsumerInfo| !workers.iter().any(|worker| worker.heartbeat.consumer == consumer.name);
    let others = consumers.iter().filter(without_worker).map(|consumer| ConsumerRow {
        name: &consumer.name,
        consumer: Some(consumer),
        worker: None,
    });
    let mut rows: Vec<ConsumerRow<'a>> = workers.iter().map(of_worker).chain(others).collect();
    rows.sort_by_key(|row| row.name);
    rows
}
