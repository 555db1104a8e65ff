//! The vectors of the W3C specification's own tests, and hostile values.

use bytes::Bytes;

use super::*;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

fn valid() -> String {
    format!("00-{TRACE}-{SPAN}-01")
}

fn with_state(state: &str) -> Option<String> {
    TraceContext::parse(valid().as_bytes(), Some(state.as_bytes())).unwrap().state
}

#[test]
fn a_traceparent_is_parsed_and_printed() {
    let context: TraceContext = valid().parse().unwrap();
    assert_eq!((context.trace_id.to_string(), context.span_id.to_string()), (TRACE.into(), SPAN.into()));
    assert_eq!((context.flags, context.is_sampled(), &context.state), (1, true, &None));
    assert_eq!(context.to_string(), valid());
    let unsampled: TraceContext = format!("00-{TRACE}-{SPAN}-00").parse().unwrap();
    assert!(!unsampled.is_sampled());
}

#[test]
fn unknown_flags_are_accepted_and_not_passed_on() {
    let context: TraceContext = format!("00-{TRACE}-{SPAN}-ff").parse().unwrap();
    assert!(context.is_sampled());
    assert_eq!(context.to_string(), format!("00-{TRACE}-{SPAN}-03"));
}

#[test]
fn later_versions_are_read_as_version_00() {
    for later in
        [format!("cc-{TRACE}-{SPAN}-01"), format!("cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like")]
    {
        assert_eq!(later.parse::<TraceContext>().unwrap().to_string(), valid(), "{later}");
    }
}

#[test]
fn invalid_values_are_refused() {
    let upper = TRACE.to_uppercase();
    for (invalid, why) in [
        (String::new(), "too short"),
        ("00".into(), "too short"),
        (format!("00-{TRACE}-{SPAN}-1"), "too short"),
        (format!("00-{TRACE}-{SPAN}-"), "too short"),
        (format!("{}-", valid()), "too long"),
        (format!("{}-what", valid()), "too long"),
        (format!("{} ", valid()), "too long"),
        (format!(" {}", valid()), "wrong length"),
        (format!("cc-{TRACE}-{SPAN}-01.what"), "flags are too long"),
        (format!("ff-{TRACE}-{SPAN}-01"), "not a version"),
        (format!(".0-{TRACE}-{SPAN}-01"), "characters"),
        (format!("0.-{TRACE}-{SPAN}-01"), "characters"),
        (format!("00-{upper}-{SPAN}-01"), "characters"),
        (format!("00-.bf92f3577b34da6a3ce929d0e0e4736-{SPAN}-01"), "characters"),
        (format!("00-+bf92f3577b34da6a3ce929d0e0e4736-{SPAN}-01"), "characters"),
        (format!("00-{TRACE}-.0f067aa0ba902b7-01"), "characters"),
        (format!("00-{TRACE}-{SPAN}-.0"), "characters"),
        (format!("00-{TRACE}-{SPAN}-0."), "characters"),
        (format!("00-{}-{SPAN}-01", "0".repeat(32)), "trace id is zero"),
        (format!("00-{TRACE}-{}-01", "0".repeat(16)), "span id is zero"),
        (format!("00-{TRACE}0-{}-01", &SPAN[1..]), "wrong length"),
        (format!("00_{TRACE}-{SPAN}-01"), "wrong length"),
        ("é".repeat(28), "wrong length"),
        ("\0".repeat(55), "wrong length"),
    ] {
        let error = invalid.parse::<TraceContext>().unwrap_err().to_string();
        assert!(error.contains(why), "{invalid}: {error}");
    }
    assert!(TraceContext::parse(&[0xff; 55], None).is_err());
    assert!(TraceContext::parse(&vec![b'0'; 10_000_000], None).is_err());
}

#[test]
fn a_valid_tracestate_is_kept_as_it_is() {
    let long = format!("{}@{}={}", "t".repeat(241), "v".repeat(14), "x".repeat(255));
    for state in [
        "foo=1",
        "foo=1,bar=2",
        "foo=1 , \t bar=2",
        "foo=1,,,bar=2",
        "congo=ucfJifl5GOE,rojo=00f067aa0ba902b7",
        "fw529a3039@dt=FfOxZ",
        "0tenant@system=1",
        "foo-_*/bar=a b!\"#$%&'()*+-./:;<>?@[\\]^_`{|}~",
        &*long,
    ] {
        assert_eq!(with_state(state).as_deref(), Some(state));
    }
    assert_eq!(with_state(" foo=1\t").as_deref(), Some("foo=1"));
    let members: Vec<String> = (0..MEMBERS_MAX).map(|n| format!("k{n}=1")).collect();
    assert!(with_state(&members.join(",")).is_some());
}

#[test]
fn an_invalid_tracestate_is_ignored() {
    let members: Vec<String> = (0..=MEMBERS_MAX).map(|n| format!("k{n}=1")).collect();
    let long_key = format!("{}=1", "k".repeat(MEMBER_CHARS_MAX + 1));
    let long_value = format!("k={}", "v".repeat(MEMBER_CHARS_MAX + 1));
    for state in [
        "",
        " ",
        ",",
        "foo",
        "foo=",
        "=1",
        "foo =1",
        "FOO=1",
        "foo.fum=1",
        "@foo=1",
        "foo=1,foo=2",
        "foo=bar=baz",
        "foo=1\n",
        "foo=\0",
        "foo=1\r\nx-evil: 1",
        "foo=\u{e9}",
        "foo=1;bar=2=3",
        &members.join(","),
        &long_key,
        &long_value,
    ] {
        assert_eq!(with_state(state), None, "{state:?}");
    }
    assert_eq!(TraceContext::parse(valid().as_bytes(), Some(b"foo=\xff")).unwrap().state, None);
}

#[test]
fn the_size_of_a_tracestate_is_limited() {
    let state = |bytes: usize| {
        let first = format!("a={},", "x".repeat(250));
        format!("{first}b={}", "y".repeat(bytes - first.len() - 2))
    };
    assert!(with_state(&state(TRACESTATE_BYTES_MAX - 10)).is_some());
    let at_the_limit = format!("a={},b={}", "x".repeat(252), "y".repeat(255));
    assert_eq!(at_the_limit.len(), TRACESTATE_BYTES_MAX);
    assert_eq!(with_state(&at_the_limit), Some(at_the_limit));
    let beyond = format!("a={},b={}", "x".repeat(253), "y".repeat(255));
    assert_eq!(with_state(&beyond), None);
}

#[test]
fn the_context_is_added_to_fields_that_have_none() {
    let context = TraceContext::parse(valid().as_bytes(), Some(b"foo=1")).unwrap();
    let mut fields: Fields = vec![("n".into(), "1".into())];
    context.add_to(&mut fields);
    assert_eq!(TraceContext::of(&fields), Some(context.clone()));
    assert_eq!(fields.len(), 3);
    let other = context.clone().with_span(SpanId::random());
    other.add_to(&mut fields);
    assert_eq!(TraceContext::of(&fields), Some(context.clone()), "a field that exists was replaced");
    // The field of the sender stays even if it is not valid.
    let mut own: Fields = vec![(TRACEPARENT.into(), Bytes::from_static(b"mine"))];
    context.add_to(&mut own);
    assert_eq!((own.len(), TraceContext::of(&own)), (1, None));
    // A state without a traceparent belongs to no trace.
    let mut stray: Fields = vec![(TRACESTATE.into(), Bytes::from_static(b"bar=2"))];
    context.add_to(&mut stray);
    assert_eq!(TraceContext::of(&stray), Some(context));
}

#[test]
fn span_ids_are_random() {
    assert_ne!(SpanId::random(), SpanId::random());
}
