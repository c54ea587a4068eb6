//! TCP with a pool of connections and hedged requests.
//!
//! A request that takes longer than most is sent again on another connection, which may take another
//! path, and the first answer wins (Dean and Barroso, The Tail at Scale, 2013). Connections that lost
//! are closed, for HTTP/1.1 knows no other way to stop an answer.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use futures_util::future::{LocalBoxFuture, select_ok};
use tokio::time::sleep;

use super::{
    Answer, Client,
    pool::Pool,
    tcp::{CUBIC, OverCubic, PooledStreams},
};

const CONNECTIONS: usize = 32;
/// Until there are completions to go by.
const FIRST_PATIENCE: Duration = Duration::from_millis(50);
/// Of how many completions most is meant, and how many make a beginning.
const REMEMBERED: usize = 128;
const ENOUGH: usize = 20;
/// The share of requests that are expected to be done when one is sent again.
const PATIENCE_PERCENT: usize = 95;
/// How often a request is sent at most.
const ATTEMPTS: u32 = 4;
/// How many requests may be sent again for each request, and how many of those may be saved up.
/// Without such a budget, hedging doubles the load just when there is too much of it.
const BUDGET_PER_REQUEST: f64 = 0.2;
const BUDGET_LIMIT: f64 = 10.0;

/// TCP with a pool of connections and hedged requests.
pub(super) const TCP_HEDGED: OverCubic = OverCubic {
    name: "tcp_hedged",
    about: "TCP cubic, a pool of 32; a request slower than 95% is sent again on another connection",
    connect: |address| {
        Box::pin(async move {
            let pool = Pool::open(CONNECTIONS, move |_| CUBIC.connect(address, None)).await?;
            Ok(Rc::new(Hedged {
                pool: PooledStreams(pool),
                recent: RefCell::default(),
                budget: Cell::new(BUDGET_LIMIT),
            }) as Rc<dyn Client>)
        })
    },
};

struct Hedged {
    pool: PooledStreams,
    /// Completion times, the newest last.
    recent: RefCell<VecDeque<Duration>>,
    /// How many requests may be sent again now.
    budget: Cell<f64>,
}

impl Client for Hedged {
    fn request(&self, bytes: u32) -> LocalBoxFuture<'_, Result<Answer>> {
        Box::pin(async move {
            let begun = Instant::now();
            let budget = self.budget.get() + BUDGET_PER_REQUEST;
            self.budget.set(budget.min(BUDGET_LIMIT));
            let patience = patience(&self.recent.borrow());
            let attempts = (0..ATTEMPTS).map(|attempt| self.attempt(patience * attempt, bytes));
            let (answer, _) = select_ok(attempts).await?;
            let mut recent = self.recent.borrow_mut();
            recent.push_back(begun.elapsed());
            if recent.len() > REMEMBERED {
                recent.pop_front();
            }
            Ok(answer)
        })
    }
}

impl Hedged {
    /// Sends the request after a pause. The first attempt has none, not even that of a clock that
    /// ticks in milliseconds, and is always possible.
    fn attempt(&self, pause: Duration, bytes: u32) -> LocalBoxFuture<'_, Result<Answer>> {
        Box::pin(async move {
            if !pause.is_zero() {
                sleep(pause).await;
                let left = self.budget.get() - 1.0;
                if left < 0.0 {
                    bail!("too many requests have been sent again");
                }
                self.budget.set(left);
            }
            self.pool.request(bytes).await
        })
    }
}

/// How long to wait before a request is sent again.
fn patience(recent: &VecDeque<Duration>) -> Duration {
    if recent.len() < ENOUGH {
        return FIRST_PATIENCE;
    }
    let mut sorted: Vec<Duration> = recent.iter().copied().collect();
    sorted.sort_unstable();
    sorted[(sorted.len() - 1) * PATIENCE_PERCENT / 100]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_what_most_requests_take() {
        let recent = |count| (1..=count).map(Duration::from_millis).collect();
        assert_eq!(patience(&recent(19)), FIRST_PATIENCE);
        assert_eq!(patience(&recent(101)), Duration::from_millis(96));
    }
}
