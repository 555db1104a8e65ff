//! CONFIG: returns and changes settings.

use millstream_protocol::args::Args;
use millstream_protocol::commands::ArgList;
use millstream_protocol::errors;
use millstream_protocol::glob::{self, Glob};

use crate::command::{Call, DONE, Reply, reply_ok};
use crate::settings::{Id, SETTINGS};

/// Maximum length of an argument of CONFIG SET that runs however much memory is in use.
const SHORT_VALUE_BYTES: usize = 1 << 10;

pub(crate) fn get(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let patterns = Args::of_subcommand(argv).rest();
    patterns.iter().try_for_each(|pattern| glob::check(pattern).map(|_| ()))?;
    let mut is_wanted = vec![false; SETTINGS.len()];
    for pattern in patterns {
        let pattern = Glob::ignoring_case(pattern);
        for (setting, is_wanted) in SETTINGS.iter().zip(&mut is_wanted) {
            *is_wanted |= pattern.matches(setting.name.as_bytes());
        }
    }
    let found: Vec<_> = SETTINGS.iter().zip(is_wanted).filter(|(_, is_wanted)| *is_wanted).collect();
    call.out.map(found.len());
    for (setting, _) in found {
        call.out.bulk(setting.name);
        call.out.bulk(call.context.server.settings.show(setting.id));
    }
    DONE
}

pub(crate) fn set(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let pairs = Args::of_subcommand(argv).pairs("config|set").map_err(|_| errors::SYNTAX)?;
    // Short values always fit: each setting has only one.
    if argv.iter().any(|arg| arg.len() > SHORT_VALUE_BYTES) {
        call.context.server.check_reserve(argv)?;
    }
    let mut texts = Vec::with_capacity(pairs.len());
    for pair in pairs.chunks_exact(2) {
        let value = str::from_utf8(pair[1])
            .map_err(|_| errors::invalid_setting(pair[0], "the value is not valid UTF-8"))?;
        texts.push((String::from_utf8_lossy(pair[0]), value));
    }
    let pairs: Vec<(&str, &str)> = texts.iter().map(|(name, value)| (&**name, *value)).collect();
    let changed = call.context.server.change_settings(&pairs)?;
    let names: Vec<&str> = changed.iter().map(|id| id.setting().name).collect();
    let what = format!("CONFIG SET {}", names.join(" "));
    if changed.contains(&Id::AuditLog) {
        // A client that turns the audit log off is logged too.
        call.context.audit_always(&what);
    } else {
        call.context.audit(&what);
    }
    reply_ok(call.out)
}

pub(crate) fn resetstat(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    call.context.server.stats.reset();
    call.context.audit("CONFIG RESETSTAT");
    reply_ok(call.out)
}
