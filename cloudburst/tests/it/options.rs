//! Options of messages, and those of an endpoint for messages that are given none.

use std::time::{Duration, Instant};

use cloudburst::{Endpoint, Quotas, Reason, RequestError, SendError, SendOptions, Undelivered};

use super::{SOON, config, pair, silent, within};

const DEADLINE: Duration = Duration::from_millis(100);

/// It ended by its deadline: the lifetime is 10 s.
fn is_past_deadline(since: Instant, failure: &Undelivered) {
    let took = since.elapsed();
    assert_eq!(failure.reason, Reason::TimedOut);
    assert!((DEADLINE..SOON).contains(&took), "{took:?}");
}

#[tokio::test]
async fn a_deadline_runs_while_capacity_is_waited_for() {
    let (_socket, address) = silent();
    let mut quotas = Quotas::default();
    quotas.outgoing_messages = 1;
    let config = config(2).with_quotas(quotas).unwrap();
    let client = Endpoint::bind(config).await.unwrap();
    let peer = client.connect([address]).await.unwrap();
    let _all = client.enqueue(peer, "takes all capacity").await.unwrap();
    let (start, options) = (Instant::now(), SendOptions::new().with_deadline(DEADLINE));
    let sent = within(client.send_with(peer, "waits for it", options)).await;
    let Err(SendError::Undelivered(failure)) = sent else {
        panic!("{sent:?}");
    };
    is_past_deadline(start, &failure);
    let start = Instant::now();
    let asked = client.request_with(peer, "waits as well", 20 * SOON, options);
    let Err(RequestError::Undelivered(failure)) = within(asked).await else {
        panic!("it cannot be sent");
    };
    is_past_deadline(start, &failure);
}

#[tokio::test]
async fn options_of_an_endpoint_hold_for_what_is_given_none() {
    let (_socket, address) = silent();
    let options = SendOptions::new().with_deadline(DEADLINE);
    let client = Endpoint::bind(config(2).with_send_options(options))
        .await
        .unwrap();
    let peer = client.connect([address]).await.unwrap();
    for turn in 0..3 {
        let start = Instant::now();
        let sent = match turn {
            0 => within(client.send(peer, "?")).await,
            1 => within(client.try_send(peer, "?").unwrap()).await,
            _ => {
                let asked = within(client.request(peer, "?", 20 * SOON)).await;
                let Err(RequestError::Undelivered(failure)) = asked else {
                    panic!("{asked:?}");
                };
                Err(failure.into())
            }
        };
        let Err(SendError::Undelivered(failure)) = sent else {
            panic!("{sent:?}");
        };
        is_past_deadline(start, &failure);
    }
}

#[tokio::test]
async fn a_deadline_that_is_far_away_changes_nothing() {
    let (client, server, peer) = pair(config(2), config(1)).await;
    for deadline in [SOON, Duration::MAX] {
        let options = SendOptions::new().with_deadline(deadline);
        let sent = client.send_with(peer, "in time", options);
        let (sent, received) = tokio::join!(within(sent), within(server.recv()));
        sent.unwrap();
        assert_eq!(received.unwrap().message, "in time");
    }
}
