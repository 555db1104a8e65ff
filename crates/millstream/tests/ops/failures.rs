//! How commands fail: the exit code, the sentence, and the way out.

use crate::world::World;

#[test]
fn no_connection_is_3_and_says_how_to_get_one() {
    let world = World::embedded();
    // Nobody listens on port 1.
    let refused = world.run(&["stream", "ls", "--url", "redis://me:secret@127.0.0.1:1"]).exits(3);
    let refused = refused.complains("cannot open redis://me:***@127.0.0.1:1");
    refused.complains("start one with: millstream serve, or name another with --url");
    for command in
        [&["add", "s", "a=b"][..], &["lag"], &["doctor"], &["group", "ls"], &["dlq", "ls"], &["metrics"]]
    {
        world.run(&[command, &["-u", "redis://127.0.0.1:1"]].concat()).exits(3);
    }
}

#[test]
fn looking_at_a_folder_makes_no_store_in_it() {
    let world = World::embedded();
    world.run(&["stream", "ls"]).exits(4).complains("there is no such folder");
    assert!(!world.folder.join("store").exists(), "looking has made it");
    let foreign = world.folder.join("foreign");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("notes"), "mine").unwrap();
    let url = format!("embedded:{}", foreign.display());
    for command in [&["lag"][..], &["doctor"], &["group", "ls"], &["dlq", "ls"], &["tail", "s"]] {
        let refused = world.run(&[command, &["-u", &url]].concat()).exits(4);
        refused.complains("there is no store in this folder").complains("millstream add STREAM");
    }
    for command in [&["add", "s", "a=b"][..], &["group", "create", "s", "g"]] {
        let refused = world.run(&[command, &["-u", &url]].concat()).exits(4);
        refused.complains("other files; name a folder that is empty");
    }
    assert_eq!(std::fs::read_dir(&foreign).unwrap().count(), 1, "nothing was written");
}

#[test]
fn what_is_wrong_with_the_way_to_the_store_has_its_own_way_out() {
    let world = World::millstream();
    let complaint = |url: &str, code, words: &str| {
        let told = world.run(&["stream", "ls", "--url", url]).exits(code).complains(words);
        assert_eq!(told.err.contains("start one with"), words.contains("start one with"), "{}", told.err);
    };
    complaint("http://x", 2, "begins with redis://");
    complaint("redis://host:abc", 2, "cannot open redis://host:abc");
    complaint("redis+cluster://", 2, "at least one address");
    complaint(&world.url.replace("redis:", "rediss:"), 3, "it does not speak TLS there");
    complaint(&world.url.replace("redis:", "redis+cluster:"), 1, "leave out +cluster");
    complaint("redis+cluster://127.0.0.1:1", 3, "start one with: millstream serve");
}

#[test]
fn a_folder_belongs_to_one_process() {
    let world = World::embedded();
    world.run(&["add", "s", "a=b"]).ok();
    let mut other = world.follow(&["tail", "s"]);
    assert!(other.line().ends_with("a=b"));
    world
        .run(&["stream", "ls"])
        .exits(3)
        .complains("in use by pid")
        .complains("stop the process that has it");
}

#[test]
fn a_folder_that_cannot_be_made_gets_no_advice_for_servers() {
    let world = World::embedded();
    // Nobody, not even root, makes folders there.
    let told = world.run(&["add", "s", "a=b", "--url", "embedded:/proc/none"]).exits(3);
    let told = told.complains("see whether the folder can be used");
    assert!(!told.err.contains("connection") && !told.err.contains("serve"), "{}", told.err);
}

#[test]
fn a_wrong_password_is_3() {
    let world = World::empty(&["--requirepass", "right"]);
    world.run(&["stream", "ls"]).exits(3).complains("give the name and the password in the URL");
    let with = |password: &str| world.url.replace("redis://", &format!("redis://:{password}@"));
    world.run(&["stream", "ls", "--url", &with("right")]).ok();
    let denied = world.run(&["stream", "ls", "--url", &with("wrong")]).exits(3);
    assert!(!denied.err.contains("wrong@"), "{}", denied.err);
}

#[test]
fn what_is_not_there_is_4_and_says_what_is() {
    for world in World::servers() {
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
            let missing = world.run(command).exits(4).complains("there is no stream nowhere");
            missing.complains("there are: orders, {orders}:dlq");
        }
        for command in [
            &["group", "describe", "orders", "nobody"][..],
            &["group", "rm", "orders", "nobody", "--yes"],
            &["consumer", "ls", "orders", "nobody"],
            &["pending", "ack", "orders", "nobody", "1-1"],
            &["tail", "orders", "--group", "nobody"],
            &["lag", "orders", "nobody"],
        ] {
            let missing = world.run(command).exits(4).complains("stream orders has no group nobody");
            missing.complains("there are: billing");
        }
    }
    let empty = World::empty(&[]);
    empty.run(&["stream", "info", "s"]).exits(4).complains("begin it with: millstream add s field=value");
}

#[test]
fn what_makes_no_sense_is_2() {
    let world = World::embedded();
    world.run(&["strem", "ls"]).exits(2).complains("stream");
    world.run(&["stream", "ls", "--jsn"]).exits(2).complains("--json");
    world.run(&["group"]).exits(2);
    world.run(&["add", "", "a=b"]).exits(2).complains("STREAM");
    world.run(&["stream", "info", ""]).exits(2).complains("STREAM");
    world.run(&["group", "create", "s", ""]).exits(2).complains("GROUP");
}

#[test]
fn a_key_of_another_kind_is_refused() {
    for world in World::servers() {
        world.call(&["SET", "text", "x"]);
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
            let refused = world.run(command).exits(1);
            refused.complains("'text' holds something else than a stream").complains("use another name");
        }
    }
}

#[test]
fn the_url_comes_from_the_option_then_from_the_environment() {
    let (one, other) = (World::millstream(), World::empty(&[]));
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
fn nothing_is_coloured_when_nobody_looks() {
    let world = World::millstream();
    let table = world.run(&["group", "describe", "orders"]).ok().out;
    assert!(!table.contains('\u{1b}'), "{table:?}");
    let mut command = world.command(&["group", "describe", "orders"]);
    let forced = command.env("CLICOLOR_FORCE", "1").output().unwrap();
    assert!(forced.stdout.contains(&0x1b), "headings are dim");
    let mut command = world.command(&["group", "describe", "orders"]);
    let refused = command.env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1").output().unwrap();
    assert!(!refused.stdout.is_empty() && !refused.stdout.contains(&0x1b));
}
