//! The transport schemes that are compared.
//!
//! To add one: write `scheme/<name>.rs` with a type that is a [`Scheme`], and add it to [`all`].

mod certificate;
mod cloudburst;
mod mptcp;
mod noq_multipath;
mod paper;
mod pool;
mod quic;
mod quic_message;
mod receipts;
mod stream;
mod tcp;
mod tcp_fresh;
mod tcp_hedged;
mod tcp_striped;

use std::{
    net::Ipv4Addr,
    rc::Rc,
    sync::{Arc, OnceLock},
};

use ::cloudburst::PathChoice;
use anyhow::Result;
use flow_testbed::require::Requirement;
use futures_util::future::LocalBoxFuture;

use crate::{rig::Rig, scenario::Scenario};

/// Size of a request to the server, whatever size of answer it asks for.
pub const REQUEST_BYTES: usize = 1_500;

/// A scheme: a transport of messages.
///
/// Server and client live on threads of their own, in namespaces of their own, each with a
/// single-threaded runtime in a [`LocalSet`](tokio::task::LocalSet): use `spawn_local` at will, and
/// start no threads, for the server's CPU time is its thread's.
pub trait Scheme: Send + Sync {
    /// Returns the name for command line and results.
    fn name(&self) -> &'static str;

    /// Describes the scheme in a line.
    fn about(&self) -> &'static str;

    /// Returns requirements beyond those of the rig.
    fn requirements(&self) -> Vec<Requirement> {
        Vec::new()
    }

    /// Returns true for what a network is to treat as Cloudburst.
    fn is_cloudburst(&self) -> bool {
        false
    }

    /// Returns true for what is measured only where routers keep a queue for Cloudburst.
    fn needs_queue(&self) -> bool {
        false
    }

    /// Returns true for what is measured only where it is asked for by its name.
    fn is_named_only(&self) -> bool {
        false
    }

    /// Sets up what it needs in the namespaces and for the scenario; called before each measurement.
    ///
    /// # Errors
    /// When that could not be done.
    fn prepare(&self, rig: &Rig, scenario: Scenario) -> Result<()> {
        let _ = (rig, scenario);
        Ok(())
    }

    /// Listens on `address`; what is returned then answers requests until it is dropped.
    fn serve(&self, address: Ipv4Addr) -> LocalBoxFuture<'_, Result<Serving>>;

    /// Gets ready to send requests to the server at `address`, with all connections open that it
    /// keeps open.
    fn connect(&self, address: Ipv4Addr) -> LocalBoxFuture<'_, Result<Rc<dyn Client>>>;
}

/// A server that answers requests while it is polled.
pub type Serving = LocalBoxFuture<'static, ()>;

/// The client of a scheme, which sends requests to one server.
pub trait Client {
    /// Asks for a message of `bytes` bytes and waits until all of it is there. The caller gives up
    /// by dropping the future.
    fn request(&self, bytes: u32) -> LocalBoxFuture<'_, Result<Answer>>;
}

/// A message that has arrived whole.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// For schemes that code messages. The server may hear that the message is complete only after
    /// the client has it: this is read when the measurement is over.
    pub coding: Option<Arc<OnceLock<Coding>>>,
}

/// Packets that a coded message took.
#[derive(Clone, Copy, Debug)]
pub struct Coding {
    /// Packets that the message would take without coding.
    pub n: u32,
    /// Packets that had been received when it could be decoded, if the scheme says.
    pub needed: Option<u32>,
    /// Packets that the server has sent until it heard so.
    pub sent: u32,
}

/// All schemes, in the order in which results show them.
pub fn all() -> Vec<Arc<dyn Scheme>> {
    vec![
        Arc::new(cloudburst::Cloudburst::default()),
        Arc::new(cloudburst::Cloudburst::reserved()),
        Arc::new(cloudburst::Cloudburst::balanced(PathChoice::Tr)),
        Arc::new(cloudburst::Cloudburst::balanced(PathChoice::LetFlow)),
        Arc::new(cloudburst::Cloudburst::balanced(PathChoice::Drb)),
        Arc::new(cloudburst::Cloudburst::balanced(PathChoice::Rps)),
        Arc::new(cloudburst::Cloudburst::balanced(PathChoice::Ecmp)),
        Arc::new(paper::Paper::default()),
        Arc::new(tcp::CUBIC_8),
        Arc::new(tcp::CUBIC_32),
        Arc::new(tcp::BBR_8),
        Arc::new(tcp::BBR_32),
        Arc::new(tcp_fresh::TCP_FRESH),
        Arc::new(tcp_striped::TCP_STRIPED),
        Arc::new(tcp_hedged::TCP_HEDGED),
        Arc::new(mptcp::Mptcp),
        Arc::new(quic::Quic),
        Arc::new(noq_multipath::NoqMultipath),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unlike_each_other() {
        let mut names: Vec<_> = all().iter().map(|scheme| scheme.name()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
