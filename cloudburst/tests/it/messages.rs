//! Messages, one way.

use std::time::Duration;

use cloudburst::{Endpoint, Reason, SendError};
use tokio::time::timeout;

use super::{SOON, config, pair, patterned, within};

#[tokio::test]
async fn messages_of_all_sizes_arrive_whole() {
    let (client, server, peer) = pair(config(4), config(1)).await;
    for bytes in [1, 64, 1_400, 10_000, 300_000] {
        let message = patterned(bytes);
        let (sent, received) = tokio::join!(
            within(client.send(peer, message.clone())),
            within(server.recv())
        );
        let (receipt, received) = (sent.unwrap(), received.unwrap());
        assert_eq!(received.message, message);
        assert!(!received.is_request());
        assert!(receipt.needed >= receipt.symbols && receipt.sent >= receipt.needed);
    }
    let statistics = client.statistics().await.unwrap();
    assert_eq!(statistics.protocol.messages_delivered, 5);
    assert_eq!(
        statistics.completion.buckets().map(|it| it.1).sum::<u64>(),
        5
    );
    assert!(!client.paths(peer).await.unwrap().is_empty());
    client.close(SOON).await;
    server.close(SOON).await;
}

#[tokio::test]
async fn many_messages_at_once_arrive_once() {
    let (client, server, peer) = pair(config(4), config(2)).await;
    let count = 500_u32;
    let sender = tokio::spawn({
        let client = client.clone();
        async move {
            let mut under_way = Vec::new();
            for number in 0..count {
                let message = number.to_be_bytes().repeat(500);
                under_way.push(client.enqueue(peer, message).await.unwrap());
            }
            for sending in under_way {
                sending.await.unwrap();
            }
        }
    });
    let mut seen = vec![false; count as usize];
    for _ in 0..count {
        let message = within(server.recv()).await.unwrap().message;
        let number = u32::from_be_bytes(*message.first_chunk().unwrap());
        assert_eq!(message, number.to_be_bytes().repeat(500));
        assert!(
            !std::mem::replace(&mut seen[number as usize], true),
            "{number} came twice"
        );
    }
    within(sender).await.unwrap();
}

#[tokio::test]
async fn a_receiver_that_takes_less_refuses() {
    let config = config(1).with_max_message_bytes(100).unwrap();
    let (client, server, peer) = pair(self::config(2), config).await;
    let error = within(client.send(peer, vec![0; 5_000])).await.unwrap_err();
    let SendError::Undelivered(failure) = error else {
        panic!("{error}");
    };
    assert_eq!(failure.reason, Reason::Refused);
    let refused = server.statistics().await.unwrap().protocol.refused;
    assert!(refused.message_too_large > 0, "{refused:?}");
}

#[tokio::test]
async fn a_full_inbox_holds_up_senders_and_loses_nothing() {
    let config = config(1).with_inbox(4, 1 << 20).unwrap();
    let (client, server, peer) = pair(self::config(2), config).await;
    let sending: Vec<_> = (0..12u8)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move { client.send(peer, vec![number]).await })
        })
        .collect();
    let statistics = within(async {
        loop {
            let statistics = server.statistics().await.unwrap().protocol;
            if statistics.refused.not_accepting > 0 {
                return statistics;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(statistics.await.messages_received < 12);
    let mut received = Vec::new();
    for _ in 0..12 {
        received.extend(within(server.recv()).await.unwrap().message);
    }
    received.sort_unstable();
    assert_eq!(received, (0..12).collect::<Vec<u8>>());
    for sent in sending {
        within(sent).await.unwrap().unwrap();
    }
    let statistics = server.statistics().await.unwrap();
    assert_eq!(statistics.sockets.inbox_overflows, 0);
    // Both ends can say how often there was no capacity.
    let said = statistics.protocol.busy_sent;
    let heard = client.statistics().await.unwrap().protocol.busy_received;
    assert!(
        said.messages > 0 && said.total() == said.messages,
        "{said:?}"
    );
    assert!((1..=said.messages).contains(&heard.messages), "{heard:?}");
}

#[tokio::test]
async fn what_is_delivered_can_be_received_however_small_the_inbox_is() {
    const LIFETIME: Duration = Duration::from_secs(1);
    let config = config(1).with_inbox(16_384, 30_000).unwrap();
    let client = self::config(2).with_lifetime(LIFETIME).unwrap();
    let (client, server, peer) = pair(client, config).await;
    // The first leaves more than half of the inbox, so that others begin to arrive.
    let first = within(client.send(peer, vec![0; 14_000])).await;
    first.expect("there is capacity");
    let sending: Vec<_> = (1..10u8)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move { client.send(peer, vec![number; 20_000]).await })
        })
        .collect();
    // Nobody takes any until all have ended one way or the other.
    let mut delivered = vec![0];
    for (number, sent) in (1..).zip(sending) {
        if within(sent).await.unwrap().is_ok() {
            delivered.push(number);
        }
    }
    let mut received = Vec::new();
    while let Ok(message) = timeout(Duration::from_millis(100), server.recv()).await {
        received.push(message.unwrap().message[0]);
    }
    received.sort_unstable();
    assert_eq!(delivered, received);
    assert!((1..10).contains(&received.len()), "{received:?}");
}

#[tokio::test]
async fn recv_loses_nothing_when_dropped() {
    let (client, server, peer) = pair(config(2), config(1)).await;
    for _ in 0..20 {
        let early = timeout(Duration::from_micros(50), server.recv()).await;
        assert!(early.is_err(), "nothing was sent");
    }
    within(client.send(peer, "there")).await.unwrap();
    assert_eq!(within(server.recv()).await.unwrap().message, "there");
}

#[tokio::test]
async fn ipv6_works_where_there_is_any() {
    let config = config(2).with_local(["::1".parse().unwrap()]).unwrap();
    let Ok(server) = Endpoint::bind(config.clone()).await else {
        println!("skipped: this machine has no IPv6");
        return;
    };
    let client = Endpoint::bind(config).await.unwrap();
    let peer = client.connect(server.local_addrs().to_vec()).await.unwrap();
    within(client.send(peer, "six")).await.unwrap();
    assert_eq!(within(server.recv()).await.unwrap().message, "six");
}
