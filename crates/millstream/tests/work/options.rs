//! The other options, and how the command fails.

use crate::place::Place;

#[test]
fn a_group_with_nothing_to_do_ends_at_once() {
    for place in Place::both() {
        let run = place.work(&["--exec", "false"]).ok();
        assert_eq!(run.report(["received"]), [0]);
    }
}

#[test]
fn a_message_sent_twice_is_handled_once() {
    let place = Place::server();
    for order in ["17", "18", "17"] {
        place.call(&["XADD", "orders", "*", "order_id", order]);
    }
    let run = place.work(&[
        "--exec",
        "echo $MILLSTREAM_FIELD_ORDER_ID >> handled",
        "--dedupe",
        "1h",
        "--dedupe-field",
        "order_id",
    ]);
    assert_eq!(run.ok().report(["acknowledged", "deduplicated"]), [2, 1]);
    assert_eq!(place.lines("handled").len(), 2);
}

#[test]
fn dead_letters_go_where_they_are_told_to() {
    let place = Place::embedded();
    place.add(1);
    place.work(&["--exec", "exit 65", "--dlq", "graveyard"]).ok();
    let streams = place.run(&["stream", "ls", "--json"]).ok().out;
    assert!(streams.contains("graveyard") && !streams.contains(":dlq"), "{streams}");
}

#[test]
fn a_pool_handles_more_at_a_time_when_asked_to() {
    let place = Place::server();
    place.add(4);
    // Each waits until all four are there.
    let together = "echo x >> there; until [ $(wc -l < there) -ge 4 ]; do sleep 0.05; done";
    let run = place.work(&["--exec", together, "--concurrency", "4"]).ok();
    assert_eq!(run.report(["acknowledged"]), [4]);
}

#[test]
fn a_pool_grows_when_there_is_much_to_do() {
    let place = Place::server();
    place.add(200);
    // Nobody goes on before two are there at the same time.
    let together = "echo x >> there; until [ $(wc -l < there) -ge 2 ]; do sleep 0.05; done";
    let run = place.work(&["--exec", together, "--autoscale", "1..4", "--log", "info"]).ok();
    assert_eq!(run.report(["acknowledged"]), [200]);
    run.complains("scaling the pool");
}

#[test]
fn several_streams_share_a_worker() {
    let place = Place::server();
    place.add(2);
    place.run(&["add", "returns", "item=book"]).ok();
    let run = place.work(&["--stream", "returns", "--exec", "echo $MILLSTREAM_STREAM >> from"]).ok();
    assert_eq!(run.report(["acknowledged"]), [3]);
    let mut from = place.lines("from");
    from.sort();
    assert_eq!(from, ["orders", "orders", "returns"]);
}

#[test]
fn a_group_may_begin_at_the_end() {
    let place = Place::server();
    place.add(2);
    let run = place.work(&["--exec", "true", "--from", "latest"]).ok();
    assert_eq!(run.report(["received"]), [0]);
}

#[test]
fn a_name_of_ones_own_takes_up_what_it_left() {
    let place = Place::server();
    place.add(1);
    place.call(&["XGROUP", "CREATE", "orders", "billing", "0"]);
    place.call(&["XREADGROUP", "GROUP", "billing", "billing-1", "STREAMS", "orders", ">"]);
    // With this lease others would have to wait for an hour.
    let run = place.work(&["--exec", "true", "--consumer", "billing-1", "--lease", "1h"]).ok();
    assert_eq!(run.report(["acknowledged"]), [1]);
    assert!(run.out.contains(r#""consumer":"billing-1""#), "{}", run.out);
}

#[test]
fn quiet_is_quiet_and_the_report_is_for_people_otherwise() {
    let place = Place::server();
    place.add(1);
    let quiet = place.start(&["--exec", "true", "--until-empty", "--quiet"]).ended().ok();
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), ("", ""));
    place.add(1);
    let run = place.start(&["--exec", "echo to standard output", "--until-empty"]).ended().ok();
    assert_eq!(run.out, "to standard output\n");
    run.complains("millstream: 1 received, 1 acknowledged");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = Place::server();
    for (arguments, words) in [
        (&[][..], "--exec"),
        (&["--exec", "true", "--http", "http://host/"], "cannot be used with"),
        (&["--exec", "true", "--autoscale", "5..2"], "2..32"),
        (&["--exec", "true", "--concurrency", "0"], "at least 1"),
        (&["--exec", "true", "--autoscale", "1..2", "--concurrency", "3"], "cannot be used with"),
        (&["--exec", "true", "--max-deliveries", "0"], "max-deliveries"),
        (&["--exec", "true", "--lease", "1ms"], "a lease must be at least 50 ms"),
        (&["--exec", "true", "--listen", "9091"], "127.0.0.1:9091"),
        (&["--exec", ""], "nothing to run"),
        (&["--child", " "], "nothing to run"),
        (&["--http", ""], "is no URL"),
        (&["--exec", "true", "--stream", "orders"], "named twice"),
        (&["--exec", "true", "--stream", ""], "--stream"),
        (&["--exec", "true", "--consumer", ""], "--consumer"),
        (&["--exec", "true", "--dlq", ""], "--dlq"),
        (&["--exec", "true", "--timeout", "soon"], "is no duration"),
        (&["--exec", "true", "--header", "a: b"], "--http"),
        (&["--child", "true", "--batch", "2"], "--batch is for commands"),
        (&["--exec", "true", "--batch", "0"], "at least 1"),
        (&["--exec", "true", "--batch-wait", "1s"], "--batch"),
        (&["--exec", "true", "--dlq", "orders"], "orders is read by this worker"),
        (&["--exec", "true", "--log", "loud=very=much"], "cannot log"),
        (&["--exec", "true", "--log", "shout"], "\"shout\" is no level"),
        (&["--exec", "true", "--log", "bogus="], "is no level"),
        (&["--http", "localhost:80"], "http://host:port/path"),
        (&["--http", "http://host/", "--header", "nonsense"], "Name: value"),
    ] {
        // With no server there, to see that nobody is asked.
        let arguments = [arguments, &["--url", "redis://127.0.0.1:1"]].concat();
        place.start(&arguments).ended().exits(2).complains(words);
    }
}

#[test]
fn no_server_is_a_failure_of_its_own() {
    let place = Place::server();
    let run = place.start(&["--exec", "true", "--url", "redis://127.0.0.1:1"]).ended();
    run.exits(3).complains("millstream serve");
}

#[test]
fn a_key_that_is_no_stream_is_named() {
    let place = Place::server();
    place.add(1);
    place.call(&["SET", "text", "x"]);
    let run = place.start(&["--stream", "text", "--exec", "true"]).ended().exits(1);
    run.complains("'text' holds something else than a stream").complains("use another name");
}
