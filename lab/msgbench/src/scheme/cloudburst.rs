//! Cloudburst: every message coded, over all paths at once, until the receiver says stop.
//!
//! As the library comes: the client has the 16 ports of the default configuration, the server one.
//! Everything is encrypted, as with QUIC.

use std::{
    collections::HashMap,
    net::Ipv4Addr,
    rc::Rc,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::Result;
use cloudburst::{Endpoint, EndpointConfig, Key, PeerId, Receipt, Received, Security};
use futures_util::future::LocalBoxFuture;
use tokio::task::spawn_local;

use super::{Answer, Client, Coding, REQUEST_BYTES, Scheme, Serving};
use crate::measurement::LIMIT;

const PORT: u16 = 7_003;
/// A request begins with its number and the length that is asked for.
const NUMBER_BYTES: usize = 8;
const LENGTH_BYTES: usize = 4;

/// Messages over many ports.
#[derive(Default)]
pub(super) struct Cloudburst {
    receipts: Arc<Receipts>,
}

impl Scheme for Cloudburst {
    fn name(&self) -> &'static str {
        "cloudburst"
    }

    fn about(&self) -> &'static str {
        "Cloudburst, as the library comes: coded messages from one port to 16"
    }

    fn serve(&self, address: Ipv4Addr) -> LocalBoxFuture<'_, Result<Serving>> {
        Box::pin(async move {
            let config = EndpointConfig::server(PORT, security()).with_local([address.into()])?;
            let endpoint = Endpoint::bind(config).await?;
            let receipts = Arc::clone(&self.receipts);
            let serving: Serving = Box::pin(async move {
                while let Ok(received) = endpoint.recv().await {
                    spawn_local(answer(endpoint.clone(), received, Arc::clone(&receipts)));
                }
            });
            Ok(serving)
        })
    }

    fn connect(&self, address: Ipv4Addr) -> LocalBoxFuture<'_, Result<Rc<dyn Client>>> {
        Box::pin(async move {
            let config =
                EndpointConfig::client(security()).with_local([Ipv4Addr::UNSPECIFIED.into()])?;
            let endpoint = Endpoint::bind(config).await?;
            let peer = endpoint.connect([(address, PORT).into()]).await?;
            let receipts = Arc::clone(&self.receipts);
            Ok(Rc::new(CloudburstClient {
                endpoint,
                peer,
                receipts,
            }) as Rc<dyn Client>)
        })
    }
}

/// Both ends have the same key: what is measured is encrypted, as QUIC is.
fn security() -> Security {
    Security::shared_key(Key::new(std::num::NonZeroU8::MIN, [42; 32]))
}

/// The client of one server.
struct CloudburstClient {
    endpoint: Endpoint,
    peer: PeerId,
    receipts: Arc<Receipts>,
}

impl Client for CloudburstClient {
    fn request(&self, bytes: u32) -> LocalBoxFuture<'_, Result<Answer>> {
        Box::pin(async move {
            let (number, coding) = self.receipts.open();
            let mut request = vec![0; REQUEST_BYTES];
            let (first, rest) = request.split_at_mut(NUMBER_BYTES);
            first.copy_from_slice(&number.to_be_bytes());
            rest[..LENGTH_BYTES].copy_from_slice(&bytes.to_be_bytes());
            self.endpoint.request(self.peer, request, LIMIT).await?;
            Ok(Answer {
                coding: Some(coding),
            })
        })
    }
}

/// Sends what is asked for, and keeps the receipt. An answer that does not get there is missed
/// by the client, who counts it.
async fn answer(endpoint: Endpoint, received: Received, receipts: Arc<Receipts>) {
    let Some((number, bytes)) = parse(&received.message) else {
        return;
    };
    if let Ok(receipt) = endpoint.reply(&received, vec![0; bytes as usize]).await {
        receipts.close(number, &receipt);
    }
}

fn parse(request: &[u8]) -> Option<(u64, u32)> {
    let (number, rest) = request.split_first_chunk::<NUMBER_BYTES>()?;
    let length = rest.first_chunk::<LENGTH_BYTES>()?;
    Some((u64::from_be_bytes(*number), u32::from_be_bytes(*length)))
}

/// Receipts that the server hands to the client outside of the network, for they are one process, by the numbers of the requests.
#[derive(Default)]
struct Receipts {
    next: AtomicU64,
    open: Mutex<HashMap<u64, Arc<OnceLock<Coding>>>>,
}

impl Receipts {
    fn open(&self) -> (u64, Arc<OnceLock<Coding>>) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let coding = Arc::default();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.insert(number, Arc::clone(&coding));
        (number, coding)
    }

    fn close(&self, number: u64, receipt: &Receipt) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(coding) = open.remove(&number) {
            // The only one who fills it in.
            let _ = coding.set(Coding {
                n: receipt.symbols,
                needed: receipt.needed,
                sent: receipt.sent,
            });
        }
    }
}
