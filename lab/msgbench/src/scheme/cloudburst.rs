//! Cloudburst: every message coded, over all paths at once, until the receiver says stop.
//!
//! As the library comes: the client has the 16 ports of the default configuration, the server one.
//! Everything is encrypted, as with QUIC. Where routers keep a queue for its datagrams, also at the rate of that
//! queue, as the library's documentation wants it there.

use std::{
    net::Ipv4Addr,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

use anyhow::Result;
use cloudburst::{
    CongestionControl, Endpoint, EndpointConfig, Key, PathChoice, PeerId, Received, Reservation,
    Security,
};
use futures_util::future::LocalBoxFuture;
use tokio::task::spawn_local;

use super::{
    Answer, Client, Coding, REQUEST_BYTES, Scheme, Serving,
    receipts::{self, Receipts},
};
use crate::{
    measurement::LIMIT,
    rig::{CLOUDBURST_PERCENT, Rig},
    scenario::Scenario,
};

const PORT: u16 = 7_003;
/// The part of a queue's rate that datagrams' contents may take: Ethernet, IP and UDP headers take the rest.
const SHARE_OF_QUEUE: f64 = 0.95;

/// Messages over many ports.
#[derive(Default)]
pub(super) struct Cloudburst {
    is_reserved: bool,
    choice: PathChoice,
    receipts: Arc<Receipts>,
    dscp: AtomicU8,
    queues_bits_per_s: AtomicU64,
}

impl Cloudburst {
    /// At the rate of the queues that routers keep for it.
    pub(super) fn reserved() -> Self {
        Self {
            is_reserved: true,
            ..Self::default()
        }
    }

    /// With a balancer of switches in place of its own choice of paths.
    pub(super) fn balanced(choice: PathChoice) -> Self {
        Self {
            choice,
            ..Self::default()
        }
    }

    fn configured(&self, config: EndpointConfig) -> Result<EndpointConfig> {
        let config = config.with_path_choice(self.choice);
        let mut config = config.with_dscp(self.dscp.load(Ordering::Relaxed))?;
        if self.is_reserved {
            let queues = self.queues_bits_per_s.load(Ordering::Relaxed);
            let reservation = Reservation::new(queues).with_share(SHARE_OF_QUEUE);
            config = config.with_congestion(CongestionControl::Reserved(reservation))?;
        }
        Ok(config)
    }
}

impl Scheme for Cloudburst {
    fn name(&self) -> &'static str {
        match self.choice {
            _ if self.is_reserved => "cloudburst_reserved",
            PathChoice::Ecmp => "cloudburst_ecmp",
            PathChoice::Rps => "cloudburst_rps",
            PathChoice::Drb => "cloudburst_drb",
            PathChoice::LetFlow => "cloudburst_letflow",
            PathChoice::Tr => "cloudburst_tr",
            _ => "cloudburst",
        }
    }

    fn about(&self) -> &'static str {
        match self.choice {
            _ if self.is_reserved => {
                "the same at the rate of the queues that are kept for it, where there are any"
            }
            PathChoice::Ecmp => "Cloudburst with a path for each message, by its hash",
            PathChoice::Rps => "Cloudburst with a path for each symbol, at random",
            PathChoice::Drb => "Cloudburst with a path for each symbol, in turn",
            PathChoice::LetFlow => "Cloudburst with a path at random after each pause of a message",
            PathChoice::Tr => {
                "Cloudburst with the splitter's TR in place of its own choice of paths"
            }
            _ => "Cloudburst, as the library comes: coded messages from one port to 16",
        }
    }

    fn is_cloudburst(&self) -> bool {
        true
    }

    fn is_named_only(&self) -> bool {
        self.choice != PathChoice::default()
    }

    fn needs_queue(&self) -> bool {
        self.is_reserved
    }

    fn prepare(&self, rig: &Rig, scenario: Scenario) -> Result<()> {
        let queues = rig.sum_bits_per_s() * u64::from(CLOUDBURST_PERCENT) / 100;
        self.queues_bits_per_s.store(queues, Ordering::Relaxed);
        self.dscp
            .store(scenario.cloudburst_dscp(), Ordering::Relaxed);
        Ok(())
    }

    fn serve(&self, address: Ipv4Addr) -> LocalBoxFuture<'_, Result<Serving>> {
        Box::pin(async move {
            let config = EndpointConfig::server(PORT, security()).with_local([address.into()])?;
            let endpoint = Endpoint::bind(self.configured(config)?).await?;
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
            let endpoint = Endpoint::bind(self.configured(config)?).await?;
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
