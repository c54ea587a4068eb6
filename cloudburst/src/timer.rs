//! A timer finer than the runtime's, which counts milliseconds: within a data
//! centre a round trip is a tenth of one.

#[cfg(any(target_os = "linux", target_os = "android"))]
pub use self::kernel::SystemTimer;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub use self::tokio_timer::SystemTimer;
pub use self::tokio_timer::TokioTimer;

/// The kernel's timer, where we know how to ask for one.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod kernel {
    use std::{
        io,
        os::fd::{AsFd as _, AsRawFd, RawFd},
        task::{Context, Poll},
        time::Instant,
    };

    use nix::sys::{
        time::TimeSpec,
        timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
    };
    use tokio::io::{Interest, unix::AsyncFd};

    use crate::runtime::Timer;

    #[derive(Debug)]
    struct Fd(TimerFd);

    impl AsRawFd for Fd {
        fn as_raw_fd(&self) -> RawFd {
            self.0.as_fd().as_raw_fd()
        }
    }

    /// A timer of the kernel, which is as fine as its clock: that of [`TokioRuntime`](crate::runtime::TokioRuntime).
    #[derive(Debug)]
    pub struct SystemTimer {
        fd: AsyncFd<Fd>,
        /// When the kernel will wake us. A later deadline leaves it as it is: to wake once
        /// too often is cheaper than to set it each time.
        armed: Option<Instant>,
    }

    impl SystemTimer {
        pub(crate) fn new() -> io::Result<Self> {
            let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
            let fd = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
            // SAFETY: the descriptor is open, belongs to `Fd` alone, which never gives it away,
            // and is closed only with it.
            let fd = unsafe { AsyncFd::register_with_interest(Fd(fd), Interest::READABLE) }?;
            Ok(Self { fd, armed: None })
        }
    }

    impl Timer for SystemTimer {
        fn poll_deadline(
            &mut self,
            context: &mut Context<'_>,
            now: Instant,
            deadline: Option<Instant>,
        ) -> Poll<io::Result<()>> {
            if self.armed.is_some_and(|armed| armed <= now) {
                self.armed = None;
                // That it has expired is known: else it would be set twice, and be looked at for nothing.
                if let Poll::Ready(ready) = self.fd.poll_read_ready(context) {
                    ready?.clear_ready();
                }
            }
            if let Some(deadline) = deadline {
                if deadline <= now {
                    return Poll::Ready(Ok(()));
                }
                if self.armed.is_none_or(|armed| deadline < armed) {
                    let wait = TimeSpec::from_duration(deadline - now);
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
                    Poll::Ready(Ok(()))
                }
                Poll::Pending => Poll::Pending,
            }
        }
    }
}

mod tokio_timer {
    use std::{
        future::Future as _,
        io,
        pin::Pin,
        task::{Context, Poll},
        time::Instant,
    };

    use tokio::time::{Sleep, sleep_until};

    use crate::runtime::Timer;

    /// A timer of tokio, which follows its clock, also where tests stop that, and counts milliseconds.
    #[derive(Debug)]
    pub struct TokioTimer {
        sleep: Pin<Box<Sleep>>,
    }

    impl TokioTimer {
        /// Makes a timer of the runtime at hand.
        ///
        /// # Panics
        ///
        /// Without a runtime of tokio, or in one without time enabled.
        pub fn new() -> Self {
            let now = tokio::time::Instant::now();
            Self {
                sleep: Box::pin(sleep_until(now)),
            }
        }
    }

    /// The finest timer that there is: that of [`TokioRuntime`](crate::runtime::TokioRuntime).
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    #[derive(Debug)]
    pub struct SystemTimer(TokioTimer);

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    impl SystemTimer {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self(TokioTimer::new()))
        }
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    impl Timer for SystemTimer {
        fn poll_deadline(
            &mut self,
            context: &mut Context<'_>,
            now: Instant,
            deadline: Option<Instant>,
        ) -> Poll<io::Result<()>> {
            self.0.poll_deadline(context, now, deadline)
        }
    }

    impl Default for TokioTimer {
        fn default() -> Self {
            Self::new()
        }
    }

    impl Timer for TokioTimer {
        fn poll_deadline(
            &mut self,
            context: &mut Context<'_>,
            now: Instant,
            deadline: Option<Instant>,
        ) -> Poll<io::Result<()>> {
            let Some(deadline) = deadline else {
                return Poll::Pending;
            };
            if deadline <= now {
                return Poll::Ready(Ok(()));
            }
            // The clock of who asks may be another than tokio's.
            let at = tokio::time::Instant::now() + (deadline - now);
            // As with the kernel's, to wake once too often is cheaper than to set it each time.
            if self.sleep.is_elapsed() || at < self.sleep.deadline() {
                self.sleep.as_mut().reset(at);
            }
            self.sleep.as_mut().poll(context).map(Ok)
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
    use crate::runtime::Timer;

    #[tokio::test]
    async fn it_announces_no_deadline_that_is_known_to_be_over() {
        let start = Instant::now();
        let mut timer = SystemTimer::new().unwrap();
        let first = start + Duration::from_millis(5);
        let is_time = poll_fn(|context| {
            let now = Instant::now();
            if now < first {
                let waiting = timer.poll_deadline(context, now, Some(first));
                assert!(waiting.is_pending());
                return Poll::Pending;
            }
            let second = now + Duration::from_secs(60);
            Poll::Ready(timer.poll_deadline(context, now, Some(second)).is_ready())
        });
        assert!(!is_time.await);
    }

    #[tokio::test]
    async fn it_wakes_at_the_earliest_deadline() {
        wakes_in_time(SystemTimer::new().unwrap()).await;
        wakes_in_time(TokioTimer::new()).await;
    }

    async fn wakes_in_time(mut timer: impl Timer) {
        let start = Instant::now();
        let deadlines = [3_000, 5, 2_000].map(|ms| start + Duration::from_millis(ms));
        poll_fn(|context| {
            let mut is_over = false;
            for deadline in deadlines {
                let now = Instant::now();
                is_over |= timer.poll_deadline(context, now, Some(deadline)).is_ready();
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
