//! A real terminal: a tmux of its own, in which the binary runs, keys are pressed, and the screen is read.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::world::World;

/// A screen must show what it should within this time.
const PATIENCE: Duration = Duration::from_secs(60);
const SIZE: [&str; 4] = ["-x", "160", "-y", "40"];

/// A terminal in which something runs. Closed on drop.
pub(crate) struct Terminal {
    socket: PathBuf,
}

impl Terminal {
    /// Runs the binary with these arguments, with `variables` before it as a shell takes them. When it has ended, the
    /// screen says how, and in which state it has left the terminal. `None` on a machine without tmux.
    pub(crate) fn run(world: &World, variables: &str, arguments: &str) -> Option<Terminal> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if Command::new("tmux").arg("-V").output().is_err() {
            eprintln!("there is no tmux on this machine: the live view is not tested");
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let terminal = Terminal { socket: world.folder.join(format!("tmux-{number}")) };
        let script = world.folder.join(format!("top-{number}.sh"));
        let binary = env!("CARGO_BIN_EXE_millstream");
        let text = format!(
            "MILLSTREAM_URL='{}' {variables} '{binary}' {arguments}\n\
             echo \"ended with $?\"\n\
             if stty -a | grep -q -e -icanon; then echo terminal is raw; else echo terminal is as it was; fi\n\
             exec sleep 600\n",
            world.url
        );
        fs::write(&script, text).expect("write a script");
        let script = format!("sh '{}'", script.display());
        let session =
            [&["-f", "/dev/null", "new-session", "-d", "-s", "main"][..], &SIZE, &[&script]].concat();
        let started = terminal.tmux(&session);
        assert!(started.status.success(), "{started:?}");
        Some(terminal)
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("tmux");
        // We may ourselves run inside a tmux, which is none of ours.
        command.env_remove("TMUX").args(["-u", "-S"]).arg(&self.socket).args(arguments);
        command.output().expect("run tmux")
    }

    fn told(&self, arguments: &[&str]) -> String {
        String::from_utf8_lossy(&self.tmux(arguments).stdout).into_owned()
    }

    /// Presses keys, by tmux' names.
    pub(crate) fn press(&self, keys: &[&str]) {
        let sent = self.tmux(&[&["send-keys", "-t", "main"], keys].concat());
        assert!(sent.status.success(), "{sent:?}");
    }

    /// What is on the screen.
    pub(crate) fn screen(&self) -> String {
        self.told(&["capture-pane", "-p", "-t", "main"])
    }

    /// The same with the sequences that make it look so.
    pub(crate) fn styled_screen(&self) -> String {
        self.told(&["capture-pane", "-e", "-p", "-t", "main"])
    }

    /// Waits until the screen is as it should be, and gives it.
    pub(crate) fn wait(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let screen = self.screen();
            if is_so(&screen) {
                return screen;
            }
            assert!(Instant::now() < deadline, "the screen does not show {what}:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the screen shows this.
    pub(crate) fn shows(&self, words: &str) -> String {
        self.wait(words, |screen| screen.contains(words))
    }

    /// Waits until the screen shows all of this.
    pub(crate) fn shows_all(&self, words: &[&str]) -> String {
        self.wait(&words.join(", "), |screen| words.iter().all(|words| screen.contains(words)))
    }

    /// Waits until the binary has ended with this code, and checks that the terminal is as it was.
    pub(crate) fn ended(&self, code: i32) {
        let screen = self.shows_all(&[&format!("ended with {code}"), "terminal is as it was"]);
        assert!(!screen.contains("millstream top"), "the view is still there:\n{screen}");
        let flags = self.told(&["display-message", "-p", "-t", "main", "#{alternate_on} #{cursor_flag}"]);
        assert_eq!(flags.trim(), "0 1", "the other screen is off, the cursor is on");
    }

    /// The process id of the binary.
    pub(crate) fn pid(&self) -> String {
        let shell = self.told(&["display-message", "-p", "-t", "main", "#{pane_pid}"]);
        let shell = shell.trim();
        let children =
            fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).expect("its children");
        children.split_whitespace().next().expect("a child").to_owned()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}
