//! Consumers beside their workers: `consumer ls` and `top` show a row for each.

use millstream_worker::backend::ConsumerInfo;
use millstream_worker::heartbeat::{Heartbeat, WorkerInfo, WorkerState};

use super::value::{ABSENT, age, count};

/// A consumer of a group and one of its workers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConsumerRow<'a> {
    /// The consumer name.
    pub(crate) name: &'a str,
    /// The consumer. `None` if a worker with this name has not read yet.
    pub(crate) consumer: Option<&'a ConsumerInfo>,
    /// The worker. `None` for other clients, and for workers without heartbeats.
    pub(crate) worker: Option<&'a WorkerInfo>,
}

/// Returns a row for each worker and for each consumer without one, sorted by name.
pub(crate) fn rows<'a>(consumers: &'a [ConsumerInfo], workers: &'a [WorkerInfo]) -> Vec<ConsumerRow<'a>> {
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

impl ConsumerRow<'_> {
    /// Returns where the worker runs, its busy slots, the age of its heartbeat and its state.
    pub(crate) fn worker_cells(&self) -> [String; 5] {
        let Some(worker) = self.worker else { return [ABSENT; 5].map(str::to_owned) };
        let Heartbeat { host, pid, busy, slots, .. } = &worker.heartbeat;
        let busy = format!("{} of {}", count(*busy), count(*slots));
        [host.clone(), pid.to_string(), busy, age(worker.age), state(worker).to_owned()]
    }
}

/// Returns the state of a worker, `dead` if it sends no heartbeats any more.
fn state(worker: &WorkerInfo) -> &'static str {
    match worker.heartbeat.state {
        _ if !worker.is_alive() => "dead",
        WorkerState::CircuitOpen => "circuit open",
        state => state.as_str(),
    }
}
