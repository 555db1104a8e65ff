//! CONFIG: the settings in force, and changing them.

use millstream_protocol::commands::ConfigCommand;
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::glob;

use crate::exec::Call;
use crate::settings::{Id, SETTINGS};

pub(crate) fn config(command: &ConfigCommand<'_>, call: &mut Call<'_, '_, '_>) -> Result<(), CommandError> {
    let server = call.desk.server;
    match command {
        ConfigCommand::Get(patterns) => {
            let asked = |name: &str| {
                patterns.iter().any(|pattern| glob::matches_ignoring_case(pattern, name.as_bytes()))
            };
            let found: Vec<_> = SETTINGS.iter().filter(|setting| asked(setting.name)).collect();
            call.out.map(found.len());
            for setting in found {
                call.out.bulk(setting.name);
                call.out.bulk(server.settings.show(setting.id));
            }
        }
        ConfigCommand::Set(pairs) => {
            set(pairs, call)?;
            call.out.ok();
        }
        ConfigCommand::ResetStat => {
            server.stats.reset();
            call.out.ok();
        }
        ConfigCommand::Rewrite => return Err(errors::NO_CONFIG_FILE),
    }
    Ok(())
}

fn set(pairs: &[&[u8]], call: &mut Call<'_, '_, '_>) -> Result<(), CommandError> {
    let server = call.desk.server;
    let texts: Vec<String> = pairs.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
    let pairs: Vec<(&str, &str)> = texts.chunks_exact(2).map(|pair| (&*pair[0], &*pair[1])).collect();
    let changed = server.change_settings(&pairs)?;
    if changed.contains(&Id::RequirePass) {
        // Who sets the password knows it.
        call.desk.session.authenticated = true;
    }
    Ok(())
}
