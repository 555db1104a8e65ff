//! A language with a package, and how its programs are written and started.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::test_store::TestStore;

/// A way to write a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    /// Python, one message at a time in each process.
    Python,
    /// Python, asynchronous.
    PythonAsync,
    /// JavaScript.
    Node,
}

impl Language {
    /// Writes a worker of the stream `orders` for the group `billing` into the folder of the store.
    ///
    /// Its handler begins with `begun N` in the file `notes`. It takes up to `ms` milliseconds, and longer while the
    /// file `wait` exists. It ends with `N` in the file `done`, where N is the field `n` of the message. It rejects
    /// messages with a field `bad`. The file `traces` gets `N TRACEPARENT TRACESTATE`.
    pub(crate) fn write_worker(self, store: &TestStore, ms: u32) {
        let python = |define: &str, pause: &str| {
            format!(
                "import asyncio, os, random, time\n\
                 from millstream import Reject, handler, run\n\
                 def note(file, text):\n    open(file, 'a').write(f'{{text}}\\n')\n\
                 @handler('orders')\n\
                 {define} work(message):\n    \
                     n = message['n']\n    \
                     note('notes', f'begun {{n}}')\n    \
                     note('traces', f'{{n}} {{message.traceparent}} {{message.tracestate}}')\n    \
                     if 'bad' in message: raise Reject('bad')\n    \
                     {pause}(random.random() * {ms} / 1000)\n    \
                     while os.path.exists('wait'): {pause}(0.02)\n    \
                     note('done', n)\n\
                 if __name__ == '__main__':\n    run(group='billing')\n"
            )
        };
        let text = match self {
            Language::Python => python("def", "time.sleep"),
            Language::PythonAsync => python("async def", "await asyncio.sleep"),
            Language::Node => format!(
                "const fs = require('node:fs');\n\
                 const {{ Reject, handler, run }} = require({package:?});\n\
                 const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));\n\
                 handler('orders', async (message) => {{\n  \
                   const n = message.text('n');\n  \
                   fs.appendFileSync('notes', `begun ${{n}}\\n`);\n  \
                   fs.appendFileSync('traces', `${{n}} ${{message.traceparent}} ${{message.tracestate}}\\n`);\n  \
                   if (message.has('bad')) throw new Reject('bad');\n  \
                   await pause(Math.random() * {ms});\n  \
                   while (fs.existsSync('wait')) await pause(20);\n  \
                   fs.appendFileSync('done', `${{n}}\\n`);\n\
                 }});\n\
                 run({{ group: 'billing' }});\n",
                package = sdk().join("node"),
            ),
        };
        store.write(self.file(), &text);
    }

    /// Returns the command that starts the worker.
    pub(crate) fn worker(self, store: &TestStore, options: &[&str]) -> Command {
        let mut command = Command::new(match self {
            Language::Python | Language::PythonAsync => "python3",
            Language::Node => "node",
        });
        command.arg(self.file()).args(options).current_dir(&store.folder);
        command.env("PYTHONPATH", sdk().join("python")).env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("MILLSTREAM_BIN", env!("CARGO_BIN_EXE_millstream")).env("MILLSTREAM_URL", &store.url);
        command.env_remove("REDIS_URL").env_remove("RUST_LOG");
        command
    }

    pub(crate) fn file(self) -> &'static str {
        match self {
            Language::Python | Language::PythonAsync => "worker.py",
            Language::Node => "worker.js",
        }
    }
}

/// The folder of the packages.
pub(crate) fn sdk() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk").canonicalize().expect("the folder sdk")
}
