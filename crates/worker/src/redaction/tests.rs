//! Tests of what is hidden, and of what is not.

use bytes::Bytes;

use super::*;

fn shown(redaction: &Redaction, name: &str, value: &str) -> Option<String> {
    let shown = redaction.shown(name.as_bytes(), value.as_bytes())?;
    Some(String::from_utf8(shown.into_owned()).unwrap())
}

fn default_shown(name: &str, value: &str) -> Option<String> {
    shown(&Redaction::default(), name, value)
}

fn fields(pairs: &[(&'static str, &'static str)]) -> Fields {
    pairs.iter().map(|(name, value)| (Bytes::from(*name), Bytes::from(*value))).collect()
}

#[test]
fn fields_with_matching_names_are_hidden() {
    for name in ["password", "User-Password", "api_token", "client_secret_2", "Authorization"] {
        assert_eq!(default_shown(name, "x"), None, "{name}");
    }
    for name in ["item", "pass", "authorization2", ""] {
        assert_eq!(default_shown(name, "x").as_deref(), Some("x"), "{name}");
    }
    assert_eq!(shown(&Redaction::none(), "password", "x").as_deref(), Some("x"));
    assert_eq!(shown(&Redaction::everything(), "item", "x"), None);
    assert_eq!(shown(&Redaction::everything(), "", "x"), None);
}

#[test]
fn members_of_json_are_hidden_and_the_rest_stays_as_it_is() {
    let value = r#"{ "sku": 1234567890123456789, "password" : {"a":[1,"}"]}, "b": "\u00e9" }"#;
    let expected = r#"{ "sku": 1234567890123456789, "password" : "(hidden)", "b": "\u00e9" }"#;
    assert_eq!(default_shown("data", value).as_deref(), Some(expected));
    let escaped = r#"[{"pass\u0077ord":1},{"x":{"authorization":"Bearer y"}}]"#;
    let expected = r#"[{"pass\u0077ord":"(hidden)"},{"x":{"authorization":"(hidden)"}}]"#;
    assert_eq!(default_shown("data", escaped).as_deref(), Some(expected));
    let nested = r#"{"body":"{\"token\":\"t\",\"n\":1}"}"#;
    let expected = r#"{"body":"{\"token\":\"(hidden)\",\"n\":1}"}"#;
    assert_eq!(default_shown("data", nested).as_deref(), Some(expected));
    let lines = "{\"a\":1}\n{\"token\":2}\n";
    assert_eq!(default_shown("data", lines).as_deref(), Some("{\"a\":1}\n{\"token\":\"(hidden)\"}\n"));
}

#[test]
fn paths_select_members_of_one_field() {
    let redaction = Redaction::new(["data.user.email", "card*"]).unwrap();
    let value = r#"{"user":{"email":"e","name":"n"},"email":"x","cards":[{"cardNo":4}]}"#;
    let expected = r#"{"user":{"email":"(hidden)","name":"n"},"email":"x","cards":"(hidden)"}"#;
    assert_eq!(shown(&redaction, "data", value).as_deref(), Some(expected));
    let other = r#"{"user":{"email":"e"}}"#;
    assert_eq!(shown(&redaction, "other", other).as_deref(), Some(other));
    let list = r#"{"users":[],"user":[{"email":"e"},{"email":"f"}]}"#;
    let expected = r#"{"users":[],"user":[{"email":"(hidden)"},{"email":"(hidden)"}]}"#;
    assert_eq!(shown(&redaction, "data", list).as_deref(), Some(expected));
}

#[test]
fn values_that_are_no_valid_json_are_hidden_if_they_may_contain_a_hidden_member() {
    for broken in [r#"{"password":"x"#, r#"{password: x}"#, r#"["a" "TOKEN"]"#, r#"{"p\u0061ssword":1"#] {
        assert_eq!(default_shown("data", broken), None, "{broken}");
    }
    for harmless in ["{broken", "[INFO] started", "password=x", "\"quoted\" text", "{}}", "[", "{\"a\""] {
        assert_eq!(default_shown("data", harmless).as_deref(), Some(harmless));
    }
    for (glob, name) in [("data*email", "data"), ("x[ab]y", "f"), ("a/b", "f")] {
        let redaction = Redaction::new([glob]).unwrap();
        for broken in [r#"{"user":{"email":1"#, r#"{"xay":1"#, r#"{"a\/b":1"#] {
            let may_occur = match glob {
                "data*email" => broken.contains("email"),
                "a/b" => broken.contains('/'),
                _ => true,
            };
            assert_eq!(shown(&redaction, name, broken).is_none(), may_occur, "{glob}: {broken}");
        }
    }
    let binary = b"{\"password\":\"\xff\"}";
    assert_eq!(Redaction::default().shown(b"data", binary), None);
}

#[test]
fn deep_and_long_values_are_hidden_if_they_may_have_a_hidden_member_and_take_little_time() {
    let deep = |levels: usize, inner: &str| format!("{}{inner}{}", "[".repeat(levels), "]".repeat(levels));
    for levels in [64, 65, 10_000, 1_000_000] {
        assert_eq!(default_shown("data", &deep(levels, "1")), Some(deep(levels, "1")), "{levels}");
    }
    let token = r#"{"my_Token":2}"#;
    assert_eq!(default_shown("data", &deep(63, token)), Some(deep(63, r#"{"my_Token":"(hidden)"}"#)));
    assert_eq!(default_shown("data", &deep(64, token)), None);
    assert_eq!(default_shown("data", &deep(10_000, r#"{"t\u006fken":2}"#)), None);
    let members = |levels: usize| format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
    assert_eq!(default_shown("data", &members(10_000)), Some(members(10_000)));
    let long = |bytes: usize, name: &str| format!("{{\"{}{name}\":1}}", "k".repeat(bytes - name.len()));
    assert_eq!(default_shown("data", &long(5000, "")), Some(long(5000, "")));
    assert_eq!(
        default_shown("data", &long(1024 - 5, "token")).as_deref(),
        Some(&*long(1024 - 5, "token").replace(":1", ":\"(hidden)\""))
    );
    assert_eq!(default_shown("data", &long(1024 - 4, "token")), None);
    let strings =
        |count: usize| (0..count).fold("[1]".to_owned(), |text, _| serde_json::to_string(&[text]).unwrap());
    assert_eq!(default_shown("data", &strings(4)), Some(strings(4)));
    assert!(default_shown("data", &strings(5)).unwrap().contains(HIDDEN));
}

#[test]
fn errors_do_not_quote_hidden_values() {
    let redaction = Redaction::default();
    let fields = fields(&[
        ("password", "hunter2"),
        ("item", "book"),
        ("pin_token", "12"),
        ("data", r#"{"secret":{"key":"a\"b c","n":98765},"sku":9}"#),
    ]);
    let mask = |error: &str| redaction.mask(error, &fields);
    assert_eq!(mask("login hunter2 failed for book"), "login (hidden) failed for book");
    assert_eq!(mask("pin 12 of 1234 (12)"), "pin (hidden) of 1234 ((hidden))");
    assert_eq!(mask(r#"bad key a"b c, a\"b c, 98765, sku 9"#), "bad key (hidden), (hidden), (hidden), sku 9");
    assert_eq!(mask("cut: hunt"), "cut: (hidden)");
    assert_eq!(mask("cut: hun"), "cut: hun");
    assert_eq!(Redaction::none().mask("hunter2", &fields), "hunter2");
    let many: Fields = (0..=SECRETS_MAX).map(|n| ("token".into(), format!("t{n}").into())).collect();
    assert_eq!(redaction.mask("any", &many), HIDDEN);
    assert_eq!(redaction.mask("any", &many[1..].to_vec()), "any");
}

#[test]
fn hidden_values_do_not_match_what_replaced_others() {
    let fields = fields(&[("token", "hunter2"), ("secret", "hidd"), ("password", "unter22")]);
    let mask = |error: &str| Redaction::default().mask(error, &fields);
    assert_eq!(mask("login hunter2 hidd"), "login (hidden) (hidden)");
    assert_eq!(mask("overlapping hunter22."), "overlapping (hidden).");
}

#[test]
fn the_longest_quoted_beginning_is_found() {
    for (text, secret, quoted) in [
        ("aabaaa", "aaaaab", None),
        ("xaaaa", "aaaaab", Some(4)),
        ("abababab", "ababababx", Some(8)),
        ("xabcabcab", "abcabcabd", Some(8)),
        ("ends with é", "with é and more", Some(7)),
        ("whole", "whole", None),
        ("", "secret", None),
        ("x", "", None),
    ] {
        assert_eq!(quoted_beginning(text, secret), quoted, "{text} {secret}");
    }
}

#[test]
fn large_errors_are_hidden_unless_the_search_takes_little_time() {
    let (redaction, large) = (Redaction::default(), "a".repeat(MASK_WORK_MAX / 2));
    let two: Fields = vec![("token".into(), large.clone().into()), ("secret".into(), "b".into())];
    assert_eq!(redaction.mask(&large[1..], &two), HIDDEN);
    assert_eq!(redaction.mask(&format!("{large}."), &two), HIDDEN);
    let harmless = "c".repeat(MASK_WORK_MAX / 2);
    assert_eq!(redaction.mask(&harmless, &two), harmless);
    assert_eq!(redaction.mask(&format!("{harmless}c"), &two), HIDDEN);
}

#[test]
fn arguments_of_commands_are_masked() {
    let arguments = ["XADD", "tokens", "*", "password", "x", "data", r#"{"token":1}"#].map(str::to_owned);
    let masked = Redaction::default().mask_arguments(&arguments);
    assert_eq!(masked[..3], ["XADD", "tokens", "(hidden)"]);
    assert_eq!(masked[3..], ["password", "(hidden)", "data", r#"{"token":"(hidden)"}"#]);
}

#[test]
fn patterns_have_a_length() {
    for glob in [String::new(), "x".repeat(glob::PATTERN_BYTES_MAX + 1)] {
        assert!(Redaction::new([glob]).unwrap_err().starts_with("invalid pattern"));
    }
    assert!(Redaction::new(["x".repeat(glob::PATTERN_BYTES_MAX)]).is_ok());
}
