//! The page of one group: its problems, figures, consumers and stuck messages.

use millstream_worker::backend::{PendingRow, StreamId};
use millstream_worker::monitor::{GroupSnapshot, Health, LagAccuracy, MissedAccuracy};
use millstream_worker::observe::{Eta, GroupRow, Row, RowKey};
use millstream_worker::operate::consumers::rows as consumer_rows;
use ratatui::text::{Line, Span};

use super::grid::{CellKind, Column, Grid};
use super::number::{rate, rate_or_absent};
use super::palette::Palette;
use crate::ops::safe_text::printable;
use crate::ops::shell::suggest;
use crate::ops::value::{ABSENT, age, age_of, age_or_absent, count, counted, format_lag, format_missed};
use crate::ops::workers;
use crate::top::state::State;

pub(super) fn lines(state: &State, key: &RowKey, palette: &Palette, width: usize) -> Vec<Line<'static>> {
    let mut lines = vec![title(state, key, palette)];
    let Some((row, group_row)) = state.row(key).and_then(|row| Some((row, row.group.as_ref()?))) else {
        lines.push(Line::from(missing(state, key)));
        return lines;
    };
    let group = &group_row.snapshot;
    lines.extend(findings(group_row, palette));
    lines.push(Line::default());
    lines.extend(figures(row, group_row).map(|(name, value)| {
        Line::from(vec![Span::styled(format!("{name:<10}"), palette.dim), Span::raw(value)])
    }));
    lines.push(Line::default());
    if row.partitions > 0 {
        lines.extend(partitions(state, key, palette, width));
        lines.push(Line::default());
    }
    lines.extend(consumers(group, palette, width));
    lines.push(Line::default());
    lines.extend(stuck(group, palette, width));
    lines
}

pub(super) fn name(key: &RowKey) -> String {
    let stream = printable(&key.stream);
    match &key.group {
        Some(group) => format!("{stream} / {}", printable(group)),
        None => stream,
    }
}

fn title(state: &State, key: &RowKey, palette: &Palette) -> Line<'static> {
    let mut line = Line::from(Span::styled(name(key), palette.title));
    if let Some(health) = state.row(key).and_then(Row::health) {
        line.push_span("  ");
        line.push_span(Span::styled(health.to_string(), palette.health(health)));
    }
    line
}

fn missing(state: &State, key: &RowKey) -> String {
    match (&key.group, state.stream(&key.stream)) {
        (_, None) => "this stream no longer exists".to_owned(),
        (Some(_), Some(_)) => "this group no longer exists".to_owned(),
        (None, Some(_)) => {
            let create = suggest("group create", &[&key.stream, "GROUP"], "");
            format!("no group reads this stream; create one with: {create}")
        }
    }
}

fn findings(group: &GroupRow, palette: &Palette) -> Vec<Line<'static>> {
    let line = |health, text: &str| {
        let style = if health == Health::Ok { palette.dim } else { palette.health(health) };
        Line::styled(format!("  {}", printable(text)), style)
    };
    let findings = group.findings.iter().map(|observed| &observed.finding);
    findings.map(|finding| line(finding.health, &finding.text)).collect()
}

fn figures(row: &Row, group_row: &GroupRow) -> [(&'static str, String); 6] {
    let group = &group_row.snapshot;
    [
        ("lag", lag_figures(group, group_row.eta)),
        ("missed", missed_figures(group)),
        ("pending", pending_figures(group)),
        ("rates", rate_figures(row)),
        ("position", position(group)),
        ("dead", dead_letters(group)),
    ]
}

fn lag_figures(group: &GroupSnapshot, eta: Eta) -> String {
    let accuracy = match group.lag.accuracy {
        LagAccuracy::Reported => "exact",
        LagAccuracy::Counted => "exact, counted",
        LagAccuracy::LowerBound => "lower bound: too many to count",
    };
    let mut figures = format!("{} ({accuracy})", format_lag(group.lag));
    if let Some(waited) = group.unread_age() {
        figures += &format!(", the oldest {} old", age(waited));
    }
    if let Eta::At(time) = eta {
        figures += &format!(", caught up in {} at this rate", age(time));
    }
    figures
}

fn missed_figures(group: &GroupSnapshot) -> String {
    let accuracy = match group.missed.accuracy {
        MissedAccuracy::Exact => "trimmed or deleted before the group read them",
        MissedAccuracy::AtLeast => "lower bound",
        MissedAccuracy::AtMost => "upper bound: some may have been removed before the group was created",
        MissedAccuracy::Unknown => "unknown: the store does not count entries",
    };
    format!("{} ({accuracy})", format_missed(group.missed))
}

fn pending_figures(group: &GroupSnapshot) -> String {
    let scan = &group.scan;
    let mut figures = count(group.pending);
    if let Some(waited) = group.pending_age() {
        figures += &format!(", the oldest added {} ago", age(waited));
    }
    if let Some(idle) = scan.longest_idle {
        figures += &format!(", longest idle {}", age(idle));
    }
    if scan.scanned > 0 {
        figures += &format!(", most deliveries {}, {} released", scan.most_deliveries, count(scan.released));
    }
    if let Some(next) = scan.next_attempt_in {
        figures +=
            &format!(", {} for a retry, the next in {}", counted(scan.waiting, "waits", "wait"), age(next));
    }
    if !scan.complete {
        figures += &format!(" (of the oldest {})", count(scan.scanned));
    }
    figures
}

fn rate_figures(row: &Row) -> String {
    let per_second = |rate_known: Option<f64>| {
        rate_known.map_or_else(|| "unknown".to_owned(), |known| format!("{}/s", rate(known)))
    };
    format!("in {}, out {}", per_second(row.rates.added), per_second(row.rates.acknowledged))
}

fn position(group: &GroupSnapshot) -> String {
    let mut figures = format!("last delivered {}", group.last_delivered);
    if let (Some(read), Some(added)) = (group.entries_read, group.entries_added) {
        figures += &format!(", {} read of {} ever added", count(read), count(added));
    }
    figures
}

fn dead_letters(group: &GroupSnapshot) -> String {
    let dead_letters = counted(group.dead_letters_length, "dead letter", "dead letters");
    let location = format!("{dead_letters} in {}", printable(&group.dead_letters));
    if group.dead_letters_length == 0 {
        return location;
    }
    format!("{location}; list them with: {}", suggest("dlq ls", &[&group.stream], ""))
}

fn partitions(state: &State, key: &RowKey, palette: &Palette, width: usize) -> Vec<Line<'static>> {
    let mut grid = Grid::new(vec![
        column("PARTITION", CellKind::Number, 0),
        column("LAG", CellKind::Number, 0),
        column("OLDEST-UNREAD", CellKind::Number, 3),
        column("PENDING", CellKind::Number, 1),
        column("IN/S", CellKind::Number, 4),
        column("OUT/S", CellKind::Number, 2),
        column("CONSUMERS", CellKind::Name, 5),
        column("HEALTH", CellKind::Word, 0),
    ]);
    for row in state.parts(key) {
        let Some(group) = &row.group else { continue };
        let found = &group.snapshot;
        let number = found.number().map_or_else(|| ABSENT.to_owned(), |number| number.to_string());
        let consumers: Vec<String> =
            found.consumers.iter().map(|consumer| printable(&consumer.name)).collect();
        grid.push(vec![
            number.into(),
            format_lag(found.lag).into(),
            age_or_absent(found.unread_age()).into(),
            count(found.pending).into(),
            rate_or_absent(row.rates.added).into(),
            rate_or_absent(row.rates.acknowledged).into(),
            if consumers.is_empty() { ABSENT.into() } else { consumers.join(" ").into() },
            Span::styled(group.health.to_string(), palette.health(group.health)),
        ]);
    }
    grid.lines(width, palette.dim)
}

fn column(heading: &str, kind: CellKind, drop_priority: u8) -> Column {
    Column { heading: heading.to_owned(), kind, drop_priority }
}

fn consumers(group: &GroupSnapshot, palette: &Palette, width: usize) -> Vec<Line<'static>> {
    let rows = consumer_rows(&group.consumers, &group.workers);
    if rows.is_empty() {
        // The position of a new group can be the end of the stream, so it shows nothing about reads.
        let is_at_the_start = group.last_delivered == StreamId::MIN;
        return vec![Line::from(match group.was_read() {
            true => "no consumers: those that read from this group have left",
            false if is_at_the_start => "no consumers: no consumer has read from this group yet",
            false => "no consumers",
        })];
    }
    let mut grid = Grid::new(vec![
        column("CONSUMER", CellKind::Name, 0),
        column("PENDING", CellKind::Number, 0),
        column("IDLE", CellKind::Number, 0),
        column("INACTIVE", CellKind::Number, 6),
        column("HOST", CellKind::Name, 4),
        column("PID", CellKind::Number, 5),
        column("BUSY", CellKind::Number, 3),
        column("HEARTBEAT", CellKind::Number, 2),
        column("STATE", CellKind::Word, 1),
    ]);
    for row in rows {
        let mut cells = vec![
            printable(row.name).into(),
            count(row.consumer.map_or(0, |consumer| consumer.pending)).into(),
            age_or_absent(row.consumer.map(|consumer| consumer.idle)).into(),
            age_or_absent(row.consumer.and_then(|consumer| consumer.inactive)).into(),
        ];
        cells.extend(workers::worker_cells(&row).map(|cell| Span::from(printable(cell))));
        grid.push(cells);
    }
    grid.lines(width, palette.dim)
}

fn stuck(group: &GroupSnapshot, palette: &Palette, width: usize) -> Vec<Line<'static>> {
    let scan = &group.scan;
    if scan.stuck == 0 {
        return vec![Line::styled("no stuck messages", palette.dim)];
    }
    let mut grid = Grid::new(vec![
        column("STUCK-MESSAGE", CellKind::Name, 0),
        column("OWNER", CellKind::Name, 0),
        column("AGE", CellKind::Number, 1),
        column("IDLE", CellKind::Number, 0),
        column("DELIVERIES", CellKind::Number, 0),
    ]);
    scan.stuck_rows.iter().for_each(|row| grid.push(stuck_cells(row)));
    let mut lines = grid.lines(width, palette.dim);
    let more = scan.stuck.saturating_sub(scan.stuck_rows.len() as u64);
    if more > 0 {
        let at_least = if scan.complete { "" } else { "at least " };
        lines.push(Line::styled(format!("and {at_least}{} more", count(more)), palette.warn));
    }
    let list = suggest("pending ls", &[&group.stream, &group.name], "");
    lines.push(Line::styled(format!("list all pending entries with: {list}"), palette.dim));
    lines
}

fn stuck_cells(row: &PendingRow) -> Vec<Span<'static>> {
    let owner = row.consumer.as_ref().map_or_else(|| ABSENT.to_owned(), printable);
    vec![
        row.id.to_string().into(),
        owner.into(),
        age_or_absent(age_of(row.id)).into(),
        age_or_absent(row.idle).into(),
        count(row.deliveries).into(),
    ]
}
