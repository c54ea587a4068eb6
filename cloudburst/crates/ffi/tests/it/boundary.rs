//! Arguments of the C interface are checked: NULL, texts that are none, and handles in the wrong order.

use std::{
    ffi::{CString, c_char},
    ptr::{null, null_mut},
};

use cloudburst_ffi::*;

use crate::endpoint::{Endpoint, c, last_error, shared_key};
use cloudburst_status as Status;

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
