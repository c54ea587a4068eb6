//! TCP with each message striped over several connections.

use std::rc::Rc;

use anyhow::Result;
use futures_util::future::{LocalBoxFuture, try_join_all};
use tokio::net::TcpStream;

use super::{
    Answer, Client, REQUEST_BYTES,
    pool::Pool,
    stream,
    tcp::{CUBIC, OverCubic},
};

/// Connections that carry a message together.
const STRIPES: u32 = 8;
/// How many messages can be in flight at once. With fewer, messages wait for those that wait for a
/// retransmission timer.
const BUNDLES: usize = 16;

/// TCP with each message striped over several connections.
pub(super) const TCP_STRIPED: OverCubic = OverCubic {
    name: "tcp_striped",
    about: "TCP cubic, each message striped over 8 connections; 16 such bundles",
    connect: |address| {
        Box::pin(async move {
            let open =
                move |_| try_join_all((0..STRIPES).map(move |_| CUBIC.connect(address, None)));
            let pool = Pool::open(BUNDLES, open).await?;
            Ok(Rc::new(Striped(pool)) as Rc<dyn Client>)
        })
    },
};

struct Striped(Pool<Vec<TcpStream>>);

impl Client for Striped {
    fn request(&self, bytes: u32) -> LocalBoxFuture<'_, Result<Answer>> {
        Box::pin(async move {
            let mut lease = self.0.take().await?;
            let streams = lease.connection()?.iter_mut().zip(stripes(bytes));
            let request_bytes = REQUEST_BYTES / STRIPES as usize;
            try_join_all(streams.map(|(stream, part)| stream::ask(stream, request_bytes, part)))
                .await?;
            lease.give_back();
            Ok(Answer::default())
        })
    }
}

/// Parts of about equal size; none for a stripe that would carry nothing.
fn stripes(bytes: u32) -> impl Iterator<Item = u32> {
    (0..STRIPES)
        .map(move |stripe| bytes / STRIPES + u32::from(stripe < bytes % STRIPES))
        .filter(|part| *part > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_make_up_the_message() {
        for bytes in [1, 7, 8, 9, 5_000, 93_001] {
            let parts: Vec<u32> = stripes(bytes).collect();
            assert_eq!(parts.iter().sum::<u32>(), bytes);
            assert!(parts.len() <= STRIPES as usize && parts.iter().all(|part| *part > 0));
        }
    }
}
