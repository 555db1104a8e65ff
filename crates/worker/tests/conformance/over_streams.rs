//! The backend over streams that the program opens itself.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use millstream_worker::backend::{ErrorKind, InspectStore, Read, ReadMessages, Redis};

use crate::cases;
use crate::servers::{Program, Server, new_folder};

fn over(path: PathBuf) -> Redis {
    Redis::over(move || UnixStream::connect(&path), "default", "this process")
}

#[tokio::test(flavor = "multi_thread")]
async fn backend_over_streams_passes_all_cases_and_reconnects() {
    let folder = new_folder();
    let path = folder.path().join("socket");
    let mut server = Server::start(Program::Millstream, &["--unixsocket", path.to_str().unwrap()]);
    let backend = over(path);
    assert_eq!(backend.location(), "this process");
    cases::all(&backend).await;
    server.kill();
    assert_eq!(backend.ping().await.unwrap_err().kind(), ErrorKind::Unreachable);
    server.restart();
    cases::wait_until(|| async { backend.ping().await.is_ok() }).await;
}

/// Otherwise the server would deliver entries to a reader that is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_call_that_is_dropped_closes_its_connection() {
    let folder = new_folder();
    let path = folder.path().join("socket");
    let server = Server::start(Program::Millstream, &["--unixsocket", path.to_str().unwrap()]);
    let backend = over(path);
    cases::reading::make_stream(&backend, "dropped", 0).await;
    let read = Read { block: Some(Duration::from_secs(3600)), ..cases::reader("dropped", "a", 1) };
    let blocked = || async { server.cli(&["INFO", "clients"]).contains("blocked_clients:1") };
    {
        let call = backend.read(&read);
        tokio::select! {
            _ = call => panic!("the read ended"),
            () = cases::wait_until(blocked) => {}
        }
    }
    cases::wait_until(|| async { !blocked().await }).await;
}

#[tokio::test]
async fn a_login_that_the_program_refuses_is_denied() {
    let refuse = || Err(io::Error::new(io::ErrorKind::PermissionDenied, "the user is gone"));
    let error = Redis::over(refuse, "alice", "this process").ping().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}
