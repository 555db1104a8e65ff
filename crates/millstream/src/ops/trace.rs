//! The trace to which new messages belong: from `--traceparent` or from the environment.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use millstream_worker::trace::{InvalidTrace, TraceContext};

use super::output::note;

/// The environment variables with the trace of a program.
pub(crate) const TRACEPARENT_VARIABLE: &str = "TRACEPARENT";
pub(crate) const TRACESTATE_VARIABLE: &str = "TRACESTATE";

/// Parses the value of `--traceparent`.
pub(crate) fn parse_trace(text: &str) -> Result<TraceContext, InvalidTrace> {
    text.parse()
}

/// Returns the trace of this program's environment. A value that is not valid gets a warning.
pub(crate) fn trace_of_environment() -> Option<TraceContext> {
    let value = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let (traceparent, tracestate) = (value(TRACEPARENT_VARIABLE)?, value(TRACESTATE_VARIABLE));
    let parsed = TraceContext::parse(traceparent.as_bytes(), tracestate.as_deref().map(OsStrExt::as_bytes));
    match parsed {
        Ok(trace) => {
            if tracestate.is_some() && trace.state.is_none() {
                warn(
                    TRACESTATE_VARIABLE,
                    tracestate,
                    "it is not a list of up to 32 KEY=VALUE, separated by commas",
                );
            }
            Some(trace)
        }
        Err(error) => {
            warn(TRACEPARENT_VARIABLE, Some(traceparent), &error.to_string());
            None
        }
    }
}

fn warn(name: &str, value: Option<OsString>, error: &str) {
    let value = value.unwrap_or_default();
    note(&format!("warning: ignored the environment variable {name}={value:?}: {error}"));
}
