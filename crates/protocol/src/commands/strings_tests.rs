//! Tests of the string commands' parsers.

use super::*;
use crate::commands::testing::{error_of, with_args};

#[test]
fn set_accepts_its_options_in_any_order() {
    with_args("SET k v get PX 500 xx", |argv| {
        let deadline = Deadline::positive(b"500", TimeBase::Now, TimeUnit::Milliseconds, "set").unwrap();
        let expected = Set {
            key: b"k",
            value: b"v",
            condition: SetCondition::IfExists,
            get: true,
            expiry: SetExpiry::Until(deadline),
        };
        assert_eq!(Set::parse(argv), Ok(expected));
        assert_eq!(deadline.at_ms(1000), Ok(1500));
    });
}

#[test]
fn set_rejects_invalid_and_incompatible_options() {
    let invalid = errors::invalid_expire_time("set");
    let cases = [
        ("SET k v NX XX", errors::SYNTAX),
        ("SET k v XX NX", errors::SYNTAX),
        ("SET k v EX", errors::SYNTAX),
        ("SET k v EX x", errors::NOT_AN_INTEGER),
        ("SET k v EX x FOO", errors::SYNTAX),
        ("SET k v EX 0", invalid.clone()),
        ("SET k v PX -1", invalid.clone()),
        ("SET k v EXAT 0", invalid.clone()),
        ("SET k v EX 9223372036854775807", invalid.clone()),
        ("SET k v EX 10 PX 20", errors::SYNTAX),
        ("SET k v EX 10 KEEPTTL", errors::SYNTAX),
        ("SET k v KEEPTTL EX 10", errors::SYNTAX),
        ("SET k v PERSIST", errors::SYNTAX),
        ("SET k v FOO", errors::SYNTAX),
    ];
    for (line, error) in cases {
        assert_eq!(error_of(Set::parse, line), error, "{line}");
    }
    for line in ["SET k v EX 10 EX 20", "SET k v KEEPTTL KEEPTTL", "SET k v NX NX GET"] {
        with_args(line, |argv| assert!(Set::parse(argv).is_ok(), "{line}"));
    }
}

#[test]
fn set_rejects_an_expiry_time_that_exceeds_64_bits() {
    with_args("SET k v PX 9223372036854775807", |argv| match Set::parse(argv) {
        Ok(Set { expiry: SetExpiry::Until(deadline), .. }) => {
            assert_eq!(deadline.at_ms(1), Err(errors::invalid_expire_time("set")));
        }
        other => panic!("{other:?}"),
    });
}

#[test]
fn setex_errors_contain_the_command_name() {
    assert_eq!(
        error_of(|argv| Set::parse_with_time(argv, TimeUnit::Seconds, "setex"), "SETEX k 0 v"),
        errors::invalid_expire_time("setex")
    );
    assert_eq!(
        error_of(|argv| Set::parse_with_time(argv, TimeUnit::Milliseconds, "psetex"), "PSETEX k 0 v"),
        errors::invalid_expire_time("psetex")
    );
    assert_eq!(
        error_of(|argv| Set::parse_with_time(argv, TimeUnit::Seconds, "setex"), "SETEX k x v"),
        errors::NOT_AN_INTEGER
    );
}

#[test]
fn getex_parses_its_time_only_on_request() {
    let expiry_of = |line: &str| with_args(line, |argv| GetEx::parse(argv)?.new_expiry());
    assert_eq!(expiry_of("GETEX k"), Ok(None));
    assert_eq!(expiry_of("GETEX k PERSIST persist"), Ok(Some(SetExpiry::Never)));
    assert_eq!(expiry_of("GETEX k EX x"), Err(errors::NOT_AN_INTEGER));
    assert_eq!(expiry_of("GETEX k EX 0"), Err(errors::invalid_expire_time("getex")));
    with_args("GETEX k EX x", |argv| assert!(GetEx::parse(argv).is_ok()));
    for line in ["GETEX k FOO", "GETEX k NX", "GETEX k KEEPTTL", "GETEX k EX", "GETEX k PERSIST EX 1"] {
        assert_eq!(error_of(GetEx::parse, line), errors::SYNTAX, "{line}");
    }
}
