//! SCRIPT and FUNCTION, as a server that holds none answers them.

use millstream_protocol::commands::ScriptingCommand;
use millstream_protocol::errors::CommandError;

use crate::exec::Call;

pub(crate) fn scripting(
    command: &ScriptingCommand<'_>,
    call: &mut Call<'_, '_, '_>,
) -> Result<(), CommandError> {
    let out = &mut *call.out;
    match command {
        ScriptingCommand::ScriptExists(digests) => {
            out.array(digests.len());
            digests.iter().for_each(|_| out.int(0));
        }
        ScriptingCommand::ScriptFlush(_) | ScriptingCommand::FunctionFlush(_) => out.ok(),
        ScriptingCommand::FunctionList => out.array(0),
        ScriptingCommand::FunctionStats => {
            out.map(2);
            out.bulk("running_script");
            out.null_bulk();
            out.bulk("engines");
            out.map(0);
        }
    }
    Ok(())
}
