//! The terminal: taken, given back whatever happens, and listened to.

use std::io;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, KeyEvent, KeyEventKind};
use tokio::sync::mpsc;

use super::app::App;
use super::draw::draw;

/// The terminal while it is drawn on. Dropping it gives the terminal back; a panic does, too.
pub(super) struct Screen(DefaultTerminal);

impl Screen {
    /// Takes the terminal: raw, on its other screen.
    pub(super) fn take() -> io::Result<Self> {
        // Sets a panic hook as well, which gives it back before the panic is reported.
        ratatui::try_init().map(Self)
    }

    pub(super) fn draw(&mut self, app: &mut App) -> io::Result<()> {
        self.0.draw(|frame| draw(frame, app)).map(|_| ())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// What comes from the terminal.
pub(super) enum Event {
    Key(KeyEvent),
    /// It has another size now.
    Resized,
    /// It cannot be read any more.
    Failed(io::Error),
}

/// Listens from now on. The thread that does so ends with the process.
pub(super) fn events() -> mpsc::Receiver<Event> {
    // Keys that nobody has taken yet; a terminal that is pasted into waits.
    let (sender, receiver) = mpsc::channel(64);
    std::thread::spawn(move || {
        loop {
            let event = match event::read() {
                Ok(event::Event::Key(key)) if key.kind != KeyEventKind::Release => Event::Key(key),
                Ok(event::Event::Resize(..)) => Event::Resized,
                Ok(_) => continue,
                Err(error) => Event::Failed(error),
            };
            let failed = matches!(event, Event::Failed(_));
            if sender.blocking_send(event).is_err() || failed {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;
    use std::process::Command;

    use nix::pty::{Winsize, openpty};
    use nix::sys::termios::{LocalFlags, tcgetattr};

    use super::*;

    /// Set for the process that panics.
    const PANICS: &str = "SPLITTER_TEST_PANICS";

    #[test]
    fn a_panic_gives_the_terminal_back() {
        if std::env::var_os(PANICS).is_some() {
            let _screen = Screen::take().expect("it has a terminal");
            panic!("reported once the terminal is given back");
        }
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pair = openpty(&size, None).expect("there are terminals");
        let device = || pair.slave.try_clone().expect("a descriptor");
        let this = std::env::current_exe().expect("it runs");
        let mut child = Command::new(this)
            .args(["--exact", "--nocapture"])
            .arg("commands::top::terminal::tests::a_panic_gives_the_terminal_back")
            .env(PANICS, "")
            .stdin(device())
            .stdout(device())
            .stderr(device())
            .spawn()
            .expect("it can be started");
        let mut output = File::from(pair.master.try_clone().expect("a descriptor"));
        let reading = std::thread::spawn(move || {
            let mut printed = Vec::new();
            let mut bytes = [0; 4_096];
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                printed.extend_from_slice(&bytes[..length]);
            }
            String::from_utf8_lossy(&printed).into_owned()
        });
        assert!(!child.wait().expect("it is ours").success());
        let flags = tcgetattr(&pair.slave)
            .expect("it is a terminal")
            .local_flags;
        assert!(
            flags.contains(LocalFlags::ICANON | LocalFlags::ECHO),
            "{flags:?}"
        );
        drop(pair.slave);
        let printed = reading.join().expect("no panic");
        let place = |what: &str| {
            let found = printed.find(what);
            found.unwrap_or_else(|| panic!("no {what:?} in {printed:?}"))
        };
        let (taken, given_back) = (place("\x1b[?1049h"), place("\x1b[?1049l"));
        assert!(
            taken < given_back && given_back < place("reported once"),
            "{printed:?}"
        );
    }
}
