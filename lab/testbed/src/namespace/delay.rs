//! A cable that takes its time.
//!
//! Kernels need not have netem, so the delay is made by hand: each end of the cable is a TUN device,
//! and a thread for each direction reads packets at one end and writes them at the other one when
//! they are due. Packets keep their order, and none is lost while the far device is up.

use std::{
    collections::VecDeque,
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    mem,
    os::{
        fd::{AsFd as _, AsRawFd as _},
        unix::fs::OpenOptionsExt as _,
    },
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::{
    libc,
    poll::{PollFd, PollFlags, ppoll},
    sys::{prctl, time::TimeSpec},
};

use super::{Namespace, NamespaceError};

/// The device that makes TUN devices.
pub const TUN: &str = "/dev/net/tun";

/// Longer than any packet that a device of the testbed sends.
const PACKET_BYTES: usize = 2048;
/// How many packets are read before those that are due are looked after again.
const READS_AT_ONCE: usize = 64;
/// How soon a direction sees that the cable is gone.
const STOP_CHECK: Duration = Duration::from_millis(20);
/// What a device holds while its thread is not running. The default, 500 packets, is 20 ms at
/// 300 Mbit/s, which a busy machine may take away.
const DEVICE_QUEUE_PACKETS: u32 = 10_000;

nix::ioctl_write_ptr_bad!(
    /// Binds an open TUN descriptor to a device.
    set_interface,
    nix::request_code_write!(b'T', 202, size_of::<libc::c_int>()),
    libc::ifreq
);

/// A cable with a delay. It and its devices are there as long as this value is.
#[derive(Debug)]
pub struct DelayLine {
    stop: Arc<AtomicBool>,
    directions: Vec<JoinHandle<()>>,
}

impl Drop for DelayLine {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for direction in self.directions.drain(..) {
            // A panic of the thread has been printed; there is no more to do about it here.
            let _ = direction.join();
        }
    }
}

impl Namespace {
    /// Like [`connect`](Self::connect), but every packet takes `delay` to the other end. The devices
    /// carry IP packets alone: they have no hardware addresses, and need no neighbours. A packet may
    /// be late by some 0.1 ms, more on a machine that is busy.
    ///
    /// # Errors
    /// [`NamespaceError::Delay`] without root or `/dev/net/tun`.
    pub fn connect_delayed(
        &self,
        device: &str,
        far: &Namespace,
        far_device: &str,
        delay: Duration,
    ) -> Result<DelayLine, NamespaceError> {
        let [near_end, far_end] = [(self, device), (far, far_device)].map(|(namespace, device)| {
            let made = namespace.enter(|| make_tun(device))?;
            let end = made.map_err(|source| namespace.delay_error(device, source))?;
            namespace.run(&format!(
                "ip link set {device} txqueuelen {DEVICE_QUEUE_PACKETS}"
            ))?;
            Ok::<_, NamespaceError>(Arc::new(end))
        });
        let ends = [near_end?, far_end?];
        let mut line = DelayLine {
            stop: Arc::new(AtomicBool::new(false)),
            directions: Vec::new(),
        };
        for (from, to) in [(0, 1), (1, 0)] {
            let (from, to) = (Arc::clone(&ends[from]), Arc::clone(&ends[to]));
            let stop = Arc::clone(&line.stop);
            let thread = thread::Builder::new()
                .name(format!("delay-{device}"))
                .spawn(move || Direction::new(delay).carry(&from, &to, &stop))
                .map_err(|source| self.delay_error(device, source))?;
            line.directions.push(thread);
        }
        Ok(line)
    }

    fn delay_error(&self, device: &str, source: io::Error) -> NamespaceError {
        NamespaceError::Delay {
            name: self.name().to_owned(),
            device: device.to_owned(),
            source,
        }
    }
}

/// Makes a TUN device in the calling thread's namespace.
fn make_tun(device: &str) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(TUN)?;
    // SAFETY: `ifreq` is plain data, for which all zeros are a value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays zero and ends the name.
    if device.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the descriptor is open and the request lives and is initialised until the call returns.
    unsafe { set_interface(file.as_raw_fd(), &request) }?;
    Ok(file)
}

/// What is on its way in one direction.
struct Direction {
    delay: Duration,
    under_way: VecDeque<(Instant, Vec<u8>)>,
    /// Buffers to be used again.
    spare: Vec<Vec<u8>>,
}

impl Direction {
    fn new(delay: Duration) -> Self {
        Self {
            delay,
            under_way: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    fn carry(mut self, from: &File, to: &File, stop: &AtomicBool) {
        // Else the kernel wakes this thread up to 50 us late, to save power. It works without.
        let _ = prctl::set_timerslack(1);
        while !stop.load(Ordering::Relaxed) {
            self.deliver(to, Instant::now());
            self.wait(from);
            self.collect(from);
        }
    }

    /// Writes all that is due.
    fn deliver(&mut self, to: &File, now: Instant) {
        while self.under_way.front().is_some_and(|(due, _)| *due <= now)
            && let Some((_, packet)) = self.under_way.pop_front()
        {
            // What the far end refuses is lost, as on any wire: its device is down.
            let _ = (&*to).write(&packet);
            self.spare.push(packet);
        }
    }

    /// Sleeps until a packet is there or the next one is due.
    fn wait(&self, from: &File) {
        let next = self.under_way.front();
        let pause = next.map_or(STOP_CHECK, |(due, _)| {
            due.saturating_duration_since(Instant::now())
                .min(STOP_CHECK)
        });
        let mut ready = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
        // An interrupted wait is a short one.
        let _ = ppoll(&mut ready, Some(TimeSpec::from_duration(pause)), None);
    }

    /// Reads what is there.
    fn collect(&mut self, from: &File) {
        for _ in 0..READS_AT_ONCE {
            let mut packet = self.spare.pop().unwrap_or_default();
            packet.resize(PACKET_BYTES, 0);
            // It fails when there is none, and while the device is down.
            let Ok(bytes) = (&*from).read(&mut packet) else {
                self.spare.push(packet);
                break;
            };
            packet.truncate(bytes);
            self.under_way
                .push_back((Instant::now() + self.delay, packet));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        error::Error,
        net::{TcpListener, TcpStream},
    };

    use super::*;
    use crate::{require, require::Requirement::*, wait::within};

    #[test]
    fn every_packet_takes_its_time() -> Result<(), Box<dyn Error>> {
        require!(Root, Program("ip"), File(TUN) => Ok(()));
        let delay = Duration::from_millis(20);
        let one = Namespace::new("one")?;
        let two = Namespace::new("two")?;
        let line = one.connect_delayed("left", &two, "right", delay)?;
        for (namespace, device, address) in [(&one, "left", 1), (&two, "right", 2)] {
            namespace.run(&format!("ip address add 192.0.2.{address}/24 dev {device}"))?;
            namespace.run(&format!("ip link set {device} up"))?;
        }
        let _listener = two.enter(|| TcpListener::bind("192.0.2.2:7"))??;
        let begun = Instant::now();
        one.enter(|| TcpStream::connect("192.0.2.2:7"))??;
        let took = begun.elapsed();
        assert!(took >= 2 * delay, "{took:?}");
        // Lost packets would be sent again after a second.
        assert!(took < 40 * delay, "{took:?}");
        assert!(two.device_counters("right")?.sent_packets >= 1);

        drop(line);
        // The kernel removes it when the last holder has let go, on its own time.
        within(Duration::from_secs(2), "the device to be gone", || {
            one.device_counters("left").err()
        });
        Ok(())
    }
}
