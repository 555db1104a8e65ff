//! W3C Trace Context: which trace a message belongs to, as the fields `traceparent` and `tracestate`.
//!
//! This file parses and prints these two values, and makes span ids. It knows nothing of spans, of OpenTelemetry or of
//! where spans are exported.
//!
//! ```
//! use millstream_worker::trace::TraceContext;
//!
//! let sent: TraceContext = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse()?;
//! assert_eq!(sent.trace_id.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
//! assert!(sent.is_sampled());
//! # Ok::<(), millstream_worker::trace::InvalidTrace>(())
//! ```

#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use crate::backend::Fields;

/// The field that contains the trace and the span of the sender.
pub const TRACEPARENT: &str = "traceparent";
/// The field with the data that tracing systems add to the trace.
pub const TRACESTATE: &str = "tracestate";

/// Maximum bytes of a `tracestate`. A longer one is ignored. The specification requires at least this many.
pub const TRACESTATE_BYTES_MAX: usize = 512;
/// Maximum number of members of a `tracestate`, which the specification sets.
const MEMBERS_MAX: usize = 32;
/// Maximum characters of the key and of the value of a member.
const MEMBER_CHARS_MAX: usize = 256;

/// Length of a `traceparent` of version 00.
const TRACEPARENT_BYTES: usize = 55;
/// The flag that says that the sender records its spans.
const SAMPLED: u8 = 0x01;
/// The flags that version 00 defines: sampled, and random trace id. A sender sets all others to zero.
const KNOWN_FLAGS: u8 = 0x03;

/// Identifies a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceId(u128);

/// Identifies a span in its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanId(u64);

impl SpanId {
    /// Returns a random span id.
    pub fn random() -> SpanId {
        SpanId(fastrand::u64(1..))
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A span and its trace, as they travel with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceContext {
    /// The trace.
    pub trace_id: TraceId,
    /// The span that sent the message or, for [`Message::handler_trace`](crate::Message::handler_trace), that handles
    /// it.
    pub span_id: SpanId,
    /// The flags of the trace.
    pub flags: u8,
    /// The `tracestate`, if there is a valid one.
    pub state: Option<String>,
}

impl TraceContext {
    /// Parses the values of `traceparent` and `tracestate`. Ignores an invalid `tracestate`, as the specification
    /// requires.
    pub fn parse(traceparent: &[u8], tracestate: Option<&[u8]>) -> Result<TraceContext, InvalidTrace> {
        let (trace_id, span_id, flags) = parse_traceparent(traceparent)?;
        let state = tracestate.and_then(valid_state).map(str::to_owned);
        Ok(TraceContext { trace_id, span_id, flags, state })
    }

    /// Returns the trace of an entry with these fields. `None` if it has no valid `traceparent`.
    pub fn of(fields: &Fields) -> Option<TraceContext> {
        let value = |field: &str| {
            fields.iter().find(|(name, _)| name == field.as_bytes()).map(|(_, value)| value.as_ref())
        };
        TraceContext::parse(value(TRACEPARENT)?, value(TRACESTATE)).ok()
    }

    /// Returns the context of another span of the same trace.
    #[must_use]
    pub fn with_span(self, span_id: SpanId) -> TraceContext {
        TraceContext { span_id, ..self }
    }

    /// Returns whether the sender records its spans.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Adds the context to the fields of an entry. An entry that has a `traceparent` keeps it.
    pub fn add_to(&self, fields: &mut Fields) {
        if fields.iter().any(|(name, _)| name == TRACEPARENT.as_bytes()) {
            return;
        }
        fields.push((TRACEPARENT.into(), self.to_string().into()));
        if let Some(state) = &self.state {
            fields.retain(|(name, _)| name != TRACESTATE.as_bytes());
            fields.push((TRACESTATE.into(), state.clone().into()));
        }
    }
}

/// The value of `traceparent`, of version 00.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace_id, self.span_id, self.flags & KNOWN_FLAGS)
    }
}

impl FromStr for TraceContext {
    type Err = InvalidTrace;

    fn from_str(traceparent: &str) -> Result<TraceContext, InvalidTrace> {
        TraceContext::parse(traceparent.as_bytes(), None)
    }
}

/// The error of a value that is not a `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidTrace(&'static str);

impl fmt::Display for InvalidTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}; expected 00-TRACE-SPAN-FLAGS in lower-case hexadecimal digits (32, 16 and 2), such as \
             00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            self.0
        )
    }
}

impl std::error::Error for InvalidTrace {}

/// Parses a `traceparent`. A later version may have more parts after the flags.
fn parse_traceparent(text: &[u8]) -> Result<(TraceId, SpanId, u8), InvalidTrace> {
    let (known, more) = text.split_at_checked(TRACEPARENT_BYTES).ok_or(InvalidTrace("it is too short"))?;
    if [2, 35, 52].iter().any(|at| known[*at] != b'-') {
        return Err(InvalidTrace("its parts have the wrong length"));
    }
    let number =
        |part: &[u8]| hexadecimal(part).ok_or(InvalidTrace("it has characters other than 0-9 and a-f"));
    let version = number(&known[..2])?;
    let (trace_id, span_id) = (number(&known[3..35])?, number(&known[36..52])?);
    let flags = number(&known[53..])?;
    match version {
        0xff => Err(InvalidTrace("ff is not a version")),
        0 if !more.is_empty() => Err(InvalidTrace("it is too long")),
        _ if more.first().is_some_and(|first| *first != b'-') => Err(InvalidTrace("its flags are too long")),
        _ if trace_id == 0 => Err(InvalidTrace("its trace id is zero")),
        _ if span_id == 0 => Err(InvalidTrace("its span id is zero")),
        // Neither conversion truncates: the parts have 16 and 2 digits.
        _ => Ok((TraceId(trace_id), SpanId(span_id as u64), flags as u8)),
    }
}

/// Returns the number of up to 32 lower-case hexadecimal digits.
fn hexadecimal(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number: u128, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(value))
    })
}

/// Returns a `tracestate` without the space around it, if it is valid and not empty.
fn valid_state(text: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(text).ok()?.trim_matches([' ', '\t']);
    let members =
        || text.split(',').map(|member| member.trim_matches([' ', '\t'])).filter(|one| !one.is_empty());
    let mut keys = Vec::new();
    for member in members() {
        let (key, value) = member.split_once('=')?;
        if !is_key(key) || !is_value(value) || keys.contains(&key) || keys.len() == MEMBERS_MAX {
            return None;
        }
        keys.push(key);
    }
    (!keys.is_empty() && text.len() <= TRACESTATE_BYTES_MAX).then_some(text)
}

fn is_key(key: &str) -> bool {
    let is_first = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_next = |byte: u8| is_first(byte) || matches!(byte, b'_' | b'-' | b'*' | b'/' | b'@');
    key.len() <= MEMBER_CHARS_MAX && key.bytes().next().is_some_and(is_first) && key.bytes().all(is_next)
}

fn is_value(value: &str) -> bool {
    // The space around a member was removed, so a value does not end with one.
    let is_allowed = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'=';
    (1..=MEMBER_CHARS_MAX).contains(&value.len()) && value.bytes().all(is_allowed)
}
