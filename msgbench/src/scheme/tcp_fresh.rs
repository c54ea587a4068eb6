//! TCP with a new connection for each message.

use std::{io, net::Ipv4Addr, rc::Rc};

use anyhow::Result;
use flow_testbed::require::Requirement;
use futures_util::future::LocalBoxFuture;

use super::{
    Answer, Client, REQUEST_BYTES, Scheme,
    stream::{self, Kind},
};

const KIND: Kind = Kind::tcp("cubic");

/// TCP with a new connection for each message.
pub(super) struct TcpFresh;

impl Scheme for TcpFresh {
    fn name(&self) -> &'static str {
        "tcp_fresh"
    }

    fn about(&self) -> &'static str {
        "TCP cubic, a new connection for each message"
    }

    fn requirements(&self) -> Vec<Requirement> {
        vec![Requirement::CongestionControl(KIND.congestion_control)]
    }

    fn serve(&self, address: Ipv4Addr) -> Result<LocalBoxFuture<'static, ()>> {
        Ok(KIND.serve(address)?)
    }

    fn connect(&self, address: Ipv4Addr) -> LocalBoxFuture<'_, Result<Rc<dyn Client>>> {
        Box::pin(async move { Ok(Rc::new(Fresh(address)) as Rc<dyn Client>) })
    }
}

struct Fresh(Ipv4Addr);

impl Client for Fresh {
    fn request(&self, bytes: u32) -> LocalBoxFuture<'_, Result<Answer>> {
        Box::pin(async move {
            // From another port after 1.5 s, which may lead over a path that lives.
            let mut stream = loop {
                match KIND.connect(self.0, None).await {
                    Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
                    connected => break connected?,
                }
            };
            stream::ask(&mut stream, REQUEST_BYTES, bytes).await?;
            Ok(Answer::default())
        })
    }
}
