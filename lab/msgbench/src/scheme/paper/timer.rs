//! A timer finer than the runtime's, which counts milliseconds: rounds are half of one apart.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd, RawFd},
    time::Duration,
};

use nix::sys::{
    time::TimeSpec,
    timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
};
use tokio::io::{Interest, unix::AsyncFd};

use super::host::LEAST_WAIT;

/// The kernel's timer.
pub(super) struct Timer(AsyncFd<Fd>);

struct Fd(TimerFd);

impl AsRawFd for Fd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Timer {
    /// Makes a timer that is not set. Call it within a runtime.
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let fd = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        // SAFETY: the descriptor is open, belongs to `Fd` alone, which never gives it away, and is
        // closed only with it.
        let fd = unsafe { AsyncFd::register_with_interest(Fd(fd), Interest::READABLE) }?;
        Ok(Self(fd))
    }

    /// Has it expire once after `wait`, or never, and no more when it was to before.
    pub(super) fn set(&self, wait: Option<Duration>) {
        let timer = &self.0.get_ref().0;
        let flags = TimerSetTimeFlags::empty();
        // Neither fails for a timer that is open.
        let _ = match wait {
            Some(wait) => {
                let wait = TimeSpec::from_duration(wait.max(LEAST_WAIT));
                timer.set(Expiration::OneShot(wait), flags)
            }
            None => timer.unset(),
        };
    }

    /// Waits until it expires.
    pub(super) async fn expired(&self) -> io::Result<()> {
        loop {
            let mut ready = self.0.readable().await?;
            ready.clear_ready();
            // It may have been set again since the kernel woke us.
            if ready.get_inner().0.wait().is_ok() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::{runtime, time::timeout};

    use super::*;

    #[test]
    fn timer_expires_once_when_it_was_last_set_to() -> io::Result<()> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let timer = Timer::new()?;
            let start = Instant::now();
            timer.set(Some(Duration::from_secs(3_600)));
            timer.set(Some(Duration::from_millis(5)));
            timer.expired().await?;
            assert!(start.elapsed() >= Duration::from_millis(5));
            let again = timeout(Duration::from_millis(50), timer.expired()).await;
            assert!(again.is_err(), "it expired a second time");
            timer.set(Some(Duration::ZERO));
            timer.expired().await?;
            timer.set(Some(Duration::from_millis(1)));
            timer.set(None);
            let never = timeout(Duration::from_millis(50), timer.expired()).await;
            assert!(never.is_err(), "it was not set");
            Ok(())
        })
    }
}
