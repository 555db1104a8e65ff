//! Measures the selected cases: starts the servers, and runs each case on one server after the other.

use std::time::Instant;

use crate::Failure;
use crate::options::Options;
use crate::report::Report;
use crate::server::Server;
use crate::table::Row;
use crate::topics::{self, Case, Group, Servers};

/// Measures the selected rows of all topics, and saves the report.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut report = Report::begin(options)?;
    let mut failed = Vec::new();
    for (topic, groups) in topics::TOPICS {
        let (begun, before) = (Instant::now(), report.row_count());
        let measured = groups().into_iter().try_for_each(|group| measure_group(&group, options, &mut report));
        let count = report.row_count() - before;
        let measured = measured.and_then(|()| match options.wants_all() && count == 0 {
            true => Err("nothing was measured".into()),
            false => Ok(()),
        });
        // The figures of the other topics are still saved.
        if let Err(problem) = measured {
            eprintln!("bench: {topic}: {problem}");
            failed.push(*topic);
        }
        if count > 0 {
            println!("({topic}: {} s)", begun.elapsed().as_secs());
        }
    }
    if report.row_count() == 0 && failed.is_empty() {
        return Err(
            "nothing was measured: --only selects only rows that --quick or this machine leaves out".into()
        );
    }
    report.save(options)?;
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("these topics failed: {}", failed.join(", ")).into()),
    }
}

fn measure_group(group: &Group, options: &Options, report: &mut Report) -> Result<(), Failure> {
    let cases: Vec<_> = group.cases.iter().filter(|case| options.wants_case(case)).collect();
    let Some(table) = cases.first().map(|case| case.rows[0].table) else { return Ok(()) };
    let mut kept = Vec::new();
    let names: Vec<String> = match &group.servers {
        Servers::Kept(start) => {
            let (servers, note) = start(options)?;
            kept = servers;
            note.into_iter().for_each(|text| report.note(table, text));
            kept.iter().map(|server| server.name.clone()).collect()
        }
        Servers::Fresh(programs) => programs(options).into_iter().map(|program| program.name).collect(),
    };
    for server in &kept {
        (group.prepare)(server, options, &cases)?;
    }
    if !names.is_empty() {
        for case in cases {
            measure_case(case, group, &names, &mut kept, options, report)?;
        }
    }
    kept.iter().try_for_each(|server| (group.clean)(server))
}

/// Each repetition starts with another server, so a machine that warms up or slows down affects all servers alike.
fn measure_case(
    case: &Case,
    group: &Group,
    names: &[String],
    kept: &mut [Server],
    options: &Options,
    report: &mut Report,
) -> Result<(), Failure> {
    let mut samples = vec![vec![Vec::new(); names.len()]; case.rows.len()];
    for repetition in 0..case.repetitions.count(options) {
        for turn in 0..names.len() {
            let at = (turn + repetition) % names.len();
            let failed = |problem| format!("{} on {}: {problem}", case.rows[0].name, names[at]);
            let found = match &group.servers {
                Servers::Kept(_) => (case.measure)(&mut kept[at], options),
                Servers::Fresh(programs) => Server::start(&programs(options)[at], case.setup, options)
                    .and_then(|mut server| (case.measure)(&mut server, options)),
            };
            for (row, found) in samples.iter_mut().zip(found.map_err(failed)?) {
                row[at].extend(found);
            }
        }
    }
    for (row, samples) in case.rows.iter().zip(samples) {
        // A server without any figure does not have the command.
        let has_figures = |samples: &Vec<Vec<Option<f64>>>| samples.iter().flatten().any(Option::is_some);
        let measured = names.iter().cloned().zip(samples).filter(|(_, samples)| has_figures(samples));
        let (servers, samples): (Vec<_>, _) = measured.unzip();
        // Without the subject there is nothing to compare.
        if options.wants(row.table.topic, &row.name) && servers.first() == names.first() {
            report.add(Row {
                table: row.table,
                name: row.name.clone(),
                title: row.title.clone(),
                servers,
                samples,
            });
        }
    }
    Ok(())
}
