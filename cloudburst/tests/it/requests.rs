//! Requests and their replies.

use std::time::Duration;

use cloudburst::{Endpoint, Received, ReplyError, RequestError};
use tokio::sync::watch;

use super::{SOON, config, pair, within};

#[tokio::test]
async fn requests_are_answered() {
    let (client, server, peer) = pair(config(4), config(1)).await;
    let serving = tokio::spawn({
        let server = server.clone();
        async move {
            server
                .serve(8, |request| async move {
                    let mut message = request.message;
                    message.reverse();
                    Some(message)
                })
                .await;
        }
    });
    let mut requests = Vec::new();
    for number in 0..50_u8 {
        let client = client.clone();
        requests.push(tokio::spawn(async move {
            let reply = client.request(peer, vec![number, 1, 2], SOON).await;
            assert_eq!(reply.unwrap(), [2, 1, number]);
        }));
    }
    for request in requests {
        within(request).await.unwrap();
    }
    server.close(SOON).await;
    within(serving).await.unwrap();
}

#[tokio::test]
async fn a_message_is_no_request() {
    let (client, server, peer) = pair(config(1), config(1)).await;
    within(client.send(peer, "plain")).await.unwrap();
    let received = within(server.recv()).await.unwrap();
    let error = server.reply(&received, "answer").await.unwrap_err();
    assert_eq!(error, ReplyError::NotARequest);
}

#[tokio::test]
async fn a_request_that_nobody_answers_says_whether_it_was_delivered() {
    let (client, server, peer) = pair(config(4), config(1)).await;
    let wait = Duration::from_millis(300);
    let error = client.request(peer, "?", wait).await.unwrap_err();
    let expected = RequestError::TimedOut {
        after: wait,
        delivered: true,
    };
    assert_eq!(error, expected);
    // The reply that comes too late hurts nobody.
    let request = within(server.recv()).await.unwrap();
    within(server.reply(&request, "late")).await.unwrap();
    let (sent, received) = tokio::join!(within(client.send(peer, "next")), within(server.recv()));
    sent.unwrap();
    assert_eq!(received.unwrap().message, b"next");
}

#[tokio::test]
async fn handlers_that_panic_end_alone() {
    let (client, server, peer) = pair(config(2), config(1)).await;
    tokio::spawn(async move {
        server
            .serve(1, |request| async move {
                assert_ne!(request.message, b"panic", "as was asked for");
                Some(request.message)
            })
            .await;
    });
    let wait = Duration::from_millis(200);
    assert!(client.request(peer, "panic", wait).await.is_err());
    assert_eq!(client.request(peer, "go on", SOON).await.unwrap(), b"go on");
}

#[tokio::test]
async fn a_requester_that_is_gone_keeps_nobody_waiting() {
    let (client, server, peer) = pair(config(4), config(1)).await;
    let remotes = server.local_addrs().to_vec();
    let (release, released) = watch::channel(false);
    let serving = tokio::spawn(async move {
        let late = |request: Received| {
            let mut released = released.clone();
            async move {
                released.wait_for(|it| *it).await.ok()?;
                Some(request.message)
            }
        };
        server.serve(1, late).await;
    });
    // Its runtime stands still before the reply comes; its sockets stay, so that nobody learns of it.
    let gone = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let endpoint = runtime.block_on(async {
            let endpoint = Endpoint::bind(config(1)).await.unwrap();
            let server = endpoint.connect(remotes).await.unwrap();
            let brief = Duration::from_millis(100);
            let result = endpoint.request(server, "?", brief).await;
            let is_delivered = matches!(
                result,
                Err(RequestError::TimedOut {
                    delivered: true,
                    ..
                })
            );
            assert!(is_delivered, "{result:?}");
            endpoint
        });
        (runtime, endpoint)
    });
    let gone = gone.await.unwrap();
    release.send(true).unwrap();
    let reply = within(client.request(peer, "!", SOON)).await;
    assert_eq!(reply.unwrap(), b"!");
    serving.abort();
    tokio::task::spawn_blocking(move || drop(gone))
        .await
        .unwrap();
}
