//! Tests of how snapshots and actions change the state.

use super::*;
use crate::top::sample;

const SECOND: Duration = Duration::from_secs(1);

async fn state() -> State {
    let now = Instant::now();
    let mut state = State::new(2 * SECOND, now);
    assert_eq!(state.sort, Sort::Health);
    state.sort = Sort::Name;
    state.receive(Ok(sample::snapshot().await), now);
    state
}

fn names(state: &State) -> Vec<String> {
    let name = |row: &&Row| row.key.group.clone().unwrap_or_else(|| row.key.stream.clone());
    state.shown().iter().map(name).collect()
}

fn selected(state: &State) -> &str {
    let key = state.selected().expect("no row is selected");
    key.group.as_ref().unwrap_or(&key.stream)
}

fn type_text(state: &mut State, text: &str) {
    state.act(Action::Filter);
    text.chars().for_each(|c| {
        state.act(Action::Type(c));
    });
}

#[tokio::test]
async fn moving_stops_at_both_ends() {
    let mut state = state().await;
    assert_eq!(selected(&state), "events");
    state.act(Action::Move(-1));
    assert_eq!(selected(&state), "events");
    state.act(Action::Move(1));
    assert_eq!(selected(&state), "audit");
    state.act(Action::Move(10));
    assert_eq!(selected(&state), "billing");
    state.act(Action::First);
    assert_eq!(selected(&state), "events");
    state.act(Action::Last);
    assert_eq!(selected(&state), "billing");
}

#[tokio::test]
async fn the_selection_follows_its_row() {
    let mut state = state().await;
    state.act(Action::Move(1));
    assert_eq!((selected(&state), state.position()), ("audit", Some(1)));
    state.act(Action::Reverse);
    assert_eq!(names(&state), ["billing", "audit", "events"]);
    state.act(Action::Sort);
    assert_eq!(names(&state), ["audit", "billing", "events"]);
    assert_eq!((selected(&state), state.position()), ("audit", Some(0)));
    let mut snapshot = sample::snapshot().await;
    snapshot.streams[1].groups.remove(0);
    state.receive(Ok(snapshot), Instant::now());
    assert_eq!(selected(&state), "billing", "the row at the position of the removed row is selected");
}

#[tokio::test]
async fn a_filter_is_typed_kept_and_cleared() {
    let mut state = state().await;
    type_text(&mut state, "billx");
    assert_eq!((state.mode(), names(&state).len(), state.selected()), (Mode::Typing, 0, None));
    state.act(Action::Open);
    assert_eq!(state.view, View::Overview, "no row is selected, so none can be opened");
    state.act(Action::Erase);
    assert_eq!((names(&state), selected(&state)), (vec!["billing".to_owned()], "billing"));
    state.act(Action::KeepFilter);
    assert_eq!((state.mode(), &*state.filter), (Mode::Browse, "bill"));
    state.act(Action::Back);
    assert_eq!((&*state.filter, names(&state).len()), ("", 3));
    type_text(&mut state, "x");
    state.act(Action::EraseAll);
    assert_eq!((state.mode(), &*state.filter), (Mode::Typing, ""));
    state.act(Action::Back);
    assert_eq!(state.mode(), Mode::Browse);
}

#[tokio::test]
async fn opening_a_group_keeps_the_filter() {
    let mut state = state().await;
    type_text(&mut state, "bill");
    state.act(Action::KeepFilter);
    state.act(Action::Open);
    state.act(Action::Move(10));
    assert_eq!(state.view, View::Group { scroll: 10 });
    state.limit_scroll(4);
    assert_eq!(state.view, View::Group { scroll: 4 });
    state.act(Action::Move(-10));
    assert_eq!(state.view, View::Group { scroll: 0 });
    state.act(Action::Back);
    assert_eq!((state.view, &*state.filter, selected(&state)), (View::Overview, "bill", "billing"));
}

#[tokio::test]
async fn a_deleted_open_group_stays_open() {
    let mut state = state().await;
    state.act(Action::Last);
    state.act(Action::Open);
    let mut snapshot = sample::snapshot().await;
    snapshot.streams.clear();
    state.receive(Ok(snapshot), Instant::now());
    let key = state.selected().unwrap();
    assert_eq!(key.group.as_deref(), Some("billing"));
    assert!(state.row(key).is_none());
}

#[tokio::test]
async fn any_action_closes_the_help() {
    let mut state = state().await;
    state.act(Action::Help);
    assert!(state.help);
    state.act(Action::Move(1));
    assert_eq!((state.help, selected(&state)), (false, "events"));
}

#[test]
fn the_interval_changes_in_steps() {
    let mut state = State::new(Duration::from_millis(700), Instant::now());
    state.act(Action::Slower);
    assert_eq!(state.schedule.interval, SECOND);
    state.act(Action::Faster);
    state.act(Action::Faster);
    assert_eq!(state.schedule.interval, Duration::from_millis(250));
    (0..20).for_each(|_| state.act(Action::Faster));
    assert_eq!(state.schedule.interval, INTERVAL_MIN);
    (0..20).for_each(|_| state.act(Action::Slower));
    assert_eq!(state.schedule.interval, INTERVAL_MAX);
    state.act(Action::Pause);
    state.act(Action::PollNow);
    assert_eq!((state.schedule.paused, state.schedule.requests), (true, 1));
}

#[tokio::test]
async fn store_problems_are_reported_until_the_store_replies() {
    let began = Instant::now();
    let mut state = State::new(2 * SECOND, began);
    assert_eq!(state.store_problem(began + SECOND), None);
    assert_eq!(state.store_problem(began + 9 * SECOND).as_deref(), Some("no reply for 9s, still waiting"));
    state.receive(Err("refused\nstart one".to_owned()), began + SECOND);
    assert_eq!(state.store_problem(began + SECOND).as_deref(), Some("no reply for 1s, retrying: refused"));
    state.receive(Ok(sample::snapshot().await), began + 2 * SECOND);
    assert_eq!(state.store_problem(began + 2 * SECOND), None);
    state.receive(Err("gone".to_owned()), began + 5 * SECOND);
    assert_eq!(state.store_problem(began + 6 * SECOND).as_deref(), Some("no reply for 4s, retrying: gone"));
    assert_eq!(names(&state).len(), 3, "the last snapshot stays");
}

#[tokio::test]
async fn a_missing_reply_is_not_reported_while_paused() {
    let began = Instant::now();
    let mut state = State::new(SECOND, began);
    state.act(Action::Pause);
    assert_eq!(state.store_problem(began + 60 * SECOND), None);
}

#[tokio::test]
async fn totals_and_lags_come_from_snapshots() {
    let mut state = state().await;
    let totals = state.totals();
    assert_eq!((totals.streams, totals.groups, totals.entries), (2, 2, 6));
    assert_eq!((totals.lag, totals.lag_is_exact, totals.pending), (8, true, 2));
    assert_eq!((totals.critical, totals.degraded, totals.dead_letters), (0, 1, 0));
    let mut snapshot = sample::snapshot().await;
    snapshot.streams[1].groups[1].lag.count = 7;
    state.receive(Ok(snapshot), Instant::now());
    let key = RowKey { stream: "orders".to_owned(), group: Some("billing".to_owned()) };
    assert_eq!(state.lags(&key, 10), [3, 7]);
}
