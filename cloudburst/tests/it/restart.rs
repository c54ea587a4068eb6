//! A server that is restarted, and what becomes of messages meanwhile.

use std::time::Duration;

use cloudburst::{Endpoint, EndpointConfig, PeerId, Ports, Reason, SendError, SendOptions};

use super::{config, elsewhere, killed, within};

/// Binds the port that another has left, as soon as the system lets it.
async fn bind_again(config: &EndpointConfig) -> Endpoint {
    within(async {
        loop {
            match Endpoint::bind(config.clone()).await {
                Ok(server) => return server,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    })
    .await
}

/// What a message comes to whose receiver is away for 300 ms when it is sent, with nobody who says so.
async fn sent_meanwhile(
    options: SendOptions,
) -> (Result<(), SendError>, Endpoint, Endpoint, PeerId) {
    let (runtime, server) = elsewhere(config(1)).await;
    let client = Endpoint::bind(config(4)).await.unwrap();
    let peer = client.connect(server.local_addrs()).await.unwrap();
    within(client.send(peer, "before")).await.unwrap();
    let port = server.local_addrs()[0].port();
    let silent = killed(runtime, &server).await;
    drop(server);
    let again = config(1).with_ports(Ports::one(port)).unwrap();
    let sending = client.enqueue_with(peer, "meanwhile", options).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    drop(silent);
    let server = bind_again(&again).await;
    let sent = within(sending.unwrap()).await;
    (sent.map(drop), client, server, peer)
}

#[tokio::test]
async fn what_another_may_have_taken_before_a_restart_is_unknown_to_its_sender() {
    let (sent, client, server, peer) = sent_meanwhile(SendOptions::new()).await;
    let Err(SendError::Undelivered(failure)) = sent else {
        panic!("{sent:?}");
    };
    assert_eq!(failure.reason, Reason::Unknown);
    assert!(failure.to_string().contains("restarted"), "{failure}");
    // What is sent from then on arrives, and nothing else.
    within(client.send(peer, "after")).await.unwrap();
    assert_eq!(within(server.recv()).await.unwrap().message, "after");
}

#[tokio::test]
async fn what_may_be_taken_twice_is_delivered_after_a_restart() {
    let options = SendOptions::new().with_idempotent(true);
    let (sent, _client, server, _) = sent_meanwhile(options).await;
    sent.unwrap();
    assert_eq!(within(server.recv()).await.unwrap().message, "meanwhile");
}
