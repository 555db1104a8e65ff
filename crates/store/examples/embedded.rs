//! A shop in one process. Two workers bill orders; one of them dies, and no order is lost.
//!
//! Run it with `cargo run -p millstream-store --example embedded [FOLDER]`. If you give a folder, a second run
//! continues with its data. Otherwise the example uses a temporary folder.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use millstream_store::embedded::{Error, GroupStart, Millstream, Refusal, StreamId};

const SECOND: Duration = Duration::from_secs(1);

fn main() -> Result<(), Error> {
    let given = std::env::args_os().nth(1).map(PathBuf::from);
    let temporary = std::env::temp_dir().join(format!("millstream-example-{}", std::process::id()));
    let db = Millstream::open(given.as_ref().unwrap_or(&temporary))?;
    create_group(&db)?;

    let worker = {
        let db = db.clone();
        thread::spawn(move || bill(&db, "worker-1"))
    };
    for (item, amount) in [("book", "2"), ("pen", "10"), ("lamp", "1")] {
        let id = db.add("orders", [("item", item), ("amount", amount)]).wait()?;
        println!("ordered {item}: {id} is on disk");
    }
    worker.join().expect("the worker panicked")?;

    // A second worker reads an order and dies before it acknowledges the order.
    db.add("orders", [("item", "desk"), ("amount", "1")]).wait()?;
    let taken = db.read_group("orders", "billing", "worker-2").wait()?;
    println!("worker-2 read {} order(s) and died", taken.len());

    let rescued = db.auto_claim("orders", "billing", "worker-1", Duration::ZERO).wait()?;
    for entry in &rescued.claimed {
        println!("worker-1 claimed {} ({})", entry.id, text(entry.get("item")));
    }
    db.ack("orders", "billing", rescued.claimed.iter().map(|entry| entry.id)).wait()?;

    let info = db.stream_info("orders").wait()?;
    println!("{} orders, {} of them pending", info.length, info.groups[0].pending);
    db.close()?;
    if given.is_none() {
        // An error only leaves the temporary folder behind.
        let _ = std::fs::remove_dir_all(&temporary);
    }
    Ok(())
}

/// Creates the group, unless an earlier run has created it.
fn create_group(db: &Millstream) -> Result<(), Error> {
    let created = db.group_create("orders", "billing", GroupStart::After(StreamId::MIN)).make_stream().wait();
    match created {
        Err(error) if error.refusal() == Some(Refusal::GroupExists) => Ok(()),
        created => created,
    }
}

/// Bills orders until no new order has arrived for a second.
fn bill(db: &Millstream, worker: &str) -> Result<(), Error> {
    loop {
        let batch = db.read_group("orders", "billing", worker).count(10).block(SECOND).wait()?;
        if batch.is_empty() {
            return Ok(());
        }
        for entry in batch.iter() {
            println!("{worker} billed {} × {}", text(entry.get("amount")), text(entry.get("item")));
        }
        db.ack("orders", "billing", batch.iter().map(|entry| entry.id)).wait()?;
    }
}

fn text(value: Option<&[u8]>) -> String {
    String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
}
