//! The `tracing` span around each handler call, with the traces of its messages.
//!
//! Names follow OpenTelemetry's conventions for messaging. This file does not export spans: the program's `tracing`
//! layers do, and [`SpanHook`] lets them connect a span with the traces of its messages.

use std::future::Future;

use tracing::{Instrument, Span, info_span};

use crate::message::Message;
use crate::worker::core::SpanHook;

/// Maximum number of traces in the field `links` of the span of a batch.
const LINKS_MAX: usize = 32;

pub(crate) fn message_span(hook: Option<&SpanHook>, message: &Message) -> Span {
    let trace = message.trace();
    let span = info_span!(
        "process",
        otel.kind = "consumer",
        messaging.system = "redis",
        messaging.destination.name = &*message.stream,
        messaging.consumer.group.name = &*message.group,
        messaging.message.id = %message.id,
        messaging.redis.message.delivery_count = message.attempt,
        trace_id = trace.as_ref().map(|trace| display(trace.trace_id)),
        parent_span_id = trace.as_ref().map(|trace| display(trace.span_id)),
        span_id = message.span_id.map(display),
    );
    connect(hook, &span, std::slice::from_ref(message));
    span
}

/// Returns the span of a call for a batch. Its field `links` has the traces of the messages.
pub(crate) fn batch_span(hook: Option<&SpanHook>, messages: &[Message]) -> Span {
    let span = info_span!(
        "process",
        otel.kind = "consumer",
        messaging.system = "redis",
        messaging.consumer.group.name = messages.first().map(|message| &*message.group),
        messaging.batch.message_count = messages.len(),
        links = links(messages),
    );
    connect(hook, &span, messages);
    span
}

/// Returns the traces of messages, as their `traceparent`s. `None` if no message has one.
fn links(messages: &[Message]) -> Option<String> {
    let traces = messages.iter().filter_map(Message::trace).take(LINKS_MAX);
    let links: Vec<String> = traces.map(|trace| trace.to_string()).collect();
    (!links.is_empty()).then(|| links.join(","))
}

/// Calls the hook for each message that has a trace, unless nothing records the span.
fn connect(hook: Option<&SpanHook>, span: &Span, messages: &[Message]) {
    if let Some(SpanHook(hook)) = hook
        && !span.is_disabled()
    {
        messages.iter().filter(|message| message.span_id.is_some()).for_each(|message| hook(span, message));
    }
}

/// Runs a future in a span. A disabled span costs nothing.
pub(crate) async fn in_span<F: Future>(span: Span, future: F) -> F::Output {
    if span.is_disabled() { future.await } else { future.instrument(span).await }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::sample;
    use crate::trace::SpanId;

    #[test]
    fn the_span_of_a_batch_has_a_limited_number_of_links() {
        let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let traced = Message { span_id: Some(SpanId::random()), ..sample(&[("traceparent", traceparent)]) };
        let links_of = |messages: &[Message]| links(messages).map(|links| links.split(',').count());
        assert_eq!(links_of(&[sample(&[])]), None);
        assert_eq!(links(&[sample(&[]), traced.clone()]).as_deref(), Some(traceparent));
        for (messages, count) in [(LINKS_MAX, LINKS_MAX), (LINKS_MAX + 1, LINKS_MAX)] {
            assert_eq!(links_of(&vec![traced.clone(); messages]), Some(count));
        }
    }
}
