//! Frames of a look at a real store, drawn on a terminal in memory.

use std::time::{Duration, Instant};

use millstream_worker::backend::{PendingRow, StreamId};
use millstream_worker::monitor::{Lag, LagKnown};
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
    state.receive(Ok(sample::look().await), Instant::now());
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
fn has(text: &str, words: &str) {
    assert!(text.contains(words), "no {words:?} in:\n{text}");
}

#[tokio::test]
async fn the_overview_tells_every_group() {
    let mut state = state().await;
    let lines = lines(&mut state, (150, 30));
    has(&lines[0], "millstream top  memory  native: exact lag, claiming reads");
    has(&lines[1], "2 streams, 2 groups, 6 entries  lag 8  pending 2  in 0/s  out 0/s  1 degraded");
    assert_eq!(lines[2], "");
    let headings =
        "STREAM▲ GROUP LENGTH LAG OLDEST-UNREAD PENDING OLDEST-PENDING STUCK CONSUMERS IN/S OUT/S HEALTH";
    assert_eq!(words(&lines[3]), words(headings));
    assert_eq!(words(&lines[4]), words("events - 1 - - - - - - - - -"));
    let audit = words(&lines[5]);
    assert_eq!((&audit[..4], audit.last()), (&["orders", "audit", "5", "5"][..], Some(&"degraded")));
    let billing = words(&lines[6]);
    assert_eq!((&billing[..4], billing.last()), (&["orders", "billing", "5", "3"][..], Some(&"ok")));
    has(&lines[29], "Enter open  / filter  s sort: name  p pause  +/- every 2s  ? help  q quit");
}

#[tokio::test]
async fn the_lag_of_the_selected_group_is_drawn() {
    let mut state = state().await;
    for lag in [10, 80] {
        let mut look = sample::look().await;
        look.streams[1].groups[1].lag = Lag { count: lag, known: LagKnown::AtLeast };
        state.receive(Ok(look), Instant::now());
    }
    state.act(Action::Last);
    let lines = lines(&mut state, (150, 30));
    has(&lines[6], "≥80");
    has(&lines[1], "lag ≥85");
    has(&lines[23], "lag of orders / billing: ≥80, at most 80 in the last 3 looks");
    assert_eq!(lines[24], "ok");
    let bars = |line: &str| line.chars().filter(|c| ('▁'..='█').contains(c)).count();
    assert_eq!(bars(&lines[28]), 3, "{lines:#?}");
    assert_eq!(bars(&lines[25]), 1, "{lines:#?}");
}

#[tokio::test]
async fn the_selected_row_is_seen_without_colours() {
    let mut state = state().await;
    let mut look = sample::look().await;
    // Somebody has read for audit, and is gone: that is critical.
    look.streams[1].groups[0].entries_read = Some(1);
    state.receive(Ok(look), Instant::now());
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
async fn a_group_is_told_with_its_consumers_and_what_is_stuck() {
    let mut state = state().await;
    let mut look = sample::look().await;
    let billing = &mut look.streams[1].groups[1];
    billing.scan.stuck = 3;
    billing.scan.stuck_rows = vec![PendingRow {
        id: StreamId::new(7, 1),
        consumer: Some("worker-1".to_owned()),
        idle: Some(Duration::from_secs(400)),
        deliveries: 6,
    }];
    billing.dead_letters_length = 2;
    state.receive(Ok(look), Instant::now());
    state.act(Action::Last);
    state.act(Action::Open);
    let text = text(&mut state, (150, 40));
    has(&text, "orders / billing  degraded");
    has(&text, "3 pending entries look stuck");
    has(&text, "2 dead letters wait for a decision");
    has(&text, "lag       3 (exact)");
    has(&text, "pending   2");
    has(&text, "2 read of 5 ever added");
    has(&text, "2 dead letters of this stream in {orders}:dlq; see them with: millstream dlq ls orders");
    let table: Vec<Vec<&str>> = text.lines().map(words).collect();
    assert!(table.contains(&words("CONSUMER PENDING IDLE LAST-GOT")), "{text}");
    assert!(table.iter().any(|row| row.starts_with(&["worker-1", "2"])), "{text}");
    assert!(table.contains(&words("7-1 worker-1 - 6m 40s 6")), "{text}");
    has(&text, "and 2 more");
    has(&text, "Esc back");
}

#[tokio::test]
async fn a_page_that_does_not_fit_is_scrolled_to_its_end_and_no_further() {
    let mut state = state().await;
    state.act(Action::Last);
    state.act(Action::Open);
    has(&text(&mut state, (100, 10)), "orders / billing");
    state.act(Action::Last);
    let lines = lines(&mut state, (100, 10));
    assert_eq!(lines[8], "no stuck messages", "{lines:#?}");
    state.act(Action::Move(-1));
    has(&text(&mut state, (100, 10)), "worker-1");
}

#[tokio::test]
async fn what_has_no_group_or_is_gone_is_said() {
    let mut state = state().await;
    state.act(Action::Open);
    has(&text(&mut state, (120, 30)), "make one with: millstream group create events GROUP");
    let mut look = sample::look().await;
    look.streams.clear();
    state.receive(Ok(look), Instant::now());
    has(&text(&mut state, (120, 30)), "this stream is no longer there");
    state.act(Action::Back);
    has(&text(&mut state, (120, 30)), "there are no streams; begin one with: millstream add");
}

#[tokio::test]
async fn trouble_pauses_and_filters_are_told() {
    let mut state = state().await;
    state.receive(Err("cannot open redis://x".to_owned()), Instant::now());
    state.act(Action::Pause);
    state.act(Action::Filter);
    state.act(Action::Type('z'));
    state.act(Action::Type('z'));
    let text = text(&mut state, (150, 30));
    has(&text, "trying again: cannot open redis://x  paused: p goes on  filter \"zz\": 0 rows");
    has(&text, "/zz▏  Enter keeps it, Esc drops it");
    has(&text, "nothing matches the filter");
}

#[test]
fn before_the_first_look_it_says_so() {
    let mut state = State::new(INTERVAL, Instant::now());
    assert_eq!(text(&mut state, (80, 24)).lines().next(), Some("millstream top  connecting"));
}

#[tokio::test]
async fn help_tells_the_keys() {
    let mut state = state().await;
    state.act(Action::Help);
    let text = text(&mut state, (120, 30));
    has(&text, "open a group: consumers, stuck messages, dead letters");
    has(&text, "Esc closes this");
}

#[tokio::test]
async fn narrow_terminals_keep_what_matters() {
    let mut state = state().await;
    let lines = lines(&mut state, (60, 12));
    let headings = words(&lines[3]);
    assert!(headings.starts_with(&["STREAM▲", "GROUP", "LAG"]), "{headings:?}");
    assert!(headings.contains(&"PENDING") && headings.last() == Some(&"HEALTH"), "{headings:?}");
    // Whatever the size, drawing does not fail.
    for size in [(1, 1), (3, 2), (10, 4), (20, 17), (40, 18)] {
        text(&mut state, size);
    }
    state.act(Action::Help);
    text(&mut state, (2, 2));
}

#[test]
fn the_selected_row_is_in_the_middle_where_it_can_be() {
    assert_eq!([first_shown(0, 100, 10), first_shown(50, 100, 10), first_shown(99, 100, 10)], [0, 45, 90]);
    assert_eq!([first_shown(3, 4, 10), first_shown(0, 0, 0)], [0, 0]);
}

#[tokio::test]
async fn names_cannot_harm_the_terminal() {
    let mut state = state().await;
    let mut look = sample::look().await;
    look.streams[0].name = "a\u{1b}[2Jb".to_owned();
    state.receive(Ok(look), Instant::now());
    has(&text(&mut state, (150, 30)), "a\\u{1b}[2Jb");
}

#[tokio::test]
async fn plain_text_has_every_column_and_says_what_is_wrong() {
    let lines = plain(&state().await);
    has(&lines[0], "millstream top  memory");
    assert_eq!(words(&lines[3]).len(), 12);
    assert_eq!(lines.len(), 9);
    assert_eq!(lines[8], "orders / audit: degraded: entries are unread and no consumer asks for them");
}
