//! The terminal: taken over, drawn on, and given back as it was, whatever ends us.

use std::io;
use std::thread;

use ratatui::DefaultTerminal;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event};
use rustix::process::{Signal, getpid, kill_process};
use tokio::sync::mpsc;

/// Key presses that wait until they are dealt with.
const WAITING_MAX: usize = 64;

/// The terminal while it is ours. Given back on drop; on panic before its message is printed.
pub(super) struct Screen {
    terminal: DefaultTerminal,
}

impl Screen {
    /// Takes the terminal over.
    pub(super) fn open() -> io::Result<Screen> {
        match ratatui::try_init() {
            Ok(terminal) => Ok(Screen { terminal }),
            Err(error) => {
                give_back();
                Err(error)
            }
        }
    }

    /// Draws a frame.
    pub(super) fn draw(&mut self, frame: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(frame).map(drop)
    }

    /// Gives the terminal back and stops the process until it is told to go on; then takes the terminal again.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        give_back();
        kill_process(getpid(), Signal::TSTP)?;
        self.terminal = ratatui::try_init()?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn give_back() {
    // It fails only if the terminal is gone, and then nobody minds.
    let _ = ratatui::try_restore();
}

/// What happens on the terminal: keys and changes of size. Ends after an error.
pub(super) fn events() -> mpsc::Receiver<io::Result<Event>> {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
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
