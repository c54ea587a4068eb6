//! Times at which the kernel saw a datagram come or leave (SO_TIMESTAMPING, Documentation/networking/timestamping.rst).
//!
//! The kernel notes them by the wall clock, which may be set at any time. So each is turned at once into a time of
//! the clock that only goes on: from when it was noted to when it is read are microseconds.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::socket::sockopt::Timestamping;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, TimestampingFlag, recvmsg, setsockopt,
};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use splitter_health::{DATAGRAM_BYTES, LOST_AFTER};

/// A probe as the kernel gives it back, behind the headers that it had when it left: of Ethernet with tags, IPv6 and UDP, twice
/// where a tunnel was put around it.
const RETURNED_BYTES: usize = DATAGRAM_BYTES + 256;
/// Readings of two clocks of which the closest pair is taken.
const READINGS: usize = 4;
/// Two readings that are so close are one time.
const CLOSE: Duration = Duration::from_micros(2);

/// The clocks may run apart by a tenth of this between two probes, as fast as a daemon slews one of them (500 us a second).
const SET: Duration = Duration::from_micros(500);

/// Room for what the kernel says beside a datagram.
pub(super) type Control = [libc::timespec; 3];

/// Has the kernel note when datagrams of a socket come, and when they leave if `departures`. It reads its clock then for each
/// packet that the host receives, as it does beside a capture or a time daemon.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn request(socket: &impl AsFd, departures: bool) -> io::Result<()> {
    let mut flags = TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE
        | TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE;
    if departures {
        flags |= TimestampingFlag::SOF_TIMESTAMPING_TX_SOFTWARE;
    }
    Ok(setsockopt(socket, Timestamping, &flags)?)
}

/// The time in what the kernel says beside a datagram, by the wall clock.
pub(super) fn noted(ancillary: &ControlMessageOwned) -> Option<Duration> {
    match ancillary {
        // Zero where it had not begun to note.
        ControlMessageOwned::ScmTimestampsns(noted) => {
            duration(noted.system).filter(|it| !it.is_zero())
        }
        _ => None,
    }
}

/// How long ago a time by the wall clock was; none if it is ahead, as the clock was set back meanwhile, or too long ago to be
/// one of a datagram that has just been read.
pub(super) fn since(noted: Duration) -> Option<Duration> {
    plausible(wall_clock(), noted)
}

/// The same time by the clock that only goes on.
pub(super) fn instant(noted: Duration) -> Option<Instant> {
    let (now, wall) = both_clocks();
    now.checked_sub(plausible(wall, noted)?)
}

fn plausible(wall: Duration, noted: Duration) -> Option<Duration> {
    wall.checked_sub(noted).filter(|it| *it <= LOST_AFTER)
}

/// Notices that the wall clock was set.
#[derive(Debug)]
pub(super) struct WallClock {
    start: Instant,
    /// By how many ns it was ahead of the clock that only goes on, which began at `start`.
    ahead_ns: AtomicU64,
}

impl WallClock {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            ahead_ns: AtomicU64::new(0),
        }
    }

    /// From now on counts whether it was set.
    pub(super) fn note(&self) {
        self.ahead_ns.store(self.ahead_ns(), Ordering::Relaxed);
    }

    /// True if it was not set since then, so that times that were noted meanwhile may be told by it.
    pub(super) fn is_steady(&self) -> bool {
        let set_ns = self
            .ahead_ns()
            .abs_diff(self.ahead_ns.load(Ordering::Relaxed));
        Duration::from_nanos(set_ns) < SET
    }

    fn ahead_ns(&self) -> u64 {
        let (now, wall) = both_clocks();
        let ahead = wall.saturating_sub(now.saturating_duration_since(self.start));
        u64::try_from(ahead.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Reads the next datagram that has left and that the kernel gives back with the time of that; none when there are no more.
/// They have to be read, for they take room that what comes needs.
pub(super) fn departure(socket: &impl AsFd, take: impl FnOnce(&[u8], Instant)) -> bool {
    let mut returned = [0; RETURNED_BYTES];
    let mut parts = [IoSliceMut::new(&mut returned)];
    let mut control = nix::cmsg_space!(Control, u32, libc::sock_extended_err, libc::sockaddr_in6);
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    let descriptor = socket.as_fd().as_raw_fd();
    let message = recvmsg::<SockaddrStorage>(descriptor, &mut parts, Some(&mut control), flags);
    let Ok(message) = message else { return false };
    let ancillary = message.cmsgs().ok();
    let noted = ancillary.and_then(|mut it| it.find_map(|it| noted(&it)));
    let start = message.bytes.checked_sub(DATAGRAM_BYTES);
    let is_whole = !message.flags.contains(MsgFlags::MSG_TRUNC);
    let (end, at) = (message.bytes, noted.and_then(instant));
    if let Some(start) = start.filter(|_| is_whole)
        && let Some(at) = at
    {
        take(&returned[start..end], at);
    }
    true
}

fn wall_clock() -> Duration {
    let now = clock_gettime(ClockId::CLOCK_REALTIME).ok();
    now.and_then(duration).unwrap_or_default()
}

/// A time by both clocks: a thread that loses its processor between both readings reads them again.
fn both_clocks() -> (Instant, Duration) {
    let mut best = (Duration::MAX, Instant::now(), Duration::ZERO);
    for _ in 0..READINGS {
        let (before, wall, after) = (Instant::now(), wall_clock(), Instant::now());
        let apart = after.saturating_duration_since(before);
        if apart < best.0 {
            best = (apart, before + apart / 2, wall);
        }
        if apart <= CLOSE {
            break;
        }
    }
    (best.1, best.2)
}

fn duration(time: TimeSpec) -> Option<Duration> {
    let seconds = u64::try_from(time.tv_sec()).ok()?;
    let nanoseconds = u32::try_from(time.tv_nsec()).ok()?;
    Some(Duration::new(seconds, nanoseconds))
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::thread::sleep;

    use super::*;

    #[test]
    fn clock_that_was_set_makes_no_time() {
        let now = wall_clock();
        assert_eq!(plausible(now, now + Duration::from_nanos(1)), None);
        assert_eq!(plausible(now, now - LOST_AFTER * 2), None);
        assert_eq!(plausible(now, now), Some(Duration::ZERO));
    }

    #[test]
    fn wall_clock_that_was_set_is_noticed() {
        let clock = WallClock::new();
        clock.note();
        assert!(clock.is_steady());
        let step_ns = SET.as_nanos() as u64 + 100_000;
        for set in [u64::wrapping_add, u64::wrapping_sub] {
            let ahead_ns = clock.ahead_ns();
            clock
                .ahead_ns
                .store(set(ahead_ns, step_ns), Ordering::Relaxed);
            assert!(!clock.is_steady());
        }
        clock.note();
        assert!(clock.is_steady());
    }

    #[test]
    fn kernel_gives_back_what_has_left_with_its_time() {
        let (near, far) = (
            UdpSocket::bind("127.0.0.1:0"),
            UdpSocket::bind("127.0.0.1:0"),
        );
        let (near, far) = (near.expect("loopback"), far.expect("loopback"));
        let to = far.local_addr().expect("it is bound");
        request(&near, true).expect("Linux notes times");
        let taken = |take: &mut Vec<(Vec<u8>, Instant)>| {
            departure(&near, |bytes, at| take.push((bytes.to_vec(), at)))
        };
        let mut departures = Vec::new();
        assert!(!taken(&mut departures), "nothing was sent");
        let before = Instant::now();
        for number in [1, 2] {
            near.send_to(&[number; DATAGRAM_BYTES], to).expect("sent");
        }
        // Too short for a probe.
        near.send_to(&[3], to).expect("sent");
        let after = Instant::now();
        sleep(Duration::from_millis(30));
        assert!(taken(&mut departures) && taken(&mut departures) && taken(&mut departures));
        assert!(!taken(&mut departures), "each once");
        // The short one fills a part of the end with its headers.
        let is_probe = |(bytes, _): &&(Vec<u8>, Instant)| bytes.iter().all(|it| *it == bytes[0]);
        let probes: Vec<_> = departures.iter().filter(is_probe).collect();
        let numbers: Vec<_> = probes.iter().map(|(bytes, _)| bytes[0]).collect();
        assert_eq!(numbers, [1, 2]);
        let slack = Duration::from_millis(1);
        for (_, at) in probes {
            assert!(*at + slack >= before && *at <= after + slack, "{at:?}");
        }
    }
}
