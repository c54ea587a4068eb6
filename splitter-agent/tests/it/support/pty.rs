//! A terminal for a command to draw on, and what is seen there.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};

use nix::pty::{Winsize, openpty};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::ttyname;

/// A terminal and the command that has it.
pub(crate) struct Terminal {
    keyboard: File,
    /// Held, so that the terminal outlives the command.
    device: OwnedFd,
    screen: Arc<Mutex<vt100::Parser>>,
    pub(crate) child: Child,
}

impl Terminal {
    /// Starts a command with a terminal of its own, of so many lines and columns. `setsid` is a
    /// command that runs the program of that name, where the other one is to be.
    pub(crate) fn start(mut setsid: Command, program: &[&str], rows: u16, columns: u16) -> Self {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pair = openpty(&size, None).expect("there are terminals");
        let device = || pair.slave.try_clone().expect("a descriptor");
        let child = setsid
            .arg("--ctty")
            .args(program)
            .env("TERM", "xterm-256color")
            .stdin(device())
            .stdout(device())
            .stderr(device())
            .spawn()
            .expect("it can be started");
        let keyboard = File::from(pair.master);
        let screen = Arc::new(Mutex::new(vt100::Parser::new(some(rows), some(columns), 0)));
        let mut output = keyboard.try_clone().expect("a descriptor");
        let drawn_on = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                let mut parser = drawn_on.lock().unwrap_or_else(PoisonError::into_inner);
                parser.process(&bytes[..length]);
            }
        });
        Self {
            keyboard,
            device: pair.slave,
            screen,
            child,
        }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard
            .write_all(keys.as_bytes())
            .expect("it is there");
    }

    /// The text on the screen.
    pub(crate) fn text(&self) -> String {
        self.look(|screen| screen.contents())
    }

    /// Makes it another size, and reports the command.
    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        // Ours comes first: what is drawn for the new size must find it.
        self.screen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .screen_mut()
            .set_size(some(rows), some(columns));
        let device = ttyname(&self.device).expect("it has a name");
        let status = Command::new("stty")
            .arg("-F")
            .arg(device)
            .args(["rows", &rows.to_string(), "cols", &columns.to_string()])
            .status();
        assert!(status.expect("it is there").success());
    }

    /// Whether somebody draws on it now, on its other screen and without echo.
    pub(crate) fn is_taken(&self) -> bool {
        !self.is_cooked() && self.look(|it| it.alternate_screen())
    }

    /// Whether it is as a shell wants it: with echo, cursor and its first screen.
    pub(crate) fn is_given_back(&self) -> bool {
        self.is_cooked() && self.look(|it| !it.alternate_screen() && !it.hide_cursor())
    }

    fn is_cooked(&self) -> bool {
        let flags = tcgetattr(&self.device)
            .expect("it is a terminal")
            .local_flags;
        flags.contains(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG)
    }

    fn look<T>(&self, look: impl FnOnce(&vt100::Screen) -> T) -> T {
        let parser = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        look(parser.screen())
    }
}

fn some(lines: u16) -> NonZero<u16> {
    NonZero::new(lines).expect("not nothing")
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Both fail only when it has ended and been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
