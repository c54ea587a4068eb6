//! libFuzzer's limit for an input (`-timeout`), in processor time. By the wall, an input of milliseconds breaks it
//! where the process is paused or the machine stands still. And a limit for the whole run (`FUZZ_PROCESSOR_SECONDS`),
//! which a target reaches with as much done beside other programs as by itself.

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
        let limits = (limit(), limit_of_run());
        if limits != (None, None) {
            thread::spawn(move || watch(limits));
        }
    });
}

/// What the command line says; libFuzzer parses it again.
fn limit() -> Option<Duration> {
    let mut arguments = std::env::args().rev();
    let seconds = arguments.find_map(|it| it.strip_prefix("-timeout=")?.parse().ok())?;
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

fn limit_of_run() -> Option<Duration> {
    let seconds = std::env::var("FUZZ_PROCESSOR_SECONDS").ok()?;
    Some(Duration::from_secs(seconds.parse().ok()?))
}

/// Has libFuzzer look at its clock when an input has taken too long, which is longer still by that: it keeps the
/// input then, and ends. After the whole run's time it prints its figures, ends and is content.
fn watch((of_input, of_run): (Option<Duration>, Option<Duration>)) {
    let mut watch = Watch::default();
    loop {
        thread::sleep(TICK);
        let used = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
        let used = used.map_or(Duration::ZERO, Duration::from);
        let by_input = watch.look(INPUTS.load(Ordering::Relaxed), used);
        if of_input.is_some_and(|limit| by_input >= limit) {
            let _ = kill(Pid::this(), Signal::SIGALRM);
        }
        if of_run.is_some_and(|limit| used >= limit) {
            let _ = kill(Pid::this(), Signal::SIGUSR1);
        }
    }
}
