//! libFuzzer's limit for an input (`-timeout`), in processor time. By the wall, an input of milliseconds breaks it
//! where the process is paused or the machine stands still.

#[path = "watch.rs"]
mod watch;

use std::{
    sync::{
        Once,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    time::{ClockId, clock_gettime},
    unistd::{Pid, alarm},
};

use self::watch::{TICK, Watch};

static INPUTS: AtomicU64 = AtomicU64::new(0);
static WATCHDOG: Once = Once::new();

/// Notes that an input begins: every target says so first.
pub(crate) fn begin() {
    INPUTS.fetch_add(1, Ordering::Relaxed);
    WATCHDOG.call_once(|| {
        // Its own timer, by the wall.
        alarm::cancel();
        if let Some(limit) = limit() {
            thread::spawn(move || watch(limit));
        }
    });
}

/// What the command line says; libFuzzer parses it again.
fn limit() -> Option<Duration> {
    let mut arguments = std::env::args().rev();
    let seconds = arguments.find_map(|it| it.strip_prefix("-timeout=")?.parse().ok())?;
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// Has libFuzzer look at its clock, by which an input takes longer still: it keeps the input then, and ends.
fn watch(limit: Duration) {
    let mut watch = Watch::default();
    loop {
        thread::sleep(TICK);
        let used = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
        let used = used.map_or(Duration::ZERO, Duration::from);
        if watch.look(INPUTS.load(Ordering::Relaxed), used) >= limit {
            let _ = kill(Pid::this(), Signal::SIGALRM);
        }
    }
}
