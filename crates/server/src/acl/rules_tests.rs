//! Tests of rules: what they allow, and that printing and parsing agree.

use super::*;
use crate::acl::KeyAccess;
use crate::command::required_keys;
use crate::table::tests::resolve;
use crate::table::{COMMANDS, catalog};

fn rules(text: &str) -> Result<Rules, RulesError> {
    let catalog = catalog();
    let mut rules = Rules::of_new_user(&catalog);
    let args: Vec<&[u8]> = words(text.as_bytes()).collect();
    rules.apply_all(&args, &catalog).map(|()| rules)
}

fn shown(text: &str) -> String {
    String::from_utf8(rules(text).unwrap_or_else(|error| panic!("{text}: {error:?}")).text()).unwrap()
}

fn error_of(text: &str) -> RuleError {
    match rules(text) {
        Err(RulesError::Rule { error, .. }) => error,
        other => panic!("{text}: {:?}", other.err()),
    }
}

fn check(text: &str, request: &str) -> Result<(), Denial> {
    let argv: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
    let spec = resolve(&argv).unwrap();
    rules(text).unwrap().check(spec.index(), &argv, &required_keys(spec, &argv))
}

#[test]
fn rules_are_shown_as_redis_8_shows_them() {
    let cases = [
        ("", "off sanitize-payload resetchannels -@all"),
        ("on nopass allkeys allchannels allcommands", "on nopass sanitize-payload ~* &* +@all"),
        ("+get -get", "off sanitize-payload resetchannels -@all -get"),
        ("+@all -@write +set", "off sanitize-payload resetchannels +@all -@write +set"),
        ("+@all -xgroup +xgroup|create", "off sanitize-payload resetchannels +@all -xgroup +xgroup|create"),
        ("+config|get +config", "off sanitize-payload resetchannels -@all +config"),
        ("+client|list +client|kill -client", "off sanitize-payload resetchannels -@all -client"),
        ("+get +set +get", "off sanitize-payload resetchannels -@all +set +get"),
        ("+@stream -@stream", "off sanitize-payload resetchannels -@all -@stream"),
        (
            "+XADD +@STREAM +xgroup|CREATE",
            "off sanitize-payload resetchannels -@all +xadd +@stream +xgroup|create",
        ),
        ("+select|0 +select|1", "off sanitize-payload resetchannels -@all +select|0 +select|1"),
        ("+get nocommands", "off sanitize-payload resetchannels -@all"),
        ("%W~x %RW~y %R~y %wr~z ~a %R~b", "off sanitize-payload %W~x ~y ~z ~a %R~b resetchannels -@all"),
        ("&a &b &a", "off sanitize-payload resetchannels &a &b -@all"),
        (
            "( +get  ~a +set ~b ) () (&x)",
            "off sanitize-payload resetchannels -@all \
            (~a ~b resetchannels -@all +get +set) (resetchannels -@all) (resetchannels &x -@all)",
        ),
        ("(+get) clearselectors", "off sanitize-payload resetchannels -@all"),
        ("on >pw ~a +get &x (+set) skip-sanitize-payload reset", "off sanitize-payload resetchannels -@all"),
        ("ON SKIP-Sanitize-Payload", "on skip-sanitize-payload resetchannels -@all"),
    ];
    for (text, expected) in cases {
        assert_eq!(shown(text), expected, "{text}");
        assert_eq!(shown(expected), expected, "{text}");
        assert!(rules(expected).unwrap() == rules(text).unwrap(), "{text}");
    }
}

#[test]
fn invalid_rules_are_refused_with_the_reason() {
    use RuleError::{
        ChannelsAfterAll, FirstArgOfSubcommand, InvalidHash, KeysAfterAll, NoSuchPassword, Syntax,
        UnknownCommand,
    };
    let hash = "0".repeat(64);
    let cases = [
        ("+nope", UnknownCommand),
        ("+", UnknownCommand),
        ("-", UnknownCommand),
        ("+@nope", UnknownCommand),
        ("+@", UnknownCommand),
        ("+xgroup|nope", UnknownCommand),
        ("-get|a", UnknownCommand),
        ("+get)", UnknownCommand),
        ("+get|", Syntax),
        ("+xgroup|", Syntax),
        ("+xgroup|create|x", FirstArgOfSubcommand),
        ("%X~a", Syntax),
        ("%~a", Syntax),
        ("%R", Syntax),
        ("%RR~a", Syntax),
        ("nope", Syntax),
        (")", Syntax),
        ("(on)", Syntax),
        ("(>x)", Syntax),
        ("((+get))", Syntax),
        ("allkeys ~a", KeysAfterAll),
        ("~* %R~a", KeysAfterAll),
        ("&* &a", ChannelsAfterAll),
        ("#abc", InvalidHash),
        (&format!("#{}", "A".repeat(64)), InvalidHash),
        (&format!("#{hash}0"), InvalidHash),
        ("!abc", InvalidHash),
        (&format!("!{hash}"), NoSuchPassword),
        ("<nope", NoSuchPassword),
    ];
    for (text, error) in cases {
        assert_eq!(error_of(text), error, "{text}");
    }
    for text in ["(+get", "(", "(+get ~a"] {
        assert!(matches!(rules(text), Err(RulesError::Unmatched { .. })), "{text}");
    }
    let catalog = catalog();
    let mut rules = Rules::of_new_user(&catalog);
    // The ACL file could not contain these. In a selector, a parenthesis at the end of a rule would end the selector.
    for pattern in [&b"~a b"[..], b"&a b", b"~a\0", b"~a\nuser evil on", b"+get|a b", b"(~a) +get)"] {
        assert!(rules.apply(pattern, &catalog).is_err(), "{pattern:?}");
    }
}

#[test]
fn commands_and_subcommands_are_allowed_from_left_to_right() {
    let allows = |text: &str, request: &str| check(&format!("~* {text}"), request).is_ok();
    assert!(allows("+get", "GET k") && !allows("+get", "SET k v"));
    assert!(!allows("", "GET k"));
    assert!(allows("+@stream", "XADD k * f v") && !allows("+@stream", "GET k"));
    assert!(allows("+@stream", "XGROUP CREATE k g $"));
    assert!(!allows("+@stream -xgroup|create", "XGROUP CREATE k g $"));
    assert!(allows("+@stream -xgroup|create", "XGROUP DESTROY k g"));
    assert!(allows("+@all -xgroup +xgroup|create", "XGROUP CREATE k g $"));
    assert!(!allows("+@all -xgroup +xgroup|create", "XGROUP DESTROY k g"));
    assert!(!allows("+get -@read", "GET k") && allows("-@read +get", "GET k"));
    assert!(!allows("+config|get", "CONFIG SET a b") && allows("+config", "CONFIG SET a b"));
    assert!(allows("+@read +@write -@dangerous", "SET k v"));
    assert!(!allows("+@read +@write -@dangerous", "FLUSHALL"));
    // A first argument is allowed until a rule about the whole command replaces it.
    assert!(allows("+select|1", "SELECT 1") && !allows("+select|1", "SELECT 2"));
    assert!(!allows("+select|1 -select", "SELECT 1") && !allows("+select|1 -@connection", "SELECT 1"));
    // `-@slow` denies a container command, and so all of its subcommands.
    assert!(!allows("+@all -@slow", "XGROUP CREATE k g $"));
}

#[test]
fn all_commands_means_every_bit() {
    let everything = rules("~* +@all").unwrap();
    assert!(everything.allow_everything());
    assert!(rules("+get (~* +@all)").unwrap().allow_everything());
    for text in ["+@all", "~* +@all -get", "~a +@all", "~* %R~a +@all -@all", "(~* +get) (+@all)"] {
        assert!(!rules(text).is_ok_and(|rules| rules.allow_everything()), "{text}");
    }
    // Every command again, one after another.
    let each: String = COMMANDS.iter().map(|spec| format!("+{} ", spec.name)).collect();
    assert!(rules(&format!("~* {each}")).unwrap().allow_everything());
}

#[test]
fn keys_need_the_access_that_the_command_needs() {
    let user = "~a* %R~r* %W~w* +@all";
    let key = |number| Err(Denial::Key(number));
    for (request, expected) in [
        ("SET a 1", Ok(())),
        ("SET b 1", key(0)),
        ("GET r", Ok(())),
        ("SET r 1", key(0)),
        ("GET w", key(0)),
        ("SET w 1", Ok(())),
        ("SET w 1 EX 9", Ok(())),
        ("SET w 1 get", key(0)),
        ("XADD w * f v", Ok(())),
        ("XREAD STREAMS w 0", key(0)),
        ("XREAD STREAMS a r b 0 0 0", key(2)),
        ("XREADGROUP GROUP g c STREAMS r >", Ok(())),
        ("XREADGROUP GROUP g c STREAMS w >", key(0)),
        ("XACK r g 1-1", key(0)),
        ("XACK w g 1-1", Ok(())),
        ("XAUTOCLAIM w g c 0 0", Ok(())),
        ("XCLAIM w g c 0 1-1", Ok(())),
        ("XLEN w", Ok(())),
        ("XLEN r", Ok(())),
        ("XLEN b", key(0)),
        ("XINFO STREAM w", key(0)),
        ("XPENDING w g", key(0)),
        ("XGROUP CREATE w g 0", Ok(())),
        ("XGROUP CREATE r g 0", key(0)),
        ("XTRIM w MAXLEN 0", Ok(())),
        ("COPY r w", Ok(())),
        ("COPY w r", key(0)),
        ("RENAME a r", key(1)),
        ("MSET a 1 b 2", key(1)),
        ("KEYS *", Ok(())),
    ] {
        assert_eq!(check(user, request), expected, "{request}");
    }
}

/// A group, a consumer or a number can be spelled STREAMS. The keys after the right word are checked.
#[test]
fn checked_keys_are_the_keys_that_are_read() {
    let user = "~mine +@all";
    for request in [
        "XREADGROUP GROUP STREAMS mine STREAMS other >",
        "XREADGROUP GROUP g STREAMS STREAMS other >",
        "XREADGROUP GROUP STREAMS STREAMS STREAMS other >",
        "XREADGROUP NOACK GROUP STREAMS mine COUNT 1 STREAMS other >",
        "XREADGROUP COUNT 1 GROUP STREAMS mine STREAMS mine other > >",
        "XREAD COUNT 1 STREAMS mine other 0 0",
        "XREAD STREAMS STREAMS 0",
    ] {
        assert!(matches!(check(user, request), Err(Denial::Key(_))), "{request}");
    }
    for request in
        ["XREADGROUP GROUP STREAMS other STREAMS mine >", "XREADGROUP GROUP other STREAMS STREAMS mine >"]
    {
        assert_eq!(check(user, request), Ok(()), "{request}");
    }
}

#[test]
fn one_selector_must_allow_the_whole_request() {
    let user = "+get ~a (+set ~b) (%R~c +copy) (%W~d +copy)";
    assert_eq!(check(user, "GET a"), Ok(()));
    assert_eq!(check(user, "SET b 1"), Ok(()));
    assert_eq!(check(user, "GET b"), Err(Denial::Key(0)));
    assert_eq!(check(user, "SET a 1"), Err(Denial::Key(0)));
    assert_eq!(check(user, "DEL a"), Err(Denial::Command));
    assert_eq!(check(user, "COPY c d"), Err(Denial::Key(1)));
}

#[test]
fn passwords_are_hashed_and_compared_whole() {
    let user = rules("on >one >two >one").unwrap();
    assert_eq!(user.password_hashes().len(), 2);
    assert_eq!(user.password_hashes()[0], "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed");
    assert!(user.accept(b"one") && user.accept(b"two"));
    for wrong in [&b""[..], b"o", b"onee", b"One", b"one\0"] {
        assert!(!user.accept(wrong), "{wrong:?}");
    }
    assert!(!rules(">one").unwrap().accept(b"one"), "the user is off");
    assert!(rules("on >one nopass").unwrap().accept(b"anything"));
    assert!(!rules("on nopass >one").unwrap().accept(b"anything"));
    assert!(!rules("on nopass resetpass").unwrap().accept(b""));
    assert!(!rules("on >one <one").unwrap().accept(b"one"));
    let hash = &user.password_hashes()[0];
    assert!(rules(&format!("on #{hash}")).unwrap().accept(b"one"));
    assert!(!rules(&format!("on >one >two !{hash}")).unwrap().accept(b"one"));
    assert!(!shown("on >hunter2").contains("hunter2"));
}

#[test]
fn a_line_of_the_file_is_parsed_and_printed() {
    let catalog = catalog();
    let line =
        |text: &str| normalized_line(text.as_bytes(), &catalog).map(|line| String::from_utf8(line).unwrap());
    let bob = "user bob on sanitize-payload ~orders* %R~audit* resetchannels -@all +@stream \
               (~cache* resetchannels -@all +get)";
    assert_eq!(line("user  bob\ton ~orders* %R~audit* +@stream (~cache* +get)\r").as_deref(), Some(bob));
    assert_eq!(line(bob).as_deref(), Some(bob));
    for invalid in
        ["", " ", "user", "usr bob", "USER bob on", "user bob +nope", "user bob (+get", "user b\0b on"]
    {
        assert_eq!(line(invalid), None, "{invalid:?}");
    }
}

/// Random lines: parsing returns, and what it prints is parsed to the same line.
#[test]
fn any_line_is_parsed_and_printing_is_stable() {
    let catalog = catalog();
    let words = [
        "user",
        "bob",
        "on",
        "off",
        "nopass",
        "(",
        ")",
        "(+get",
        "~a)",
        "~*",
        "~a*",
        "%R~b",
        "%W~b",
        "%",
        "&x",
        "&*",
        "+@all",
        "-@all",
        "+@stream",
        "-@write",
        "+get",
        "-get",
        "+xgroup|create",
        "-xgroup",
        "+select|0",
        "+|",
        "|",
        ">pw",
        "<pw",
        "#",
        "!",
        "reset",
        "resetkeys",
        "clearselectors",
        "resetpass",
        "\0",
        "\u{7f}é",
        "",
        "+@",
        "-",
    ];
    let mut seed = 7u64;
    let mut next = |limit: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % limit
    };
    let mut valid = 0;
    for _ in 0..5_000 {
        let count = next(6);
        let line =
            (0..count).fold("user x".to_owned(), |line, _| format!("{line} {}", words[next(words.len())]));
        if let Some(printed) = normalized_line(line.as_bytes(), &catalog) {
            valid += 1;
            assert_eq!(normalized_line(&printed, &catalog), Some(printed), "{line}");
        }
    }
    assert!(valid > 500, "{valid}");
}

#[test]
fn a_key_that_needs_no_access_is_allowed_with_either_right() {
    let none = KeyAccess { read: false, write: false };
    let key = [RequiredKey { key: b"k", access: none }];
    for text in ["%R~k +exists", "%W~k +exists"] {
        let spec = resolve(&[b"EXISTS", b"k"]).unwrap();
        assert_eq!(rules(text).unwrap().check(spec.index(), &[b"EXISTS", b"k"], &key), Ok(()));
    }
}
