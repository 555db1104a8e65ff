//! Computes from the measured phases what 10⁹ messages a day need, and prints both as tables.

use std::time::Duration;

use super::PARTITIONS;
use super::meter::Usage;

const MESSAGES_PER_DAY: f64 = 1e9;
/// The busiest moment of a day, as a multiple of the mean.
const PEAK: f64 = 5.0;
const PLANNED_PARTITIONS: f64 = 96.0;

/// The servers of a plan.
pub(crate) struct Servers {
    pub(crate) primaries: f64,
    pub(crate) replicas_of_each: f64,
}

/// The cluster of the plan.
pub(crate) const CLUSTER: Servers = Servers { primaries: 3.0, replicas_of_each: 2.0 };
/// The only server of the plan.
pub(crate) const ONE_SERVER: Servers = Servers { primaries: 1.0, replicas_of_each: 0.0 };

impl Servers {
    /// Returns what all servers with messages are called, what one of them is called, and whether there are replicas.
    fn names(&self) -> (&'static str, &'static str, bool) {
        match self.replicas_of_each > 0.0 {
            true => ("all primaries", "a primary", true),
            false => ("the server", "the server", false),
        }
    }
}

/// What was measured in a phase.
pub(crate) struct Phase {
    pub(crate) usage: Usage,
    pub(crate) messages: usize,
    pub(crate) seconds: f64,
}

impl Phase {
    fn us_each(&self, cpu: Duration) -> f64 {
        cpu.as_secs_f64() * 1e6 / self.messages as f64
    }

    fn percent(&self, cpu: Duration) -> f64 {
        cpu.as_secs_f64() / self.seconds * 100.0
    }

    fn each(&self, count: f64) -> f64 {
        count / self.messages as f64
    }
}

/// Prints the tables. `stored` is the memory of a message in a primary, in bytes.
pub(crate) fn print(rest: &Phase, burst: &Phase, day: &Phase, stored: f64, servers: &Servers) {
    let (r, b, d) = (&rest.usage, &burst.usage, &day.usage);
    let (all, one, has_replicas) = servers.names();
    println!("| measured | at rest | burst | the day |\n|---|--:|--:|--:|");
    println!("| messages/s | 0 | {:.0} | {:.0} |", rate(burst), rate(day));
    let mut cpus = vec![
        (all, [r.primaries.cpu, b.primaries.cpu, d.primaries.cpu]),
        ("all workers", [r.workers_cpu, b.workers_cpu, d.workers_cpu]),
    ];
    if has_replicas {
        cpus.insert(1, ("all replicas", [r.replicas.cpu, b.replicas.cpu, d.replicas.cpu]));
    }
    for (name, cpu) in cpus {
        println!(
            "| CPU of {name} | {:.1} % of one core | {:.1} µs a message | {:.1} µs a message |",
            rest.percent(cpu[0]),
            burst.us_each(cpu[1]),
            day.us_each(cpu[2])
        );
    }
    println!(
        "| commands to {all} | {:.0} a second | {:.2} a message | {:.2} a message |",
        r.primaries.commands / rest.seconds,
        burst.each(b.primaries.commands),
        day.each(d.primaries.commands)
    );
    let mut networks = vec![
        ("from clients", [b.primaries.input_bytes, d.primaries.input_bytes]),
        ("to clients", [b.primaries.output_bytes, d.primaries.output_bytes]),
    ];
    if has_replicas {
        networks.push(("to one replica", [b.primaries.replicated_bytes, d.primaries.replicated_bytes]));
    }
    for (name, bytes) in networks {
        println!(
            "| network of {all}, {name} | | {:.0} bytes a message | {:.0} bytes a message |",
            burst.each(bytes[0]),
            day.each(bytes[1])
        );
    }
    println!("| memory of a message in {one} | | {stored:.0} bytes | |");
    print_plan(rest, burst, stored, servers);
}

fn rate(phase: &Phase) -> f64 {
    phase.messages as f64 / phase.seconds
}

fn print_plan(rest: &Phase, burst: &Phase, stored: f64, servers: &Servers) {
    let Servers { primaries, replicas_of_each } = *servers;
    let replicas = primaries * replicas_of_each;
    let (all, _, has_replicas) = servers.names();
    let (r, b) = (&rest.usage, &burst.usage);
    let mean = MESSAGES_PER_DAY / 86_400.0;
    let peak = mean * PEAK;
    // At rest the cost is that of leases and waiting reads, which grows with the number of partitions.
    let fixed = |cpu: Duration| cpu.as_secs_f64() / rest.seconds * PLANNED_PARTITIONS / PARTITIONS as f64;
    let cores = |at_rest: Duration, us_each: f64| fixed(at_rest) + peak * us_each / 1e6;
    let primaries_cpu = cores(r.primaries.cpu, burst.us_each(b.primaries.cpu));
    // Each replica of a primary does the same.
    let replicas_cpu = cores(r.replicas.cpu, burst.us_each(b.replicas.cpu)) * replicas_of_each;
    let workers_cpu = cores(r.workers_cpu, burst.us_each(b.workers_cpu));
    let megabytes = |bytes: f64| burst.each(bytes) * peak / 1e6;
    let (input, output) = (megabytes(b.primaries.input_bytes), megabytes(b.primaries.output_bytes));
    let replicated = megabytes(b.primaries.replicated_bytes) * replicas_of_each;
    let hour = mean * 3600.0 * stored / 1e9;
    println!("\n| for 10⁹ messages a day | at the peak |\n|---|---|");
    println!("| messages/s | {mean:.0} on average, {peak:.0} at the peak |");
    let row = |name: String, cpu: f64, count: f64| {
        println!("| CPU of {name} | {cpu:.2} cores, {:.0} % of one core each |", cpu / count * 100.0);
    };
    row(if has_replicas { format!("{all}: {primaries}") } else { all.to_owned() }, primaries_cpu, primaries);
    if has_replicas {
        row(format!("all replicas: {replicas}"), replicas_cpu, replicas);
    }
    println!("| CPU of the workers, without the handlers | {workers_cpu:.2} cores |");
    let (input, output) = (input / primaries, output / primaries);
    let (each, to_replicas, in_each) = match has_replicas {
        true => (
            "each primary",
            format!(", {:.0} MB/s to its replicas", replicated / primaries),
            format!(", {:.0} GB in each primary and in each replica", hour / primaries),
        ),
        false => (all, String::new(), String::new()),
    };
    println!("| network of {each} | in {input:.0} MB/s; out {output:.0} MB/s to workers{to_replicas} |");
    println!("| memory for an hour of the mean | {hour:.0} GB{in_each} |");
    println!(
        "| {PLANNED_PARTITIONS} partitions | {:.0} messages/s each; {:.0} MB each for an hour of the mean |",
        peak / PLANNED_PARTITIONS,
        hour * 1e3 / PLANNED_PARTITIONS
    );
}
