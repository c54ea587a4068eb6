//! The same without an async runtime of one's own.

use std::time::Duration;

use cloudburst::{SendError, SendOptions, blocking};

use super::{SOON, answering, config, silent};

#[test]
fn it_works_without_a_runtime_of_ones_own() {
    let server = blocking::BlockingEndpoint::bind(answering(1)).unwrap();
    let client = blocking::BlockingEndpoint::bind(config(2)).unwrap();
    let peer = client.connect(server.local_addrs().to_vec()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let request = server.recv_timeout(SOON).unwrap().expect("a request comes");
            assert_eq!(request.message, "question");
            server.reply(&request, "answer").unwrap();
        });
        let reply = client.request(peer, "question", SOON).unwrap();
        assert_eq!(reply, "answer");
    });
    client.send(peer, "message").unwrap();
    assert_eq!(server.recv().unwrap().message, "message");
    let nothing = server.recv_timeout(Duration::from_millis(20)).unwrap();
    assert!(nothing.is_none());
    client.close(SOON);
    assert!(client.send(peer, "too late").is_err());
    assert_eq!(server.statistics().unwrap().protocol.messages_received, 2);
}

#[test]
fn a_server_without_a_runtime_answers_and_ends() {
    let server = blocking::BlockingEndpoint::bind(answering(1)).unwrap();
    let client = blocking::BlockingEndpoint::bind(config(2)).unwrap();
    let peer = client.connect(server.local_addrs().to_vec()).unwrap();
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            server.serve(2, |request| {
                assert_ne!(request.message, "panic", "as was asked for");
                Some(request.message)
            });
        });
        let brief = Duration::from_millis(200);
        assert!(client.request(peer, "panic", brief).is_err());
        for _ in 0..3 {
            assert_eq!(client.request(peer, "echo", SOON).unwrap(), "echo");
        }
        server.close(SOON);
        serving.join().unwrap();
    });
}

#[test]
fn messages_under_way_are_waited_for_dropped_or_let_go() {
    let server = blocking::BlockingEndpoint::bind(answering(1)).unwrap();
    let client = blocking::BlockingEndpoint::bind(config(2)).unwrap();
    let peer = client.connect(server.local_addrs().to_vec()).unwrap();
    let sendings = ["1", "2"].map(|message| client.enqueue(peer, message).unwrap());
    client.try_send(peer, "3").unwrap().detach();
    for sending in sendings {
        sending.wait().unwrap();
    }
    let mut received: Vec<_> = (0..3).map(|_| server.recv().unwrap().message).collect();
    received.sort();
    assert_eq!(received, ["1", "2", "3"]);

    let (_socket, address) = silent();
    let nobody = client.connect([address]).unwrap();
    let options = SendOptions::new().with_deadline(Duration::from_millis(200));
    let mut sending = client.enqueue_with(nobody, "for a while", options).unwrap();
    let brief = Duration::from_millis(20);
    assert!(sending.wait_timeout(brief).is_none(), "it is under way");
    let ended = sending.wait_timeout(SOON).expect("its time is over");
    assert!(matches!(ended, Err(SendError::Undelivered(_))), "{ended:?}");
    let sending = client.enqueue(nobody, "nobody reads this").unwrap();
    client.forget(nobody).unwrap();
    assert!(matches!(sending.wait(), Err(SendError::Undelivered(_))));
}
