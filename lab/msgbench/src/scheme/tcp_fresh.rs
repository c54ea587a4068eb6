//! TCP with a new connection for each message.

use std::{io, net::Ipv4Addr, rc::Rc};

use anyhow::Result;
use futures_util::future::LocalBoxFuture;

use super::{
    Answer, Client, REQUEST_BYTES, stream,
    tcp::{CUBIC, OverCubic},
};

/// TCP with a new connection for each message.
pub(super) const TCP_FRESH: OverCubic = OverCubic {
    name: "tcp_fresh",
    about: "TCP cubic, a new connection for each message",
    connect: |address| Box::pin(async move { Ok(Rc::new(Fresh(address)) as Rc<dyn Client>) }),
};

struct Fresh(Ipv4Addr);

impl Client for Fresh {
    fn request(&self, bytes: u32) -> LocalBoxFuture<'_, Result<Answer>> {
        Box::pin(async move {
            // From another port after 1.5 s, which may lead over a path that lives.
            let mut stream = loop {
                match CUBIC.connect(self.0, None).await {
                    Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
                    connected => break connected?,
                }
            };
            stream::ask(&mut stream, REQUEST_BYTES, bytes).await?;
            Ok(Answer::default())
        })
    }
}
