//! Algorithm 1 of the Cloudburst paper (§III-B) to the letter: a coded packet on each path, a wait, the
//! next round, until the receiver says stop.
//!
//! The machine is that of the simulations (`lab/paper`), on UDP sockets. The client has a port for each
//! path, which routers follow as switches follow the path identifiers of the paper's testbed (§IV-B). The
//! sender sends at the rate of all paths together, which it is told: *r* is 1, as in a network without
//! oversubscription (§IV-A). Nothing is encrypted, and nobody listens to the network.

mod host;
mod timer;

use std::{
    cell::RefCell,
    collections::HashMap,
    net::{Ipv4Addr, SocketAddr},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

use anyhow::{Result, bail};
use cloudburst_proto::{Event, PeerId};
use futures_util::future::LocalBoxFuture;
use tokio::{
    sync::{mpsc, oneshot},
    task::spawn_local,
};

use self::host::Host;
use super::{
    Answer, Client, Coding, REQUEST_BYTES, Scheme, Serving,
    receipts::{self, NUMBER_BYTES, Receipts},
};
use crate::{
    rig::{Rig, explicit_ports},
    scenario::Scenario,
};

const PORT: u16 = 7_004;

/// Messages as Algorithm 1 sends them.
#[derive(Default)]
pub(super) struct Paper {
    receipts: Arc<Receipts>,
    link_bits_per_s: AtomicU64,
    dscp: AtomicU8,
}

impl Paper {
    fn host(&self, sockets: Vec<SocketSpec>) -> Result<(Rc<Host>, mpsc::UnboundedReceiver<Event>)> {
        let link_bits_per_s = self.link_bits_per_s.load(Ordering::Relaxed);
        Host::start(&sockets, self.dscp.load(Ordering::Relaxed), link_bits_per_s)
    }
}

/// A socket's own address, and the only one that it talks to.
pub(super) type SocketSpec = (SocketAddr, Option<SocketAddr>);

impl Scheme for Paper {
    fn name(&self) -> &'static str {
        "paper"
    }

    fn about(&self) -> &'static str {
        "Cloudburst's Algorithm 1 as the paper has it, at a stated rate, up to 93.4 kB"
    }

    fn is_cloudburst(&self) -> bool {
        true
    }

    fn prepare(&self, rig: &Rig, scenario: Scenario) -> Result<()> {
        let link = rig.sum_bits_per_s();
        self.dscp
            .store(scenario.cloudburst_dscp(), Ordering::Relaxed);
        self.link_bits_per_s.store(link, Ordering::Relaxed);
        Ok(())
    }

    fn serve(&self, address: Ipv4Addr) -> LocalBoxFuture<'_, Result<Serving>> {
        Box::pin(async move {
            let (host, events) = self.host(vec![((address, PORT).into(), None)])?;
            host.wait_until_ready().await?;
            Ok(Box::pin(answer_all(host, events, Arc::clone(&self.receipts))) as Serving)
        })
    }

    fn connect(&self, address: Ipv4Addr) -> LocalBoxFuture<'_, Result<Rc<dyn Client>>> {
        Box::pin(async move {
            let server = SocketAddr::from((address, PORT));
            let own = |port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
            // Every client has the same ports, and is told apart by its server.
            let sockets = explicit_ports().map(|port| (own(port), Some(server)));
            let (host, events) = self.host(sockets.into())?;
            host.wait_until_ready().await?;
            let open = Rc::default();
            spawn_local(hand_out(events, Rc::clone(&open)));
            Ok(Rc::new(PaperClient {
                peer: host.connect(server)?,
                host,
                open,
                receipts: Arc::clone(&self.receipts),
            }) as Rc<dyn Client>)
        })
    }
}

/// Who waits for the answer to which request.
type OpenRequests = Rc<RefCell<HashMap<u64, oneshot::Sender<usize>>>>;

/// The client of one server.
struct PaperClient {
    host: Rc<Host>,
    peer: PeerId,
    open: OpenRequests,
    receipts: Arc<Receipts>,
}

impl Client for PaperClient {
    fn request(&self, bytes: u32) -> LocalBoxFuture<'_, Result<Answer>> {
        Box::pin(async move {
            let (number, coding) = self.receipts.open();
            let (sender, answer) = oneshot::channel();
            self.open.borrow_mut().insert(number, sender);
            let request = receipts::request(number, bytes, REQUEST_BYTES);
            self.host.send(self.peer, &request)?;
            let came = answer.await?;
            if came != bytes as usize {
                bail!("the answer has {came} bytes instead of {bytes}");
            }
            Ok(Answer {
                coding: Some(coding),
            })
        })
    }
}

/// Tells requests that their answers are there. An answer that comes twice finds nobody.
async fn hand_out(mut events: mpsc::UnboundedReceiver<Event>, open: OpenRequests) {
    while let Some(event) = events.recv().await {
        let Event::Received { message, .. } = event else {
            continue;
        };
        let number = message.first_chunk().map(|it| u64::from_be_bytes(*it));
        let asked = number.and_then(|number| open.borrow_mut().remove(&number));
        if let Some(asked) = asked {
            // It may have been given up.
            let _ = asked.send(message.len());
        }
    }
}

/// Answers each request with a message that begins with its number; the paper's format has no replies.
async fn answer_all(
    host: Rc<Host>,
    mut events: mpsc::UnboundedReceiver<Event>,
    receipts: Arc<Receipts>,
) {
    let mut under_way = HashMap::new();
    while let Some(event) = events.recv().await {
        match event {
            Event::Received { peer, message, .. } => {
                let Some((number, bytes)) = receipts::parse(&message) else {
                    continue;
                };
                // What is too long to be sent is missed by the client, who counts it.
                let bytes = (bytes as usize).clamp(NUMBER_BYTES, host::MAX_MESSAGE_BYTES + 1);
                let mut answer = vec![0; bytes];
                answer[..NUMBER_BYTES].copy_from_slice(&number.to_be_bytes());
                if let Ok(id) = host.send(peer, &answer) {
                    under_way.insert(id, number);
                }
            }
            Event::Delivered { id, receipt } => {
                if let Some(number) = under_way.remove(&id) {
                    let coding = Coding {
                        n: receipt.symbols,
                        // Its stop does not say how many the receiver took.
                        needed: None,
                        sent: receipt.sent,
                    };
                    receipts.close(number, coding);
                }
            }
            Event::Undelivered { id, .. } => {
                under_way.remove(&id);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{runtime, task::LocalSet, time::timeout};

    use super::*;
    use crate::measurement::LIMIT;

    #[test]
    fn messages_arrive_on_loopback_with_their_receipts() -> Result<()> {
        let paper = Paper::default();
        paper.link_bits_per_s.store(100_000_000, Ordering::Relaxed);
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        LocalSet::new().block_on(&runtime, async {
            spawn_local(paper.serve(Ipv4Addr::LOCALHOST).await?);
            let client = paper.connect(Ipv4Addr::LOCALHOST).await?;
            for bytes in [1_000, 93_000] {
                let answer = timeout(LIMIT, client.request(bytes)).await??;
                let coding = answer.coding.expect("it codes");
                let n = bytes.div_ceil(host::SYMBOL_BYTES as u32);
                while coding.get().is_none() {
                    // The stop is on its way.
                    tokio::task::yield_now().await;
                }
                let coding = coding.get().expect("it is there");
                assert_eq!(coding.n, n);
                assert!(coding.sent >= n && coding.needed.is_none(), "{coding:?}");
            }
            Ok(())
        })
    }
}
