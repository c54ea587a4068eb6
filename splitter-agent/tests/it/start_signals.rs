//! Signals that come while an agent starts.

use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::site::{on_site, within};

const PATIENCE: Duration = Duration::from_secs(60);
const LONGER_THAN_A_START: Duration = Duration::from_secs(2);
/// The verifier takes some hundred times as long for the program.
const OFTEN: Duration = Duration::from_millis(3);

/// Whether a process has a handler of its own for a signal (proc(5), `SigCgt`).
fn catches(process: u32, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|it| u64::from_str_radix(it.trim(), 16).ok());
    mask.is_some_and(|it| it >> (signal as u64 - 1) & 1 == 1)
}

#[test]
fn signals_do_not_keep_the_kernel_from_taking_the_programs() {
    on_site(|site| {
        let daemon = site.start();
        // Before that, SIGHUP ends any program.
        within(PATIENCE, "the agent to heed signals", || {
            catches(daemon.id(), Signal::SIGHUP).then_some(())
        });
        let until = Instant::now() + LONGER_THAN_A_START;
        while daemon.is_running() && Instant::now() < until {
            kill(Pid::from_raw(daemon.id().cast_signed()), Signal::SIGHUP).expect("it is ours");
            sleep(OFTEN);
        }
        within(PATIENCE, "the agent to be ready", || {
            assert!(daemon.is_running(), "it ended:\n{}", daemon.log());
            matches!(site.get("/ready"), Ok((200, _))).then_some(())
        });
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}
