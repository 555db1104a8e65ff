//! Looks and actions, and what they make of the state.

use super::*;
use crate::top::sample;

const SECOND: Duration = Duration::from_secs(1);

async fn state() -> State {
    let now = Instant::now();
    let mut state = State::new(2 * SECOND, now);
    state.receive(Ok(sample::look().await), now);
    state
}

fn names(state: &State) -> Vec<String> {
    let name = |row: &&Row| row.key.group.clone().unwrap_or_else(|| row.key.stream.clone());
    state.shown().iter().map(name).collect()
}

fn selected(state: &State) -> &str {
    let key = state.selected().expect("something selected");
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
async fn the_selection_follows_its_row_and_not_its_place() {
    let mut state = state().await;
    state.act(Action::Move(1));
    assert_eq!((selected(&state), state.position()), ("audit", Some(1)));
    state.act(Action::Reverse);
    assert_eq!(names(&state), ["billing", "audit", "events"]);
    state.act(Action::Sort);
    assert_eq!(names(&state), ["audit", "billing", "events"]);
    assert_eq!((selected(&state), state.position()), ("audit", Some(0)));
    let mut look = sample::look().await;
    look.streams[1].groups.remove(0);
    state.receive(Ok(look), Instant::now());
    assert_eq!(selected(&state), "billing", "the place of the one that has gone");
}

#[tokio::test]
async fn a_filter_is_typed_kept_and_dropped() {
    let mut state = state().await;
    type_text(&mut state, "billx");
    assert_eq!((state.mode(), names(&state).len(), state.selected()), (Mode::Typing, 0, None));
    state.act(Action::Open);
    assert_eq!(state.view, View::Overview, "there is nothing to open");
    state.act(Action::Erase);
    assert_eq!((names(&state), selected(&state)), (vec!["billing".to_owned()], "billing"));
    state.act(Action::Keep);
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
async fn a_group_opens_scrolls_and_closes_with_the_filter_kept() {
    let mut state = state().await;
    type_text(&mut state, "bill");
    state.act(Action::Keep);
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
async fn an_open_group_that_goes_away_stays_named() {
    let mut state = state().await;
    state.act(Action::Last);
    state.act(Action::Open);
    let mut look = sample::look().await;
    look.streams.clear();
    state.receive(Ok(look), Instant::now());
    let key = state.selected().unwrap();
    assert_eq!(key.group.as_deref(), Some("billing"));
    assert!(state.row(key).is_none());
}

#[tokio::test]
async fn an_action_closes_help_and_does_nothing_else() {
    let mut state = state().await;
    state.act(Action::Help);
    assert!(state.help);
    state.act(Action::Move(1));
    assert_eq!((state.help, selected(&state)), (false, "events"));
}

#[test]
fn the_pace_changes_in_steps() {
    let mut state = State::new(Duration::from_millis(700), Instant::now());
    state.act(Action::Slower);
    assert_eq!(state.pace.interval, SECOND);
    state.act(Action::Faster);
    state.act(Action::Faster);
    assert_eq!(state.pace.interval, Duration::from_millis(250));
    (0..20).for_each(|_| state.act(Action::Faster));
    assert_eq!(state.pace.interval, INTERVAL_MIN);
    (0..20).for_each(|_| state.act(Action::Slower));
    assert_eq!(state.pace.interval, INTERVAL_MAX);
    state.act(Action::Pause);
    state.act(Action::LookNow);
    assert_eq!((state.pace.paused, state.pace.asked), (true, 1));
}

#[tokio::test]
async fn trouble_is_told_until_the_store_answers() {
    let began = Instant::now();
    let mut state = State::new(2 * SECOND, began);
    assert_eq!(state.trouble(began + SECOND), None);
    assert_eq!(state.trouble(began + 9 * SECOND).as_deref(), Some("no answer for 9s, still waiting"));
    state.receive(Err("refused\nstart one".to_owned()), began + SECOND);
    assert_eq!(state.trouble(began + SECOND).as_deref(), Some("no answer for 1s, trying again: refused"));
    state.receive(Ok(sample::look().await), began + 2 * SECOND);
    assert_eq!(state.trouble(began + 2 * SECOND), None);
    state.receive(Err("gone".to_owned()), began + 5 * SECOND);
    assert_eq!(state.trouble(began + 6 * SECOND).as_deref(), Some("no answer for 4s, trying again: gone"));
    assert_eq!(names(&state).len(), 3, "what was seen last stays");
}

#[tokio::test]
async fn silence_is_no_trouble_while_paused() {
    let began = Instant::now();
    let mut state = State::new(SECOND, began);
    state.act(Action::Pause);
    assert_eq!(state.trouble(began + 60 * SECOND), None);
}

#[tokio::test]
async fn totals_and_lags_come_from_the_looks() {
    let mut state = state().await;
    let totals = state.totals();
    assert_eq!((totals.streams, totals.groups, totals.entries), (2, 2, 6));
    assert_eq!((totals.lag, totals.lag_is_exact, totals.pending), (8, true, 2));
    assert_eq!((totals.critical, totals.degraded, totals.dead), (0, 1, 0));
    let mut look = sample::look().await;
    look.streams[1].groups[1].lag.count = 7;
    state.receive(Ok(look), Instant::now());
    let key = Key { stream: "orders".to_owned(), group: Some("billing".to_owned()) };
    assert_eq!(state.lags(&key, 10), [3, 7]);
}
