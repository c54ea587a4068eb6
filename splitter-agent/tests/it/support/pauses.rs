//! How long packets stay away while something is done to their way.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flow_testbed::topology::Host;

/// Within this a class has left a dead tunnel.
pub(crate) const FAILOVER: Duration = Duration::from_secs(1);
/// From one packet of a flow to the next.
pub(crate) const PERIOD: Duration = Duration::from_millis(10);

/// Packets of the short class from one host to the other over `count` ports, one every
/// [`PERIOD`] on each: the longest pause of each at the receiver while `meanwhile` goes on.
pub(crate) fn longest_pauses(
    [from, to]: [&Host; 2],
    count: usize,
    meanwhile: impl FnOnce(),
) -> Vec<Duration> {
    let (senders, receivers) = (bind(from, count), bind(to, count));
    for (sender, receiver) in senders.iter().zip(&receivers) {
        let address = receiver.local_addr().expect("it has one");
        sender.connect(address).expect("an address");
        receiver.set_nonblocking(true).expect("a setting");
    }
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                for sender in &senders {
                    // A router without a way says so; the next one may find it.
                    let _ = sender.send(b"x");
                }
                std::thread::sleep(PERIOD);
            }
        });
        let watching = scope.spawn(|| {
            let mut pauses = vec![(Instant::now(), Duration::ZERO); count];
            while !ended.load(Ordering::Relaxed) {
                for (receiver, (last, longest)) in receivers.iter().zip(&mut pauses) {
                    if receiver.recv(&mut [0; 8]).is_ok() {
                        *longest = last.elapsed().max(*longest);
                        *last = Instant::now();
                    }
                }
                std::thread::sleep(PERIOD / 10);
            }
            let pauses = pauses.into_iter();
            pauses
                .map(|(last, longest)| last.elapsed().max(longest))
                .collect()
        });
        meanwhile();
        ended.store(true, Ordering::Relaxed);
        watching.join().expect("no panic")
    })
}

/// The same of a single flow.
pub(crate) fn longest_pause(ends: [&Host; 2], meanwhile: impl FnOnce()) -> Duration {
    longest_pauses(ends, 1, meanwhile)[0]
}

fn bind(host: &Host, count: usize) -> Vec<UdpSocket> {
    let bind = |_| UdpSocket::bind((host.ipv4, 0)).expect("a port");
    let sockets = || (0..count).map(bind).collect();
    host.namespace.enter(sockets).expect("it exists")
}
