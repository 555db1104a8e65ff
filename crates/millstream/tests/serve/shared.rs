//! A worker's backend over the store of a server in the same process: both see the same data, and wake each other.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use millstream_server::settings::Id;
use millstream_server::{Server, Settings};
use millstream_store::Millstream;
use millstream_worker::backend::{
    Embedded, ErrorKind, InspectStore, NewEntry, Read, ReadMessages, SettleMessages, Start,
};
use redis::Value;

const LONG: Duration = Duration::from_secs(60);

fn entry(value: &str) -> NewEntry {
    NewEntry { fields: vec![("n".into(), value.to_owned().into())], idempotence: None }
}

fn read(count: usize, block: Option<Duration>) -> Read<'static> {
    Read { stream: "s", group: "g", consumer: "embedded", count, block, claim_idle: None }
}

/// Waits until the server reports that clients are blocked on this number of keys.
async fn wait_for_blocked_keys(connection: &mut redis::aio::MultiplexedConnection, keys: &str) {
    let line = format!("total_blocking_keys:{keys}");
    loop {
        let info: String = redis::cmd("INFO").arg("clients").query_async(connection).await.unwrap();
        if info.lines().any(|found| found.trim() == line) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_backend_over_the_servers_store_shares_data_and_wake_ups_with_clients() {
    let settings = Settings::new();
    settings.set(Id::Port, "0").unwrap();
    settings.set(Id::AppendOnly, "no").unwrap();
    let running = Server::start(settings).unwrap();
    let (server, address) = (Arc::clone(running.server()), running.addresses()[0]);
    let serving = thread::spawn(move || running.run());
    let client = redis::Client::open(format!("redis://{address}")).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let backend = Embedded::over(Millstream::over(Arc::clone(&server.store)), "the server's store");

    // The backend reads an entry that a client added.
    assert!(backend.create_group("s", "g", Start::Beginning).await.unwrap());
    let add = async |connection: &mut redis::aio::MultiplexedConnection, value: &str| -> String {
        redis::cmd("XADD").arg("s").arg("*").arg("n").arg(value).query_async(connection).await.unwrap()
    };
    let first = add(&mut connection, "1").await;
    let read_now = backend.read(&read(10, None)).await.unwrap();
    assert_eq!(read_now.iter().map(|delivery| delivery.id.to_string()).collect::<Vec<_>>(), [first]);

    // A client wakes a blocked read of the backend.
    let blocking = read(10, Some(LONG));
    let (woken, second) = tokio::join!(backend.read(&blocking), async {
        wait_for_blocked_keys(&mut connection, "1").await;
        add(&mut connection, "2").await
    });
    assert_eq!(woken.unwrap()[0].id.to_string(), second);

    // The backend wakes a blocked client.
    let mut other = client.get_multiplexed_async_connection().await.unwrap();
    other.set_response_timeout(LONG);
    let mut blocked = redis::cmd("XREADGROUP");
    blocked.arg("GROUP").arg("g").arg("client").arg("BLOCK").arg(0).arg("STREAMS").arg("s").arg(">");
    let (answer, added) = tokio::join!(blocked.query_async::<Value>(&mut other), async {
        wait_for_blocked_keys(&mut connection, "1").await;
        backend.add("s", &[entry("3")], None).await.unwrap()
    });
    assert!(format!("{:?}", answer.unwrap()).contains(&added[0].to_string()));

    // A blocked read without entries times out.
    assert_eq!(backend.read(&read(1, Some(Duration::from_millis(30)))).await.unwrap(), []);

    // Dropping a backend leaves the store open. A blocked read fails when the server stops.
    drop(backend);
    let pending: Vec<Value> =
        redis::cmd("XPENDING").arg("s").arg("g").query_async(&mut connection).await.unwrap();
    assert_eq!(pending[0], Value::Int(3));
    let backend = Embedded::over(Millstream::over(Arc::clone(&server.store)), "the server's store");
    let (refused, ()) = tokio::join!(backend.read(&blocking), async {
        wait_for_blocked_keys(&mut connection, "1").await;
        server.shutdown.begin();
    });
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Closed);
    tokio::task::spawn_blocking(|| serving.join()).await.unwrap().unwrap().unwrap();
    assert_eq!(backend.ping().await.unwrap_err().kind(), ErrorKind::Closed);
}
