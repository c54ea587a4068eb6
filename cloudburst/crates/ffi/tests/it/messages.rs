//! Messages and requests over the C interface, and endpoints that end meanwhile.

use std::{
    ptr::{null, null_mut},
    thread,
    time::{Duration, Instant},
};

use cloudburst_ffi::*;

use crate::endpoint::{Endpoint, PATIENCE_MS, c, last_error};
use cloudburst_status as Status;

#[test]
fn a_message_is_waited_for_until_it_has_ended_and_then_says_the_same() {
    let [one, other] = [(); 2].map(|()| Endpoint::bind());
    let peer = one.connect(&other.addresses());
    let sending = one.enqueue(peer, b"hello");
    let mut receipt = cloudburst_receipt::default();
    // SAFETY: the handle lives until it is freed.
    unsafe {
        for timeout in [PATIENCE_MS, 0, CLOUDBURST_FOREVER] {
            assert_eq!(
                cloudburst_sending_wait(sending, timeout, &mut receipt),
                Status::Ok
            );
            assert_eq!(receipt.symbols, 1);
        }
        cloudburst_sending_free(sending);
        let (status, message) = other.receive(PATIENCE_MS);
        assert_eq!(status, Status::Ok);
        assert_eq!(cloudburst_message_length(message), 5);
        assert_eq!(*cloudburst_message_bytes(message), b'h');
        assert!(!cloudburst_message_is_request(message));
        assert_eq!(
            cloudburst_reply(other.0, message, null(), 0, null_mut()),
            Status::NotToBeAnswered
        );
        assert_eq!(
            cloudburst_message_sender_key(message, null_mut(), 0),
            0,
            "a key that all share"
        );
        cloudburst_message_free(message);
        cloudburst_sending_detach(one.enqueue(peer, b""));
        let (status, message) = other.receive(PATIENCE_MS);
        assert_eq!(
            (status, cloudburst_message_length(message)),
            (Status::Ok, 0)
        );
        cloudburst_message_free(message);
    }
    assert_eq!(other.receive(10), (Status::Pending, null_mut()));
}

#[test]
fn a_message_to_nobody_is_pending_and_then_over_by_its_deadline() {
    // Somebody who takes datagrams and says nothing.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let one = Endpoint::bind();
    let peer = one.connect(&c(&silent.local_addr().unwrap().to_string()));
    let sending = one.enqueue(peer, b"anybody?");
    let options = cloudburst_send_options {
        deadline_ms: 100,
        ..Default::default()
    };
    // SAFETY: handles live until they are freed.
    unsafe {
        assert_eq!(
            cloudburst_sending_wait(sending, 0, null_mut()),
            Status::Pending
        );
        let began = Instant::now();
        let status = cloudburst_send(one.0, peer, null(), 0, &options, null_mut());
        assert_eq!(status, Status::TimedOut, "{}", last_error());
        assert!(began.elapsed() >= Duration::from_millis(100));
        let mut reply = std::ptr::dangling_mut();
        let status = cloudburst_request(one.0, peer, null(), 0, 50, null(), &mut reply);
        assert_eq!(status, Status::TimedOut, "{}", last_error());
        assert!(reply.is_null());
        assert_eq!(cloudburst_endpoint_forget(one.0, peer), Status::Ok);
        let status = cloudburst_sending_wait(sending, CLOUDBURST_FOREVER, null_mut());
        assert_eq!(status, Status::Cancelled);
        cloudburst_sending_free(sending);
    }
}

#[test]
fn requests_are_answered_refused_or_dropped() {
    let [client, server] = [(); 2].map(|()| Endpoint::bind());
    let peer = client.connect(&server.addresses());
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..3 {
                let (status, request) = server.receive(PATIENCE_MS);
                assert_eq!(status, Status::Ok);
                // SAFETY: the request lives until it is freed.
                unsafe {
                    assert!(cloudburst_message_is_request(request));
                    assert!(!cloudburst_message_is_cancelled(request));
                    let asker = cloudburst_message_peer(request);
                    assert_ne!(asker, cloudburst_peer::default());
                    let why = c("not today");
                    match number {
                        0 => assert_eq!(
                            cloudburst_reply(server.0, request, b"yes".as_ptr(), 3, null_mut()),
                            Status::Ok
                        ),
                        1 => {
                            assert_eq!(cloudburst_fail(server.0, request, why.as_ptr()), Status::Ok)
                        }
                        _ => {}
                    }
                    cloudburst_message_free(request);
                }
            }
        });
        let ask = || {
            let mut reply = null_mut();
            // SAFETY: the place may be written to.
            let status = unsafe {
                cloudburst_request(
                    client.0,
                    peer,
                    b"?".as_ptr(),
                    1,
                    PATIENCE_MS,
                    null(),
                    &mut reply,
                )
            };
            (status, reply)
        };
        let (status, reply) = ask();
        assert_eq!(status, Status::Ok, "{}", last_error());
        // SAFETY: the reply lives until it is freed.
        unsafe {
            assert_eq!(cloudburst_message_length(reply), 3);
            assert_eq!(cloudburst_message_peer(reply), peer);
            let answered = cloudburst_reply(client.0, reply, null(), 0, null_mut());
            assert_eq!(answered, Status::NotToBeAnswered);
            cloudburst_message_free(reply);
        }
        assert_eq!(ask(), (Status::NoReply, null_mut()));
        assert!(last_error().contains("not today"), "{}", last_error());
        assert_eq!(ask(), (Status::NoReply, null_mut()), "dropped");
    });
}

#[test]
fn closing_ends_calls_that_wait_in_other_threads() {
    let endpoint = Endpoint::bind();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| endpoint.receive(CLOUDBURST_FOREVER).0);
        let mut report = cloudburst_close_report {
            lost_bytes: 7,
            ..Default::default()
        };
        // SAFETY: the endpoint lives.
        let status = unsafe { cloudburst_endpoint_close(endpoint.0, 1_000, &mut report) };
        assert_eq!((status, report), (Status::Ok, Default::default()));
        assert_eq!(waiting.join().unwrap(), Status::Closed);
    });
    assert_eq!(endpoint.receive(0).0, Status::Closed);
}

#[test]
fn a_message_under_way_may_be_waited_for_after_its_endpoint_was_freed() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let one = Endpoint::bind();
    let peer = one.connect(&c(&silent.local_addr().unwrap().to_string()));
    let options = cloudburst_send_options {
        deadline_ms: 300,
        ..Default::default()
    };
    let mut sending = null_mut();
    // SAFETY: NULL stands for no bytes, the handle lives until it is freed.
    unsafe {
        let status = cloudburst_enqueue(one.0, peer, null(), 0, &options, &mut sending);
        assert_eq!(status, Status::Ok, "{}", last_error());
        drop(one);
        let status = cloudburst_sending_wait(sending, PATIENCE_MS, null_mut());
        assert_eq!(status, Status::TimedOut, "{}", last_error());
        cloudburst_sending_free(sending);
    }
}
