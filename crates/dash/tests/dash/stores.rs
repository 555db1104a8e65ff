//! The stores that the tests run on: the embedded one, and a redis-server process if the machine has the program.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millstream_worker::Admin;
use millstream_worker::backend::{Fields, NewEntry, Read, Start};

/// A store, with the server that it needs.
pub(crate) struct Store {
    pub(crate) name: &'static str,
    pub(crate) admin: Arc<dyn Admin>,
    _server: Option<RedisServer>,
}

/// A redis-server process. It is killed when this is dropped.
struct RedisServer(Child);

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns an empty store of each kind.
pub(crate) async fn all() -> Vec<Store> {
    let embedded = Store { name: "embedded", admin: crate::support::memory().await, _server: None };
    let mut stores = vec![embedded];
    stores.extend(redis().await);
    stores
}

/// Starts a Redis server. `None` if the program is not installed.
pub(crate) async fn redis() -> Option<Store> {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--save", "", "--appendonly", "no", "--dir", "/tmp"]);
    let server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
    let server = RedisServer(server);
    let url = format!("redis://127.0.0.1:{port}");
    for _ in 0..200 {
        if let Ok(admin) = millstream_worker::connect(&url).await
            && admin.ping().await.is_ok()
        {
            return Some(Store { name: "redis", admin, _server: Some(server) });
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("redis-server does not answer on port {port}");
}

impl Store {
    /// Adds an entry and returns its id.
    pub(crate) async fn add(&self, stream: &str, fields: &[(&[u8], &[u8])]) -> String {
        let bytes = |bytes: &[u8]| Bytes::copy_from_slice(bytes);
        let fields: Fields = fields.iter().map(|(name, value)| (bytes(name), bytes(value))).collect();
        let entry = NewEntry { fields, idempotence: None };
        self.admin.add(stream, &[entry], None).await.unwrap()[0].to_string()
    }

    /// Adds three entries to `orders`. The group `billing` has two of them, delivered to `worker-1`.
    pub(crate) async fn fill(&self) {
        for item in ["book", "pen", "ink"] {
            self.add("orders", &[(b"item", item.as_bytes()), (b"password", b"hunter22")]).await;
        }
        self.admin.create_group("orders", "billing", Start::Beginning).await.unwrap();
        let read = Read {
            stream: "orders",
            group: "billing",
            consumer: "worker-1",
            count: 2,
            block: None,
            claim_idle: None,
        };
        assert_eq!(self.admin.read(&read).await.unwrap().len(), 2);
    }
}
