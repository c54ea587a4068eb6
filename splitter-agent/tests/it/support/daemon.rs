//! A lasting command that ends with the test.

use std::cell::RefCell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::site::within;

/// Longer than it may take to restore everything.
const STOP_BOUND: Duration = Duration::from_secs(30);

/// Longer than any passing work, such as a question to the kernel, keeps its descriptors open.
const PASSING: Duration = Duration::from_secs(10);

/// A child of this thread; dropping it kills it.
pub(crate) struct Daemon {
    child: RefCell<Child>,
    log: PathBuf,
}

impl Daemon {
    /// Starts it; what it prints goes into `log`.
    pub(crate) fn start(mut command: Command, log: &Path) -> Self {
        let file = File::create(log).expect("a file");
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a descriptor"))
            .stderr(file)
            .spawn()
            .expect("it can be started");
        Self {
            child: RefCell::new(child),
            log: log.to_owned(),
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.borrow().id()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.try_wait().is_none()
    }

    /// What it has printed.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// How many descriptors it has open at this moment, those of passing work among them.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.id()))
            .expect("it runs")
            .count()
    }

    /// Waits until it has at most `most` open: what passing work has opened is closed again, and
    /// what has leaked is not.
    pub(crate) fn wait_for_descriptors(&self, most: usize) {
        let what = format!("no more than {most} descriptors to be open");
        within(PASSING, &what, || {
            (self.descriptors() <= most).then_some(())
        });
    }

    /// Sends a signal and waits until it has ended.
    pub(crate) fn end(self, signal: Signal) -> ExitStatus {
        // It has not been waited for, so the id is still its own.
        assert!(self.is_running(), "it ended:\n{}", self.log());
        kill(Pid::from_raw(self.id().cast_signed()), signal).expect("it is ours");
        self.wait()
    }

    /// Waits until it has ended by itself.
    pub(crate) fn wait(&self) -> ExitStatus {
        within(STOP_BOUND, "the daemon to end", || self.try_wait())
    }

    fn try_wait(&self) -> Option<ExitStatus> {
        self.child.borrow_mut().try_wait().expect("it is ours")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let child = self.child.get_mut();
        // Both fail only when it has ended and been waited for already.
        let _ = child.kill();
        let _ = child.wait();
    }
}
