//! The stream server inside a program of your own, with settings from its command line.
//!
//! ```text
//! cargo run --release -p millstream-server --example server -- serve --port 6400 --dir ./data
//! ```
//!
//! It builds in a fraction of the time of the whole binary, which makes it the one whose instructions are counted.

use std::error::Error;

use millstream_server::settings::Setting;
use millstream_server::{Server, Settings};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ["serve", flags @ ..] = &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] else {
        return Err("usage: server serve [--SETTING VALUE]…".into());
    };
    let settings = Settings::new();
    for pair in flags.chunks(2) {
        let [name, value] = pair else { return Err(format!("{} has no value", pair[0]).into()) };
        let setting = name.strip_prefix("--").and_then(Setting::find);
        let setting = setting.ok_or_else(|| format!("there is no setting {name}"))?;
        settings.set(setting.id, value).map_err(|why| format!("{name} {value}: {why}"))?;
    }
    let running = Server::start(settings)?;
    println!("listening on {:?}", running.addresses());
    running.run()?;
    Ok(())
}
