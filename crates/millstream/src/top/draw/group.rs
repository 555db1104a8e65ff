//! The page of one group: why it is not well, its figures, its consumers, and what is stuck with whom.

use millstream_worker::backend::{ConsumerInfo, PendingRow};
use millstream_worker::monitor::{GroupRates, GroupSnapshot, Health, LagKnown, Verdict};
use ratatui::text::{Line, Span};

use super::grid::{Column, Grid, Kind};
use super::number::rate;
use super::palette::Palette;
use crate::ops::shape::lag;
use crate::ops::value::{NOTHING, age, age_of, age_or_nothing, count, counted, text};
use crate::top::row::{GroupRow, Key, Row};
use crate::top::state::State;

/// The lines of the page.
pub(super) fn lines(state: &State, key: &Key, palette: &Palette, width: usize) -> Vec<Line<'static>> {
    let mut lines = vec![title(state, key, palette)];
    let Some((row, group_row)) = state.row(key).and_then(|row| Some((row, row.group.as_ref()?))) else {
        lines.push(Line::from(missing(state, key)));
        return lines;
    };
    let group = &group_row.snapshot;
    lines.extend(findings(&group_row.verdict, palette));
    lines.push(Line::default());
    lines.extend(figures(state, row, group_row).map(|(name, value)| {
        Line::from(vec![Span::styled(format!("{name:<10}"), palette.dim), Span::raw(value)])
    }));
    lines.push(Line::default());
    lines.extend(consumers(&group.consumers, palette, width));
    lines.push(Line::default());
    lines.extend(stuck(group, palette, width));
    lines
}

/// A stream and its group on one line.
pub(super) fn name(key: &Key) -> String {
    let stream = text(key.stream.as_bytes());
    match &key.group {
        Some(group) => format!("{stream} / {}", text(group.as_bytes())),
        None => stream,
    }
}

fn title(state: &State, key: &Key, palette: &Palette) -> Line<'static> {
    let mut line = Line::from(Span::styled(name(key), palette.title));
    if let Some(health) = state.row(key).and_then(Row::health) {
        line.push_span("  ");
        line.push_span(Span::styled(health.to_string(), palette.health(health)));
    }
    line
}

fn missing(state: &State, key: &Key) -> String {
    let stream = text(key.stream.as_bytes());
    match (&key.group, state.stream(&key.stream)) {
        (_, None) => "this stream is no longer there".to_owned(),
        (Some(_), Some(_)) => "this group is no longer there".to_owned(),
        (None, Some(_)) => {
            format!("no group reads this stream; make one with: millstream group create {stream} GROUP")
        }
    }
}

fn findings(verdict: &Verdict, palette: &Palette) -> Vec<Line<'static>> {
    let line = |health, text: &str| {
        let style = if health == Health::Ok { palette.dim } else { palette.health(health) };
        Line::styled(format!("  {}", crate::ops::value::text(text.as_bytes())), style)
    };
    verdict.findings.iter().map(|finding| line(finding.health, &finding.text)).collect()
}

fn figures(state: &State, row: &Row, group_row: &GroupRow) -> [(&'static str, String); 5] {
    let group = &group_row.snapshot;
    [
        ("lag", lag_figures(group, group_row.rates)),
        ("pending", pending_figures(group)),
        ("rates", rate_figures(row)),
        ("position", position(group)),
        ("dead", dead_letters(state, group)),
    ]
}

fn lag_figures(group: &GroupSnapshot, rates: Option<GroupRates>) -> String {
    let known = match group.lag.known {
        LagKnown::Kept => "exact",
        LagKnown::Counted => "exact, counted",
        LagKnown::AtLeast => "at least: too many to count",
    };
    let mut told = format!("{} ({known})", lag(group.lag));
    if let Some(waited) = group.unread_age() {
        told += &format!(", the oldest {} old", age(waited));
    }
    match rates.and_then(|rates| rates.caught_up_in) {
        Some(time) if group.lag.count > 0 => told += &format!(", caught up in {} at this rate", age(time)),
        _ => {}
    }
    told
}

fn pending_figures(group: &GroupSnapshot) -> String {
    let scan = &group.scan;
    let mut told = count(group.pending);
    if let Some(waited) = group.pending_age() {
        told += &format!(", the oldest {} old", age(waited));
    }
    if let Some(idle) = scan.longest_idle {
        told += &format!(", longest idle {}", age(idle));
    }
    if scan.looked_at > 0 {
        told += &format!(", most deliveries {}, {} released", scan.most_deliveries, count(scan.released));
    }
    if !scan.complete {
        told += &format!(" (of the oldest {})", count(scan.looked_at));
    }
    told
}

fn rate_figures(row: &Row) -> String {
    let per_second = |rate_known: Option<f64>| {
        rate_known.map_or_else(|| "not known yet".to_owned(), |known| format!("{}/s", rate(known)))
    };
    format!("in {}, out {}", per_second(row.added), per_second(row.acknowledged()))
}

fn position(group: &GroupSnapshot) -> String {
    let mut told = format!("last delivered {}", group.last_delivered);
    if let (Some(read), Some(added)) = (group.entries_read, group.entries_added) {
        told += &format!(", {} read of {} ever added", count(read), count(added));
    }
    told
}

fn dead_letters(state: &State, group: &GroupSnapshot) -> String {
    let letters = counted(group.dead_letters_length, "dead letter", "dead letters");
    let Some(stream) = state.stream(&group.stream) else { return letters };
    let told = format!("{letters} of this stream in {}", text(stream.dead_letters.as_bytes()));
    if group.dead_letters_length == 0 {
        return told;
    }
    format!("{told}; see them with: millstream dlq ls {}", text(group.stream.as_bytes()))
}

fn column(heading: &str, kind: Kind, expendable: u8) -> Column {
    Column { heading: heading.to_owned(), kind, expendable }
}

fn consumers(consumers: &[ConsumerInfo], palette: &Palette, width: usize) -> Vec<Line<'static>> {
    if consumers.is_empty() {
        return vec![Line::from("no consumers: nobody has read for this group yet")];
    }
    let mut grid = Grid::new(vec![
        column("CONSUMER", Kind::Name, 0),
        column("PENDING", Kind::Number, 0),
        column("IDLE", Kind::Number, 0),
        column("LAST-GOT", Kind::Number, 1),
    ]);
    for consumer in consumers {
        grid.push(vec![
            text(consumer.name.as_bytes()).into(),
            count(consumer.pending).into(),
            age(consumer.idle).into(),
            age_or_nothing(consumer.inactive).into(),
        ]);
    }
    grid.lines(width, palette.dim)
}

fn stuck(group: &GroupSnapshot, palette: &Palette, width: usize) -> Vec<Line<'static>> {
    let scan = &group.scan;
    if scan.stuck == 0 {
        return vec![Line::styled("no stuck messages", palette.dim)];
    }
    let mut grid = Grid::new(vec![
        column("STUCK-MESSAGE", Kind::Name, 0),
        column("OWNER", Kind::Name, 0),
        column("AGE", Kind::Number, 1),
        column("IDLE", Kind::Number, 0),
        column("DELIVERIES", Kind::Number, 0),
    ]);
    scan.stuck_rows.iter().for_each(|row| grid.push(stuck_cells(row)));
    let mut lines = grid.lines(width, palette.dim);
    let more = scan.stuck.saturating_sub(scan.stuck_rows.len() as u64);
    if more > 0 {
        let at_least = if scan.complete { "" } else { "at least " };
        lines.push(Line::styled(format!("and {at_least}{} more", count(more)), palette.warn));
    }
    let names = [&group.stream, &group.name].map(|name| text(name.as_bytes()));
    lines.push(Line::styled(
        format!("see them all with: millstream pending ls {} {}", names[0], names[1]),
        palette.dim,
    ));
    lines
}

fn stuck_cells(row: &PendingRow) -> Vec<Span<'static>> {
    let owner = row.consumer.as_ref().map_or_else(|| NOTHING.to_owned(), |name| text(name.as_bytes()));
    vec![
        row.id.to_string().into(),
        owner.into(),
        age_or_nothing(age_of(row.id)).into(),
        age_or_nothing(row.idle).into(),
        count(row.deliveries).into(),
    ]
}
