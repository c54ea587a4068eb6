//! A scheme's server on a thread of its own, so that its CPU time can be measured.

use std::{net::Ipv4Addr, sync::Arc, thread::JoinHandle, time::Duration};

use anyhow::{Context as _, Result, anyhow};
use flow_testbed::namespace::{Namespace, NamespaceError};
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::{TimeVal, TimeValLike as _},
};
use tokio::{
    runtime,
    sync::{mpsc, oneshot},
    task::LocalSet,
};

use crate::scheme::Scheme;

/// A server that answers until this value is dropped.
pub struct Server {
    /// Requests for the CPU time, each with a channel for the answer. The thread ends when this is
    /// gone.
    questions: Option<mpsc::UnboundedSender<oneshot::Sender<Duration>>>,
    thread: Option<JoinHandle<Result<(), NamespaceError>>>,
}

impl Server {
    /// Starts a server of `scheme` in `namespace`; it listens when this returns.
    ///
    /// # Errors
    /// When there can be no thread, or it cannot listen.
    pub fn start(
        scheme: &Arc<dyn Scheme>,
        namespace: &Namespace,
        address: Ipv4Addr,
    ) -> Result<Self> {
        let (questions, mut asked) = mpsc::unbounded_channel::<oneshot::Sender<Duration>>();
        let (ready, is_ready) = oneshot::channel();
        let own = Arc::clone(scheme);
        let work = async move || {
            match own.serve(address).await {
                Ok(serving) => {
                    tokio::task::spawn_local(serving);
                    let _ = ready.send(Ok(()));
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                }
            }
            while let Some(reply) = asked.recv().await {
                let _ = reply.send(thread_cpu_time());
            }
        };
        let thread = namespace.spawn(move || {
            match runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => LocalSet::new().block_on(&runtime, work()),
                // It is not ready then, and that is reported below.
                Err(error) => eprintln!("cannot make a runtime: {error}"),
            }
        })?;
        let started = is_ready.blocking_recv();
        let started = started.unwrap_or_else(|_| Err(anyhow!("its thread has ended")));
        started.with_context(|| {
            format!("cannot start the server of {} on {address}", scheme.name())
        })?;
        Ok(Self {
            questions: Some(questions),
            thread: Some(thread),
        })
    }

    /// CPU time that the server has taken: user and system time of its thread, which is all of its
    /// work. The kernel also charges to it what it does for the rig on the way, when the thread sends:
    /// the routers run in the sender's context. That is alike for all schemes.
    ///
    /// # Errors
    /// When its thread has ended.
    pub async fn cpu_time(&self) -> Result<Duration> {
        let (reply, answer) = oneshot::channel();
        if let Some(questions) = &self.questions {
            let _ = questions.send(reply);
        }
        answer.await.context("the server's thread has ended")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.questions.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed.
            let _ = thread.join();
        }
    }
}

fn thread_cpu_time() -> Duration {
    let duration = |time: TimeVal| {
        Duration::from_micros(u64::try_from(time.num_microseconds()).unwrap_or_default())
    };
    getrusage(UsageWho::RUSAGE_THREAD)
        .map(|usage| duration(usage.user_time()) + duration(usage.system_time()))
        .unwrap_or_default()
}
