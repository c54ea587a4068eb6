//! Holds the models by which packets choose among tunnels against the queues in front of these.
//!
//! A model knows what was sent and the rate. A shaper whose timer was late, or that counts other bytes, is
//! elsewhere by as much, and stays so as long as something waits: what differs by less than a packet's time
//! between two tunnels decides whether a flow arrives in order.

use std::sync::Arc;
use std::time::Duration;

use crate::hearing::Hearing;
use crate::{Instance, PathModels};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

/// From one look to the next while something waits: a model that is wrong by a hundredth of the time is wrong by
/// 0.1 ms then.
const BUSY: Duration = Duration::from_millis(10);
/// While nothing waits.
const QUIET: Duration = Duration::from_millis(100);
/// How long what was found out about the tunnels is believed; and from one look to the next where packets do
/// not choose.
const RENEWAL: Duration = Duration::from_secs(1);

/// Compares them as long as it is polled, by the instance that is in force, and has what spines report be heard.
pub async fn compare(mut in_force: watch::Receiver<Arc<Instance>>) -> &'static str {
    let (mut hearing, mut earlier) = (Hearing::default(), None);
    loop {
        let instance = Arc::clone(&in_force.borrow_and_update());
        hearing.renew(&instance).await;
        let models = instance.path_models().await.unwrap_or_else(|error| {
            tracing::debug!(%error, "the models of the tunnels' queues are held against nothing");
            None
        });
        match models {
            Some(models) => earlier = compare_for(RENEWAL, models.after(earlier)).await,
            None => sleep(RENEWAL).await,
        }
    }
}

/// Compares models that were opened for so long, and returns them; none where that came to an end.
pub async fn compare_for(length: Duration, mut models: PathModels) -> Option<PathModels> {
    let until = Instant::now() + length;
    while Instant::now() < until {
        // In a thread of its own: the kernel may make it wait for others who change devices.
        let compared = spawn_blocking(move || (models.compare(), models)).await;
        let (found, same) = match compared {
            Ok(compared) => compared,
            Err(error) => {
                tracing::debug!(%error, "the models of the tunnels' queues are held against nothing");
                sleep(RENEWAL).await;
                return None;
            }
        };
        models = same;
        let pause = match found {
            Ok(true) => BUSY,
            Ok(false) => QUIET,
            Err(error) => {
                tracing::debug!(%error, "cannot read what waits in front of the tunnels");
                RENEWAL
            }
        };
        sleep(pause).await;
    }
    Some(models)
}
