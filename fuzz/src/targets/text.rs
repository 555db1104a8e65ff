//! Texts from clients and operators: arguments of commands, glob patterns, settings, rules
//! of users. The first byte chooses.

mod acl;
mod arguments;
mod glob;
mod settings;

pub(crate) fn run(input: &[u8]) -> usize {
    let Some((&kind, text)) = input.split_first() else { return 0 };
    match kind % 8 {
        0 => settings::run(text),
        1 | 2 => glob::run(text),
        3 => acl::run(text),
        _ => arguments::run(text),
    }
    input.len()
}
