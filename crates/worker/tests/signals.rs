//! A worker that real signals stop. One test, because signals reach the whole process.

use std::process::Command;
use std::time::Duration;

use millstream_worker::handler::Raw;
use millstream_worker::shutdown::{REPEAT_INTERVAL, ShutdownSignal, ShutdownSignals};
use millstream_worker::{Worker, connect, shutdown_signal};

fn send(signals: &[&str]) {
    for signal in signals {
        let sent = Command::new("kill").args([signal, &*std::process::id().to_string()]).status();
        assert!(sent.expect("run kill").success());
    }
}

#[tokio::test]
async fn signals_stop_a_worker_and_repeated_signals_are_ignored() {
    // With this listener, no signal ends the test.
    let mut signals = ShutdownSignals::listen().unwrap();
    for (name, signal) in [("-TERM", ShutdownSignal::Terminate), ("-HUP", ShutdownSignal::HangUp)] {
        let backend = connect("memory:").await.unwrap();
        let worker =
            Worker::builder(backend).stream("orders").group("billing").handler(async |_: Raw| {}).build();
        let worker = worker.unwrap();
        let (polled, is_polled) = tokio::sync::oneshot::channel();
        let shutdown = async {
            let mut shutdown = std::pin::pin!(shutdown_signal());
            // The first poll installs the handlers.
            assert!(tokio::time::timeout(Duration::ZERO, shutdown.as_mut()).await.is_err());
            polled.send(()).unwrap();
            shutdown.await;
        };
        let running = tokio::spawn(async move { worker.run_until(shutdown).await });
        is_polled.await.unwrap();
        // As `timeout` does. On another thread, so that the listeners receive both signals.
        tokio::task::spawn_blocking(move || send(&[name, name])).await.unwrap();
        let (ended, ()) = tokio::join!(running, tokio::time::sleep(REPEAT_INTERVAL));
        assert!(ended.unwrap().is_ok());
        assert_eq!(signals.next().await, signal, "the repetitions were not ignored");
    }
    let nothing = tokio::time::timeout(Duration::from_millis(50), signals.next()).await;
    assert!(nothing.is_err(), "{nothing:?}");
}
