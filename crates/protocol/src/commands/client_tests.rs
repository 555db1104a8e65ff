//! Tests of the CLIENT parsers.

use super::*;
use crate::commands::testing::{error_of, with_args};

fn kill_of(line: &str) -> ClientKill<'static> {
    let words: Vec<&'static [u8]> = line.to_owned().leak().split(' ').map(str::as_bytes).collect();
    ClientKill::parse(words.leak()).unwrap()
}

#[test]
fn kill_accepts_an_address_or_filters() {
    assert_eq!(kill_of("CLIENT KILL 1.2.3.4:5"), ClientKill::Address(b"1.2.3.4:5"));
    assert_eq!(kill_of("CLIENT KILL ID"), ClientKill::Address(b"ID"));
    let filter = KillFilter {
        id: Some(7),
        client_type: Some(ClientType::Replica),
        address: Some(b"a:1"),
        local_address: Some(b"b:2"),
        user: Some(b"default"),
        age_s_min: Some(60),
        skip_me: false,
    };
    let line = "CLIENT KILL id 7 TYPE slave ADDR a:1 LADDR b:2 USER default MAXAGE 60 SKIPME No";
    assert_eq!(kill_of(line), ClientKill::Matching(filter));
}

#[test]
fn kill_reports_errors_in_argument_order() {
    let cases = [
        ("CLIENT KILL ID x FOO y", errors::CLIENT_ID_NOT_POSITIVE),
        ("CLIENT KILL ID 0", errors::CLIENT_ID_NOT_POSITIVE),
        ("CLIENT KILL ID 99999999999999999999", errors::CLIENT_ID_NOT_POSITIVE),
        ("CLIENT KILL TYPE foo", errors::unknown_client_type(b"foo")),
        ("CLIENT KILL SKIPME foo", errors::SYNTAX),
        ("CLIENT KILL MAXAGE x", errors::MAXAGE_NOT_AN_INTEGER),
        ("CLIENT KILL MAXAGE 0", errors::MAXAGE_NOT_POSITIVE),
        ("CLIENT KILL FOO x", errors::SYNTAX),
        ("CLIENT KILL ID 999 ADDR", errors::SYNTAX),
    ];
    for (line, error) in cases {
        assert_eq!(error_of(ClientKill::parse, line), error, "{line}");
    }
}

#[test]
fn list_selects_by_type_or_by_ids() {
    let list_of = |line: &str| with_args(line, |argv| ClientSelection::parse(argv).unwrap());
    assert_eq!(list_of("CLIENT LIST"), ClientSelection::All);
    assert_eq!(list_of("CLIENT LIST type PUBSUB"), ClientSelection::OfType(ClientType::Pubsub));
    assert_eq!(list_of("CLIENT LIST ID 3 -1"), ClientSelection::Ids(SmallVec::from_slice(&[3, -1])));
    let cases = [
        ("CLIENT LIST FOO", errors::SYNTAX),
        ("CLIENT LIST TYPE", errors::SYNTAX),
        ("CLIENT LIST TYPE normal x", errors::SYNTAX),
        ("CLIENT LIST TYPE foo", errors::unknown_client_type(b"foo")),
        ("CLIENT LIST ID", errors::SYNTAX),
        ("CLIENT LIST ID 1 x", errors::INVALID_CLIENT_ID),
    ];
    for (line, error) in cases {
        assert_eq!(error_of(ClientSelection::parse, line), error, "{line}");
    }
}

#[test]
fn client_names_must_be_printable() {
    for name in ["a\tb", "a\nb", "é", "a\u{7f}"] {
        let line = format!("CLIENT SETNAME {name}");
        assert_eq!(error_of(parse_client_name, &line), errors::INVALID_CLIENT_NAME, "{name:?}");
    }
    with_args("CLIENT SETNAME ''", |argv| {
        assert_eq!(parse_client_name(argv), Ok(&b""[..]));
    });
}

#[test]
fn attribute_errors_quote_the_attribute_as_sent() {
    with_args("CLIENT SETINFO lib-ver 1.2", |argv| {
        assert_eq!(ClientAttribute::parse(argv), Ok((ClientAttribute::LibVer, &b"1.2"[..])));
    });
    assert_eq!(
        error_of(ClientAttribute::parse, "CLIENT SETINFO Lib-Name a\tb").to_string(),
        "ERR Lib-Name cannot contain spaces, newlines or special characters."
    );
    assert_eq!(
        error_of(ClientAttribute::parse, "CLIENT SETINFO foo a").to_string(),
        "ERR Unrecognized option 'foo'"
    );
}

#[test]
fn unblock_and_pause_check_the_mode_before_the_number() {
    let cases = [
        ("CLIENT UNBLOCK x", errors::NOT_AN_INTEGER),
        ("CLIENT UNBLOCK x FOO", errors::UNBLOCK_REASON),
        ("CLIENT unblock 9 ERROR x", errors::subcommand_syntax(b"unblock", "CLIENT")),
    ];
    for (line, error) in cases {
        assert_eq!(error_of(UnblockReason::parse, line), error, "{line}");
    }
    let cases = [
        ("CLIENT PAUSE x", errors::TIMEOUT_NOT_AN_INTEGER),
        ("CLIENT PAUSE -1", errors::TIMEOUT_NEGATIVE),
        ("CLIENT PAUSE x FOO", errors::PAUSE_MODE),
        ("CLIENT PAUSE 1 WRITE x", errors::subcommand_syntax(b"PAUSE", "CLIENT")),
    ];
    for (line, error) in cases {
        assert_eq!(error_of(PauseMode::parse, line), error, "{line}");
    }
    with_args("CLIENT PAUSE 5 write", |argv| {
        assert_eq!(PauseMode::parse(argv), Ok((5, PauseMode::Write)));
    });
}

#[test]
fn switches_accept_only_on_and_off() {
    with_args("CLIENT NO-EVICT off", |argv| {
        assert_eq!(parse_on_or_off(argv), Ok(false));
    });
    with_args("CLIENT NO-TOUCH ON", |argv| {
        assert_eq!(parse_on_or_off(argv), Ok(true));
    });
    assert_eq!(error_of(parse_on_or_off, "CLIENT NO-EVICT FOO"), errors::SYNTAX);
    assert_eq!(error_of(ReplyMode::parse, "CLIENT REPLY FOO"), errors::SYNTAX);
    assert_eq!(error_of(check_tracking, "CLIENT TRACKING ON"), errors::NO_TRACKING);
    assert_eq!(error_of(check_tracking, "CLIENT TRACKING FOO"), errors::SYNTAX);
}
