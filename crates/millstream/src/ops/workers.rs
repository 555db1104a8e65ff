//! The cells of a worker in the tables of `consumer ls` and `top`.

use millstream_worker::heartbeat::{Heartbeat, WorkerInfo, WorkerState};
use millstream_worker::operate::consumers::ConsumerRow;

use super::value::{ABSENT, age, count};

/// Returns where the worker of a row runs, its busy slots, the age of its heartbeat and its state.
pub(crate) fn worker_cells(row: &ConsumerRow<'_>) -> [String; 5] {
    let Some(worker) = row.worker else { return [ABSENT; 5].map(str::to_owned) };
    let Heartbeat { host, pid, busy, slots, .. } = &worker.heartbeat;
    let busy = format!("{} of {}", count(*busy), count(*slots));
    [host.clone(), pid.to_string(), busy, age(worker.age), state(worker).to_owned()]
}

/// Returns the state of a worker, `dead` if it sends no heartbeats any more.
fn state(worker: &WorkerInfo) -> &'static str {
    match worker.heartbeat.state {
        _ if !worker.is_alive() => "dead",
        WorkerState::CircuitOpen => "circuit open",
        state => state.as_str(),
    }
}
