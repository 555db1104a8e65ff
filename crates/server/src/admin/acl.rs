//! ACL. There is only one user, `default`.

use millstream_protocol::args::Args;
use millstream_protocol::commands::ArgList;
use millstream_protocol::resp::Writer;
use millstream_store::Txn;

use crate::command::{Call, DONE, Reply};
use crate::settings::Id;

/// The name of the only user.
const USER: &str = "default";

fn has_password(call: &Call<'_, '_, '_>) -> bool {
    !call.context.server.settings.is_empty(Id::RequirePass)
}

pub(crate) fn whoami(_: &mut Txn<'_>, out: &mut Writer, _: ArgList<'_>) -> Reply {
    out.bulk(USER);
    DONE
}

pub(crate) fn list(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    let password = if has_password(call) { "" } else { "nopass " };
    call.out.array(1);
    call.out.bulk(format!("user {USER} on {password}~* &* +@all"));
    DONE
}

pub(crate) fn users(_: &mut Txn<'_>, out: &mut Writer, _: ArgList<'_>) -> Reply {
    out.array(1);
    out.bulk(USER);
    DONE
}

pub(crate) fn getuser(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let [name] = Args::of_subcommand(argv).exactly()?;
    let flags: &[&str] = if has_password(call) { &["on"] } else { &["on", "nopass"] };
    let out = &mut *call.out;
    if name != USER.as_bytes() {
        out.null_array();
        return DONE;
    }
    out.map(6);
    out.bulk("flags");
    out.set(flags.len());
    flags.iter().for_each(|flag| out.bulk(flag));
    out.bulk("passwords");
    out.array(0);
    for (name, value) in [("commands", "+@all"), ("keys", "~*"), ("channels", "&*")] {
        out.bulk(name);
        out.bulk(value);
    }
    out.bulk("selectors");
    out.array(0);
    DONE
}
