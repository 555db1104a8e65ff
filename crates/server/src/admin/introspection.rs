//! COMMAND and ACL: the command table and the one user, as replies.

use millstream_protocol::commands::{AclCommand, CommandCommand};
use millstream_protocol::errors::CommandError;
use millstream_protocol::table::render;

use crate::exec::Call;
use crate::settings::Id;

/// The only user there is.
const USER: &str = "default";

pub(crate) fn command(command: &CommandCommand<'_>, call: &mut Call<'_, '_, '_>) -> Result<(), CommandError> {
    let out = &mut *call.out;
    match command {
        CommandCommand::All => render::info_all(out),
        CommandCommand::Count => out.count(render::command_count()),
        CommandCommand::Info(names) => render::info(out, names),
        CommandCommand::Docs(names) => render::docs(out, names),
        CommandCommand::List(filter) => render::list(out, *filter),
        CommandCommand::GetKeys(argv) => render::getkeys(out, argv)?,
        CommandCommand::GetKeysAndFlags(argv) => render::getkeysandflags(out, argv)?,
    }
    Ok(())
}

pub(crate) fn acl(command: &AclCommand<'_>, call: &mut Call<'_, '_, '_>) -> Result<(), CommandError> {
    let has_password = !call.desk.server.settings.is_empty(Id::RequirePass);
    let out = &mut *call.out;
    match command {
        AclCommand::WhoAmI => out.bulk(USER),
        AclCommand::Cat(None) => render::acl_categories(out),
        AclCommand::Cat(Some(category)) => render::acl_category(out, category)?,
        AclCommand::List => {
            out.array(1);
            let password = if has_password { "" } else { "nopass " };
            out.bulk(format!("user {USER} on {password}~* &* +@all"));
        }
        AclCommand::Users => {
            out.array(1);
            out.bulk(USER);
        }
        AclCommand::GetUser(name) if *name != USER.as_bytes() => out.null_array(),
        AclCommand::GetUser(_) => {
            let flags: &[&str] = if has_password { &["on"] } else { &["on", "nopass"] };
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
        }
    }
    Ok(())
}
