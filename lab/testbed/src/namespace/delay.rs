//! Cables that take their time.
//!
//! Kernels need not have netem, so delays are made by hand: each end of a cable is a TUN or TAP device,
//! and a thread for each direction reads packets at one end and writes them at the other one when
//! they are due. Packets of a cable keep their order. None is lost while the far device is up, unless
//! a [`Strand`] says so.

mod direction;

use std::{
    fs::{File, OpenOptions},
    io, mem,
    os::{fd::AsRawFd as _, unix::fs::OpenOptionsExt as _},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use nix::libc;

use self::direction::Direction;
use super::{Namespace, NamespaceError};

/// The device that makes TUN and TAP devices.
pub const TUN: &str = "/dev/net/tun";

/// What a device holds while its thread is not running. The default, 500 packets, is 20 ms at
/// 300 Mbit/s, which a busy machine may take away.
const DEVICE_QUEUE_PACKETS: u32 = 10_000;

nix::ioctl_write_ptr_bad!(
    /// Binds an open TUN descriptor to a device.
    set_interface,
    nix::request_code_write!(b'T', 202, size_of::<libc::c_int>()),
    libc::ifreq
);

/// The packets that a cable carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carries {
    /// IP packets, between TUN devices.
    Ip,
    /// Ethernet frames, between TAP devices.
    Ethernet,
}

/// A cable of a bundle, the same in both directions.
#[derive(Clone, Debug, PartialEq)]
pub struct Strand {
    /// The name of its device, at both ends.
    pub device: String,
    /// The time that a packet takes, in the mean.
    pub delay: Duration,
    /// How far a packet's own time may lie from `delay`, evenly distributed on both sides, as with netem's
    /// `delay TIME JITTER`; but no packet overtakes another one of its cable.
    pub jitter: Duration,
    /// The probability that a packet is lost, from 0 to 1.
    pub loss: f64,
}

impl Strand {
    /// One that loses nothing, and whose packets all take as long.
    fn of(device: &str, delay: Duration) -> Self {
        Self {
            device: device.to_owned(),
            delay,
            jitter: Duration::ZERO,
            loss: 0.0,
        }
    }
}

/// Cables with delays. They and their devices are there as long as this value is.
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
        let strand = Strand::of(device, delay);
        self.connect_ends(far, &[(&strand, far_device)], 0, Carries::Ip)
    }

    /// Like [`connect_delayed`](Self::connect_delayed), between Ethernet devices, which have hardware addresses and
    /// need neighbours, and of which XDP programs find the headers that they look for.
    ///
    /// # Errors
    /// As [`connect_delayed`](Self::connect_delayed).
    pub fn connect_delayed_ethernet(
        &self,
        device: &str,
        far: &Namespace,
        far_device: &str,
        delay: Duration,
    ) -> Result<DelayLine, NamespaceError> {
        let strand = Strand::of(device, delay);
        self.connect_ends(far, &[(&strand, far_device)], 0, Carries::Ethernet)
    }

    /// Like [`connect_delayed`](Self::connect_delayed), with several cables, whose devices have the same names in
    /// both namespaces. Between them, too, packets arrive in the order in which they are due, however busy the
    /// machine is. `seed` decides which packets are lost and how late each is.
    ///
    /// # Errors
    /// As [`connect_delayed`](Self::connect_delayed).
    pub fn connect_bundle(
        &self,
        far: &Namespace,
        strands: &[Strand],
        seed: u64,
    ) -> Result<DelayLine, NamespaceError> {
        let strands: Vec<_> = strands.iter().map(|it| (it, it.device.as_str())).collect();
        self.connect_ends(far, &strands, seed, Carries::Ip)
    }

    /// Makes the devices of both ends, each strand with the name of its far one, and carries them.
    fn connect_ends(
        &self,
        far: &Namespace,
        strands: &[(&Strand, &str)],
        seed: u64,
        carries: Carries,
    ) -> Result<DelayLine, NamespaceError> {
        let mut directions = [Vec::new(), Vec::new()];
        for (strand, far_device) in strands {
            let near_end = self.make_end(&strand.device, carries)?;
            let far_end = far.make_end(far_device, carries)?;
            directions[0].push((*strand, Arc::clone(&near_end), Arc::clone(&far_end)));
            directions[1].push((*strand, far_end, near_end));
        }
        let mut line = DelayLine {
            stop: Arc::new(AtomicBool::new(false)),
            directions: Vec::new(),
        };
        for (number, ends) in (0..).zip(directions) {
            let name = ends.first().map_or("", |(it, ..)| it.device.as_str());
            let thread = thread::Builder::new().name(format!("delay-{name}"));
            // Streams of chance of their own, for a direction must not repeat the other one.
            let direction = Direction::new(ends, seed.wrapping_mul(2).wrapping_add(number));
            let stop = Arc::clone(&line.stop);
            let thread = thread
                .spawn(move || direction.carry(&stop))
                .map_err(|source| self.delay_error(name, source))?;
            line.directions.push(thread);
        }
        Ok(line)
    }

    fn make_end(&self, device: &str, carries: Carries) -> Result<Arc<File>, NamespaceError> {
        let made = self.enter(|| make_device(device, carries))?;
        let end = made.map_err(|source| self.delay_error(device, source))?;
        self.run(&format!(
            "ip link set {device} txqueuelen {DEVICE_QUEUE_PACKETS}"
        ))?;
        Ok(Arc::new(end))
    }

    fn delay_error(&self, device: &str, source: io::Error) -> NamespaceError {
        NamespaceError::Delay {
            name: self.name().to_owned(),
            device: device.to_owned(),
            source,
        }
    }
}

/// Makes a device in the calling thread's namespace.
fn make_device(device: &str, carries: Carries) -> io::Result<File> {
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
    let kind = match carries {
        Carries::Ip => libc::IFF_TUN,
        Carries::Ethernet => libc::IFF_TAP,
    };
    request.ifr_ifru.ifru_flags = (kind | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the descriptor is open and the request lives and is initialised until the call returns.
    unsafe { set_interface(file.as_raw_fd(), &request) }?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::{
        error::Error,
        net::{TcpListener, TcpStream},
        time::Instant,
    };

    use super::*;
    use crate::{require, require::Requirement::*, wait::within};

    #[test]
    fn every_packet_takes_its_time() -> Result<(), Box<dyn Error>> {
        require!(Root, Program("ip"), File(TUN) => Ok(()));
        for carries in [Carries::Ip, Carries::Ethernet] {
            each_takes_its_time(carries)?;
        }
        Ok(())
    }

    fn each_takes_its_time(carries: Carries) -> Result<(), Box<dyn Error>> {
        let delay = Duration::from_millis(20);
        let one = Namespace::new("one")?;
        let two = Namespace::new("two")?;
        let line = match carries {
            Carries::Ip => one.connect_delayed("left", &two, "right", delay)?,
            Carries::Ethernet => one.connect_delayed_ethernet("left", &two, "right", delay)?,
        };
        let is_ethernet = one.run("ip link show left")?.contains("link/ether");
        assert_eq!(is_ethernet, carries == Carries::Ethernet);
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
