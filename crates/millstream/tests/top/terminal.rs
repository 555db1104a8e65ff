//! A real terminal: a private tmux that runs the binary, in which tests press keys and read the screen.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::test_store::TestStore;

/// Longest time until the screen shows what a test expects.
const TIMEOUT: Duration = Duration::from_secs(60);
const SIZE: [&str; 4] = ["-x", "160", "-y", "40"];

/// A terminal with a running command. Closed on drop.
pub(crate) struct Terminal {
    socket: PathBuf,
}

impl Terminal {
    /// Runs the binary with these arguments. `variables` are environment variables for it, in shell syntax.
    ///
    /// Returns `None` on a machine without tmux.
    ///
    /// After the binary has ended, the screen shows its exit code and whether the terminal was restored.
    pub(crate) fn run(store: &TestStore, variables: &str, arguments: &str) -> Option<Terminal> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if Command::new("tmux").arg("-V").output().is_err() {
            eprintln!("skipped: tmux is not installed, so the live view is not tested");
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let terminal = Terminal { socket: store.folder.join(format!("tmux-{number}")) };
        let script = store.folder.join(format!("top-{number}.sh"));
        let binary = env!("CARGO_BIN_EXE_millstream");
        let text = format!(
            "MILLSTREAM_URL='{}' {variables} '{binary}' {arguments}\n\
             echo \"ended with $?\"\n\
             if stty -a | grep -q -e -icanon; then echo terminal is raw; else echo terminal is restored; fi\n\
             exec sleep 600\n",
            store.url
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
        // The test itself may run inside another tmux.
        command.env_remove("TMUX").args(["-u", "-S"]).arg(&self.socket).args(arguments);
        command.output().expect("run tmux")
    }

    fn tmux_output(&self, arguments: &[&str]) -> String {
        String::from_utf8_lossy(&self.tmux(arguments).stdout).into_owned()
    }

    /// Presses keys, given by tmux's names.
    pub(crate) fn press(&self, keys: &[&str]) {
        let sent = self.tmux(&[&["send-keys", "-t", "main"], keys].concat());
        assert!(sent.status.success(), "{sent:?}");
    }

    /// Returns the text on the screen.
    pub(crate) fn screen(&self) -> String {
        self.tmux_output(&["capture-pane", "-p", "-t", "main"])
    }

    /// Returns the text on the screen with its escape sequences.
    pub(crate) fn styled_screen(&self) -> String {
        self.tmux_output(&["capture-pane", "-e", "-p", "-t", "main"])
    }

    /// Waits until the screen fulfils a condition, and returns the text on the screen.
    pub(crate) fn wait(&self, what: &str, is_true: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let screen = self.screen();
            if is_true(&screen) {
                return screen;
            }
            assert!(Instant::now() < deadline, "the screen does not show {what}:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the screen shows this text.
    pub(crate) fn shows(&self, text: &str) -> String {
        self.wait(text, |screen| screen.contains(text))
    }

    /// Waits until the screen shows all of these texts.
    pub(crate) fn shows_all(&self, texts: &[&str]) -> String {
        self.wait(&texts.join(", "), |screen| texts.iter().all(|text| screen.contains(text)))
    }

    /// Waits until the binary has ended with this code, and checks that the terminal is restored.
    pub(crate) fn ended(&self, code: i32) {
        let screen = self.shows_all(&[&format!("ended with {code}"), "terminal is restored"]);
        assert!(!screen.contains("millstream top"), "the view is still on the screen:\n{screen}");
        let flags =
            self.tmux_output(&["display-message", "-p", "-t", "main", "#{alternate_on} #{cursor_flag}"]);
        assert_eq!(flags.trim(), "0 1", "the alternate screen is on, or the cursor is off");
    }

    /// Returns the process id of the binary.
    pub(crate) fn pid(&self) -> String {
        let shell = self.tmux_output(&["display-message", "-p", "-t", "main", "#{pane_pid}"]);
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
