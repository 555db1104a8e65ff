//! Handlers as the runtime drives them: from a recipe to an outcome.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use tower::{Layer, Service, service_fn};

use super::*;
use crate::message::sample;
use crate::outcome::{BoxError, HandlerError, Reason};

#[derive(Deserialize)]
struct Order {
    amount: u64,
}

async fn run(recipe: Recipe, message: Message) -> Outcome {
    run_layered(recipe, Vec::new(), message).await
}

async fn run_layered(recipe: Recipe, layers: Vec<AddLayer>, message: Message) -> Outcome {
    let timeout = Some(Duration::from_secs(60));
    let Work::Each(mut service) = recipe.build(Shared::default(), layers, timeout).unwrap() else {
        panic!("not for one message");
    };
    service.call(message).await.unwrap()
}

async fn run_batch(recipe: Recipe, shared: Shared, messages: Vec<Message>) -> Vec<Outcome> {
    let Work::Batch { mut service, .. } = recipe.build(shared, Vec::new(), None).unwrap() else {
        panic!("not for batches");
    };
    service.call(messages).await.unwrap()
}

fn reason(outcome: &Outcome) -> Option<Reason> {
    outcome.failure().map(|failure| failure.reason)
}

#[tokio::test]
async fn a_function_of_nothing_acknowledges() {
    assert_eq!(run(Recipe::each(|| async {}), sample(&[])).await, Outcome::Ack);
}

#[tokio::test]
async fn a_function_of_eight_arguments_gets_them_all() {
    #[expect(clippy::too_many_arguments, reason = "the most a handler may have")]
    async fn all(
        Json(order): Json<Order>,
        Text(text): Text,
        Raw(fields): Raw,
        MessageId(id): MessageId,
        Attempt(attempt): Attempt,
        message: Message,
        StreamName(stream): StreamName,
        token: CancellationToken,
    ) -> Result<Outcome, HandlerError> {
        assert_eq!((order.amount, text.as_str(), fields.len()), (5, r#"{"amount":5}"#, 1));
        assert_eq!((id, attempt, &*stream), (message.id, 1, "orders"));
        assert!(!token.is_cancelled());
        Ok(Outcome::Skip)
    }
    assert_eq!(run(Recipe::each(all), sample(&[("data", r#"{"amount":5}"#)])).await, Outcome::Skip);
}

#[tokio::test]
async fn what_cannot_be_decoded_never_reaches_the_function() {
    let outcome =
        run(Recipe::each(|_: Json<Order>| async { unreachable!() as Outcome }), sample(&[("data", "x")]))
            .await;
    assert!(matches!(outcome, Outcome::Reject(_)));
    assert_eq!(reason(&outcome), Some(Reason::Decode));
}

#[tokio::test]
async fn errors_are_tried_again_or_not_as_they_say() {
    let again = run(Recipe::each(|| async { "x".parse::<u8>().map(drop) }), sample(&[])).await;
    assert!(matches!(again, Outcome::Retry { after: None, .. }));
    assert_eq!(reason(&again), Some(Reason::Failed));
    let never = run(Recipe::each(|| async { Err::<(), _>(HandlerError::reject("bad")) }), sample(&[])).await;
    assert!(matches!(never, Outcome::Reject(_)));
}

#[tokio::test]
async fn a_panic_before_during_and_after_a_wait_is_caught() {
    async fn at_once() {
        panic!("at once");
    }
    async fn later() {
        tokio::task::yield_now().await;
        panic!("later {}", 1);
    }
    fn without_a_future() -> std::future::Ready<()> {
        panic!("no future")
    }
    for (recipe, text) in [
        (Recipe::each(at_once), "at once"),
        (Recipe::each(later), "later 1"),
        (Recipe::each(without_a_future), "no future"),
    ] {
        let outcome = run(recipe, sample(&[])).await;
        assert!(matches!(outcome, Outcome::Retry { .. }));
        assert_eq!(reason(&outcome), Some(Reason::Panic));
        assert_eq!(outcome.failure().unwrap().error, text);
    }
}

#[tokio::test(start_paused = true)]
async fn what_takes_too_long_ends_and_is_tried_again() {
    let outcome = run(Recipe::each(std::future::pending::<()>), sample(&[])).await;
    assert!(matches!(outcome, Outcome::Retry { .. }));
    assert_eq!(reason(&outcome), Some(Reason::Timeout));
}

#[test]
fn missing_state_is_refused_before_the_first_message() {
    let missing = Recipe::each(|_: Data<u8>| async {}).build(Shared::default(), Vec::new(), None);
    assert_eq!(missing.err(), Some(MissingState { name: "u8" }));
}

#[tokio::test]
async fn any_tower_service_is_a_handler_and_its_errors_keep_their_meaning() {
    let fine = service_fn(|message: Message| async move {
        Ok::<_, Infallible>(Outcome::reject(message.stream.to_string()))
    });
    assert_eq!(run(Recipe::service(fine), sample(&[])).await.failure().unwrap().error, "orders");
    let broken = service_fn(|_: Message| async { Err::<(), BoxError>("no connection".into()) });
    let outcome = run(Recipe::service(broken), sample(&[])).await;
    assert!(matches!(outcome, Outcome::Retry { .. }));
    let final_error =
        service_fn(|_: Message| async { Err::<(), BoxError>(HandlerError::reject("no").into()) });
    assert!(matches!(run(Recipe::service(final_error), sample(&[])).await, Outcome::Reject(_)));
}

/// Writes down the order in which layers are passed.
#[derive(Clone)]
struct Mark(&'static str, Arc<std::sync::Mutex<Vec<&'static str>>>);

#[derive(Clone)]
struct Marked<S>(Mark, S);

impl<S> Layer<S> for Mark {
    type Service = Marked<S>;

    fn layer(&self, inner: S) -> Marked<S> {
        Marked(self.clone(), inner)
    }
}

impl<S: Service<Message>> Service<Message> for Marked<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.1.poll_ready(cx)
    }

    fn call(&mut self, message: Message) -> S::Future {
        self.0.1.lock().unwrap().push(self.0.0);
        self.1.call(message)
    }
}

#[tokio::test]
async fn the_last_layer_is_the_outermost() {
    let passed = Arc::default();
    let layers = ["inner", "outer"].map(|name| add_layer(Mark(name, Arc::clone(&passed))));
    assert_eq!(run_layered(Recipe::each(|| async {}), layers.into(), sample(&[])).await, Outcome::Ack);
    assert_eq!(*passed.lock().unwrap(), ["outer", "inner"]);
}

/// A service that is ready only after an hour.
#[derive(Clone)]
struct Late(Arc<std::sync::Mutex<Option<std::pin::Pin<Box<tokio::time::Sleep>>>>>);

impl Service<Message> for Late {
    type Response = ();
    type Error = Infallible;
    type Future = std::future::Ready<Result<(), Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        let mut sleep = self.0.lock().unwrap();
        let sleep = sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(Duration::from_secs(3600))));
        sleep.as_mut().poll(cx).map(Ok)
    }

    fn call(&mut self, _: Message) -> Self::Future {
        std::future::ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn time_held_back_by_a_layer_is_not_time_of_the_handler() {
    assert_eq!(run(Recipe::service(Late(Arc::default())), sample(&[])).await, Outcome::Ack);
}

#[tokio::test]
async fn a_batch_decides_about_each_and_unreadable_ones_are_rejected_alone() {
    let mut shared = Shared::default();
    shared.insert(AtomicUsize::new(0));
    let calls = shared.get::<AtomicUsize>().unwrap();
    async fn insert(orders: Vec<Json<Order>>, calls: Data<AtomicUsize>) -> Vec<Outcome> {
        calls.fetch_add(1, Ordering::Relaxed);
        orders.iter().map(|order| if order.amount == 0 { Outcome::Skip } else { Outcome::Ack }).collect()
    }
    let recipe = || Recipe::batch(insert, 10, Duration::from_millis(5));
    let messages = vec![sample(&[("amount", "0")]), sample(&[("amount", "x")]), sample(&[("amount", "2")])];
    let outcomes = run_batch(recipe(), shared.clone(), messages).await;
    assert_eq!((&outcomes[0], &outcomes[2]), (&Outcome::Skip, &Outcome::Ack));
    assert_eq!(reason(&outcomes[1]), Some(Reason::Decode));
    let outcomes = run_batch(recipe(), shared, vec![sample(&[("amount", "x")])]).await;
    assert_eq!(reason(&outcomes[0]), Some(Reason::Decode));
    assert_eq!(calls.load(Ordering::Relaxed), 1, "nothing readable, no call");
}

#[tokio::test]
async fn an_error_or_a_panic_of_a_batch_is_everyones() {
    let messages = || vec![sample(&[]), sample(&[])];
    let failing = |_: Vec<Message>| async { Err::<Vec<Outcome>, _>(HandlerError::retry("down")) };
    let outcomes = run_batch(Recipe::batch(failing, 9, Duration::ZERO), Shared::default(), messages()).await;
    assert_eq!(outcomes.iter().map(reason).collect::<Vec<_>>(), [Some(Reason::Failed); 2]);
    async fn panicking(_: Vec<Message>) {
        panic!("all of it");
    }
    let outcomes =
        run_batch(Recipe::batch(panicking, 9, Duration::ZERO), Shared::default(), messages()).await;
    assert_eq!(outcomes.iter().map(reason).collect::<Vec<_>>(), [Some(Reason::Panic); 2]);
}

#[tokio::test]
async fn too_few_outcomes_settle_nothing() {
    let outcomes = run_batch(
        Recipe::batch(|_: Vec<Message>| async { vec![Outcome::Ack] }, 9, Duration::ZERO),
        Shared::default(),
        vec![sample(&[]), sample(&[])],
    )
    .await;
    assert_eq!(outcomes.len(), 2);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Retry { .. })), "{outcomes:?}");
    let service = service_fn(|_: Vec<Message>| async { Ok::<_, Infallible>(vec![]) });
    let recipe = Recipe::batch_service(service, 9, Duration::ZERO);
    let outcomes = run_batch(recipe, Shared::default(), vec![sample(&[])]).await;
    assert!(matches!(outcomes[..], [Outcome::Retry { .. }]));
}
