//! The terminal: enters the full-screen mode, draws, and restores the terminal however the command ends.

use std::io;
use std::thread;

use ratatui::DefaultTerminal;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event};
use rustix::process::{Signal, getpid, kill_process};
use tokio::sync::mpsc;

/// Maximum number of terminal events in the queue.
const QUEUE_MAX: usize = 64;

/// The terminal in full-screen mode. Restored on drop, and on panic before the message is printed.
pub(super) struct Screen {
    terminal: DefaultTerminal,
}

impl Screen {
    pub(super) fn open() -> io::Result<Screen> {
        match ratatui::try_init() {
            Ok(terminal) => Ok(Screen { terminal }),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }

    pub(super) fn draw(&mut self, frame: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(frame).map(drop)
    }

    /// Restores the terminal and suspends the process. When the shell continues it, enters the full-screen mode again.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        restore();
        kill_process(getpid(), Signal::TSTP)?;
        self.terminal = ratatui::try_init()?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    // Fails only if the terminal is gone.
    let _ = ratatui::try_restore();
}

/// Returns the events of the terminal: keys and changes of its size. The channel closes after an error.
pub(super) fn events() -> mpsc::Receiver<io::Result<Event>> {
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    // Reading the terminal blocks. The thread ends with the process.
    thread::spawn(move || {
        loop {
            let event = event::read();
            let last = event.is_err();
            if sender.blocking_send(event).is_err() || last {
                return;
            }
        }
    });
    receiver
}
