//! Cloudburst: every message coded, over all paths at once, until the receiver says stop.
//!
//! As the library comes: the client has the 16 ports of the default configuration, the server one.
//! Everything is encrypted, as with QUIC.

use std::{
    net::Ipv4Addr,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use anyhow::Result;
use cloudburst::{Endpoint, EndpointConfig, Key, PeerId, Received, Security};
use futures_util::future::LocalBoxFuture;
use tokio::task::spawn_local;

use super::{
    Answer, Client, Coding, REQUEST_BYTES, Scheme, Serving,
    receipts::{self, Receipts},
};
use crate::{measurement::LIMIT, rig::Rig, scenario::Scenario};

const PORT: u16 = 7_003;

/// Messages over many ports.
#[derive(Default)]
pub(super) struct Cloudburst {
    receipts: Arc<Receipts>,
    dscp: AtomicU8,
}

impl Scheme for Cloudburst {
    fn name(&self) -> &'static str {
        "cloudburst"
    }

    fn about(&self) -> &'static str {
        "Cloudburst, as the library comes: coded messages from one port to 16"
    }

    fn is_cloudburst(&self) -> bool {
        true
    }

    fn prepare(&self, _: &Rig, scenario: Scenario) -> Result<()> {
        self.dscp
            .store(scenario.cloudburst_dscp(), Ordering::Relaxed);
        Ok(())
    }

    fn serve(&self, address: Ipv4Addr) -> LocalBoxFuture<'_, Result<Serving>> {
        Box::pin(async move {
            let config = EndpointConfig::server(PORT, security()).with_local([address.into()])?;
            let config = config.with_dscp(self.dscp.load(Ordering::Relaxed))?;
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
            let config = config.with_dscp(self.dscp.load(Ordering::Relaxed))?;
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
            let request = receipts::request(number, bytes, REQUEST_BYTES);
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
    let Some((number, bytes)) = receipts::parse(&received.message) else {
        return;
    };
    if let Ok(receipt) = endpoint.reply(&received, vec![0; bytes as usize]).await {
        let coding = Coding {
            n: receipt.symbols,
            needed: Some(receipt.needed),
            sent: receipt.sent,
        };
        receipts.close(number, coding);
    }
}
