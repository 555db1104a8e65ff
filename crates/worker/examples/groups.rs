//! Manages groups: creates one if it does not exist, describes it, previews and executes a reset, and removes a
//! consumer after moving its pending messages to another consumer.
//!
//! ```text
//! cargo run -p millstream-worker --example groups
//! ```

mod fresh;

use std::error::Error;

use millstream_worker::backend::{Read, Start};
use millstream_worker::group_manager::{GroupManager, Position};
use millstream_worker::producer::Producer;

const STREAM: &str = "example:groups";
const GROUP: &str = "billing";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let backend = fresh::store(STREAM).await?;
    println!("created: {}", backend.create_group(STREAM, GROUP, Start::Beginning).await?);
    println!("created again: {}", backend.create_group(STREAM, GROUP, Start::Beginning).await?);

    Producer::new(backend.clone(), STREAM).send_all((1..=5).map(|n| [("order", n.to_string())])).await?;
    for consumer in ["anna", "ben"] {
        let read = Read { stream: STREAM, group: GROUP, consumer, count: 2, block: None, claim_idle: None };
        backend.read(&read).await?;
    }
    for consumer in backend.consumers(STREAM, GROUP).await? {
        println!("{} has {} pending messages", consumer.name, consumer.pending);
    }

    let groups = GroupManager::new(backend.clone());
    let removed = groups.remove_consumer(STREAM, GROUP, "anna", Some("ben")).await?;
    println!("removed {}, moved {} messages to ben", removed.consumer, removed.adopted);

    let reset = groups.preview_reset(STREAM, GROUP, Position::Beginning).await?;
    println!("after a reset, {} entries are unread instead of {}", reset.after.lag, reset.before.lag);
    groups.reset(&reset).await?;

    for group in backend.groups(STREAM).await? {
        println!("{}: {} consumer, {} pending", group.name, group.consumers, group.pending);
    }
    println!("deleted: {}", backend.delete_group(STREAM, GROUP).await?);
    Ok(())
}
