//! Runs the server inside another program, with settings from the command line.
//!
//! ```text
//! cargo run --release -p millstream-server --example server -- serve --port 6400 --dir ./data
//! ```
//!
//! It builds much faster than the `millstream` binary, so `scripts/bench --instructions` uses it. Like the binary, it
//! counts allocations: their cost must be part of the instruction counts.

use std::error::Error;

use millstream_server::memory::CountingAllocator;
use millstream_server::settings::Setting;
use millstream_server::{Server, Settings};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ["serve", flags @ ..] = &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] else {
        return Err("usage: server serve [--SETTING VALUE]…".into());
    };
    let settings = Settings::new();
    for pair in flags.chunks(2) {
        let [name, value] = pair else { return Err(format!("missing value for {}", pair[0]).into()) };
        let setting = name.strip_prefix("--").and_then(Setting::find);
        let setting = setting.ok_or_else(|| format!("unknown setting {name}: expected --SETTING VALUE"))?;
        settings.set(setting.id, value).map_err(|error| format!("{name} {value}: {error}"))?;
    }
    let running = Server::start(settings)?;
    println!("listening on {:?}", running.addresses());
    running.run()?;
    Ok(())
}
