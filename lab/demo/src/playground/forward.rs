//! An agent's pages, which it serves inside its namespace, at an address of this machine.

use std::{
    io,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};
use flow_testbed::{namespace::Namespace, scheme::METRICS};

/// A browser opens six, Prometheus one.
const CONNECTIONS: usize = 64;
/// A connection that is silent for so long is closed.
const SILENCE: Duration = Duration::from_secs(120);

/// An address at which an agent's pages are served, until this is dropped.
pub(super) struct Forward {
    address: SocketAddr,
    thread: Option<thread::JoinHandle<()>>,
    is_over: Arc<std::sync::atomic::AtomicBool>,
}

impl Forward {
    /// Listens at `address` of this machine for the agent in `namespace`.
    pub(super) fn start(namespace: &Namespace, address: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address).with_context(|| {
            format!("cannot serve pages at {address}; name others with --ports")
        })?;
        let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (namespace, over) = (namespace.clone(), Arc::clone(&is_over));
        let thread = thread::spawn(move || {
            let open = Arc::new(AtomicUsize::new(0));
            for near in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(near) = near else { continue };
                // Who is refused sees the connection close.
                if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS {
                    open.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                let count = Arc::clone(&open);
                // It ends with its connection, whose far end is the agent.
                let carrier = namespace.spawn(move || {
                    let _ = carry(&near);
                    count.fetch_sub(1, Ordering::Relaxed);
                });
                if carrier.is_err() {
                    open.fetch_sub(1, Ordering::Relaxed);
                }
            }
        });
        Ok(Self {
            address,
            thread: Some(thread),
            is_over,
        })
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Wakes the thread; where that fails it ends with the process.
        let woken = TcpStream::connect_timeout(&super::reachable(self.address), SILENCE);
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

/// Copies both ways until both have ended, in the namespace of the calling thread.
fn carry(near: &TcpStream) -> io::Result<()> {
    let far = TcpStream::connect(SocketAddr::from(METRICS))?;
    for stream in [near, &far] {
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_nodelay(true)?;
    }
    thread::scope(|scope| {
        scope.spawn(|| copy(near, &far));
        copy(&far, near);
    });
    Ok(())
}

fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    // A reader that has gone is the end of the answer.
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use flow_testbed::{require, require::Requirement::*};

    use super::*;

    #[test]
    fn a_page_inside_is_read_outside_and_the_port_is_free_again() {
        require!(Root, Program("ip"));
        let namespace = Namespace::new("forwarded").unwrap();
        let inside = namespace
            .enter(|| TcpListener::bind(SocketAddr::from(METRICS)))
            .unwrap()
            .unwrap();
        let answers = thread::spawn(move || {
            let (mut stream, _) = inside.accept().unwrap();
            let mut question = [0; 4];
            stream.read_exact(&mut question).unwrap();
            stream.write_all(b"answer").unwrap();
            question
        });
        // Free a moment ago, and nobody else is told of it.
        let address = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let forward = Forward::start(&namespace, address).unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"ask!").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!((&*answer, &answers.join().unwrap()), ("answer", b"ask!"));
        assert!(Forward::start(&namespace, address).is_err(), "it is taken");
        drop(forward);
        TcpListener::bind(address).expect("it is free again");
    }
}
