//! Emulated links that do nothing but show how well this machine emulates links.
//!
//! Each is a veth pair with a token bucket that always has something to send. What arrives is
//! stamped by the kernel, so its spacing tells how late the shaper's timer was, and not when a
//! task came to read it. A timer of a queueing discipline stays on the CPU that last sent, so there
//! is one link for each of the first CPUs, fed from there.

use std::{
    net::UdpSocket,
    os::fd::AsRawFd as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use nix::{
    sched::{CpuSet, sched_setaffinity},
    sys::{
        socket::{
            ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt,
            sockopt::{ReceiveTimestampns, SndBuf},
        },
        time::TimeSpec,
    },
    unistd::Pid,
};

use crate::namespace::{Namespace, NamespaceError};

/// More would cost the machine what it is to measure.
const MOST_CPUS: usize = 2;
/// Some 500 packets a second on each link.
const WATCH_MBIT: u32 = 5;
const PAYLOAD_BYTES: usize = 1_200;
/// With the headers that a token bucket counts on Ethernet.
const FRAME_BYTES: u32 = 1_242;
/// What a sender's socket holds: more than the sender may be late by.
const SOCKET_BYTES: usize = 250_000;
/// More than a socket's buffer can hold, which the kernel takes twice as large as it is told to
/// (socket(7), `SO_SNDBUF`): so the queue is never full, and a sender that has filled its buffer
/// sleeps. With a smaller one nothing would stop it: what the queue drops leaves the buffer.
const QUEUE_BYTES: usize = 2 * SOCKET_BYTES;
/// How soon a thread sees that its link is to end.
const STOP_CHECK: Duration = Duration::from_millis(20);
/// What a link may lose of a rate that it is said to carry.
const CARRIED_SHARE: f64 = 0.97;
/// How much traffic tells whether a rate is carried.
const CALIBRATION: Duration = Duration::from_millis(200);

/// Tells whether an emulated link keeps this rate and its spacing now.
pub(crate) fn is_carried(mbit: u32) -> bool {
    let Ok(link) = Link::start(mbit, None) else {
        // No root: then nothing is emulated either.
        return true;
    };
    thread::sleep(CALIBRATION);
    let spacing = link.end();
    // A queue of 1 ms at the rate under test is what a late timer empties.
    spacing.is_some_and(|it| {
        it.shortfall < 1.0 - CARRIED_SHARE
            && it.late < Duration::from_secs_f64(0.1 / f64::from(mbit))
    })
}

/// How well links kept their rate and spacing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spacing {
    /// The longest by which a packet was later than its spacing.
    pub(super) late: Duration,
    /// The share of the rate that was lost.
    pub(super) shortfall: f64,
}

/// One link for each of the first CPUs.
pub(super) struct Witness {
    links: Vec<Link>,
}

impl Witness {
    /// Starts the links; none without the right to make namespaces.
    pub(super) fn start() -> Option<Self> {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let links = (0..cpus.min(MOST_CPUS)).map(|cpu| Link::start(WATCH_MBIT, Some(cpu)));
        let links = links.collect::<Result<_, _>>().ok()?;
        Some(Self { links })
    }

    /// Ends the links; the worst of what they saw.
    pub(super) fn end(self) -> Option<Spacing> {
        self.links
            .into_iter()
            .filter_map(Link::end)
            .reduce(|one, other| Spacing {
                late: one.late.max(other.late),
                shortfall: one.shortfall.max(other.shortfall),
            })
    }
}

/// A shaped link whose queue is never empty.
struct Link {
    ended: Arc<AtomicBool>,
    /// Returns how many packets it sent.
    sender: JoinHandle<Result<usize, NamespaceError>>,
    receiver: JoinHandle<Vec<Duration>>,
    mbit: u32,
}

impl Link {
    fn start(mbit: u32, cpu: Option<usize>) -> Result<Self, NamespaceError> {
        let [from, to] = shaped_pair(mbit)?;
        let bind = |namespace: &Namespace, address: &str| {
            namespace.enter(|| UdpSocket::bind((address, 0)).expect("its own address"))
        };
        let (sender, receiver) = (bind(&from, "192.0.2.1")?, bind(&to, "192.0.2.2")?);
        sender
            .connect(receiver.local_addr().expect("it is bound"))
            .expect("an address of the same network");
        setsockopt(&sender, SndBuf, &SOCKET_BYTES).expect("a size");
        setsockopt(&receiver, ReceiveTimestampns, &true).expect("a setting");
        sender
            .set_write_timeout(Some(STOP_CHECK))
            .expect("a setting");
        receiver
            .set_read_timeout(Some(STOP_CHECK))
            .expect("a setting");
        let ended = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&ended);
        let feeding = from.spawn(move || {
            if let Some(cpu) = cpu {
                pin(cpu);
            }
            let mut sent = 0;
            while !stop.load(Ordering::Relaxed) {
                sent += usize::from(sender.send(&[7; PAYLOAD_BYTES]).is_ok());
            }
            sent
        })?;
        let stop = Arc::clone(&ended);
        let receiving = thread::spawn(move || {
            // Alive as long as its devices are needed.
            let _to = to;
            arrivals(&receiver, &stop)
        });
        Ok(Self {
            ended,
            sender: feeding,
            receiver: receiving,
            mbit,
        })
    }

    fn end(self) -> Option<Spacing> {
        self.ended.store(true, Ordering::Relaxed);
        let _ = self.sender.join();
        let arrivals = self.receiver.join().ok()?;
        spacing(&arrivals, self.mbit)
    }
}

fn shaped_pair(mbit: u32) -> Result<[Namespace; 2], NamespaceError> {
    let pair = [Namespace::new("witness")?, Namespace::new("witness")?];
    let [from, to] = &pair;
    from.connect("wit0", to, "wit0")?;
    for (namespace, own, other) in [(from, 1, 2), (to, 2, 1)] {
        namespace.run_with_input(
            "ip -batch -",
            &format!(
                "link set dev wit0 address 02:00:00:00:00:0{own} up\n\
                 address add 192.0.2.{own}/24 dev wit0\n\
                 neighbour replace 192.0.2.{other} lladdr 02:00:00:00:00:0{other} dev wit0 nud permanent\n"
            ),
        )?;
    }
    from.run(&format!(
        "tc qdisc add dev wit0 root tbf rate {mbit}mbit burst 3100 limit {QUEUE_BYTES}"
    ))?;
    Ok(pair)
}

fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    // Where it cannot be pinned it measures the CPU that it is on.
    let _ = set
        .set(cpu)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
}

/// When the kernel received each datagram.
fn arrivals(receiver: &UdpSocket, stop: &AtomicBool) -> Vec<Duration> {
    let mut arrivals = Vec::new();
    let mut space = nix::cmsg_space!(TimeSpec);
    while !stop.load(Ordering::Relaxed) {
        let received = recvmsg::<SockaddrStorage>(
            receiver.as_raw_fd(),
            &mut [],
            Some(&mut space),
            MsgFlags::empty(),
        );
        let Ok(received) = received else { continue };
        let stamp = received.cmsgs().ok().and_then(|mut all| {
            all.find_map(|it| match it {
                ControlMessageOwned::ScmTimestampns(stamp) => Some(stamp),
                _ => None,
            })
        });
        arrivals.extend(stamp.map(Duration::from));
    }
    arrivals
}

/// What arrivals on a link of this rate, which always had something to send, say of it.
fn spacing(arrivals: &[Duration], mbit: u32) -> Option<Spacing> {
    // The first ones were sent at once, for the bucket was full.
    let arrivals = arrivals.get(4..)?;
    let each = Duration::from_secs_f64(f64::from(FRAME_BYTES) * 8.0 / (f64::from(mbit) * 1e6));
    let gaps = arrivals
        .iter()
        .zip(arrivals.get(1..)?)
        .map(|(before, now)| now.saturating_sub(*before));
    let late = gaps.max()?.saturating_sub(each);
    let elapsed = arrivals.last()?.saturating_sub(*arrivals.first()?);
    let carried = each.as_secs_f64() * (arrivals.len() - 1) as f64;
    Some(Spacing {
        late,
        shortfall: (1.0 - carried / elapsed.as_secs_f64()).max(0.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{require, require::Requirement::*};

    #[test]
    fn pause_of_a_shaper_is_lateness_and_shortfall() {
        let each = f64::from(FRAME_BYTES) * 8.0 / 5e6;
        let at = |number: u32, pause: f64| {
            Duration::from_secs_f64(
                f64::from(number) * each + if number > 50 { pause } else { 0.0 },
            )
        };
        let arrivals = |pause: f64| (0..100).map(|it| at(it, pause)).collect::<Vec<_>>();
        let even = spacing(&arrivals(0.0), 5).expect("enough");
        assert!(even.late < Duration::from_micros(1), "{even:?}");
        assert!(even.shortfall < 0.001, "{even:?}");
        let paused = spacing(&arrivals(0.02), 5).expect("enough");
        assert!(paused.late.abs_diff(Duration::from_millis(20)) < Duration::from_micros(1));
        assert!((0.08..0.1).contains(&paused.shortfall), "{paused:?}");
        assert_eq!(spacing(&[], 5), None);
    }

    #[test]
    fn sender_sleeps_while_its_queue_is_full() {
        require!(Root, Program("ip"), Program("tc"), Program("ethtool"));
        require!(QueueingDiscipline("tbf rate 1mbit burst 3100 limit 9000"));
        let link = Link::start(WATCH_MBIT, None).expect("root");
        thread::sleep(Duration::from_millis(300));
        link.ended.store(true, Ordering::Relaxed);
        let sent = link.sender.join().expect("no panic").expect("a namespace");
        let arrived = link.receiver.join().expect("no panic").len();
        let queued = QUEUE_BYTES / FRAME_BYTES as usize;
        assert!(arrived > 0 && sent <= arrived + queued, "{sent} {arrived}");
    }

    #[test]
    fn links_are_watched_on_each_cpu() {
        require!(Root, Program("ip"), Program("tc"), Program("ethtool"));
        require!(QueueingDiscipline("tbf rate 1mbit burst 3100 limit 9000"));
        let witness = Witness::start().expect("root");
        thread::sleep(Duration::from_millis(500));
        let spacing = witness.end().expect("some packets arrived");
        println!("{spacing:?}");
        assert!((0.0..1.0).contains(&spacing.shortfall), "{spacing:?}");
    }
}
