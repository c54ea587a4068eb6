//! What is not sent, or not any more.

use std::time::{Duration, Instant};

use cloudburst::{Endpoint, Quotas, TrySendError};
use tokio::time::timeout;

use super::{SOON, config, pair, silent, within};

#[tokio::test]
async fn dropping_a_send_cancels_it() {
    let (_socket, address) = silent();
    let client = Endpoint::bind(config(2)).await.unwrap();
    let peer = client.connect([address]).await.unwrap();
    let sent = timeout(
        Duration::from_millis(100),
        client.send(peer, "nobody reads this"),
    )
    .await;
    assert!(sent.is_err(), "{sent:?}");
    let statistics = within(async {
        loop {
            let statistics = client.statistics().await.unwrap().protocol;
            if statistics.outgoing_now == 0 {
                return statistics;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert_eq!(statistics.await.messages_undelivered, 1);
    // With nothing under way it closes at once, and does not take all that it may.
    let start = Instant::now();
    client.close(2 * SOON).await;
    assert!(start.elapsed() < SOON);
}

#[tokio::test]
async fn a_full_endpoint_says_so_or_waits() {
    let (_socket, address) = silent();
    let mut quotas = Quotas::default();
    quotas.outgoing_messages = 2;
    let config = config(1).with_quotas(quotas).unwrap();
    let client = Endpoint::bind(config).await.unwrap();
    let peer = client.connect([address]).await.unwrap();
    let first = client.try_send(peer, "1").unwrap();
    let _second = client.try_send(peer, "2").unwrap();
    let full = client.try_send(peer, "3").unwrap_err();
    let message = "3".into();
    assert_eq!(full, TrySendError::Full { message });
    let third = client.enqueue(peer, "3");
    tokio::pin!(third);
    let early = timeout(Duration::from_millis(50), third.as_mut()).await;
    assert!(early.is_err(), "there was no room");
    drop(first);
    within(third).await.unwrap().detach();
}

#[tokio::test]
async fn bytes_are_room_as_well() {
    let (_socket, address) = silent();
    let mut quotas = Quotas::default();
    quotas.outgoing_bytes = 10_000;
    let config = config(1).with_quotas(quotas).unwrap();
    let client = Endpoint::bind(config).await.unwrap();
    let peer = client.connect([address]).await.unwrap();
    let _first = client.try_send(peer, vec![0; 6_000]).unwrap();
    let content = vec![0; 6_000];
    let memory = content.as_ptr();
    let full = client.try_send(peer, content).unwrap_err();
    let TrySendError::Full {
        message: given_back,
    } = &full
    else {
        panic!("{full}");
    };
    assert_eq!(given_back.as_ptr(), memory, "it is not copied");
    let message = vec![0; 6_000].into();
    assert_eq!(full, TrySendError::Full { message });
    client.try_send(peer, vec![0; 3_000]).unwrap().detach();
}

#[tokio::test]
async fn what_can_never_be_sent_is_refused_with_its_size() {
    let config = config(1).with_max_message_bytes(100).unwrap();
    let (client, _server, peer) = pair(config, self::config(1)).await;
    let error = client.send(peer, vec![0; 101]).await.unwrap_err();
    assert!(error.to_string().contains("101 bytes"), "{error}");
}
