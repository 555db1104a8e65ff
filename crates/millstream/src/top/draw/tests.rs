//! Frames of a snapshot of a store, drawn on an in-memory terminal.

use std::time::{Duration, Instant};

use millstream_worker::backend::{PendingRow, StreamId};
use millstream_worker::monitor::{Lag, LagAccuracy};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};

use super::*;
use crate::top::keys::Action;
use crate::top::sample;

const INTERVAL: Duration = Duration::from_secs(2);

async fn state() -> State {
    let mut state = State::new(INTERVAL, Instant::now());
    state.sort = millstream_worker::observe::Sort::Name;
    state.receive(Ok(sample::snapshot().await), Instant::now());
    state
}

fn buffer(state: &mut State, palette: &Palette, size: (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    terminal.draw(|frame| draw(state, palette, Instant::now(), frame)).unwrap();
    terminal.backend().buffer().clone()
}

fn lines(state: &mut State, size: (u16, u16)) -> Vec<String> {
    let buffer = buffer(state, &Palette::plain(), size);
    let line = |cells: &[ratatui::buffer::Cell]| cells.iter().map(|cell| cell.symbol()).collect::<String>();
    buffer.content.chunks(usize::from(size.0)).map(|cells| line(cells).trim_end().to_owned()).collect()
}

fn text(state: &mut State, size: (u16, u16)) -> String {
    lines(state, size).join("\n")
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[track_caller]
fn assert_contains(text: &str, words: &str) {
    assert!(text.contains(words), "no {words:?} in:\n{text}");
}

#[tokio::test]
async fn the_overview_shows_every_group() {
    let mut state = state().await;
    let lines = lines(&mut state, (150, 30));
    assert_contains(&lines[0], "millstream top  memory");
    assert_contains(
        &lines[1],
        "2 streams, 2 groups, 6 entries  lag 8  pending 2  in 0/s  out 0/s  1 degraded",
    );
    assert_eq!(lines[2], "");
    let headings = "STREAM▲ GROUP LENGTH LAG MISSED OLDEST-UNREAD PENDING OLDEST-PENDING STUCK CONSUMERS IN/S OUT/S HEALTH";
    assert_eq!(words(&lines[3]), words(headings));
    assert_eq!(words(&lines[4]), words("events - 1 - - - - - - - - - -"));
    let audit = words(&lines[5]);
    assert_eq!((&audit[..4], audit.last()), (&["orders", "audit", "5", "5"][..], Some(&"degraded")));
    let billing = words(&lines[6]);
    assert_eq!((&billing[..4], billing.last()), (&["orders", "billing", "5", "3"][..], Some(&"ok")));
    assert_contains(&lines[29], "Enter open  / filter  s sort: name  p pause  +/- every 2s  ? help  q quit");
}

#[tokio::test]
async fn the_lag_of_the_selected_group_is_drawn() {
    let mut state = state().await;
    for lag in [10, 80] {
        let mut snapshot = sample::snapshot().await;
        snapshot.streams[1].groups[1].lag = Lag { count: lag, accuracy: LagAccuracy::LowerBound };
        state.receive(Ok(snapshot), Instant::now());
    }
    state.act(Action::Last);
    let lines = lines(&mut state, (150, 30));
    assert_contains(&lines[6], "≥80");
    assert_contains(&lines[1], "lag ≥85");
    assert_contains(&lines[23], "lag of orders / billing: ≥80, peak 80 in the last 3 updates");
    assert_eq!(lines[24], "ok");
    let bars = |line: &str| line.chars().filter(|c| ('▁'..='█').contains(c)).count();
    assert_eq!(bars(&lines[28]), 3, "{lines:#?}");
    assert_eq!(bars(&lines[25]), 1, "{lines:#?}");
}

#[tokio::test]
async fn the_selected_row_is_visible_without_colours() {
    let mut state = state().await;
    let mut snapshot = sample::snapshot().await;
    // A consumer has read from audit and is gone: that is critical.
    snapshot.streams[1].groups[0].entries_read = Some(1);
    state.receive(Ok(snapshot), Instant::now());
    state.act(Action::Move(1));
    let plain = buffer(&mut state, &Palette::plain(), (150, 30));
    let reversed = |y: u16| plain.cell((0, y)).is_some_and(|cell| cell.modifier.contains(Modifier::REVERSED));
    assert_eq!([reversed(4), reversed(5), reversed(6)], [false, true, false]);
    assert!(plain.content.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    let coloured = buffer(&mut state, &Palette::coloured(), (150, 30));
    assert!(coloured.content.iter().any(|cell| cell.fg == Color::Red));
    assert!(coloured.content.iter().any(|cell| cell.fg == Color::Green));
}

#[tokio::test]
async fn the_group_page_shows_consumers_and_stuck_messages() {
    let mut state = state().await;
    let mut snapshot = sample::snapshot().await;
    let billing = &mut snapshot.streams[1].groups[1];
    billing.scan.stuck = 3;
    billing.scan.stuck_rows = vec![PendingRow {
        id: StreamId::new(7, 1),
        consumer: Some("worker-1".to_owned()),
        idle: Some(Duration::from_secs(400)),
        deliveries: 6,
    }];
    billing.dead_letters_length = 2;
    (billing.scan.waiting, billing.scan.next_attempt_in) = (1, Some(Duration::from_secs(600)));
    state.receive(Ok(snapshot), Instant::now());
    state.act(Action::Last);
    state.act(Action::Open);
    let text = text(&mut state, (150, 40));
    assert_contains(&text, "orders / billing  degraded");
    assert_contains(&text, "3 pending entries look stuck");
    assert_contains(&text, "2 dead letters wait for a decision");
    assert_contains(&text, "lag       3 (exact)");
    assert_contains(&text, "pending   2");
    assert_contains(&text, ", 1 waits for a retry, the next in 10m 0s");
    assert_contains(&text, "2 read of 5 ever added");
    assert_contains(&text, "2 dead letters in {orders}:dlq; list them with: millstream dlq ls orders");
    let table: Vec<Vec<&str>> = text.lines().map(words).collect();
    assert!(table.iter().any(|row| row.starts_with(&words("CONSUMER PENDING IDLE INACTIVE"))), "{text}");
    assert!(table.iter().any(|row| row.starts_with(&["worker-1", "2"])), "{text}");
    assert!(table.contains(&words("7-1 worker-1 - 6m 40s 6")), "{text}");
    assert_contains(&text, "and 2 more");
    assert_contains(&text, "Esc back");
}

#[tokio::test]
async fn a_long_page_scrolls_to_its_end() {
    let mut state = state().await;
    state.act(Action::Last);
    state.act(Action::Open);
    assert_contains(&text(&mut state, (100, 10)), "orders / billing");
    state.act(Action::Last);
    let lines = lines(&mut state, (100, 10));
    assert_eq!(lines[8], "no stuck messages", "{lines:#?}");
    state.act(Action::Move(-1));
    assert_contains(&text(&mut state, (100, 10)), "worker-1");
}

#[tokio::test]
async fn missing_groups_and_streams_are_reported() {
    let mut state = state().await;
    state.act(Action::Open);
    assert_contains(&text(&mut state, (120, 30)), "create one with: millstream group create events GROUP");
    let mut snapshot = sample::snapshot().await;
    snapshot.streams.clear();
    state.receive(Ok(snapshot), Instant::now());
    assert_contains(&text(&mut state, (120, 30)), "this stream no longer exists");
    state.act(Action::Back);
    assert_contains(&text(&mut state, (120, 30)), "no streams; create one with: millstream add");
}

#[tokio::test]
async fn the_header_shows_problems_pauses_and_filters() {
    let mut state = state().await;
    state.receive(Err("cannot open redis://x".to_owned()), Instant::now());
    state.act(Action::Pause);
    state.act(Action::Filter);
    state.act(Action::Type('z'));
    state.act(Action::Type('z'));
    let text = text(&mut state, (150, 30));
    assert_contains(
        &text,
        "retrying: cannot open redis://x  paused: press p to resume  filter \"zz\": 0 rows",
    );
    assert_contains(&text, "/zz▏  Enter: keep, Esc: clear");
    assert_contains(&text, "no rows match the filter");
}

#[test]
fn before_the_first_snapshot_it_shows_connecting() {
    let mut state = State::new(INTERVAL, Instant::now());
    assert_eq!(text(&mut state, (80, 24)).lines().next(), Some("millstream top  connecting"));
}

#[tokio::test]
async fn help_lists_the_keys() {
    let mut state = state().await;
    state.act(Action::Help);
    let text = text(&mut state, (120, 30));
    assert_contains(&text, "open a group: partitions, consumers, stuck messages, dead letters");
    assert_contains(&text, "Esc closes this");
}

#[tokio::test]
async fn narrow_terminals_keep_the_important_columns() {
    let mut state = state().await;
    let lines = lines(&mut state, (60, 12));
    let headings = words(&lines[3]);
    assert!(headings.starts_with(&["STREAM▲", "GROUP", "LAG"]), "{headings:?}");
    assert!(headings.contains(&"OLDEST-UNREAD") && headings.contains(&"STUCK"), "{headings:?}");
    assert_eq!(headings.last(), Some(&"HEALTH"));
    let mut snapshot = sample::snapshot().await;
    let name = "orders-of-all-customers".to_owned();
    (snapshot.streams[1].groups[1].name, snapshot.streams[1].name) = (name.clone(), name);
    state.receive(Ok(snapshot), Instant::now());
    let lines = self::lines(&mut state, (80, 12));
    assert_eq!(words(&lines[3]), ["STREAM▲", "GROUP", "LAG", "OLDEST-UNREAD", "PENDING", "STUCK", "HEALTH"]);
    // Drawing works at any size.
    for size in [(1, 1), (3, 2), (10, 4), (20, 17), (40, 18)] {
        text(&mut state, size);
    }
    state.act(Action::Help);
    text(&mut state, (2, 2));
}

#[test]
fn the_selected_row_is_in_the_middle_if_possible() {
    assert_eq!([first_shown(0, 100, 10), first_shown(50, 100, 10), first_shown(99, 100, 10)], [0, 45, 90]);
    assert_eq!([first_shown(3, 4, 10), first_shown(0, 0, 0)], [0, 0]);
}

#[tokio::test]
async fn control_characters_in_names_are_escaped() {
    let mut state = state().await;
    let mut snapshot = sample::snapshot().await;
    snapshot.streams[0].name = "a\u{1b}[2Jb".to_owned();
    state.receive(Ok(snapshot), Instant::now());
    assert_contains(&text(&mut state, (150, 30)), "a\\u{1b}[2Jb");
}

#[tokio::test]
async fn plain_text_has_every_column_and_the_problems() {
    let lines = plain(&state().await);
    assert_contains(&lines[0], "millstream top  memory");
    assert_eq!(words(&lines[3]).len(), 13);
    assert_eq!(lines.len(), 9);
    assert_eq!(lines[8], "orders / audit: degraded: entries are unread and no consumer reads them");
}
