//! Commands on sets.

use millstream_engine::value::Set;
use millstream_protocol::commands::SetCommand;
use millstream_protocol::errors::CommandError;
use millstream_protocol::resp::Writer;
use millstream_store::Txn;

pub(crate) fn run(txn: &mut Txn<'_>, out: &mut Writer, command: &SetCommand<'_>) -> Result<(), CommandError> {
    match *command {
        SetCommand::Add(key, members) => out.uint(txn.set_add(key, members)?),
        SetCommand::Remove(key, members) => out.uint(txn.set_remove(key, members)?),
        SetCommand::Members(key) => {
            let set = txn.members(key)?;
            out.set(set.map_or(0, Set::len));
            if let Some(set) = set {
                set.visit(|member| out.bulk(member));
            }
        }
        SetCommand::IsMember(key, member) => out.int(txn.set_contains(key, member)?.into()),
        SetCommand::Card(key) => out.uint(txn.set_len(key)?),
    }
    Ok(())
}
