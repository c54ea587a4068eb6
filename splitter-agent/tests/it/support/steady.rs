//! A steady stream of datagrams from site to site, of which each one counts.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::site::Site;

/// Often enough that some are on their way whenever something changes.
const PAUSE: Duration = Duration::from_micros(300);
/// What has not come by then is lost.
const LAST: Duration = Duration::from_secs(2);

/// What became of a stream.
#[derive(Debug)]
pub(crate) struct Steady {
    pub(crate) sent: u32,
    /// The numbers of those that did not arrive.
    pub(crate) lost: Vec<u32>,
}

/// Sends numbered datagrams from the client to the server while `work` lasts.
pub(crate) fn steady_meanwhile(site: &Site, work: impl FnOnce()) -> Steady {
    let [near, far] = [&site.topology.client, &site.topology.server].map(|host| {
        let socket = host.namespace.enter(|| UdpSocket::bind((host.ipv4, 0)));
        socket.expect("it exists").expect("a port")
    });
    near.connect(far.local_addr().expect("it has one"))
        .expect("a route");
    far.set_read_timeout(Some(LAST)).expect("a setting");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(&far, &over));
        let sending = scope.spawn(|| send(&near, &over));
        {
            // Also where `work` panics.
            let _ending = Ending(&over);
            work();
        }
        let sent = sending.join().expect("no panic");
        let arrived = receiving.join().expect("no panic");
        let lost = (0..sent).filter(|it| !arrived.contains(it)).collect();
        Steady { sent, lost }
    })
}

/// Makes these changes with `ip route` over and over for five seconds, of which a steady stream must not
/// notice anything.
pub(crate) fn lose_nothing_while_routes_change(site: &Site, changes: &[String]) {
    let end = Instant::now() + Duration::from_secs(5);
    let mut rounds = 0;
    let steady = steady_meanwhile(site, || {
        while Instant::now() < end {
            for change in changes {
                ip_route(site, change);
                // Some changes are looked at by themselves, and some together.
                std::thread::sleep(Duration::from_millis(rounds % 4 * 15));
            }
            rounds += 1;
        }
    });
    assert!(steady.sent > 2_000 && rounds > 3, "{rounds}: {steady:?}");
    assert!(steady.lost.is_empty(), "{rounds} rounds: {steady:?}");
}

/// Changes a route of the border.
pub(crate) fn ip_route(site: &Site, change: &str) {
    let line = format!("ip route {change}");
    site.border().run(&line).expect(change);
}

struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn send(near: &UdpSocket, over: &AtomicBool) -> u32 {
    let mut sent = 0_u32;
    while !over.load(Ordering::Relaxed) {
        near.send(&sent.to_be_bytes()).expect("it is sent");
        sent += 1;
        std::thread::sleep(PAUSE);
    }
    sent
}

fn receive(far: &UdpSocket, over: &AtomicBool) -> BTreeSet<u32> {
    let mut arrived = BTreeSet::new();
    let mut datagram = [0; 4];
    loop {
        match far.recv(&mut datagram) {
            Ok(_) => drop(arrived.insert(u32::from_be_bytes(datagram))),
            Err(_) if over.load(Ordering::Relaxed) => return arrived,
            Err(_) => {}
        }
    }
}
