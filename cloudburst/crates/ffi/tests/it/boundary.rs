//! Arguments of the C interface are checked: NULL, texts that are none, and handles in the wrong order.

use std::{
    ffi::{CStr, CString, c_char},
    ptr::{null, null_mut},
    thread,
    time::{Duration, Instant},
};

use cloudburst_ffi::*;

use cloudburst_status as Status;

/// Longer than anything here takes on a machine that stands still for seconds, and the lifetime of messages.
const PATIENCE_MS: u32 = 60_000;

fn c(text: &str) -> CString {
    CString::new(text).unwrap()
}

fn last_error() -> String {
    // SAFETY: it points to a text of this thread, which no call changes meanwhile.
    let text = unsafe { CStr::from_ptr(cloudburst_last_error()) };
    text.to_str().unwrap().to_owned()
}

/// A handle, freed in the end.
struct Endpoint(*mut cloudburst_endpoint);

// SAFETY: endpoints may be used by any thread.
unsafe impl Send for Endpoint {}
// SAFETY: and by several at once.
unsafe impl Sync for Endpoint {}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // SAFETY: it came from the library, and nobody uses it any more.
        unsafe { cloudburst_endpoint_free(self.0) };
    }
}

fn shared_key() -> CString {
    c(&format!("1:{}", "2a".repeat(32)))
}

impl Endpoint {
    fn bind() -> Self {
        let (mut config, mut endpoint) = (null_mut(), null_mut());
        // SAFETY: texts end with NUL, and places may be written to.
        unsafe {
            let key = shared_key();
            assert_eq!(
                cloudburst_config_shared_key(key.as_ptr(), &mut config),
                Status::Ok
            );
            let here = c("127.0.0.1");
            assert_eq!(
                cloudburst_config_set_local(config, here.as_ptr()),
                Status::Ok
            );
            let ports = c("any:2");
            assert_eq!(
                cloudburst_config_set_ports(config, ports.as_ptr()),
                Status::Ok
            );
            assert_eq!(
                cloudburst_config_set_early_requests(config, true),
                Status::Ok
            );
            assert_eq!(
                cloudburst_config_set_lifetime(config, PATIENCE_MS),
                Status::Ok
            );
            assert_eq!(cloudburst_endpoint_bind(config, &mut endpoint), Status::Ok);
            cloudburst_config_free(config);
        }
        Self(endpoint)
    }

    fn addresses(&self) -> CString {
        let mut buffer = vec![0 as c_char; 256];
        // SAFETY: the buffer is as long as is said.
        let needed =
            unsafe { cloudburst_endpoint_addresses(self.0, buffer.as_mut_ptr(), buffer.len()) };
        assert!(needed <= buffer.len());
        // SAFETY: the library has written a NUL.
        unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_owned()
    }

    fn connect(&self, remotes: &CStr) -> cloudburst_peer {
        let mut peer = cloudburst_peer::default();
        // SAFETY: the text ends with NUL.
        let status =
            unsafe { cloudburst_endpoint_connect(self.0, remotes.as_ptr(), null(), &mut peer) };
        assert_eq!(status, Status::Ok, "{}", last_error());
        peer
    }

    fn enqueue(&self, peer: cloudburst_peer, message: &[u8]) -> *mut cloudburst_sending {
        let mut sending = null_mut();
        // SAFETY: the message is as long as is said.
        let status = unsafe {
            cloudburst_enqueue(
                self.0,
                peer,
                message.as_ptr(),
                message.len(),
                null(),
                &mut sending,
            )
        };
        assert_eq!(status, Status::Ok, "{}", last_error());
        sending
    }

    fn receive(&self, timeout_ms: u32) -> (Status, *mut cloudburst_message) {
        let mut message = null_mut();
        // SAFETY: the place may be written to.
        let status = unsafe { cloudburst_receive(self.0, timeout_ms, &mut message) };
        (status, message)
    }
}

#[test]
fn null_is_refused_with_its_name_and_may_be_freed() {
    let endpoint = Endpoint::bind();
    let nobody = cloudburst_peer::default();
    let (mut config, mut handle) = (null_mut(), null_mut());
    // SAFETY: NULL is allowed everywhere.
    unsafe {
        for (status, name) in [
            (cloudburst_config_shared_key(null(), &mut config), "key"),
            (cloudburst_config_key_pair(null(), null_mut()), "config"),
            (
                cloudburst_config_set_ports(null_mut(), c("1").as_ptr()),
                "config",
            ),
            (cloudburst_endpoint_bind(null(), &mut handle), "config"),
            (
                cloudburst_endpoint_connect(endpoint.0, null(), null(), null_mut()),
                "remotes",
            ),
            (
                cloudburst_send(null(), nobody, null(), 0, null(), null_mut()),
                "endpoint",
            ),
            (
                cloudburst_send(endpoint.0, nobody, null(), 1, null(), null_mut()),
                "message",
            ),
            (
                cloudburst_enqueue(endpoint.0, nobody, null(), 0, null(), null_mut()),
                "sending",
            ),
            (
                cloudburst_request(endpoint.0, nobody, null(), 0, 1, null(), null_mut()),
                "reply",
            ),
            (cloudburst_receive(endpoint.0, 0, null_mut()), "message"),
            (
                cloudburst_reply(endpoint.0, null(), null(), 0, null_mut()),
                "request",
            ),
            (cloudburst_fail(endpoint.0, null(), null()), "request"),
            (cloudburst_sending_wait(null(), 0, null_mut()), "sending"),
            (cloudburst_endpoint_forget(null(), nobody), "endpoint"),
            (cloudburst_endpoint_close(null(), 0, null_mut()), "endpoint"),
            (cloudburst_public_key(null(), null_mut(), 0), "secret_key"),
        ] {
            assert_eq!(status, Status::InvalidArgument, "{name}");
        }
        assert_eq!(
            cloudburst_receive(endpoint.0, 0, null_mut()),
            Status::InvalidArgument
        );
        assert_eq!(last_error(), "`message` is NULL");
        assert_eq!(cloudburst_endpoint_addresses(null(), null_mut(), 0), 0);
        assert_eq!(cloudburst_message_length(null()), 0);
        assert!(cloudburst_message_bytes(null()).is_null());
        assert_eq!(cloudburst_message_peer(null()), nobody);
        assert!(!cloudburst_message_is_request(null()));
        cloudburst_config_free(null_mut());
        cloudburst_endpoint_free(null_mut());
        cloudburst_message_free(null_mut());
        cloudburst_sending_free(null_mut());
        cloudburst_sending_detach(null_mut());
    }
}

#[test]
fn what_is_wrong_is_named_and_leaves_no_handle() {
    let endpoint = Endpoint::bind();
    let mut config = std::ptr::dangling_mut();
    let no_utf8 = CString::new([0xff, 0xfe]).unwrap();
    // SAFETY: texts end with NUL, and places may be written to.
    unsafe {
        let key = c("no key");
        assert_eq!(
            cloudburst_config_shared_key(key.as_ptr(), &mut config),
            Status::InvalidKey
        );
        assert!(config.is_null());
        assert_eq!(
            cloudburst_config_shared_key(no_utf8.as_ptr(), &mut config),
            Status::InvalidArgument
        );
        let key = shared_key();
        assert_eq!(
            cloudburst_config_key_pair(key.as_ptr(), &mut config),
            Status::InvalidKey
        );
        assert!(last_error().contains("shared key"), "{}", last_error());
        assert_eq!(
            cloudburst_config_shared_key(key.as_ptr(), &mut config),
            Status::Ok
        );
        let ports = c("any:0");
        assert_eq!(
            cloudburst_config_set_ports(config, ports.as_ptr()),
            Status::InvalidSetting
        );
        assert_eq!(
            cloudburst_config_set_lifetime(config, 1),
            Status::InvalidSetting
        );
        assert!(last_error().contains("1ms"), "{}", last_error());
        assert_eq!(
            cloudburst_config_set_dscp(config, 64),
            Status::InvalidSetting
        );
        assert_eq!(
            cloudburst_config_set_max_message_bytes(config, 0),
            Status::InvalidSetting
        );
        let addresses = c("localhost");
        assert_eq!(
            cloudburst_config_set_local(config, addresses.as_ptr()),
            Status::InvalidAddress
        );
        let mut public = [0 as c_char; CLOUDBURST_KEY_TEXT_BYTES];
        let mut secret = public;
        let size = public.len();
        assert_eq!(
            cloudburst_key_pair_generate(secret.as_mut_ptr(), size, public.as_mut_ptr(), size),
            Status::Ok
        );
        let mut untouched = [7 as c_char; CLOUDBURST_KEY_TEXT_BYTES];
        let mut small = [7 as c_char; 3];
        let (whole, part) = (untouched.as_mut_ptr(), small.as_mut_ptr());
        for status in [
            cloudburst_key_pair_generate(part, 3, whole, size),
            cloudburst_key_pair_generate(whole, size, part, 3),
        ] {
            assert_eq!(status, Status::BufferTooSmall);
        }
        assert!(untouched == [7; CLOUDBURST_KEY_TEXT_BYTES] && small == [7; 3]);
        assert_eq!(
            cloudburst_config_allow(config, public.as_ptr()),
            Status::InvalidSetting
        );
        let mut derived = [1 as c_char; CLOUDBURST_KEY_TEXT_BYTES];
        assert_eq!(
            cloudburst_public_key(secret.as_ptr(), derived.as_mut_ptr(), size - 1),
            Status::BufferTooSmall
        );
        assert_eq!(derived[0], 0, "no half of a text");
        assert_eq!(
            cloudburst_public_key(secret.as_ptr(), derived.as_mut_ptr(), size),
            Status::Ok
        );
        assert_eq!(derived, public);
        assert_eq!(
            cloudburst_shared_key_generate(0, derived.as_mut_ptr(), size),
            Status::InvalidArgument
        );
        assert_eq!(
            cloudburst_shared_key_generate(255, derived.as_mut_ptr(), size),
            Status::Ok
        );
        assert_eq!(
            cloudburst_config_shared_key(derived.as_ptr(), &mut config),
            Status::Ok
        );
        cloudburst_config_free(config);
        for remotes in ["", "host", "127.0.0.1:0", "[::1]:9"] {
            let remotes = c(remotes);
            let mut peer = cloudburst_peer::default();
            let status =
                cloudburst_endpoint_connect(endpoint.0, remotes.as_ptr(), null(), &mut peer);
            assert_eq!(status, Status::InvalidAddress, "{}", last_error());
        }
        let options = cloudburst_send_options {
            priority: 2,
            ..Default::default()
        };
        let peer = endpoint.connect(&endpoint.addresses());
        assert_eq!(
            cloudburst_send(endpoint.0, peer, null(), 0, &options, null_mut()),
            Status::InvalidSetting
        );
        let long = vec![0; (4 << 20) + 1];
        assert_eq!(
            cloudburst_send(
                endpoint.0,
                peer,
                long.as_ptr(),
                long.len(),
                null(),
                null_mut()
            ),
            Status::TooLarge
        );
        assert!(last_error().contains("4194305"), "{}", last_error());
    }
}

#[test]
fn an_id_of_another_endpoint_and_a_made_up_one_stand_for_nobody() {
    let [one, other] = [(); 2].map(|()| Endpoint::bind());
    let foreign = other.connect(&one.addresses());
    let ours = one.connect(&other.addresses());
    let mut made_up = ours;
    made_up.words[1] = u32::MAX;
    for peer in [foreign, made_up, cloudburst_peer::default()] {
        // SAFETY: NULL stands for no bytes and no options.
        let status = unsafe { cloudburst_send(one.0, peer, null(), 0, null(), null_mut()) };
        assert_eq!(status, Status::NoPeer, "{peer:?}: {}", last_error());
    }
    // SAFETY: the endpoint lives.
    unsafe {
        assert_eq!(cloudburst_endpoint_forget(one.0, foreign), Status::NoPeer);
        assert_eq!(cloudburst_endpoint_forget(one.0, made_up), Status::Ok);
    }
}

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
