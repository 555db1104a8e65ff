//! The targets. Each one interprets an input, runs it, and panics if something that must hold does not.

mod broken;
mod commands;
mod folder;
mod log;
mod resp;
mod snapshot;
mod text;

const MIB: usize = 1 << 20;

/// A target.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// Runs an input. Returns the size of what it generated from the input, in bytes, for the limit on memory.
    pub(crate) run: fn(&[u8]) -> usize,
    /// Bytes that every input may allocate: the buffers with which a folder is opened.
    pub(crate) fixed_bytes: usize,
}

/// All targets. Those with a file in `fuzz/corpus` run by default.
pub(crate) static TARGETS: &[Target] = &[
    Target { name: "broken", run: broken::run, fixed_bytes: MIB },
    Target { name: "resp", run: resp::run, fixed_bytes: MIB },
    Target { name: "text", run: text::run, fixed_bytes: MIB },
    Target { name: "commands", run: commands::run, fixed_bytes: 16 * MIB },
    Target { name: "log", run: log::run, fixed_bytes: MIB },
    Target { name: "snapshot", run: snapshot::run, fixed_bytes: MIB },
    Target { name: "folder", run: folder::run, fixed_bytes: 16 * MIB },
];
