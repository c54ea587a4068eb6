//! A timer finer than the runtime's, which counts milliseconds: within a data
//! centre a round trip is a tenth of one.

use std::{io, task::Context};

use cloudburst_proto::Time;

/// Wakes the task that polls it.
#[derive(Debug)]
pub(super) enum Timer {
    /// The kernel's, where we know how to ask for one.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    Kernel(kernel::Timer),
    /// The runtime's, which follows its clock.
    Runtime(runtime::Timer),
}

impl Timer {
    /// The finest that there is.
    pub(super) fn new() -> io::Result<Self> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let timer = Self::Kernel(kernel::Timer::new()?);
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let timer = Self::of_runtime();
        Ok(timer)
    }

    pub(super) fn of_runtime() -> Self {
        Self::Runtime(runtime::Timer::new())
    }

    /// Whether the time may have come. If not, the task is woken at `deadline` or before.
    pub(super) fn poll(
        &mut self,
        context: &mut Context<'_>,
        now: Time,
        deadline: Option<Time>,
    ) -> io::Result<bool> {
        match self {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Self::Kernel(timer) => timer.poll(context, now, deadline),
            Self::Runtime(timer) => Ok(timer.poll(context, now, deadline)),
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod kernel {
    use std::{
        io,
        os::fd::{AsFd as _, AsRawFd, RawFd},
        task::{Context, Poll},
    };

    use nix::sys::{
        time::TimeSpec,
        timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
    };
    use tokio::io::{Interest, unix::AsyncFd};

    use cloudburst_proto::Time;

    #[derive(Debug)]
    struct Fd(TimerFd);

    impl AsRawFd for Fd {
        fn as_raw_fd(&self) -> RawFd {
            self.0.as_fd().as_raw_fd()
        }
    }

    /// Wakes the task that polls it.
    #[derive(Debug)]
    pub(in super::super) struct Timer {
        fd: AsyncFd<Fd>,
        /// When the kernel will wake us. A later deadline leaves it as it is: to wake once
        /// too often is cheaper than to set it each time.
        armed: Option<Time>,
    }

    impl Timer {
        pub(in super::super) fn new() -> io::Result<Self> {
            let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
            let fd = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
            // SAFETY: the descriptor is open, belongs to `Fd` alone, which never gives it away,
            // and is closed only with it.
            let fd = unsafe { AsyncFd::register_with_interest(Fd(fd), Interest::READABLE) }?;
            Ok(Self { fd, armed: None })
        }

        /// Whether the time may have come. If not, the task is woken at `deadline` or before.
        pub(in super::super) fn poll(
            &mut self,
            context: &mut Context<'_>,
            now: Time,
            deadline: Option<Time>,
        ) -> io::Result<bool> {
            if self.armed.is_some_and(|armed| armed <= now) {
                self.armed = None;
                // That it has expired is known: else it would be set twice, and be looked at for nothing.
                if let Poll::Ready(ready) = self.fd.poll_read_ready(context) {
                    ready?.clear_ready();
                }
            }
            if let Some(deadline) = deadline {
                if deadline <= now {
                    return Ok(true);
                }
                if self.armed.is_none_or(|armed| deadline < armed) {
                    let wait = TimeSpec::from_duration(deadline.since(now));
                    let flags = TimerSetTimeFlags::empty();
                    self.fd.get_ref().0.set(Expiration::OneShot(wait), flags)?;
                    self.armed = Some(deadline);
                }
            }
            match self.fd.poll_read_ready(context) {
                // To set it again takes the expiry back: it need not be read.
                Poll::Ready(ready) => {
                    ready?.clear_ready();
                    self.armed = None;
                    Ok(true)
                }
                Poll::Pending => Ok(false),
            }
        }
    }
}

mod runtime {
    use std::{future::Future as _, pin::Pin, task::Context};

    use tokio::time::{Instant, Sleep, sleep_until};

    use cloudburst_proto::Time;

    #[derive(Debug)]
    pub(in super::super) struct Timer {
        sleep: Pin<Box<Sleep>>,
    }

    impl Timer {
        pub(super) fn new() -> Self {
            Self {
                sleep: Box::pin(sleep_until(Instant::now())),
            }
        }

        pub(super) fn poll(
            &mut self,
            context: &mut Context<'_>,
            now: Time,
            deadline: Option<Time>,
        ) -> bool {
            let Some(deadline) = deadline else {
                return false;
            };
            if deadline <= now {
                return true;
            }
            let at = Instant::now() + deadline.since(now);
            // As with the kernel's, to wake once too often is cheaper than to set it each time.
            if self.sleep.is_elapsed() || at < self.sleep.deadline() {
                self.sleep.as_mut().reset(at);
            }
            self.sleep.as_mut().poll(context).is_ready()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        task::Poll,
        time::{Duration, Instant},
    };

    use super::*;
    use cloudburst_proto::Time;

    #[tokio::test]
    async fn it_announces_no_deadline_that_is_known_to_be_over() {
        let start = Instant::now();
        let now = || Time::ZERO + start.elapsed();
        let mut timer = Timer::new().unwrap();
        let first = Time::ZERO + Duration::from_millis(5);
        let is_time = poll_fn(|context| {
            if now() < first {
                assert!(!timer.poll(context, now(), Some(first)).unwrap());
                return Poll::Pending;
            }
            let second = now() + Duration::from_secs(60);
            Poll::Ready(timer.poll(context, now(), Some(second)).unwrap())
        });
        assert!(!is_time.await);
    }

    #[tokio::test]
    async fn it_wakes_at_the_earliest_deadline() {
        wakes_in_time(Timer::new().unwrap()).await;
        wakes_in_time(Timer::of_runtime()).await;
    }

    async fn wakes_in_time(mut timer: Timer) {
        let start = Instant::now();
        let now = || Time::ZERO + start.elapsed();
        let deadlines = [3_000, 5, 2_000].map(|ms| Time::ZERO + Duration::from_millis(ms));
        poll_fn(|context| {
            let mut is_over = false;
            for deadline in deadlines {
                is_over |= timer.poll(context, now(), Some(deadline)).unwrap();
            }
            if is_over {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(5), "{took:?}");
        assert!(took < Duration::from_millis(1_500), "{took:?}");
    }
}
