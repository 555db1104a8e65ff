//! Measures what the nodes of the cluster and the workers use. It looks every second, so that it knows the role of each
//! node at any time, and what a process used before it was killed.

use std::collections::HashMap;
use std::process::Command;
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval};

use super::BoxResult;
use super::counters::{Info, addresses, ask, process_cpu};
use super::workers::WorkerProcess;

/// How often the meter looks.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What nodes and workers used in a phase.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) elapsed: Duration,
    pub(crate) primaries: NodeUsage,
    pub(crate) replicas: NodeUsage,
    pub(crate) workers_cpu: Duration,
}

/// What all primaries or all replicas used.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeUsage {
    pub(crate) cpu: Duration,
    pub(crate) commands: f64,
    /// Bytes from clients and to clients.
    pub(crate) input_bytes: f64,
    pub(crate) output_bytes: f64,
    /// Bytes to replicas.
    pub(crate) replicated_bytes: f64,
}

/// Measures usage between its looks.
pub(crate) struct Meter {
    addresses: Vec<String>,
    nodes: HashMap<String, Info>,
    workers: HashMap<u32, Duration>,
}

impl Meter {
    pub(crate) fn new(url: &str) -> Meter {
        Meter { addresses: addresses(url), nodes: HashMap::new(), workers: HashMap::new() }
    }

    /// Measures the usage until the future is ready, and adds it to `usage`.
    pub(crate) async fn measure<T>(
        &mut self,
        workers: &[WorkerProcess],
        usage: &mut Usage,
        until: impl Future<Output = T>,
    ) -> T {
        // What happened before belongs to no phase.
        self.look(workers, &mut Usage::default()).await;
        let began = Instant::now();
        let mut until = std::pin::pin!(until);
        let mut looks = interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let result = loop {
            tokio::select! {
                result = &mut until => break result,
                _ = looks.tick() => self.look(workers, usage).await,
            }
        };
        self.look(workers, usage).await;
        usage.elapsed += began.elapsed();
        result
    }

    async fn look(&mut self, workers: &[WorkerProcess], usage: &mut Usage) {
        for address in &self.addresses {
            // A node that was killed does not answer.
            let Ok(info) = Info::of(address).await else { continue };
            let before = self.nodes.insert(address.clone(), info.clone()).unwrap_or_default();
            let increase = |name| info.number(name) - before.number(name);
            let is_primary = info.text("role") == Some("master");
            let node = if is_primary { &mut usage.primaries } else { &mut usage.replicas };
            let replicated = increase("total_net_repl_output_bytes");
            node.cpu += info.cpu().saturating_sub(before.cpu());
            node.commands += increase("total_commands_processed");
            node.input_bytes += increase("total_net_input_bytes") - increase("total_net_repl_input_bytes");
            node.output_bytes += increase("total_net_output_bytes") - replicated;
            node.replicated_bytes += replicated;
        }
        for worker in workers {
            let Ok(cpu) = process_cpu(worker.id()) else { continue };
            let before = self.workers.insert(worker.id(), cpu).unwrap_or_default();
            usage.workers_cpu += cpu.saturating_sub(before);
        }
    }

    /// Kills a primary, as a crash would. Returns its address.
    pub(crate) async fn kill_primary(&mut self) -> BoxResult<Option<String>> {
        for address in &self.addresses {
            let info = Info::of(address).await?;
            if info.text("role") == Some("master") && info.number("connected_slaves") > 0.0 {
                let process = info.number("process_id").to_string();
                let killed = Command::new("kill").args(["-9", &process]).status()?;
                // The system closes its sockets: now every connection is refused.
                let _ = ask(address, "PING").await;
                return Ok(killed.success().then(|| address.clone()));
            }
        }
        Ok(None)
    }
}
