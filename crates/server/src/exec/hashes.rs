//! Commands on hashes.

use millstream_engine::value::Hash;
use millstream_protocol::commands::HashCommand;
use millstream_protocol::errors::CommandError;
use millstream_protocol::resp::Writer;
use millstream_store::Txn;

use super::strings::optional;

pub(crate) fn run(
    txn: &mut Txn<'_>,
    out: &mut Writer,
    command: &HashCommand<'_>,
) -> Result<(), CommandError> {
    match *command {
        HashCommand::Set(key, pairs) => out.uint(txn.hash_set(key, pairs)?),
        HashCommand::MSet(key, pairs) => {
            txn.hash_set(key, pairs)?;
            out.ok();
        }
        HashCommand::SetNx(key, field, value) => out.int(txn.hash_set_if_absent(key, field, value)?.into()),
        HashCommand::Get(key, field) => optional(out, txn.hash_get(key, field)?),
        HashCommand::MGet(key, fields) => {
            let hash = txn.hash(key)?;
            out.array(fields.len());
            fields.iter().for_each(|field| optional(out, hash.and_then(|hash| hash.get(field))));
        }
        HashCommand::GetAll(key) => {
            let hash = txn.hash(key)?;
            out.map(hash.map_or(0, Hash::len));
            visit(hash, |field, value| {
                out.bulk(field);
                out.bulk(value);
            });
        }
        HashCommand::Del(key, fields) => out.uint(txn.hash_delete(key, fields)?),
        HashCommand::Exists(key, field) => out.int(txn.hash_get(key, field)?.is_some().into()),
        HashCommand::Len(key) => out.uint(txn.hash_len(key)?),
        HashCommand::Keys(key) => {
            let hash = txn.hash(key)?;
            out.array(hash.map_or(0, Hash::len));
            visit(hash, |field, _| out.bulk(field));
        }
        HashCommand::Vals(key) => {
            let hash = txn.hash(key)?;
            out.array(hash.map_or(0, Hash::len));
            visit(hash, |_, value| out.bulk(value));
        }
        HashCommand::IncrBy(key, field, by) => out.int(txn.hash_increment(key, field, by)?),
        HashCommand::IncrByFloat(key, field, by) => out.bulk(txn.hash_increment_float(key, field, by)?),
    }
    Ok(())
}

fn visit<'a>(hash: Option<&'a Hash>, each: impl FnMut(&'a [u8], &'a [u8])) {
    if let Some(hash) = hash {
        hash.visit(each);
    }
}
