//! How commands fail: the exit code, the message, and the suggested next step.

use crate::test_store::TestStore;

#[test]
fn connection_failure_exits_with_3_and_a_remedy() {
    let store = TestStore::embedded();
    // Nothing listens on port 1.
    let refused = store.run(&["stream", "ls", "--url", "redis://me:secret@127.0.0.1:1"]).exits(3);
    let refused = refused.stderr_contains("cannot open redis://me:***@127.0.0.1:1");
    refused.stderr_contains("start a server with: millstream serve, or choose another store with --url");
    for command in
        [&["add", "s", "a=b"][..], &["lag"], &["doctor"], &["group", "ls"], &["dlq", "ls"], &["metrics"]]
    {
        store.run(&[command, &["-u", "redis://127.0.0.1:1"]].concat()).exits(3);
    }
}

#[test]
fn read_only_commands_create_no_store() {
    let store = TestStore::embedded();
    store.run(&["stream", "ls"]).exits(4).stderr_contains("there is no such folder");
    assert!(!store.folder.join("store").exists(), "a read-only command created the folder");
    let foreign = store.folder.join("foreign");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("notes"), "mine").unwrap();
    let url = format!("embedded:{}", foreign.display());
    for command in [&["lag"][..], &["doctor"], &["group", "ls"], &["dlq", "ls"], &["tail", "s"]] {
        let refused = store.run(&[command, &["-u", &url]].concat()).exits(4);
        refused.stderr_contains("there is no store in this folder").stderr_contains("millstream add STREAM");
    }
    for command in [&["add", "s", "a=b"][..], &["group", "create", "s", "g"]] {
        let refused = store.run(&[command, &["-u", &url]].concat()).exits(4);
        refused.stderr_contains("other files; name a folder that is empty");
    }
    assert_eq!(std::fs::read_dir(&foreign).unwrap().count(), 1, "files were written into a foreign folder");
}

#[test]
fn each_url_problem_has_its_own_remedy() {
    let store = TestStore::millstream();
    let complaint = |url: &str, code, text: &str| {
        let output = store.run(&["stream", "ls", "--url", url]).exits(code).stderr_contains(text);
        assert_eq!(
            output.err.contains("start a server with"),
            text.contains("start a server with"),
            "{}",
            output.err
        );
    };
    complaint("http://x", 2, "expected redis://");
    complaint("redis://host:abc", 2, "cannot open redis://host:abc");
    complaint("redis+cluster://", 2, "at least one address");
    complaint(&store.url.replace("redis:", "rediss:"), 3, "does not speak TLS on this port");
    complaint(&store.url.replace("redis:", "redis+cluster:"), 1, "remove +cluster");
    complaint("redis+cluster://127.0.0.1:1", 3, "start a server with: millstream serve");
}

#[test]
fn a_folder_in_use_by_another_process_is_refused() {
    let store = TestStore::embedded();
    store.run(&["add", "s", "a=b"]).ok();
    let mut other = store.follow(&["tail", "s"]);
    assert!(other.line().ends_with("a=b"));
    store
        .run(&["stream", "ls"])
        .exits(3)
        .stderr_contains("in use by pid")
        .stderr_contains("stop that process");
}

#[test]
fn a_folder_that_cannot_be_created_gets_no_server_advice() {
    let store = TestStore::embedded();
    // No user, not even root, can create folders there.
    let output = store.run(&["add", "s", "a=b", "--url", "embedded:/proc/none"]).exits(3);
    let output = output.stderr_contains("check that the folder is accessible");
    assert!(!output.err.contains("connection") && !output.err.contains("serve"), "{}", output.err);
}

#[test]
fn a_wrong_password_exits_with_3() {
    let store = TestStore::empty(&["--requirepass", "right"]);
    store
        .run(&["stream", "ls"])
        .exits(3)
        .stderr_contains("pass the correct user name and password in the URL");
    let with = |password: &str| store.url.replace("redis://", &format!("redis://:{password}@"));
    store.run(&["stream", "ls", "--url", &with("right")]).ok();
    let denied = store.run(&["stream", "ls", "--url", &with("wrong")]).exits(3);
    assert!(!denied.err.contains("wrong@"), "{}", denied.err);
}

#[test]
fn an_unknown_stream_or_group_exits_with_4_and_lists_the_existing_ones() {
    for store in TestStore::servers() {
        for command in [
            &["stream", "info", "nowhere"][..],
            &["tail", "nowhere"],
            &["group", "describe", "nowhere"],
            &["group", "reset", "nowhere", "g", "--to-latest"],
            &["consumer", "ls", "nowhere", "g"],
            &["pending", "ls", "nowhere", "g"],
            &["lag", "nowhere"],
            &["group", "ls", "nowhere"],
        ] {
            let missing = store.run(command).exits(4).stderr_contains("stream nowhere does not exist");
            missing.stderr_contains("existing streams: orders\n");
        }
        for command in [
            &["group", "describe", "orders", "nobody"][..],
            &["group", "rm", "orders", "nobody", "--yes"],
            &["consumer", "ls", "orders", "nobody"],
            &["pending", "ack", "orders", "nobody", "1-1"],
            &["tail", "orders", "--group", "nobody"],
            &["lag", "orders", "nobody"],
        ] {
            let missing = store.run(command).exits(4).stderr_contains("stream orders has no group nobody");
            missing.stderr_contains("existing groups: billing");
        }
    }
    let empty = TestStore::empty(&[]);
    empty
        .run(&["stream", "info", "s"])
        .exits(4)
        .stderr_contains("create it with: millstream add s FIELD=VALUE");
}

#[test]
fn invalid_arguments_exit_with_2() {
    let store = TestStore::embedded();
    store.run(&["strem", "ls"]).exits(2).stderr_contains("stream");
    store.run(&["stream", "ls", "--jsn"]).exits(2).stderr_contains("--json");
    store.run(&["group"]).exits(2);
    store.run(&["add", "", "a=b"]).exits(2).stderr_contains("STREAM");
    store.run(&["stream", "info", ""]).exits(2).stderr_contains("STREAM");
    store.run(&["group", "create", "s", ""]).exits(2).stderr_contains("GROUP");
}

#[test]
fn a_key_that_is_not_a_stream_is_refused() {
    for store in TestStore::servers() {
        store.call(&["SET", "text", "x"]);
        for command in [
            &["add", "text", "a=b"][..],
            &["tail", "text"],
            &["stream", "info", "text"],
            &["group", "ls", "text"],
            &["group", "create", "text", "g"],
            &["group", "describe", "text", "g"],
            &["consumer", "ls", "text", "g"],
            &["pending", "ls", "text", "g"],
            &["lag", "text"],
            &["dlq", "ls", "orders", "--dlq", "text"],
        ] {
            let refused = store.run(command).exits(1);
            refused.stderr_contains("'text' is not a stream").stderr_contains("use another name");
        }
    }
}

#[test]
fn the_url_option_overrides_the_environment() {
    let (one, other) = (TestStore::millstream(), TestStore::empty(&[]));
    let run = |variables: &[(&str, &str)], arguments: &[&str]| {
        let mut command = one.command(arguments);
        command.env_remove("MILLSTREAM_URL").envs(variables.iter().copied());
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let (filled, empty) = (one.url.as_str(), other.url.as_str());
    let ls = ["stream", "ls"];
    assert!(run(&[("REDIS_URL", filled)], &ls).contains("orders"));
    assert!(!run(&[("MILLSTREAM_URL", empty), ("REDIS_URL", filled)], &ls).contains("orders"));
    assert!(run(&[("MILLSTREAM_URL", empty)], &["stream", "-u", filled, "ls"]).contains("orders"));
    assert!(run(&[("MILLSTREAM_URL", empty)], &["stream", "ls", "--url", filled]).contains("orders"));
}

#[test]
fn output_is_coloured_only_on_terminals() {
    let store = TestStore::millstream();
    let table = store.run(&["group", "describe", "orders"]).ok().out;
    assert!(!table.contains('\u{1b}'), "{table:?}");
    let mut command = store.command(&["group", "describe", "orders"]);
    let forced = command.env("CLICOLOR_FORCE", "1").output().unwrap();
    assert!(forced.stdout.contains(&0x1b), "headings are not coloured");
    let mut command = store.command(&["group", "describe", "orders"]);
    let refused = command.env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1").output().unwrap();
    assert!(!refused.stdout.is_empty() && !refused.stdout.contains(&0x1b));
}

#[test]
fn a_missing_stream_lists_no_stream_that_workers_use_among_themselves() {
    let store = TestStore::empty(&[]);
    for stream in ["orders", "{orders}:control:billing"] {
        store.call(&["XADD", stream, "*", "a", "b"]);
    }
    store.run(&["partition", "create", "payments", "2", "--order-by", "account"]).ok();
    let missing = store.run(&["lag", "nosuch"]).exits(4).stderr_contains("stream nosuch does not exist");
    assert!(missing.err.contains("existing streams: orders, payments\n"), "{}", missing.err);
}

#[test]
fn a_group_on_a_mistyped_stream_is_refused() {
    let store = TestStore::millstream();
    let refused = store.run(&["group", "create", "oders", "mail"]).exits(4);
    let refused = refused.stderr_contains("stream oders does not exist; do you mean orders?");
    refused.stderr_contains("--mkstream");
    store.run(&["stream", "info", "oders"]).exits(4);
    store.run(&["group", "create", "oders", "mail", "--mkstream"]).ok();
    let created = store.run(&["group", "create", "invoices", "mail"]).ok();
    created.stderr_contains("stream invoices did not exist: created it");
    let existing = store.run(&["group", "create", "orders", "mail"]).ok();
    assert_eq!(existing.err, "");
}

#[test]
fn usage_errors_say_what_to_do() {
    let store = TestStore::embedded();
    let refused = store.run(&["lag", "--fail-lag", "x"]).exits(2);
    refused.stderr_contains("invalid value 'x' for '--fail-lag <N>': expected a whole number\n");
    store.run(&["serve", "redis.conf"]).exits(2).stderr_contains("pass it with --config FILE");
    store.run(&["frobnicate"]).exits(2).stderr_contains("unrecognized subcommand 'frobnicate'");
    store.run(&["help"]).ok().stdout_contains("millstream serve");
    store.run(&["help", "lag"]).ok().stdout_contains("--fail-lag");
}
