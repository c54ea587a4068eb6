//! TCP with a pool of connections, as HTTP/1.1 clients have it.

use std::{net::Ipv4Addr, rc::Rc};

use anyhow::Result;
use flow_testbed::require::Requirement;
use futures_util::future::LocalBoxFuture;
use tokio::net::TcpStream;

use super::{
    Answer, Client, REQUEST_BYTES, Scheme, Serving,
    pool::Pool,
    stream::{self, Kind},
};

/// TCP with a pool of connections.
pub(super) struct TcpPool {
    name: &'static str,
    about: &'static str,
    congestion_control: &'static str,
    connections: usize,
}

/// The kernel's usual congestion control.
pub(super) const CUBIC_8: TcpPool = TcpPool {
    name: "tcp_cubic",
    about: "TCP cubic, a pool of 8 connections",
    congestion_control: "cubic",
    connections: 8,
};

/// So many that few requests wait for each other.
pub(super) const CUBIC_32: TcpPool = TcpPool {
    name: "tcp_cubic_32",
    about: "TCP cubic, a pool of 32 connections",
    connections: 32,
    ..CUBIC_8
};

/// Paced, and not driven by loss.
pub(super) const BBR_8: TcpPool = TcpPool {
    name: "tcp_bbr",
    about: "TCP bbr, a pool of 8 connections",
    congestion_control: "bbr",
    connections: 8,
};

/// BBR with 32 connections.
pub(super) const BBR_32: TcpPool = TcpPool {
    name: "tcp_bbr_32",
    about: "TCP bbr, a pool of 32 connections",
    connections: 32,
    ..BBR_8
};

impl TcpPool {
    fn kind(&self) -> Kind {
        Kind::tcp(self.congestion_control)
    }
}

impl Scheme for TcpPool {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn requirements(&self) -> Vec<Requirement> {
        vec![Requirement::CongestionControl(self.congestion_control)]
    }

    fn serve(&self, address: Ipv4Addr) -> LocalBoxFuture<'_, Result<Serving>> {
        Box::pin(async move { Ok(self.kind().serve(address)?) })
    }

    fn connect(&self, address: Ipv4Addr) -> LocalBoxFuture<'_, Result<Rc<dyn Client>>> {
        let kind = self.kind();
        Box::pin(async move {
            let open = move |_| kind.connect(address, None);
            let pool = Pool::open(self.connections, open).await?;
            Ok(Rc::new(PooledStreams(pool)) as Rc<dyn Client>)
        })
    }
}

type Connecting = LocalBoxFuture<'static, Result<Rc<dyn Client>>>;

/// Another use of connections of the usual kind, by what a client does when it gets ready.
pub(super) struct OverCubic {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) connect: fn(Ipv4Addr) -> Connecting,
}

/// The kind of connections that it uses.
pub(super) const CUBIC: Kind = Kind::tcp("cubic");

impl Scheme for OverCubic {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn requirements(&self) -> Vec<Requirement> {
        vec![Requirement::CongestionControl(CUBIC.congestion_control)]
    }

    fn serve(&self, address: Ipv4Addr) -> LocalBoxFuture<'_, Result<Serving>> {
        Box::pin(async move { Ok(CUBIC.serve(address)?) })
    }

    fn connect(&self, address: Ipv4Addr) -> LocalBoxFuture<'_, Result<Rc<dyn Client>>> {
        (self.connect)(address)
    }
}

/// A client over a pool of connections.
pub(super) struct PooledStreams(pub(super) Pool<TcpStream>);

impl Client for PooledStreams {
    fn request(&self, bytes: u32) -> LocalBoxFuture<'_, Result<Answer>> {
        Box::pin(async move {
            let mut lease = self.0.take().await?;
            stream::ask(lease.connection()?, REQUEST_BYTES, bytes).await?;
            lease.give_back();
            Ok(Answer::default())
        })
    }
}
