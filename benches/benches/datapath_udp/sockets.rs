//! Sockets without the library: one datagram a call, and as many as quinn-udp takes.

use std::{
    io::{ErrorKind, IoSliceMut},
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    os::fd::AsFd as _,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};

use super::{DATAGRAM_BYTES, Measured, core_time, pin};

/// Buffers of a call, and bytes of one: those that the library has.
const BUFFERS: usize = 8;
const BUFFER_BYTES: usize = 1 << 16;
/// Buffers of a socket, as the library asks for.
const SOCKET_BYTES: usize = 4 << 20;
/// Most bytes of a call: what a UDP length field can state, less headers (IPv6).
const TRAIN_BYTES: usize = 65_487;

/// From a loop of sendto to a loop of recv.
pub(crate) fn plain(cores: [usize; 2], duration: Duration) -> Measured {
    let receiver = bound();
    let address = receiver.local_addr().expect("it is bound");
    receiver
        .set_read_timeout(Some(Duration::from_millis(50)))
        .expect("the time is not 0");
    let send = move |stop: &AtomicBool| {
        let socket = bound();
        let (datagram, mut sent) = ([7; DATAGRAM_BYTES], 0);
        while !stop.load(Ordering::Relaxed) {
            // What does not fit is lost, as on a link.
            sent += u64::from(socket.send_to(&datagram, address).is_ok());
        }
        (sent, sent)
    };
    let receive = move |until: Instant| {
        let (mut buffer, mut count) = ([0; 2_048], 0);
        while Instant::now() < until {
            count += u64::from(receiver.recv(&mut buffer).is_ok());
        }
        count
    };
    both(cores, duration, send, receive)
}

/// The same by trains of datagrams and several buffers a call.
pub(crate) fn quinn(cores: [usize; 2], duration: Duration) -> Measured {
    let socket = bound();
    let address = socket.local_addr().expect("it is bound");
    let send = move |stop: &AtomicBool| send_trains(address, stop);
    let receive = move |until: Instant| receive_trains(&socket, until);
    both(cores, duration, send, receive)
}

fn bound() -> UdpSocket {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback is there")
}

/// A socket that is prepared as the library's are.
fn prepared(socket: &UdpSocket) -> UdpSocketState {
    let state = UdpSocketState::new(UdpSockRef::from(socket)).expect("Linux has all it takes");
    // What the system gives less is given less to the library, too.
    let _ = state.set_send_buffer_size(UdpSockRef::from(socket), SOCKET_BYTES);
    let _ = state.set_recv_buffer_size(UdpSockRef::from(socket), SOCKET_BYTES);
    state
}

/// Datagrams, and calls.
fn send_trains(destination: SocketAddr, stop: &AtomicBool) -> (u64, u64) {
    let socket = bound();
    let state = prepared(&socket);
    let datagrams = state.max_gso_segments().min(TRAIN_BYTES / DATAGRAM_BYTES);
    let contents = vec![7; datagrams * DATAGRAM_BYTES];
    let transmit = Transmit {
        destination,
        ecn: None,
        contents: &contents,
        segment_size: Some(DATAGRAM_BYTES),
        src_ip: None,
    };
    let (mut sent, mut calls) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        match state.try_send(UdpSockRef::from(&socket), &transmit) {
            Ok(()) => (sent, calls) = (sent + datagrams as u64, calls + 1),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait(&socket, PollFlags::POLLOUT)
            }
            Err(error) => panic!("cannot send: {error}"),
        }
    }
    (sent, calls)
}

fn receive_trains(socket: &UdpSocket, until: Instant) -> u64 {
    let state = prepared(socket);
    let mut memory = vec![0; BUFFERS * BUFFER_BYTES];
    let mut metas = [RecvMeta::default(); BUFFERS];
    let mut count = 0;
    while Instant::now() < until {
        let mut rest = memory.chunks_mut(BUFFER_BYTES);
        let mut slices: [IoSliceMut<'_>; BUFFERS] =
            std::array::from_fn(|_| IoSliceMut::new(rest.next().unwrap_or_default()));
        match state.recv(UdpSockRef::from(socket), &mut slices, &mut metas) {
            Ok(filled) => {
                let datagrams = metas[..filled]
                    .iter()
                    .map(|it| it.len.div_ceil(it.stride.max(1)));
                count += datagrams.sum::<usize>() as u64;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait(socket, PollFlags::POLLIN),
            Err(error) => panic!("cannot receive: {error}"),
        }
    }
    count
}

/// Waits until something can be done, 50 ms at most.
fn wait(socket: &UdpSocket, what: PollFlags) {
    let mut sockets = [PollFd::new(socket.as_fd(), what)];
    let _ = poll(&mut sockets, PollTimeout::from(50_u8));
}

/// Runs both ends on their cores. `send` returns datagrams and calls, `receive` datagrams.
fn both(
    cores: [usize; 2],
    duration: Duration,
    send: impl FnOnce(&AtomicBool) -> (u64, u64) + Send,
    receive: impl FnOnce(Instant) -> u64 + Send,
) -> Measured {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            pin(cores[0]);
            (send(&stop), core_time().as_secs_f64())
        });
        let receiver = scope.spawn(|| {
            pin(cores[1]);
            let start = Instant::now();
            let count = receive(start + duration) as f64;
            (
                count,
                start.elapsed().as_secs_f64(),
                core_time().as_secs_f64(),
            )
        });
        let (count, seconds, receiving_s) = receiver.join().expect("the receiver ends");
        stop.store(true, Ordering::Relaxed);
        let ((sent, calls), sending_s) = sender.join().expect("the sender ends");
        Measured {
            per_s: count / seconds,
            // The sender does not wait for anybody: what it sent is what it can.
            per_core_s: [sent as f64 / sending_s, count / receiving_s],
            sent_per_needed: sent as f64 / count,
            sent_per_call: sent as f64 / calls as f64,
        }
    })
}
