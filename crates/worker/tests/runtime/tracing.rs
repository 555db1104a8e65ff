//! Traces: what a handler gets, the spans around handlers, and dead letters that keep their trace.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use millstream_worker::backend::{Admin, IdOrder, NewEntry, Range, StreamId};
use millstream_worker::handler::Data;
use millstream_worker::producer::Producer;
use millstream_worker::redrive::{Redrive, redrive};
use millstream_worker::trace::TraceContext;
use millstream_worker::{HandlerError, Message};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::support::*;

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Traces by the field `n`: that of the sender and that of the handler.
type Seen = Arc<Mutex<Vec<(u64, Option<TraceContext>, Option<TraceContext>)>>>;

fn note(seen: &Seen, message: &Message) {
    seen.lock().unwrap().push((number(message), message.trace(), message.handler_trace()));
}

async fn add_traced(backend: &Arc<dyn Admin>, n: u64, traceparent: &'static str, tracestate: &'static str) {
    let fields = vec![
        ("n".into(), n.to_string().into()),
        ("traceparent".into(), traceparent.into()),
        ("tracestate".into(), tracestate.into()),
    ];
    backend.add(STREAM, &[NewEntry { fields, idempotence: None }], None).await.unwrap();
}

#[tokio::test]
async fn a_handler_gets_the_trace_of_its_message_and_passes_it_on() {
    let (backend, seen) = (store().await, Seen::default());
    add(&backend, 0..1).await;
    add_traced(&backend, 1, TRACEPARENT, "foo=1").await;
    add_traced(&backend, 2, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0\n", "foo=1").await;
    add_traced(&backend, 3, TRACEPARENT, "foo=1\r\nevil: 1").await;
    let next = Producer::new(backend.clone(), "shipping");
    let handler = async |message: Message, seen: Data<Seen>, next: Data<Producer>| {
        note(&seen, &message);
        next.0.as_ref().clone().trace(message.handler_trace()).send([("n", "9")]).await.map(drop)
    };
    let running = run(worker(&backend).concurrency(1).state(seen.clone()).state(next).handler(handler));
    wait_until("all done", async || all_done(&backend).await).await;
    running.drain().await;
    let seen = seen.lock().unwrap().clone();
    let sent = |state: Option<&[u8]>| Some(TraceContext::parse(TRACEPARENT.as_bytes(), state).unwrap());
    let senders: Vec<_> = seen.iter().map(|(n, sender, _)| (*n, sender.clone())).collect();
    assert_eq!(senders, [(0, None), (1, sent(Some(b"foo=1"))), (2, None), (3, sent(None))]);
    assert_eq!((&seen[0].2, &seen[2].2), (&None, &None));
    let handled = seen[1].2.clone().unwrap();
    assert_eq!((handled.trace_id, &handled.state), (sent(None).unwrap().trace_id, &Some("foo=1".to_owned())));
    assert_ne!(handled.span_id, sent(None).unwrap().span_id);
    let all = Range { first: StreamId::MIN, last: StreamId::MAX, order: IdOrder::Ascending, count: 10 };
    let passed_on = backend.range("shipping", all).await.unwrap();
    assert_eq!(TraceContext::of(&passed_on[1].fields), Some(handled));
    assert_eq!(passed_on[0].fields.len(), 1);
}

#[tokio::test]
async fn each_attempt_has_a_span_of_its_own_and_a_dead_letter_keeps_its_trace() {
    let (backend, seen) = (store().await, Seen::default());
    add_traced(&backend, 1, TRACEPARENT, "foo=1").await;
    let handler = async |message: Message, seen: Data<Seen>| {
        note(&seen, &message);
        Err::<(), _>(HandlerError::retry("down"))
    };
    let running = run(worker(&backend).max_attempts(2).state(seen.clone()).handler(handler));
    wait_until("a dead letter", async || dead_letters(&backend).await.len() == 1).await;
    running.drain().await;
    assert_eq!(redrive(&*backend, DEAD, &Redrive::default(), |_| {}).await.unwrap().redriven, 1);
    let again =
        run(worker(&backend).state(seen.clone()).handler(async |message: Message, seen: Data<Seen>| {
            note(&seen, &message);
        }));
    wait_until("all done", async || all_done(&backend).await && seen.lock().unwrap().len() == 3).await;
    again.drain().await;
    let seen = seen.lock().unwrap();
    let sender = TraceContext::parse(TRACEPARENT.as_bytes(), Some(b"foo=1")).ok();
    assert!(seen.iter().all(|(_, trace, _)| *trace == sender), "{seen:?}");
    let spans: Vec<_> = seen.iter().map(|(.., handled)| handled.as_ref().unwrap().span_id).collect();
    assert!(spans[0] != spans[1] && spans[1] != spans[2] && spans[0] != spans[2], "{spans:?}");
}

/// Records the fields of the spans around handlers.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<BTreeMap<&'static str, String>>>>);

impl Subscriber for Spans {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        if span.metadata().name() == "process" {
            let mut fields = Fields::default();
            span.record(&mut fields);
            self.0.lock().unwrap().push(fields.0);
        }
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

/// The worker runs in the thread of the test, so the subscriber sees its spans.
#[tokio::test]
async fn each_handler_call_has_a_span_with_the_trace_of_its_message() {
    let (spans, hooked) = (Spans::default(), Arc::new(Mutex::new(Vec::new())));
    // If only one dispatcher exists, tracing lets the thread that first enters a span decide for all threads whether
    // anybody wants it. A thread of another test has no subscriber. With two dispatchers, tracing asks both.
    let _second = tracing::Dispatch::new(Spans::default());
    let _guard = tracing::subscriber::set_default(spans.clone());
    let (backend, seen) = (store().await, Seen::default());
    add(&backend, 0..1).await;
    add_traced(&backend, 1, TRACEPARENT, "foo=1").await;
    let hook = {
        let hooked = hooked.clone();
        move |span: &tracing::Span, message: &Message| {
            assert_eq!(span.metadata().map(|metadata| metadata.name()), Some("process"));
            hooked.lock().unwrap().push(number(message));
        }
    };
    let running = run(worker(&backend)
        .concurrency(1)
        .state(seen.clone())
        .on_span(hook.clone())
        .handler(async |message: Message, seen: Data<Seen>| note(&seen, &message)));
    wait_until("all done", async || all_done(&backend).await).await;
    running.drain().await;
    let found = std::mem::take(&mut *spans.0.lock().unwrap());
    let handled = seen.lock().unwrap()[1].2.clone().unwrap();
    assert_eq!(found[0].get("trace_id"), None);
    for (field, value) in [
        ("otel.kind", "consumer"),
        ("messaging.system", "redis"),
        ("messaging.destination.name", STREAM),
        ("messaging.consumer.group.name", GROUP),
        ("messaging.redis.message.delivery_count", "1"),
        ("trace_id", "4bf92f3577b34da6a3ce929d0e0e4736"),
        ("parent_span_id", "00f067aa0ba902b7"),
        ("span_id", &*handled.span_id.to_string()),
    ] {
        assert_eq!(found[1].get(field).map(String::as_str), Some(value), "{field}: {found:?}");
    }
    assert_eq!(std::mem::take(&mut *hooked.lock().unwrap()), [1]);

    add_traced(&backend, 2, TRACEPARENT, "").await;
    add(&backend, 3..4).await;
    let batches = worker(&backend).on_span(hook).batch_handler(async |_: Vec<Message>| {}, 10, ms(10));
    let running = run(batches);
    wait_until("all done", async || all_done(&backend).await).await;
    running.drain().await;
    let found = spans.0.lock().unwrap();
    let with_links: Vec<_> = found.iter().filter_map(|fields| fields.get("links")).collect();
    assert_eq!(with_links, [TRACEPARENT]);
    assert_eq!(*hooked.lock().unwrap(), [2]);
}
