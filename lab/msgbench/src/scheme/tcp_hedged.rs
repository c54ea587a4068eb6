//! TCP with a pool of connections and hedged requests.
//!
//! A request that takes longer than most is sent again on another connection, which may take another
//! path, and the first answer wins (Dean and Barroso, The Tail at Scale, 2013). Connections that lost
//! are closed, for HTTP/1.1 has no other means to stop an answer.

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
/// Hedging delay until there are enough completions.
const INITIAL_HEDGING_DELAY: Duration = Duration::from_millis(50);
/// Completions that the hedging delay is taken from, at most and at least.
const SAMPLES: usize = 128;
const LEAST_SAMPLES: usize = 20;
/// Percentile of completion times after which a request is sent again.
const HEDGING_PERCENTILE: usize = 95;
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
            let hedging_delay = hedging_delay(&self.recent.borrow());
            let attempts =
                (0..ATTEMPTS).map(|attempt| self.attempt(hedging_delay * attempt, bytes));
            let (answer, _) = select_ok(attempts).await?;
            let mut recent = self.recent.borrow_mut();
            recent.push_back(begun.elapsed());
            if recent.len() > SAMPLES {
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

/// Returns the hedging delay: how long to wait before a request is sent again.
fn hedging_delay(recent: &VecDeque<Duration>) -> Duration {
    if recent.len() < LEAST_SAMPLES {
        return INITIAL_HEDGING_DELAY;
    }
    let mut sorted: Vec<Duration> = recent.iter().copied().collect();
    sorted.sort_unstable();
    sorted[(sorted.len() - 1) * HEDGING_PERCENTILE / 100]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hedging_delay_is_what_most_requests_take() {
        let recent = |count| (1..=count).map(Duration::from_millis).collect();
        assert_eq!(hedging_delay(&recent(19)), INITIAL_HEDGING_DELAY);
        assert_eq!(hedging_delay(&recent(101)), Duration::from_millis(96));
    }
}
