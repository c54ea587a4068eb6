//! Requests and their replies.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use cloudburst::{
    Endpoint, Failure, FailureReason, PeerId, Quotas, Received, ReplyError, RequestError, blocking,
    memory::MemoryNetwork,
};
use tokio::sync::{Notify, watch};

use super::{SOON, answering, config, in_memory, pair, within};

#[tokio::test]
async fn requests_are_answered() {
    let (client, server, peer) = pair(config(4), config(1)).await;
    let serving = tokio::spawn({
        let server = server.clone();
        async move {
            server
                .serve(8, |request| async move {
                    Some(request.message.iter().rev().copied().collect::<Vec<u8>>())
                })
                .await;
        }
    });
    let mut requests = Vec::new();
    for number in 0..50_u8 {
        let client = client.clone();
        requests.push(tokio::spawn(async move {
            let reply = client.request(peer, vec![number, 1, 2], SOON).await;
            assert_eq!(reply.unwrap(), &[2, 1, number][..]);
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

/// This is in a network in memory: on a machine that stands still for so long it would not be delivered in time.
#[tokio::test(start_paused = true)]
async fn a_request_that_nobody_answers_says_whether_it_was_delivered() {
    let (client, server, peer) = in_memory::pair(&MemoryNetwork::new(1)).await;
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
    assert_eq!(received.unwrap().message, "next");
}

#[tokio::test]
async fn handlers_that_panic_end_alone() {
    let (client, server, peer) = pair(config(2), config(1)).await;
    tokio::spawn(async move {
        server
            .serve(1, |request| async move {
                assert_ne!(request.message, "panic", "as was asked for");
                Some(request.message)
            })
            .await;
    });
    assert!(client.request(peer, "panic", SOON).await.is_err());
    assert_eq!(client.request(peer, "go on", SOON).await.unwrap(), "go on");
}

/// A handler that says when it begins, and waits for ever; dropped, it says that too.
#[derive(Clone, Default)]
struct Endless {
    begun: Arc<Notify>,
    ended: Arc<Notify>,
}

struct NotifyOnDrop(Arc<Notify>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Endless {
    async fn serve(self, server: Endpoint) {
        let handler = |_: Received| {
            let this = self.clone();
            async move {
                let _ended = NotifyOnDrop(this.ended);
                this.begun.notify_one();
                std::future::pending::<Vec<u8>>().await
            }
        };
        server.serve(1, handler).await;
    }
}

/// This is in a network in memory: on a machine that stands still for so long the handler would not even begin.
#[tokio::test(start_paused = true)]
async fn a_handler_ends_when_nobody_waits_for_its_reply() {
    let (client, server, peer) = in_memory::pair(&MemoryNetwork::new(1)).await;
    let endless = Endless::default();
    tokio::spawn(endless.clone().serve(server.clone()));
    // Its time is over.
    let brief = Duration::from_millis(200);
    let asked = client.request(peer, "?", brief);
    let (asked, ()) = tokio::join!(asked, within(endless.begun.notified()));
    assert!(matches!(asked, Err(RequestError::TimedOut { .. })));
    within(endless.ended.notified()).await;
    // Nobody waits: the future is dropped.
    let asking = tokio::spawn({
        let client = client.clone();
        async move { client.request(peer, "?", SOON).await }
    });
    within(endless.begun.notified()).await;
    asking.abort();
    within(endless.ended.notified()).await;
    // Nothing is sent for either: there is nobody to be told.
    let statistics = server.statistics().await.unwrap().protocol;
    assert_eq!(statistics.messages_accepted, 0);
}

#[tokio::test]
async fn who_takes_requests_by_hand_learns_that_one_is_cancelled() {
    let (client, server, peer) = pair(config(2), config(1)).await;
    let asking = tokio::spawn(async move { client.request(peer, "?", SOON).await });
    let request = within(server.recv()).await.unwrap();
    assert!(!request.is_cancelled());
    asking.abort();
    within(request.cancelled()).await;
    assert!(request.is_cancelled());
    let late = within(server.reply(&request, "late")).await;
    assert_eq!(late.unwrap_err(), ReplyError::Cancelled);
}

/// As in the field: 60 sends that their callers gave up left 48 MiB at the receiver for a minute.
#[tokio::test]
async fn sends_that_are_given_up_leave_nothing_at_the_receiver() {
    let mut quotas = Quotas::default();
    quotas.peer_bytes = 256 << 20;
    let server = config(1).with_quotas(quotas).unwrap();
    let (client, server, peer) = pair(config(2), server).await;
    let message = super::patterned(1 << 20);
    let mut arrived = 0;
    for _ in 0..60 {
        let sending = client.enqueue(peer, message.clone()).await.unwrap();
        // Until some of it is there, but not for all of it.
        let some = async {
            while server.statistics().await.unwrap().protocol.incoming_now == 0 {
                tokio::task::yield_now().await;
            }
        };
        let is_some = tokio::time::timeout(Duration::from_millis(20), some).await;
        arrived += u32::from(is_some.is_ok());
        drop(sending);
    }
    assert!(arrived > 0, "of none has anything arrived");
    within(async {
        while server
            .statistics()
            .await
            .unwrap()
            .protocol
            .incoming_bytes_now
            > 0
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Asks for longer than a test takes: whoever is answered only then fails.
async fn ask(
    client: &Endpoint,
    peer: PeerId,
    message: &'static str,
) -> Result<Bytes, RequestError> {
    within(client.request(peer, message, 10 * SOON)).await
}

fn failure(result: Result<Bytes, RequestError>) -> Failure {
    match result {
        Err(RequestError::Failed(failure)) => failure,
        other => panic!("{other:?} is no failure that the peer tells of"),
    }
}

#[tokio::test]
async fn each_request_without_a_reply_is_answered_with_the_reason() {
    let server_config = config(1).with_max_message_bytes(1_000).unwrap();
    let (client, server, peer) = pair(config(2), server_config).await;
    let serving = tokio::spawn({
        let server = server.clone();
        async move {
            let handler = |request: Received| async move {
                match &request.message[..] {
                    b"nothing" => Ok(None),
                    b"no" => Err(Failure::refused("not today\n")),
                    b"panic" => panic!("as was asked for"),
                    b"much" => Ok(Some(vec![0; 1_001].into())),
                    _ => Ok(Some(request.message)),
                }
            };
            server.serve(1, handler).await;
        }
    });
    for (message, reason) in [
        ("nothing", FailureReason::NoReply),
        ("no", FailureReason::Refused),
        ("panic", FailureReason::Panicked),
        ("much", FailureReason::ReplyTooLarge),
    ] {
        let failure = failure(ask(&client, peer, message).await);
        assert_eq!(failure.reason(), reason);
    }
    let refused = failure(ask(&client, peer, "no").await);
    assert_eq!(refused.text(), "not today\n");
    let shown = refused.to_string();
    assert_eq!(shown, r#"the request was refused: "not today\n""#);
    // Those have not used up the only place.
    assert_eq!(ask(&client, peer, "").await.unwrap(), "");
    assert_eq!(ask(&client, peer, "echo").await.unwrap(), "echo");
    serving.abort();
}

#[tokio::test]
async fn a_request_that_is_dropped_is_answered_and_one_that_was_answered_is_not_again() {
    let (client, server, peer) = pair(config(2), config(1)).await;
    let (asked, ()) = tokio::join!(ask(&client, peer, "?"), async {
        drop(within(server.recv()).await.unwrap());
    });
    assert_eq!(failure(asked).reason(), FailureReason::NoReply);
    let (asked, ()) = tokio::join!(ask(&client, peer, "?"), async {
        let request = within(server.recv()).await.unwrap();
        let refused = server.fail(&request, Failure::refused("no"));
        assert_eq!(refused, Ok(()));
        let again = within(server.reply(&request, "yes")).await;
        assert_eq!(again.unwrap_err(), ReplyError::Answered);
        let again = server.fail(&request, FailureReason::Unspecified);
        assert_eq!(again, Err(ReplyError::Answered));
    });
    assert_eq!(failure(asked), Failure::refused("no"));
    let (asked, ()) = tokio::join!(ask(&client, peer, "?"), async {
        let request = within(server.recv()).await.unwrap();
        within(server.reply(&request, "")).await.unwrap();
    });
    assert_eq!(asked.unwrap(), "");
    let statistics = server.statistics().await.unwrap().protocol;
    assert_eq!(statistics.messages_accepted, 3, "one answer for each");
}

#[tokio::test]
async fn an_empty_message_is_a_message() {
    let (client, server, peer) = pair(config(2), config(1)).await;
    let (sent, received) = tokio::join!(within(client.send(peer, "")), within(server.recv()));
    sent.unwrap();
    let received = received.unwrap();
    assert!(received.message.is_empty() && !received.is_request());
    client.try_send(peer, "").unwrap().await.unwrap();
    let statistics = server.statistics().await.unwrap().protocol;
    assert_eq!(statistics.messages_received, 2);
}

#[tokio::test]
async fn an_endpoint_that_only_asks_answers_at_once_that_nobody_is_there() {
    let asked = Endpoint::bind(config(1)).await.unwrap();
    let client = Endpoint::bind(config(1)).await.unwrap();
    let peer = client.connect(asked.local_addrs()).await.unwrap();
    let failure = failure(ask(&client, peer, "?").await);
    assert_eq!(failure.reason(), FailureReason::NoHandler);
    assert_eq!(failure.to_string(), "nobody answers requests there");
    // A message waits for whoever takes it.
    within(client.send(peer, "message")).await.unwrap();
    let received = within(asked.recv()).await.unwrap();
    assert_eq!(received.message, "message");
    let (reply, ()) = tokio::join!(ask(&client, peer, "?"), async {
        let request = within(asked.recv()).await.unwrap();
        within(asked.reply(&request, "!")).await.unwrap();
    });
    assert_eq!(reply.unwrap(), "!");
}

#[tokio::test]
async fn handlers_that_are_stopped_say_so() {
    let (client, server, peer) = pair(config(2), config(1)).await;
    let (taken, is_taken) = tokio::sync::oneshot::channel();
    let taken = std::sync::Mutex::new(Some(taken));
    let handler = move |_: Received| {
        let taken = taken.lock().unwrap().take().unwrap();
        taken.send(()).unwrap();
        std::future::pending::<Vec<u8>>()
    };
    let serving = tokio::spawn({
        let server = server.clone();
        async move { server.serve(1, handler).await }
    });
    let (asked, ()) = tokio::join!(ask(&client, peer, "?"), async {
        within(is_taken).await.unwrap();
        serving.abort();
    });
    assert_eq!(failure(asked).reason(), FailureReason::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_on_a_thread_that_panics_says_so() {
    let client = Endpoint::bind(config(1)).await.unwrap();
    let server = std::thread::spawn(|| blocking::BlockingEndpoint::bind(answering(1)).unwrap());
    let server = Arc::new(server.join().unwrap());
    let peer = client.connect(server.local_addrs()).await.unwrap();
    let serving = std::thread::spawn({
        let server = Arc::clone(&server);
        move || server.serve(1, |_| -> Vec<u8> { panic!("as is meant") })
    });
    let failure = failure(ask(&client, peer, "?").await);
    assert_eq!(failure.reason(), FailureReason::Panicked);
    let closing = std::thread::spawn(move || server.close(SOON));
    closing.join().unwrap();
    serving.join().unwrap();
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
    assert_eq!(reply.unwrap(), "!");
    serving.abort();
    tokio::task::spawn_blocking(move || drop(gone))
        .await
        .unwrap();
}
