//! The thread that speaks with the kernel.
//!
//! The kernel works a request off within the system call that sends it, on a socket that does not block as well, and for
//! most requests it takes its one lock for all of routing (RTNL). On a host on which devices and namespaces come and go
//! somebody else has that for tenths of a second. A task that sent by itself would keep all others of its thread waiting:
//! those, too, that answer the other border's probes.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{self, SyncSender};
use std::thread;

use caps::{CapSet, Capability};
use netlink_packet_route::RouteNetlinkMessage;
use rtnetlink::Handle;
use rtnetlink::proto::Connection;
use rtnetlink::sys::{AsyncSocket as _, TokioSocket};
use tokio::runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::{NetlinkError, RightsError, keep_rights};

/// The thread, as long as somebody has this.
#[derive(Debug)]
pub(crate) struct Speaker {
    jobs: UnboundedSender<Job>,
}

/// A piece of work that may wait for the kernel.
type Job = Box<dyn FnOnce() + Send>;

/// A thread that speaks, and what it is spoken to by.
#[derive(Debug)]
pub(crate) struct Spoken {
    pub(crate) speaker: Speaker,
    pub(crate) handle: Handle,
    /// The number by which the kernel knows the connection.
    pub(crate) port: u32,
}

type Opened = (Handle, u32);

impl Speaker {
    /// Starts the thread, which has the network namespace of this one, and of its rights the one that routing takes.
    pub(crate) fn start() -> Result<Spoken, NetlinkError> {
        let (tell, told) = mpsc::sync_channel(1);
        let (jobs, work) = unbounded_channel();
        let thread = thread::Builder::new().name("netlink".to_owned());
        let started = thread.spawn(move || speak(&tell, work));
        started.map_err(NetlinkError::Thread)?;
        let gone = |_| NetlinkError::Thread(io::Error::other("it has ended"));
        let (handle, port) = told.recv().map_err(gone)??;
        Ok(Spoken {
            speaker: Self { jobs },
            handle,
            port,
        })
    }

    /// Has the thread do something that may wait for the kernel, after what it was to do before; `None` where it does not
    /// come to the end of that.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (tell, told) = oneshot::channel();
        // Who does not wait any more needs no answer.
        let job = move || drop(tell.send(work()));
        self.jobs.send(Box::new(job)).ok()?;
        told.await.ok()
    }
}

/// Drives a connection until nobody wants it any more.
fn speak(tell: &SyncSender<Result<Opened, NetlinkError>>, mut work: UnboundedReceiver<Job>) {
    keep_one_right();
    let started = runtime::Builder::new_current_thread().enable_io().build();
    // Who does not hear how it went has gone.
    match started {
        Err(error) => drop(tell.send(Err(NetlinkError::Thread(error)))),
        Ok(runtime) => runtime.block_on(async {
            match open() {
                Err(error) => drop(tell.send(Err(NetlinkError::Open(error)))),
                Ok((connection, opened)) => {
                    let _ = tell.send(Ok(opened));
                    let connection = tokio::spawn(connection);
                    while let Some(job) = work.recv().await {
                        // Who waits for it hears that there is no answer, and others go on.
                        let _ = panic::catch_unwind(AssertUnwindSafe(job));
                    }
                    connection.abort();
                }
            }
        }),
    }
}

fn open() -> io::Result<(Connection<RouteNetlinkMessage, TokioSocket>, Opened)> {
    // Strict checking makes the kernel filter listings by table, instead of handing over a
    // full BGP table to find two of ours.
    let (mut connection, handle, _) = rtnetlink::new_connection_with_strict_check()?;
    // An answer counts as complete only when its end was seen.
    connection.set_forward_ack(true);
    connection.set_forward_done(true);
    let socket = connection.socket_mut().socket_mut();
    socket.set_ext_ack(true)?;
    socket.set_cap_ack(true)?;
    let port = socket.bind_auto()?.port_number();
    Ok((connection, (handle, port)))
}

/// Gives up what of this thread's rights routing does not take. Threads have rights of their own: those that the program
/// gives up later would stay with this one.
fn keep_one_right() {
    let permitted = match caps::read(None, CapSet::Permitted) {
        Ok(permitted) if permitted.is_empty() => return,
        read => read.map_err(RightsError::from),
    };
    let needed = |it: &Capability| *it == Capability::CAP_NET_ADMIN;
    let given_up = permitted.and_then(|it| keep_rights(&it.into_iter().filter(needed).collect()));
    if let Err(error) = given_up {
        tracing::warn!(event = "rights_kept", %error, "a thread that asks the kernel has more rights than it needs");
    }
}

#[cfg(test)]
mod tests;
