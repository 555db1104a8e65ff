//! Tests of handlers as the runtime calls them: from a factory to an outcome.

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
struct Charge {
    amount: u64,
}

async fn run(factory: HandlerFactory, message: Message) -> Outcome {
    run_layered(factory, Vec::new(), message).await
}

async fn run_layered(factory: HandlerFactory, layers: Vec<AddLayer>, message: Message) -> Outcome {
    let timeout = Some(Duration::from_secs(60));
    let HandlerService::Each(mut service) = factory.build(Shared::default(), layers, timeout).unwrap() else {
        panic!("the factory made a batch service");
    };
    service.call(message).await.unwrap()
}

async fn run_batch(factory: HandlerFactory, shared: Shared, messages: Vec<Message>) -> Vec<Outcome> {
    let HandlerService::Batch { mut service, .. } = factory.build(shared, Vec::new(), None).unwrap() else {
        panic!("the factory made a service for single messages");
    };
    service.call(messages).await.unwrap()
}

fn reason(outcome: &Outcome) -> Option<Reason> {
    outcome.failure().map(|failure| failure.reason)
}

#[tokio::test]
async fn a_function_without_arguments_acknowledges() {
    assert_eq!(run(HandlerFactory::each(|| async {}), sample(&[])).await, Outcome::Ack);
}

#[tokio::test]
async fn a_function_receives_eight_arguments() {
    #[expect(clippy::too_many_arguments, reason = "the maximum for a handler")]
    async fn all(
        Json(charge): Json<Charge>,
        Text(text): Text,
        Raw(fields): Raw,
        MessageId(id): MessageId,
        Attempt(attempt): Attempt,
        message: Message,
        StreamName(stream): StreamName,
        token: CancellationToken,
    ) -> Result<Outcome, HandlerError> {
        assert_eq!((charge.amount, text.as_str(), fields.len()), (5, r#"{"amount":5}"#, 1));
        assert_eq!((id, attempt, &*stream), (message.id, 1, "orders"));
        assert!(!token.is_cancelled());
        Ok(Outcome::Skip)
    }
    assert_eq!(run(HandlerFactory::each(all), sample(&[("data", r#"{"amount":5}"#)])).await, Outcome::Skip);
}

#[tokio::test]
async fn an_undecodable_message_never_reaches_the_function() {
    let outcome = run(
        HandlerFactory::each(|_: Json<Charge>| async { unreachable!() as Outcome }),
        sample(&[("data", "x")]),
    )
    .await;
    assert!(matches!(outcome, Outcome::Reject(_)));
    assert_eq!(reason(&outcome), Some(Reason::Decode));
}

#[tokio::test]
async fn errors_mean_a_retry_unless_they_reject() {
    let again = run(HandlerFactory::each(|| async { "x".parse::<u8>().map(drop) }), sample(&[])).await;
    assert!(matches!(again, Outcome::Retry { after: None, .. }));
    assert_eq!(reason(&again), Some(Reason::Failed));
    let never =
        run(HandlerFactory::each(|| async { Err::<(), _>(HandlerError::reject("bad")) }), sample(&[])).await;
    assert!(matches!(never, Outcome::Reject(_)));
}

#[tokio::test]
async fn a_panic_is_caught_at_any_time() {
    async fn immediately() {
        panic!("immediately");
    }
    async fn later() {
        tokio::task::yield_now().await;
        panic!("later {}", 1);
    }
    fn without_a_future() -> std::future::Ready<()> {
        panic!("no future")
    }
    for (factory, text) in [
        (HandlerFactory::each(immediately), "immediately"),
        (HandlerFactory::each(later), "later 1"),
        (HandlerFactory::each(without_a_future), "no future"),
    ] {
        let outcome = run(factory, sample(&[])).await;
        assert!(matches!(outcome, Outcome::Retry { .. }));
        assert_eq!(reason(&outcome), Some(Reason::Panic));
        assert_eq!(outcome.failure().unwrap().error, text);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_exceeds_its_timeout_is_retried() {
    let outcome = run(HandlerFactory::each(std::future::pending::<()>), sample(&[])).await;
    assert!(matches!(outcome, Outcome::Retry { .. }));
    assert_eq!(reason(&outcome), Some(Reason::Timeout));
}

#[test]
fn missing_state_is_refused_before_the_first_message() {
    let missing = HandlerFactory::each(|_: Data<u8>| async {}).build(Shared::default(), Vec::new(), None);
    assert_eq!(missing.err(), Some(MissingState { name: "u8" }));
}

#[tokio::test]
async fn a_tower_service_is_a_handler_and_its_errors_keep_their_class() {
    let fine = service_fn(|message: Message| async move {
        Ok::<_, Infallible>(Outcome::reject(message.stream.to_string()))
    });
    assert_eq!(run(HandlerFactory::service(fine), sample(&[])).await.failure().unwrap().error, "orders");
    let broken = service_fn(|_: Message| async { Err::<(), BoxError>("no connection".into()) });
    let outcome = run(HandlerFactory::service(broken), sample(&[])).await;
    assert!(matches!(outcome, Outcome::Retry { .. }));
    let final_error =
        service_fn(|_: Message| async { Err::<(), BoxError>(HandlerError::reject("no").into()) });
    assert!(matches!(run(HandlerFactory::service(final_error), sample(&[])).await, Outcome::Reject(_)));
}

#[derive(Clone)]
struct RecordingLayer(&'static str, Arc<std::sync::Mutex<Vec<&'static str>>>);

#[derive(Clone)]
struct RecordingService<S>(RecordingLayer, S);

impl<S> Layer<S> for RecordingLayer {
    type Service = RecordingService<S>;

    fn layer(&self, inner: S) -> RecordingService<S> {
        RecordingService(self.clone(), inner)
    }
}

impl<S: Service<Message>> Service<Message> for RecordingService<S> {
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
    let layers = ["inner", "outer"].map(|name| add_layer(RecordingLayer(name, Arc::clone(&passed))));
    assert_eq!(
        run_layered(HandlerFactory::each(|| async {}), layers.into(), sample(&[])).await,
        Outcome::Ack
    );
    assert_eq!(*passed.lock().unwrap(), ["outer", "inner"]);
}

/// A service that is ready only after an hour.
#[derive(Clone)]
struct LateService(Arc<std::sync::Mutex<Option<std::pin::Pin<Box<tokio::time::Sleep>>>>>);

impl Service<Message> for LateService {
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
async fn the_timeout_excludes_the_time_before_the_service_is_ready() {
    assert_eq!(run(HandlerFactory::service(LateService(Arc::default())), sample(&[])).await, Outcome::Ack);
}

#[tokio::test]
async fn a_batch_has_an_outcome_for_each_message_and_rejects_unreadable_ones_alone() {
    let mut shared = Shared::default();
    shared.insert(AtomicUsize::new(0));
    let calls = shared.get::<AtomicUsize>().unwrap();
    async fn insert(charges: Vec<Json<Charge>>, calls: Data<AtomicUsize>) -> Vec<Outcome> {
        calls.fetch_add(1, Ordering::Relaxed);
        charges.iter().map(|charge| if charge.amount == 0 { Outcome::Skip } else { Outcome::Ack }).collect()
    }
    let factory = || HandlerFactory::batch(insert, 10, Duration::from_millis(5));
    let messages = vec![sample(&[("amount", "0")]), sample(&[("amount", "x")]), sample(&[("amount", "2")])];
    let outcomes = run_batch(factory(), shared.clone(), messages).await;
    assert_eq!((&outcomes[0], &outcomes[2]), (&Outcome::Skip, &Outcome::Ack));
    assert_eq!(reason(&outcomes[1]), Some(Reason::Decode));
    let outcomes = run_batch(factory(), shared, vec![sample(&[("amount", "x")])]).await;
    assert_eq!(reason(&outcomes[0]), Some(Reason::Decode));
    assert_eq!(calls.load(Ordering::Relaxed), 1, "the handler was called without a readable message");
}

#[tokio::test]
async fn an_error_or_a_panic_applies_to_the_whole_batch() {
    let messages = || vec![sample(&[]), sample(&[])];
    let failing = |_: Vec<Message>| async { Err::<Vec<Outcome>, _>(HandlerError::retry("down")) };
    let outcomes =
        run_batch(HandlerFactory::batch(failing, 9, Duration::ZERO), Shared::default(), messages()).await;
    assert_eq!(outcomes.iter().map(reason).collect::<Vec<_>>(), [Some(Reason::Failed); 2]);
    async fn panicking(_: Vec<Message>) {
        panic!("the whole batch");
    }
    let outcomes =
        run_batch(HandlerFactory::batch(panicking, 9, Duration::ZERO), Shared::default(), messages()).await;
    assert_eq!(outcomes.iter().map(reason).collect::<Vec<_>>(), [Some(Reason::Panic); 2]);
}

#[tokio::test]
async fn a_wrong_number_of_outcomes_means_a_retry_for_all() {
    let outcomes = run_batch(
        HandlerFactory::batch(|_: Vec<Message>| async { vec![Outcome::Ack] }, 9, Duration::ZERO),
        Shared::default(),
        vec![sample(&[]), sample(&[])],
    )
    .await;
    assert_eq!(outcomes.len(), 2);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Retry { .. })), "{outcomes:?}");
    let service = service_fn(|_: Vec<Message>| async { Ok::<_, Infallible>(vec![]) });
    let factory = HandlerFactory::batch_service(service, 9, Duration::ZERO);
    let outcomes = run_batch(factory, Shared::default(), vec![sample(&[])]).await;
    assert!(matches!(outcomes[..], [Outcome::Retry { .. }]));
}
